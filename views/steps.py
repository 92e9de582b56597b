"""A recording's events grouped into decoding steps, each with its trees, cells and committed tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

from decgraph.runtime import trace
from decgraph.runtime.recording import Marked, Recording, Stamped

Origin = Literal["accepted", "bonus", "residual", "own", "plain", "canvas"]
"""Where a committed token came from: an accepted draft; a token that verification emitted after the last draft of a path
(bonus) or in place of rejected ones (residual, own; see `trace.Emitted`), or without a verified draft (plain: none was drafted,
or the program itself chose among drafts, as beam search does); a cell of a canvas."""

EDITS = trace.Unmasked | trace.Remasked
ENDS = trace.Committed | trace.Stopped
"""Events that belong to what came before."""

State = Literal["drafted", "accepted", "rejected", "pruned", "emitted", "committed", "grown", "left"]
"""What became of a node. Of a tree that no rule tests: the program committed it, grew it further, or left it."""


@dataclass
class DrawnNode:
    """A node of a tree as it is drawn. parent: its place in the tree's nodes, -1 for the root. p: its probability under what
    verified it, raw: that before the request's temperature and truncation. q: under the distribution that it was drawn from
    (`x.law[x]`); None for a draft that was chosen without a draw, and for what is no draft. score: what its drafter gave it
    before the request's shaping, where it says. born, settled: the steps in which it was grown and became what it is. columns:
    what the program keeps at it, as (step, value), by name."""

    token: int
    parent: int
    q: float | None = None
    source: str = ""
    state: State = "drafted"
    why: str = ""
    p: float | None = None
    score: float | None = None
    raw: float | None = None
    born: int = 0
    settled: int = 0
    columns: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What it is called and drawn as: its state, or of a token that was emitted in which place."""
        return self.source if self.state == "emitted" else self.state

    def at(self, step: int) -> DrawnNode:
        """The node as a step left it."""
        told = {name: [(when, x) for when, x in values if when <= step] for name, values in self.columns.items()}
        told = {name: values for name, values in told.items() if values}
        if self.settled <= step:
            return replace(self, columns=told)
        return replace(self, columns=told, state="drafted", why="", p=None, raw=None)


@dataclass
class DraftTree:
    """A tree of drafts, which several steps may have grown. `ids`: the place in `nodes` of each node that lives, by the
    program's number for it (0: the root)."""

    nodes: list[DrawnNode] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=lambda: {0: -1})
    last: int = -1
    """The node that verification accepted last."""

    def begins_anew(self, event: trace.Drafted) -> bool:
        """Whether a draft belongs to another tree."""
        return event.node in self.ids or event.parent not in self.ids

    def grow(self, event: trace.Drafted, step: int) -> None:
        """Add a draft."""
        self.ids[event.node] = len(self.nodes)
        node = DrawnNode(event.token, self.ids[event.parent], event.prob if event.drawn else None, event.source, born=step)
        if event.source != "point":  # a token that no model proposed has no score
            node.score = event.score
        self.nodes.append(node)

    @staticmethod
    def below(node: int) -> DraftTree:
        """A tree whose first draft is below a node: the upper nodes of some trees are no single tokens."""
        return DraftTree([], {0: -1, node: -1})

    def mark(self, mark: Marked, step: int) -> None:
        """A node got a number."""
        place = self.ids.get(mark.node, -1)
        if place >= 0:
            values = self.nodes[place].columns.setdefault(mark.column, [])
            if values and values[-1][0] == step:
                values.pop()
            values.append((step, mark.value))

    def prune(self, event: trace.Pruned, step: int) -> None:
        """Mark what was removed, and renumber the others."""
        kept = {new: self.ids[old] for new, old in enumerate(event.kept) if old in self.ids}
        for place in set(self.ids.values()) - set(kept.values()) - {-1}:
            self.nodes[place].state, self.nodes[place].settled = "pruned", step
        self.ids = {0: -1, **kept}

    def test(self, stamped: Stamped, step: int) -> None:
        """A draft was accepted or rejected."""
        event = stamped.event
        assert isinstance(event, trace.Accepted | trace.Rejected)
        place = self.ids.get(event.node)
        if place is None or place < 0:
            return
        node = self.nodes[place]
        node.p, node.raw, node.settled = stamped.p, stamped.raw, step
        if isinstance(event, trace.Accepted):
            node.state, self.last = "accepted", place
        else:
            node.state, node.why = "rejected", event.why

    def emit(self, event: trace.Emitted, stamped: Stamped, step: int) -> None:
        """A token of the target's own, below the last accepted draft."""
        node = DrawnNode(event.token, self.last, None, event.kind, "emitted", born=step, settled=step)
        node.p, node.raw = stamped.p, stamped.raw
        self.nodes.append(node)

    def commit(self, tokens: Sequence[int], step: int) -> None:
        """The program committed the tokens of a path without a test: the first path from the root that has them all."""
        below: dict[int, list[int]] = {}
        for place, node in enumerate(self.nodes):
            below.setdefault(node.parent, []).append(place)
        paths: list[list[int]] = [[]]
        for token in tokens:
            paths = [
                [*path, n] for path in paths for n in below.get(path[-1] if path else -1, ()) if self.nodes[n].token == token
            ]
        for place in paths[0] if paths else ():
            self.nodes[place].state, self.nodes[place].settled = "committed", step

    def searched(self) -> None:
        """Where no rule has tested the tree: say which drafts the program grew further, and which it left."""
        if not any(node.state in ("accepted", "rejected", "emitted") for node in self.nodes):
            inner = {node.parent for node in self.nodes}
            for place, node in enumerate(self.nodes):
                if node.state == "drafted":
                    node.state, node.settled = "grown" if place in inner else "left", node.born


