"""Labels of values: what is tested at or before a draw may not depend on it.

A rule that tests a draft against its distribution (`rejection`) is lossless only if the draws that it tests, their order
and their laws were decided without reading the draw in hand or any that is tested later. Growing a draw as
soon as it is drawn is always right, whatever decided that: it is tested after all that it could depend on. What
goes wrong is choosing among draws that exist: pruning, sorting, merging or skipping them by what they turned out
to be. The check follows, for every value, on which sampled draws it depends:

- a draw *holds* itself; a one-hot draw holds nothing (its distribution is one-hot, whatever chose it);
- nodes hold the draws on the way to them, columns of a tree what their node holds;
- a choice among draws or nodes *depends* on its keys, a branch on its condition;
- one axiom: `top(..., by = race)` chooses by race keys, which leaves every distribution unchanged (stochastic beams).

It is a sufficient condition and names the line; the exact check (`decgraph check`) is the judge. The rule of an op is its
`label` (ir/ops): what is known of its results, from what the checker knows of its operands. Below are the rules that several
ops share, and what runs the check over a module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from decgraph.ir import origins
from decgraph.ir.opdef import TABLE
from decgraph.ir.origins import Element, Place
from decgraph.ir.values import Function, Loc, Module, Op, Region, Value

Label = tuple[Value, Op | None]
"""The noise of a draw (draws that share a noise tell of each other) or a state that holds draws; and the outermost loop around
which it lies in the past (None: drawn in this iteration)."""

Labels = frozenset[Label]
NO: Labels = frozenset()

LOOPS = ("for", "while", "each")
MOST_ITERATIONS = 12
HOLDERS = ("draw", "node", "list", "edit", "path")


@dataclass(frozen=True)
class Abs:
    """What is known of a value: `dep`, the draws it depends on; `draws`, the draws it consists of or leads over.

    `column`: one value for each node of a tree, which depends on that node's own draws alone (and on `dep`).
    `points`: for a column that says which nodes are one-hot, what those nodes hold.
    """

    dep: Labels = NO
    draws: Labels = NO
    column: bool = False
    points: Labels | None = None
    canvas: bool = False
    tree: TreeAbs | None = None

    @property
    def reads(self) -> Labels:
        """The draws that a read of the value reads."""
        return self.dep | self.draws


@dataclass(frozen=True)
class TreeAbs:
    """A tree beyond its content: its frontier, its newest nodes, what its one-hot nodes hold, and which draws were grown
    where."""

    frontier: Abs = Abs()
    new: Abs = Abs()
    points: Labels = NO
    grown: frozenset[tuple[Element, Place]] = frozenset()


@dataclass(frozen=True)
class Finding:
    """A place where what is tested depends on a draw that is tested then or later."""

    kind: str
    loc: Loc
    drawn: Loc
    tree: str
    function: str
    severity: str = "error"


def join(a: Abs, b: Abs) -> Abs:
    """What holds of either value."""
    tree = None
    if a.tree is not None or b.tree is not None:
        x, y = a.tree or TreeAbs(), b.tree or TreeAbs()
        tree = TreeAbs(join(x.frontier, y.frontier), join(x.new, y.new), x.points | y.points, x.grown | y.grown)
    points = None if a.points is None or b.points is None else a.points | b.points
    return Abs(a.dep | b.dep, a.draws | b.draws, a.column and b.column, points, a.canvas or b.canvas, tree)


@dataclass
class Checker:
    """Walks one function, with what is known of every value."""

    function: Function
    known: dict[Value, Abs] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)
    loops: dict[Value, tuple[Op, ...]] = field(default_factory=dict)
    carried: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    stored: dict[str, Abs] = field(default_factory=dict)
    output: Value | None = None
    control: Labels = NO
    findings: dict[tuple[str, Loc], Finding] = field(default_factory=dict)

    def run(self) -> list[Finding]:
        """Every finding, by line."""
        self.place(self.function.body, ())
        self.region(self.function.body, [Abs()] * len(self.function.body.args))
        return sorted(self.findings.values(), key=lambda f: (f.loc.line, f.loc.column))

    def place(self, region: Region, around: tuple[Op, ...]) -> None:
        for op in region.ops:
            for v in op.results:
                self.producers[v], self.loops[v] = op, around
            for r in op.regions:
                within = (*around, op) if op.opcode in LOOPS else around
                self.loops.update(dict.fromkeys(r.args, within))
                if op.opcode in ("for", "while") and op.results:
                    n, last = len(op.results), op.regions[-1].yields
                    self.carried.update(zip(r.args[-n:], zip(op.operands[-n:], last[-n:], strict=True), strict=True))
                self.place(r, within)

    # -- labels
    def of(self, v: Value) -> Abs:
        return self.known.get(v, Abs())

    def reads(self, op: Op) -> Labels:
        """All that an op's operands depend on or hold."""
        return frozenset().union(*(self.of(v).reads for v in op.operands))

    def aged(self, a: Abs, loop: Op) -> Abs:
        """What is known after an iteration of `loop`: its draws are draws of some iteration."""

        def age(labels: Labels) -> Labels:
            return frozenset((v, loop if loop in self.loops.get(v, ()) else past) for v, past in labels)

        tree = a.tree and TreeAbs(
            self.aged(a.tree.frontier, loop),
            self.aged(a.tree.new, loop),
            age(a.tree.points),
            frozenset(x for x in a.tree.grown if not origins.varies(self, x, loop)),
        )
        return replace(a, dep=age(a.dep), draws=age(a.draws), tree=tree, points=None if a.points is None else age(a.points))

    def chosen(self, at: Op, path: Value, branch: Op, cond: Labels) -> None:
        """Finds a path that goes on in one branch alone, by the draws of the tree in which it was accepted before that."""
        for op in (self.producers.get(v) for v in origins.sources(self, path, "path") - origins.inside(branch)):
            if op is not None and op.opcode == "tree.walk" and (own := self.of(op.operands[0]).draws & cond):
                self.report("chosen", at, own, str(op.operands[0].type.of[0]))

    def came_by(self, v: Value) -> None:
        """Finds the branches that chose a tree which is verified, or a path which is committed, by draws of its own."""
        for w in origins.history(self, v, v.type.elem):
            op = self.producers.get(w)
            if op is None or op.opcode != "if":
                continue
            cond, ways = self.of(op.operands[0]).reads, [r.yields[op.results.index(w)] for r in op.regions]
            for x in ways if v.type.elem == "path" and ways[0] is not ways[1] else ():
                self.chosen(op, x, op, cond)
            if v.type.elem == "tree" and (own := self.of(ways[0]).draws.union(self.of(ways[1]).draws) & cond):
                before = frozenset(self.producers) - origins.inside(op)
                if len({frozenset(origins.sources(self, x, "tree", before)) for x in ways}) > 1:
                    self.report("chosen", op, own, str(w.type.of[0]))

    def report(self, kind: str, op: Op, labels: Labels, tree: str, severity: str = "error") -> None:
        claims = {x.kind for x in self.function.claims}
        if claims and "refines" not in claims:  # of an author who claims no distribution
            severity = "warning"
        places = (self.producers[v].loc for v, _ in labels if v in self.producers)
        drawn = min(places, default=op.loc, key=lambda x: (x.line, x.column))
        self.findings.setdefault((kind, op.loc), Finding(kind, op.loc, drawn, tree, self.function.name, severity))

    # -- regions
    def region(self, region: Region, args: Sequence[Abs]) -> list[Abs]:
        self.known.update(zip(region.args, args, strict=True))
        for op in region.ops:
            outs = TABLE[op.opcode].label(self, op)
            self.known.update(zip(op.results, outs, strict=True))
        return [self.of(v) for v in region.yields]

    def loop(self, op: Op, carried: list[Value], first: list[Abs], bodies: Iterable[int]) -> list[Abs]:
        """A loop, until what is known of its carried values does not grow."""
        now = [self.of(v) for v in carried]
        last = op.regions[-1]
        skip = len(last.yields) - len(carried)
        outer = self.control
        for _ in range(MOST_ITERATIONS):
            after: list[Abs] = now
            for n in bodies:
                out = self.region(op.regions[n], [*first, *now])
                if n == len(op.regions) - 1:
                    after = out[skip:]
                    ends = self.aged(out[0], op).reads if skip else NO
                else:
                    ends = self.aged(out[0], op).reads
                self.control |= ends
            self.stored = {k: self.aged(v, op) for k, v in self.stored.items()}
            wider = [join(a, self.aged(b, op)) for a, b in zip(now, after, strict=True)]
            if wider == now:
                break
            now = wider
        self.control = outer
        return now


