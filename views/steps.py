"""A recording's events grouped into decoding steps, each with its trees, cells and committed tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from decgraph.runtime import trace
from decgraph.runtime.recording import Recording, Stamped

Origin = Literal["accepted", "bonus", "residual", "plain", "canvas"]
"""Where a committed token came from: an accepted draft; a token of the target's own after the last draft of a path (bonus), in
place of rejected ones (residual), or without a verified draft (plain: none was drafted, or the program itself chose among
drafts, as beam search does); a cell of a canvas."""

ANCESTORS = 3
"""How many nodes above one are shown where a tree grows over several steps."""

State = Literal["drafted", "accepted", "rejected", "pruned", "emitted", "omitted"]
"""What became of a node. omitted: it stands for the ancestors between the root and the first that is shown."""


@dataclass
class Node:
    """A node of a tree as it is drawn. parent: its place in the tree's nodes, -1 for the root. p: its probability under what
    verified it. q: under the distribution that it was drawn from (`x.law[x]`); None for a draft that was chosen without a draw,
    and for what is no draft. score: what its drafter gave a draft that was chosen, where it says. number: the program's number
    of it while it lives."""

    token: int
    parent: int
    q: float | None = None
    source: str = ""
    state: State = "drafted"
    why: str = ""
    p: float | None = None
    score: float | None = None
    number: int = -1


@dataclass
class DraftTree:
    """A tree of drafts. `ids`: the place in `nodes` of each node that lives, by the program's number for it (0: the root)."""

    nodes: list[Node] = field(default_factory=list)
    ids: dict[int, int] = field(default_factory=lambda: {0: -1})
    last: int = -1
    """The node that verification accepted last."""

    def begins_anew(self, event: trace.Drafted) -> bool:
        """Whether a draft belongs to another tree."""
        return event.node in self.ids or event.parent not in self.ids

    def grow(self, event: trace.Drafted) -> None:
        """Add a draft."""
        self.ids[event.node] = len(self.nodes)
        node = Node(event.token, self.ids[event.parent], event.prob if event.drawn else None, event.source, number=event.node)
        if not event.drawn and event.source != "point":  # a token that no model proposed has no score
            node.score = event.score
        self.nodes.append(node)

    @staticmethod
    def below(node: int) -> DraftTree:
        """A tree whose first draft is below a node: the upper nodes of some trees are no single tokens."""
        return DraftTree([], {0: -1, node: -1})

    def adopt(self, earlier: DraftTree, node: int) -> None:
        """Show a node of a tree that earlier steps grew, which has the same numbers, with its nearest ancestors."""
        place = earlier.ids[node]
        if place < 0:
            self.ids[node] = -1
            return
        nodes: list[Node] = []
        while place >= 0 and len(nodes) < ANCESTORS and earlier.nodes[place].number not in self.ids:
            nodes.append(earlier.nodes[place])
            place = earlier.nodes[place].parent
        above = self.ids.get(earlier.nodes[place].number, -1) if place >= 0 else -1
        if place >= 0 and above < 0:
            self.nodes.append(Node(-1, -1, state="omitted"))
            above = len(self.nodes) - 1
        for each in reversed(nodes):
            self.nodes.append(replace(each, parent=above))
            above = self.ids[each.number] = len(self.nodes) - 1

    def copy(self) -> DraftTree:
        """The same tree, to be tested in a later step."""
        return DraftTree([replace(node) for node in self.nodes], dict(self.ids))

    def prune(self, event: trace.Pruned) -> None:
        """Mark what was removed, and renumber the others."""
        kept = {new: self.ids[old] for new, old in enumerate(event.kept) if old in self.ids}
        for place in set(self.ids.values()) - set(kept.values()) - {-1}:
            self.nodes[place].state, self.nodes[place].number = "pruned", -1
        for number, place in kept.items():
            if place >= 0:
                self.nodes[place].number = number
        self.ids = {0: -1, **kept}

    def test(self, stamped: Stamped) -> None:
        """A draft was accepted or rejected."""
        event = stamped.event
        assert isinstance(event, trace.Accepted | trace.Rejected)
        place = self.ids.get(event.node)
        if place is None or place < 0:
            return
        node = self.nodes[place]
        node.p = stamped.p
        if isinstance(event, trace.Accepted):
            node.state, self.last = "accepted", place
        else:
            node.state, node.why = "rejected", event.why

    def emit(self, event: trace.Emitted, p: float | None) -> None:
        """A token of the target's own, below the last accepted draft."""
        self.nodes.append(Node(event.token, self.last, None, event.kind, "emitted", p=p))


@dataclass
class Edit:
    """A cell was decided (token >= 0), or masked again (-1). position: in the generated text, from 0."""

    position: int
    token: int
    confidence: float