@dataclass
class CellChange:
    """A cell was decided (token >= 0), or masked again (-1). position: in the generated text, from 0."""

    position: int
    token: int
    confidence: float


@dataclass
class RecordedStep:
    """A decoding step. first, count: the committed tokens that it added. began, ended: seconds since the run began."""

    events: list[Stamped]
    first: int
    began: float
    ended: float = 0.0
    count: int = 0
    trees: list[DraftTree] = field(default_factory=list)
    edits: list[CellChange] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    cells: int = 0
    """Where the canvas of its edits ends, in the generated text."""

    def touch(self, tree: DraftTree) -> None:
        """The step grows, cuts or tests a tree."""
        if not any(each is tree for each in self.trees):
            self.trees.append(tree)

    @property
    def ran(self) -> list[int]:
        """The program's lines that ran in it, in ascending order."""
        return sorted({line for stamped in self.events for line in stamped.ran})

    @property
    def iteration(self) -> int:
        """Of the main loop; -1 before it."""
        return self.events[-1].iteration


def steps_of(recording: Recording, prompt: int) -> list[RecordedStep]:
    """The steps of a run after `prompt` tokens: iterations of the loop `while not done`; on a canvas those of the innermost
    loop that calls a model, each with what was decided in it; in a program with neither, those of an outermost loop that does.
    Where there is no loop, a call of the target with what follows."""
    out: list[RecordedStep] = []
    committed, began, heard = 0, 0.0, 0
    whole: DraftTree | None = None
    marks = deque(recording.marks)
    for part in parts(recording.events):
        step = RecordedStep(part, committed, began)
        whole = fill(step, prompt, whole, len(out), heard, marks)
        committed += step.count
        began = step.ended
        heard += len(part)
        out.append(step)
    for tree in {id(tree): tree for step in out for tree in step.trees}.values():
        tree.searched()
    if any(isinstance(s.event, trace.Unmasked) for s in recording.events):
        for step in out:
            step.origins = ["canvas"] * step.count
    return out


def origins_of(events: Iterable[trace.Event]) -> list[Origin]:
    """Where each committed token of a run came from, in order."""
    recording = Recording(tuple(Stamped(event, 0.0) for event in events), (), 0.0)
    return [origin for step in steps_of(recording, 0) for origin in step.origins]