# -- rules that several ops share


def joined(c: Checker, op: Op) -> list[Abs]:
    """The results depend on all that the operands depend on or hold."""
    return [Abs(c.reads(op)) for _ in op.results]


def nothing(c: Checker, op: Op) -> list[Abs]:
    """The results tell of no draw: sizes, what was committed."""
    return [Abs() for _ in op.results]


def certain(c: Checker, op: Op) -> list[Abs]:
    """Point masses: certain, whatever chose them, so they hold nothing."""
    return joined(c, op)


def choice(c: Checker, op: Op) -> list[Abs]:
    """Some of the draws or nodes: which, depends on the keys, the index or the condition; without any, on what they are."""
    x, *keys = (c.of(v) for v in op.operands)
    if len(keys) == (op.opcode == "select.top"):
        keys.append(x)
    if x.column or op.operands[0].type.elem not in HOLDERS:
        return joined(c, op)
    return [replace(x, dep=x.dep.union(*(k.reads for k in keys)), tree=None)]


def together(c: Checker, op: Op) -> list[Abs]:
    """All the draws of several operands."""
    if not any(v.type.elem in HOLDERS for v in op.operands):
        return joined(c, op)
    parts = [c.of(v) for v in op.operands]
    dep, draws = (frozenset[Label]().union(*sets) for sets in ((p.dep for p in parts), (p.draws for p in parts)))
    return [Abs(dep, draws, canvas=any(p.canvas for p in parts))]


def elementwise(c: Checker, op: Op) -> list[Abs]:
    """Node by node, where an operand is a column of a tree."""
    parts = [c.of(v) for v in op.operands]
    if not any(p.column for p in parts):
        return joined(c, op)
    dep = frozenset[Label]().union(*(p.dep if p.column else p.reads for p in parts))
    draws = frozenset[Label]().union(*(p.draws for p in parts if p.column))
    points = next((p.points for p in parts if p.points is not None), None) if op.attrs.get("fn") == "and" else None
    return [Abs(dep, draws, column=True, points=points)]


def check_labels(module: Module) -> list[Finding]:
    """Every finding in the functions of a module, for trees that a rule tests against the distributions of their draws."""
    found = []
    for function in module.functions.values():
        if trees := weighed(function):
            found += [f for f in Checker(function).run() if f.tree in trees]
    return found


def weighed(function: Function) -> set[str]:
    """The trees of a function that are verified by a rule that reads the distributions of draws."""
    out = set()
    for op in function.body.walk():
        if op.opcode == "tree.walk" and any(_reads_law(o) for o in op.regions[0].walk()):
            out.add(str(op.operands[0].type.of[0]))
    return out


def _reads_law(op: Op) -> bool:
    return (op.opcode == "draw.get" and op.attrs["field"] == "law") or (op.opcode == "tree.get" and op.attrs["column"] == "law")
