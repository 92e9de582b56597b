"""What an algorithm does when it runs, seen in a few dozen random runs: which mutants can matter to it is read off this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.case import Case
from decgraph.check.chances import ByChance
from decgraph.check.constants import first_kind
from decgraph.check.distributions import execute
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, Path, Row
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Cell, Model
from decgraph.runtime.noise import Key
from decgraph.runtime.reals.limits import NotSeparated


@dataclass
class AlgorithmProfile:
    """Facts about one algorithm. Those about walks are about trees of tokens that a rule for nodes verifies."""

    modes: frozenset[str] = frozenset()  # the modes of its claims: tokens, distribution, greedy, ensures, keeps_support
    causal: bool = False  # its first model is causal
    walks: bool = False  # a tree of tokens is verified node by node
    whole: bool = False  # the rule takes a whole tree
    edits: bool = False  # a tree of canvases is verified
    reads_rows: bool = False  # the rule reads the distributions that drafts were drawn from
    output: bool = False  # something reads the output stream
    output_rule: bool = False  # ... inside a rule
    depth: int = 0  # the length of the longest accepted path
    height: int = 0  # the height of the highest tree
    width: int = 0  # the most children of a verified node
    sampled: bool = False  # a child with a distribution that is not one-hot was tested
    shaped: bool = False  # ... which a model returned, so that a request shapes it
    ordered: bool = False  # ... before another child of the same node
    doubled: bool = False  # two children with the same token, the second of them sampled
    points: bool = False  # a one-hot draw with a model's score was tested
    twice: bool = False  # a node has two children drawn with replacement at one site
    stated: int = 0  # the most tokens of one growth whose distribution the program gives
    emptied: bool = False  # two or more tokens were drawn without replacement at a node
    rejected_deep: bool = False  # a draft was rejected below the root
    rejected: bool = False  # a draft was rejected
    spread: bool = False  # a tree had a node beside the path to another one
    bonus: bool = False  # a token was emitted where there was no draft
    leaf: bool = False  # ... after an accepted path
    counted: bool = False  # the program takes a stated number of tokens of an accepted path
    unwalked: bool = False  # evidence covers only a part of the tree
    many: bool = False  # several tokens were committed at once
    ends: bool = False  # a draft that ends the text was rejected
    rescored: bool = False  # a model scored a canvas again after some of its cells had changed
    zeroed: bool = False  # a token was drawn from a distribution in which another has no mass
    allied: bool = False  # a claim of support names several models, each of which may allow a token
    draws: frozenset[str] = field(default_factory=frozenset)  # opcodes that draw
    drafting: frozenset[str] = field(default_factory=frozenset)  # opcodes that draw outside of rules

    @property
    def lossless(self) -> bool:
        """Whether a program verifies drafts and claims the tokens or the distribution of another."""
        return self.walks and bool({"distribution", "tokens", "greedy"} & self.modes)


class ProfilingMachine(ExactMachine):
    """The exact machine, taking notes."""

    notes: AlgorithmProfile

    def start_run(self) -> None:
        super().start_run()
        # by model: the text's length and the cells of the canvas it scored last
        self.scored: dict[str, tuple[int, tuple[Cell, ...]]] = {}

    def walk(self, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
        n = self.notes
        if op.attrs["scope"] == "tree":
            n.whole = True
        elif isinstance(t.base, Canvas):
            n.edits = True
        else:
            n.walks = True
            ops = list(op.regions[0].walk())
            n.reads_rows = n.reads_rows or any(o.opcode == "draw.get" and o.attrs.get("field") == "law" for o in ops)
            n.output_rule = n.output_rule or any(o.opcode == "noise" and o.attrs.get("kind") == "output" for o in ops)
        out = super().walk(op, t, evidence, rest)
        if op.attrs["scope"] != "tree" and isinstance(out, Path):
            self.note_walk(t, out, evidence)
        return out

    def eval_canvases(self, op: Op, model: Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        if isinstance(place, Canvas):
            now = (self.committed(), self.cells(place))  # behind a longer text it is another canvas
            committed, before = self.scored.get(model.name, now)
            self.scored[model.name] = now
            same = committed == now[0] and len(before) == len(now[1])
            self.notes.rescored = self.notes.rescored or (same and before != now[1])
        return super().eval_canvases(op, model, place, extra)

    def stated(self, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
        self.notes.stated = max(self.notes.stated, len(tokens))
        return super().stated(tokens, rows, face)

    def race_token(self, place: Key, q: Sequence[Number] | np.ndarray, name: str) -> int:
        self.notes.zeroed = self.notes.zeroed or any(x == 0 for x in q)
        return super().race_token(place, q, name)

    def note_walk(self, t: Tree, out: Path, evidence: Datum) -> None:
        n = self.notes
        n.height = max(n.height, t.height())
        n.depth = max(n.depth, out.depth)
        taken = t.path_nodes(out.node)
        # A token after a path that fills the request is cut off.
        last = out.emitted is not None and not t.children(out.node) and out.depth < self.request.max_tokens - self.committed()
        n.bonus = n.bonus or last
        n.leaf = n.leaf or (last and out.node != 0)
        n.spread = n.spread or any(len(t.children(i)) > 1 for i in range(len(t)))
        for node in taken:
            edges = [t.nodes[c].edge for c in t.children(node)]
            draws = [e for e in edges if isinstance(e, Draw)]
            if not draws:
                continue
            n.width = max(n.width, len(draws))
            if node == out.node:
                n.rejected = True
                n.rejected_deep = n.rejected_deep or node != 0
                n.ends = n.ends or any(d.token in self.request.eos for d in draws)
            n.sampled = n.sampled or any(not d.point for d in draws)
            n.shaped = n.shaped or any(not d.point and d.law.face("raw") is not d.law.face("shaped") for d in draws)
            n.points = n.points or any(d.point and d.source is not d.law for d in draws)
            n.ordered = n.ordered or any(not d.point for d in draws[:-1])
            free = [d for d in draws if not d.point]
            n.emptied = n.emptied or any(d.source is not d.law for d in free)
            n.twice = n.twice or (any(d.rank for d in free) and all(d.source is d.law for d in free))
            for i, d in enumerate(draws):
                if not d.point and any(e.token == d.token for e in draws[:i]):
                    n.doubled = True
        try:
            for i in range(len(t)):
                self.evidence_at(evidence, i)
        except (LookupError, IndexError):
            n.unwalked = True

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        before = self.committed()
        super().commit(op, x, tree)
        self.notes.many = self.notes.many or self.committed() - before > 1


def profile(cases: Sequence[Case], tries: int = 12) -> AlgorithmProfile:
    """The facts, from `tries` random runs in each of the cases."""
    notes = AlgorithmProfile()
    case = cases[0]
    ops = list(case.function.body.walk())
    notes.draws = frozenset(o.opcode for o in ops if o.opcode in ("draw", "draw.many", "draw.race", "bernoulli", "beta"))
    notes.output = any(o.opcode == "noise" and o.attrs.get("kind") == "output" for o in ops)
    walked = {id(o) for w in ops if w.opcode == "tree.walk" for r in w.regions for o in r.walk()}
    notes.drafting = frozenset(o.opcode for o in ops if o.opcode in notes.draws and id(o) not in walked)
    tokens = {o.results[0] for o in ops if o.opcode == "path.get" and o.attrs["field"] == "token"}
    notes.counted = any(
        (o.opcode == "slice" and o.attrs["has_hi"] or o.opcode in ("gather", "take_first"))
        and (o.operands[0].type.elem == "path" or o.operands[0] in tokens)
        for o in ops
    )
    notes.causal = first_kind(case.function) == "causal"
    notes.allied = any(c.kind == "keeps_support" and len(c.models) > 1 for c in case.function.claims)
    notes.modes = frozenset(c.mode if c.kind == "refines" else c.kind for c in case.function.claims)
    engine = type("Probing", (ProfilingMachine,), {"notes": notes})
    for c in cases:
        world = World(coupled=True)
        for seed in range(tries):
            world.restart(ByChance(seed))
            try:
                execute(engine(c.module, c.function.name, c.models, c.params, c.request, externs=dict(c.externs)).on(world))
            except (DecError, Unlikely, NotSeparated):
                continue
    return notes