@dataclass
class Step:
    """A decoding step. first, count: the committed tokens that it added. began, ended: seconds since the run began."""

    events: list[Stamped]
    first: int
    began: float
    ended: float = 0.0
    count: int = 0
    trees: list[DraftTree] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    cells: int = 0
    """Where the canvas of its edits ends, in the generated text."""

    @property
    def ran(self) -> list[int]:
        """The program's lines that ran in it, in ascending order."""
        return sorted({line for stamped in self.events for line in stamped.ran})

    @property
    def iteration(self) -> int:
        """Of the main loop; -1 before it."""
        return self.events[-1].iteration


def steps_of(recording: Recording, prompt: int) -> list[Step]:
    """The steps of a run after `prompt` tokens. A step is an iteration of the main loop; on a canvas it is a model call with
    what was decided on it; in a program with neither, what follows each call of the target."""
    out: list[Step] = []
    committed, began = 0, 0.0
    whole: DraftTree | None = None
    for part in parts(recording.events):
        step = Step(part, committed, began)
        whole = fill(step, prompt, whole)
        committed += step.count
        began = step.ended
        out.append(step)
    return out


def parts(events: Sequence[Stamped]) -> Iterable[list[Stamped]]:
    """The events of each step."""
    canvas = any(isinstance(s.event, trace.Unmasked) for s in events)
    looped = any(s.iteration > 0 for s in events)
    part: list[Stamped] = []
    edited = called = False
    for stamped in events:
        event = stamped.event
        target = isinstance(event, trace.ModelCall) and event.role == "target"
        if isinstance(event, trace.Stopped) or not part:
            new = False
        elif canvas and edited and (isinstance(event, trace.ModelCall) or isinstance(part[-1].event, trace.Committed)):
            new = True
        elif looped:
            new = stamped.iteration != part[-1].iteration
        else:
            new = not canvas and target and called
        if new:
            yield part
            part, edited, called = [], False, False
        part.append(stamped)
        edited |= isinstance(event, trace.Unmasked | trace.Remasked)
        called |= target
    if part:
        yield part


def fill(step: Step, prompt: int, whole: DraftTree | None) -> DraftTree | None:
    """Read a step's events. whole: what earlier steps grew since the last commit, which this one may grow or verify; returned
    as this step leaves it."""
    path: list[int] = []  # what the last verification accepted
    emitted: trace.Emitted | None = None
    tested = over = False
    for stamped in step.events:
        event = stamped.event
        match event:
            case trace.Drafted():
                tree_for(step, event, whole).grow(event)
                if whole is None or whole.begins_anew(event):
                    whole = DraftTree.below(event.parent)
                whole.grow(event)
            case trace.Pruned():
                for tree in (*step.trees[-1:], *([] if whole is None else [whole])):
                    tree.prune(event)
            case trace.Accepted() | trace.Rejected():
                if not step.trees and whole is not None:
                    step.trees.append(whole.copy())
                if over or (event.depth == 1 and path):
                    path, emitted, over = [], None, False
                    if step.trees:
                        step.trees[-1].last = -1
                tested = True
                if isinstance(event, trace.Accepted):
                    path.append(event.token)
                if step.trees:
                    step.trees[-1].test(stamped)
            case trace.Emitted():
                emitted, over = event, True
                if step.trees:
                    step.trees[-1].emit(event, stamped.p)
            case trace.Unmasked() | trace.Remasked():
                start, cells = stamped.canvas or (prompt + step.first, 0)
                token, sure = (event.token, event.confidence) if isinstance(event, trace.Unmasked) else (-1, 0.0)
                step.edits.append(Edit(start - prompt + event.position, token, sure))
                step.cells = max(step.cells, start - prompt + cells)
            case trace.Committed():
                for i, token in enumerate(event.tokens):
                    step.origins.append(origin(i, token, path, emitted, tested=tested))
                step.count += len(event.tokens)
                path, emitted, tested, over, whole = [], None, False, False, None
    step.ended = step.events[-1].seconds
    return whole


def tree_for(step: Step, event: trace.Drafted, whole: DraftTree | None) -> DraftTree:
    """The tree of a step that a draft belongs to: the one before it, one that earlier steps grew, or a new one."""
    tree = step.trees[-1] if step.trees else None
    if tree is not None and not tree.begins_anew(event):
        return tree
    if whole is not None and not whole.begins_anew(event):
        if tree is None:
            step.trees.append(DraftTree())
        step.trees[-1].adopt(whole, event.parent)
    else:
        step.trees.append(DraftTree.below(event.parent))
    return step.trees[-1]


def origin(i: int, token: int, path: list[int], emitted: trace.Emitted | None, *, tested: bool) -> Origin:
    """Where token i of a commit came from."""
    if i < len(path) and path[i] == token:
        return "accepted"
    if emitted is not None and emitted.token == token and i == len(path):
        return emitted.kind
    return "plain" if not tested else "bonus" if path else "residual"