def parts(events: Sequence[Stamped]) -> Iterable[list[Stamped]]:
    """The events of each step."""
    canvas = any(isinstance(s.event, EDITS) for s in events)
    looped = not canvas and any(s.iteration >= 0 for s in events)
    turns = [s.turns[1] if canvas else s.iteration if looped else s.turns[0] for s in events]
    if not looped and len({*turns}) <= 1:
        turns = [*accumulate(isinstance(s.event, trace.ModelCall) and s.event.role == "target" for s in events)]
    part: list[Stamped] = []
    whole = False  # whether the part has what makes a step: cells that were decided, or a call
    for stamped, turn, last in zip(events, turns, [0, *turns], strict=False):
        over = canvas and part and isinstance(part[-1].event, trace.Committed)
        if whole and not isinstance(stamped.event, ENDS) and (turn != last or over):
            yield part
            part, whole = [], False
        part.append(stamped)
        whole |= looped or isinstance(stamped.event, EDITS if canvas else trace.ModelCall)
    if part:
        yield part


def fill(
    step: RecordedStep, prompt: int, whole: DraftTree | None, number: int, heard: int, marks: deque[Marked]
) -> DraftTree | None:
    """Read a step's events. whole: what was grown since the last commit, which this step may grow or verify; returned as this
    step leaves it. number: the step's own. heard: how many events came before it. marks: those that no step has read."""
    path: list[int] = []  # what the last verification accepted
    emitted: trace.Emitted | None = None
    tested = over = False
    for i, stamped in enumerate(step.events, heard + 1):
        event = stamped.event
        match event:
            case trace.Drafted():
                if whole is None or whole.begins_anew(event):
                    whole = DraftTree.below(event.parent)
                step.touch(whole)
                whole.grow(event, number)
            case trace.Pruned() if whole is not None:
                step.touch(whole)
                whole.prune(event, number)
            case trace.Accepted() | trace.Rejected():
                if not step.trees and whole is not None:
                    step.touch(whole)
                if over or (event.depth == 1 and path):
                    path, emitted, over = [], None, False
                    if step.trees:
                        step.trees[-1].last = -1
                tested = True
                if isinstance(event, trace.Accepted):
                    path.append(event.token)
                if step.trees:
                    step.trees[-1].test(stamped, number)
            case trace.Emitted():
                emitted, over = event, True
                if step.trees:
                    step.trees[-1].emit(event, stamped, number)
            case trace.Unmasked() | trace.Remasked():
                start, cells = stamped.canvas or (prompt + step.first, 0)
                token, sure = (event.token, event.confidence) if isinstance(event, trace.Unmasked) else (-1, 0.0)
                step.edits.append(CellChange(start - prompt + event.position, token, sure))
                step.cells = max(step.cells, start - prompt + cells)
            case trace.Committed():
                if not tested and whole is not None:
                    step.touch(whole)
                    whole.commit(event.tokens, number)
                for k, token in enumerate(event.tokens):
                    step.origins.append(origin(k, token, path, emitted, tested=tested))
                step.count += len(event.tokens)
                path, emitted, tested, over, whole = [], None, False, False, None
        while marks and marks[0].event <= i:  # what happened between this event and the next
            mark = marks.popleft()
            if whole is not None:
                whole.mark(mark, number)
    step.ended = step.events[-1].seconds
    return whole


def instructive(steps: Sequence[RecordedStep]) -> int:
    """The most informative step, from 0: the first with the most accepted drafts among those that rejected one too, else among
    all; of a search, which tests nothing, the last, where its tree is whole; of a canvas the middle one of those that decided
    the most, where there is something to read and something open."""

    def tests(step: RecordedStep) -> tuple[bool, int]:
        events = [type(stamped.event) for stamped in step.events]
        taken = events.count(trace.Accepted)
        return (trace.Rejected in events and taken > 0, taken)

    if any(step.edits for step in steps):
        most = max(len(step.edits) for step in steps)
        alike = [i for i, step in enumerate(steps) if len(step.edits) == most]
        return alike[len(alike) // 2]
    if any(trace.Emitted in map(type, (s.event for s in step.events)) or any(tests(step)) for step in steps):
        return max(range(len(steps)), key=lambda i: (*tests(steps[i]), -i))
    return max((i for i, step in enumerate(steps) if step.trees), default=0)


def origin(i: int, token: int, path: list[int], emitted: trace.Emitted | None, *, tested: bool) -> Origin:
    """Where token i of a commit came from."""
    if i < len(path) and path[i] == token:
        return "accepted"
    if emitted is not None and emitted.token == token and i == len(path):
        return emitted.kind
    return "plain" if not tested else "bonus" if path else "residual"
