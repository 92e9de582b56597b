"""The label check: what is tested at or before a draw may not depend on it.

A rule that weighs a draft against its law (`rejection`) is lossless only if the draws that it tests, their order
and their laws were settled without looking at the draw in hand or at any that is tested later. Growing a draw as
soon as it is drawn is always right, whatever decided that: it is tested after all that it could depend on. What
goes wrong is choosing among draws that exist: pruning, sorting, merging or skipping them by what they turned out
to be. The check follows, for every value, on which sampled draws it depends:

- a draw *holds* itself; a point mass holds nothing (its law is certain, whatever chose it);
- nodes hold the draws on the way to them, columns of a tree what their node holds;
- a choice among draws or nodes *depends* on its keys, a branch on its condition;
- one axiom: `top(..., by = race)` chooses by race keys, which leaves every law as it was (stochastic beams).

It is a sufficient condition and names the line; the exact check (`decgraph check`) is the judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.ir.values import Function, Loc, Module, Op, Region, Value

Label = tuple[Value, Op | None]
"""The noise of a draw (draws that share a noise tell of each other) or a state that holds draws; and the outermost loop around
which it lies in the past (None: drawn in this very turn)."""

Labels = frozenset[Label]
NO: Labels = frozenset()

DRAWS = ("draw", "draw.many", "draw.race")
LOOPS = ("for", "while", "each")
CHOOSES = ("gather", "slice", "compact", "select.top", "batch.top", "sort", "take_first")
HOLDERS = ("draw", "node", "list", "edit", "path")
STRUCTURE = ("depth", "parent")
MOST_TURNS = 12


@dataclass(frozen=True)
class Abs:
    """What is known of a value: `dep`, the draws it depends on; `held`, the draws it consists of or leads over.

    `column`: one value for each node of a tree, which depends on that node's own draws alone (and on `dep`).
    `points`: for a column that says which nodes are point masses, what those nodes hold.
    """

    dep: Labels = NO
    held: Labels = NO
    column: bool = False
    points: Labels | None = None
    canvas: bool = False
    tree: TreeAbs | None = None

    @property
    def reads(self) -> Labels:
        """The draws that a look at the value looks at."""
        return self.dep | self.held


@dataclass(frozen=True)
class TreeAbs:
    """A tree beyond its content: its frontier, its newest nodes, what its point masses hold, and which values were grown
    where (None: where they were drawn)."""

    frontier: Abs = Abs()
    new: Abs = Abs()
    points: Labels = NO
    grown: frozenset[tuple[Value, Value | None]] = frozenset()


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
    return Abs(a.dep | b.dep, a.held | b.held, a.column and b.column, points, a.canvas or b.canvas, tree)


def check_labels(module: Module) -> list[Finding]:
    """Every finding in the functions of a module, for trees that a rule weighs against their laws."""
    return [f for function in module.functions.values() for f in Checker(function).run()]


def weighed(function: Function) -> set[str]:
    """The trees of a function that are verified by a rule that looks at laws."""
    out = set()
    for op in function.body.walk():
        if op.opcode == "tree.walk" and any(_reads_law(o) for o in op.regions[0].walk()):
            out.add(str(op.operands[0].type.of[0]))
    return out


def _reads_law(op: Op) -> bool:
    return (op.opcode == "draw.get" and op.attrs["field"] == "law") or (op.opcode == "tree.get" and op.attrs["column"] == "law")


@dataclass
class Checker:
    """Walks one function, with what is known of every value."""

    function: Function
    known: dict[Value, Abs] = field(default_factory=dict)
    made: dict[Value, Op] = field(default_factory=dict)
    loops: dict[Value, tuple[Op, ...]] = field(default_factory=dict)
    stored: dict[str, Abs] = field(default_factory=dict)
    output: Value | None = None
    control: Labels = NO
    found: dict[tuple[str, Loc], Finding] = field(default_factory=dict)

    def run(self) -> list[Finding]:
        trees = weighed(self.function)
        if not trees:
            return []
        self.place(self.function.body, ())
        self.region(self.function.body, [Abs()] * len(self.function.body.args))
        return sorted((f for f in self.found.values() if f.tree in trees), key=lambda f: (f.loc.line, f.loc.column))

    def place(self, region: Region, around: tuple[Op, ...]) -> None:
        for op in region.ops:
            for v in op.results:
                self.made[v], self.loops[v] = op, around
            for r in op.regions:
                self.place(r, (*around, op) if op.opcode in LOOPS else around)

    # -- labels
    def of(self, v: Value) -> Abs:
        return self.known.get(v, Abs())

    def aged(self, a: Abs, loop: Op) -> Abs:
        """What is known after a turn of `loop`: its draws are draws of some turn."""

        def age(labels: Labels) -> Labels:
            return frozenset((v, loop if loop in self.loops.get(v, ()) else past) for v, past in labels)

        tree = a.tree and TreeAbs(
            self.aged(a.tree.frontier, loop),
            self.aged(a.tree.new, loop),
            age(a.tree.points),
            frozenset((v, at) for v, at in a.tree.grown if loop not in self.loops.get(v, ())),
        )
        return replace(a, dep=age(a.dep), held=age(a.held), tree=tree, points=None if a.points is None else age(a.points))

    def report(self, kind: str, op: Op, labels: Labels, tree: str, severity: str = "error") -> None:
        drawn = min((self.made[v].loc for v, _ in labels if v in self.made), default=op.loc, key=lambda x: (x.line, x.column))
        self.found.setdefault((kind, op.loc), Finding(kind, op.loc, drawn, tree, self.function.name, severity))

    # -- regions
    def region(self, region: Region, args: Sequence[Abs]) -> list[Abs]:
        self.known.update(zip(region.args, args, strict=True))
        for op in region.ops:
            outs = RULES.get(op.opcode, Checker.other)(self, op)
            self.known.update(zip(op.results, outs, strict=True))
        return [self.of(v) for v in region.yields]

    def branch(self, op: Op) -> list[Abs]:
        cond = self.of(op.operands[0]).reads
        outer, self.control = self.control, self.control | cond
        both = [self.region(r, []) for r in op.regions]
        self.control = outer
        out = []
        for x, y, a, b in zip(*both, op.regions[0].yields, op.regions[1].yields, strict=True):
            j = x if a is b else join(x, y)
            out.append(j if a is b else replace(j, dep=j.dep | cond, column=False))
        return out

    def turns(self, op: Op, carried: list[Value], first: list[Abs], bodies: Iterable[int]) -> list[Abs]:
        """A loop, until what is known of its carried values does not grow."""
        now = [self.of(v) for v in carried]
        last = op.regions[-1]
        skip = len(last.yields) - len(carried)
        outer = self.control
        for _ in range(MOST_TURNS):
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

    def loop_for(self, op: Op) -> list[Abs]:
        ends = Abs(self.of(op.operands[0]).reads | self.of(op.operands[1]).reads)
        outer, self.control = self.control, self.control | ends.dep
        out = self.turns(op, list(op.operands[2:]), [Abs()], (0,))
        self.control = outer
        return out

    def loop_while(self, op: Op) -> list[Abs]:
        carried = op.operands[1:] if op.attrs.get("limited") else op.operands
        return self.turns(op, list(carried), [Abs()], (0, 1))

    def each(self, op: Op) -> list[Abs]:
        xs = self.of(op.operands[0])
        item = Abs(xs.reads) if xs.column else replace(xs, tree=None)
        out = [self.aged(a, op) for a in self.region(op.regions[0], [Abs(), item])]
        dep = out[0].dep | xs.dep | (out[1].reads if len(out) > 1 else NO)
        return [Abs(dep, out[0].held, canvas=out[0].canvas)]

    # -- draws
    def draw(self, op: Op) -> list[Abs]:
        noise = next(v for v in op.operands if v.type.elem == "noise")
        made = self.made.get(noise)
        if made is not None and made.attrs.get("kind") == "output":  # one stream, whatever reads it
            self.output = noise = self.output or noise
        return [Abs(self.all_reads(op), frozenset({(noise, None)}))]

    def reading(self, op: Op) -> list[Abs]:
        """A state: draws that were kept are draws of their own."""
        t = op.result.type
        inner = t.of[0] if t.elem == "list" and t.of else t
        sampled = getattr(inner, "elem", "") in ("draw", "tree")
        held = frozenset({(op.result, None)}) if sampled else NO
        tree = TreeAbs(Abs(held=held), Abs(held=held), held) if t.elem == "tree" else None
        return [Abs(NO if sampled else self.stored.get(op.attrs["state"], Abs()).reads, held, tree=tree)]

    def writing(self, op: Op) -> list[Abs]:
        name = op.attrs["state"]
        self.stored[name] = join(self.stored.get(name, Abs()), replace(self.of(op.operands[0]), tree=None))
        return []

    def point(self, op: Op) -> list[Abs]:
        """Certain, whatever chose them: they hold nothing."""
        return [Abs(self.all_reads(op))]

    # -- choices
    def all_reads(self, op: Op) -> Labels:
        return frozenset().union(*(self.of(v).reads for v in op.operands))

    def other(self, op: Op) -> list[Abs]:
        return [Abs(self.all_reads(op)) for _ in op.results]

    def choose(self, op: Op) -> list[Abs]:
        """Some of the draws or nodes: which, depends on the keys, the index or the condition."""
        x, *keys = (self.of(v) for v in op.operands)
        t = op.operands[0].type
        if x.column:
            if op.opcode == "gather" and op.operands[1].type.elem == "node":
                return [Abs(x.dep | keys[0].reads)]
            return self.other(op)
        if t.elem not in HOLDERS:
            return self.other(op)
        if op.opcode == "select.top" and op.attrs.get("by_race") and all(self.is_race(v) for v in op.operands[2:]):
            return [replace(x, dep=x.dep | keys[0].reads)]
        held = x.held
        if op.opcode == "compact" and keys[0].points is not None:
            held = keys[0].points
            return [replace(x, held=held, dep=x.dep | keys[0].dep, tree=None)]
        return [replace(x, held=held, dep=x.dep.union(*(k.reads for k in keys)), tree=None)]

    def is_race(self, v: Value) -> bool:
        op = self.made.get(v)
        if op is not None and op.opcode == "segment":
            return self.is_race(op.regions[0].yields[op.results.index(v)])
        return op is not None and op.opcode == "draw.get" and op.attrs["field"] == "race"

    def together(self, op: Op) -> list[Abs]:
        parts = [self.of(v) for v in op.operands]
        if any(v.type.elem in HOLDERS for v in op.operands):
            out = Abs(
                frozenset().union(*(p.dep for p in parts)),
                frozenset().union(*(p.held for p in parts)),
                canvas=any(p.canvas for p in parts),
            )
            return [out]
        return self.other(op)

    def arg(self, op: Op) -> list[Abs]:
        return self.choose(op) if len(op.operands) > 1 else self.other(op)

    def length(self, op: Op) -> list[Abs]:
        """How many there are does not tell what they are."""
        return [Abs(self.of(op.operands[0]).dep)]

    def elementwise(self, op: Op) -> list[Abs]:
        parts = [self.of(v) for v in op.operands]
        if not any(p.column for p in parts):
            return self.other(op)
        dep = frozenset().union(*(p.dep if p.column else p.reads for p in parts))
        held = frozenset().union(*(p.held for p in parts if p.column))
        points = next((p.points for p in parts if p.points is not None), None) if op.attrs.get("fn") == "and" else None
        return [Abs(dep, held, column=True, points=points)]

    def field(self, op: Op) -> list[Abs]:
        x = self.of(op.operands[0])
        return [Abs(x.dep if op.attrs["field"] in ("law", "point") else x.reads)]

    # -- trees
    def tree_new(self, op: Op) -> list[Abs]:
        base = self.all_reads(op)
        return [Abs(base, NO, tree=TreeAbs(Abs(), Abs(), NO))]

    def tree_continue(self, op: Op) -> list[Abs]:
        return [self.of(op.operands[0])]

    def tree_grow(self, op: Op) -> list[Abs]:
        t, x = self.of(op.operands[0]), self.of(op.operands[1])
        at = self.of(op.operands[2]) if op.attrs.get("has_at") else None
        name = str(op.operands[0].type.of[0])
        if op.opcode == "tree.best_first":
            x = Abs(x.reads)
        place = at.dep if at is not None else NO
        if x.held & (x.dep | place):
            self.report(
                "order" if x.canvas else "choice", op, x.held & (x.dep | place), name, "warning" if x.canvas else "error"
            )
        elif x.held & self.control:
            self.report("skip", op, x.held & self.control, name)
        elif x.held & t.dep:
            self.report("earlier", op, x.held & t.dep, name)
        key = (op.operands[1], op.operands[2] if at is not None else None)
        if x.held and t.tree is not None and key in t.tree.grown:
            self.report("twice", op, x.held, name)
        way = x.held | x.dep | (at.reads if at is not None else NO)
        new = Abs(x.dep | place, way)
        shape = t.tree or TreeAbs()
        points = shape.points | (way if not x.held else NO)
        dep = t.dep | x.dep | self.control | (at.reads if at is not None else NO)
        grown = shape.grown | {key} if x.held else shape.grown
        return [
            Abs(dep, t.held | x.held, tree=TreeAbs(replace(new, dep=NO), replace(new, dep=NO), points, grown)),
            replace(new, dep=NO),
        ]

    def tree_keep(self, op: Op) -> list[Abs]:
        t, ns = self.of(op.operands[0]), self.of(op.operands[1])
        name = str(op.operands[0].type.of[0])
        which = t.held & (ns.dep | self.control)
        if which:
            self.report("prune", op, which, name)
        whole = Abs(held=t.reads)
        return [replace(t, dep=t.dep | ns.dep, tree=TreeAbs(whole, whole, (t.tree or TreeAbs()).points))]

    def tree_front(self, op: Op) -> list[Abs]:
        t, ns = self.of(op.operands[0]), self.of(op.operands[1])
        return [replace(t, tree=replace(t.tree or TreeAbs(), frontier=Abs(ns.dep, ns.held)))]

    def tree_set(self, op: Op) -> list[Abs]:
        t, value = self.of(op.operands[0]), self.of(op.operands[2])
        return [replace(t, dep=t.dep | (value.dep - t.held))]

    def tree_nodes(self, op: Op) -> list[Abs]:
        t = self.of(op.operands[0])
        which, shape = op.attrs["which"], t.tree or TreeAbs()
        if which == "root":
            return [Abs()]
        if which in ("frontier", "new"):
            return [shape.frontier if which == "frontier" else shape.new]
        return [Abs(NO, t.held)]

    def tree_get(self, op: Op) -> list[Abs]:
        t = self.of(op.operands[0])
        column = op.attrs["column"]
        if column in STRUCTURE:
            return [Abs(column=True)]
        if column == "point":
            return [Abs(column=True, points=(t.tree or TreeAbs()).points)]
        return [Abs(NO, t.held, column=True)]

    def fold(self, op: Op) -> list[Abs]:
        column = self.of(op.operands[1])
        if op.opcode == "tree.down" and column.column:
            return [column]
        return self.other(op)

    def evaluate(self, op: Op) -> list[Abs]:
        place = self.of(op.operands[1])
        rest = frozenset().union(
            *(self.of(v).reads for v, n in zip(op.operands[2:], op.attrs.get("with", ()), strict=False) if n != "tree")
        )
        if op.operands[1].type.elem == "tree":
            return [Abs(rest, place.held, column=True)]
        return [Abs(place.reads | rest)]

    def evaluations(self, op: Op) -> list[Abs]:
        out: list[Abs] = []
        at = 1
        for names in op.attrs["parts"]:
            attrs, end = {"with": names}, at + 1 + len(names)
            part = Op("model.eval", (op.operands[0], *op.operands[at:end]), attrs, (), (op.results[len(out)],), op.loc)
            out += self.evaluate(part)
            at = end
        return out

    def size(self, op: Op) -> list[Abs]:
        return [Abs()]

    def segment(self, op: Op) -> list[Abs]:
        return self.region(op.regions[0], [])

    # -- canvases
    def put(self, op: Op) -> list[Abs]:
        c = self.of(op.operands[0])
        rest = [self.of(v) for v in op.operands[1:]]
        value = rest[1] if op.attrs["kind"] == "token" else Abs()
        dep = c.dep | value.dep | rest[0].reads | (rest[-1].reads if op.attrs.get("has_mask") else NO) | self.control
        return [Abs(dep, c.held | value.held)]

    def canvas_get(self, op: Op) -> list[Abs]:
        c = self.of(op.operands[0])
        if op.attrs["field"] == "draws":
            return [Abs(c.dep, c.held, canvas=True)]
        return [Abs(c.dep if op.attrs["field"] in ("masked", "decided", "all", "length") else c.reads)]


RULES: dict[str, Any] = {
    "if": Checker.branch,
    "for": Checker.loop_for,
    "while": Checker.loop_while,
    "each": Checker.each,
    **dict.fromkeys(DRAWS, Checker.draw),
    "state.read": Checker.reading,
    "state.write": Checker.writing,
    "draw.point": Checker.point,
    "topk": Checker.point,
    **dict.fromkeys(CHOOSES, Checker.choose),
    "concat": Checker.together,
    "list": Checker.together,
    "tile": Checker.together,
    "arg": Checker.arg,
    "len": Checker.length,
    "map": Checker.elementwise,
    "lookup": Checker.elementwise,
    "face": Checker.elementwise,
    "info": Checker.elementwise,
    "draw.get": Checker.field,
    "tree.new": Checker.tree_new,
    "tree.continue": Checker.tree_continue,
    "tree.reroot": Checker.tree_continue,
    "tree.grow": Checker.tree_grow,
    "tree.best_first": Checker.tree_grow,
    "tree.keep": Checker.tree_keep,
    "tree.front": Checker.tree_front,
    "tree.set": Checker.tree_set,
    "tree.nodes": Checker.tree_nodes,
    "tree.get": Checker.tree_get,
    "tree.down": Checker.fold,
    "tree.up": Checker.fold,
    "tree.size": Checker.size,
    "model.eval": Checker.evaluate,
    "canvas.put": Checker.put,
    "canvas.get": Checker.canvas_get,
    "context": Checker.size,
    "segment": Checker.segment,
    "model.evals": Checker.evaluations,
}
