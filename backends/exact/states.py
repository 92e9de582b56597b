"""The state on which the future of a run depends, as a comparable key: values with their draws, read or not. Two runs in equal
states continue alike, so that only one of them is followed (backends/exact/choices.py).

A draw that nothing has read is identified by what it would be drawn from: the origin and path of its row, and its place among
its siblings. That is sound only while its noise has not been read. Values without such a key raise `Unknown`, and the runs are
not merged.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from decgraph.backends.exact.races import Race
from decgraph.backends.exact.reals import Log, Real
from decgraph.ir.data.canvas import Canvas, Cell, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, Row, Soft, Symbol, resolve_path
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Function, Op, Region, Value
from decgraph.runtime.models.interface import Model
from decgraph.runtime.noise import Key

DECIDES = frozenset({"commit", "canvas.put"})
"""Ops after which draws may be left behind: what a loop without them has drawn, the next iteration has, too."""


class Unknown(Exception):
    """A value that cannot be compared."""


class Signer:
    """Signatures of values in one run. Unread draws are numbered in the order in which they are met. context: the prefix that
    is left out of paths, so that states which depend on the text alone are equal in every step (None: paths are whole)."""

    def __init__(self, races: Mapping[Key, Race], context: tuple[int, ...] | None = None) -> None:
        self.races = races
        self.context = context
        self.numbers: dict[int, int] = {}
        self.places: set[Key] = set()
        self.alive: list[object] = []  # what has its id in `numbers` is kept alive

    def of(self, value: object) -> Hashable:
        """The signature of a value. Raises Unknown."""
        if isinstance(value, Model):
            return ("model", id(value))
        if value is None or isinstance(value, bool | int | str | Fraction):
            return value
        if isinstance(value, float):
            return ("float", value)
        if isinstance(value, Draw):
            return self.draw(value)
        if isinstance(value, np.generic):
            plain: Hashable = value.item()
            return plain
        if isinstance(value, np.ndarray):
            if value.dtype != object:
                return ("array", value.shape, value.dtype.str, value.tobytes())
            return ("array", value.shape, *(self.of(x) for x in value.ravel()))
        if isinstance(value, Draws):
            return ("draws", self.of(value.items), self.of(value.at), self.of(value.inner))
        if isinstance(value, Dist):
            return ("dist", value.face, self.of(value.rows), self.of(value.at), self.of(value.inner))
        if isinstance(value, Row):
            return self.row(value)
        if isinstance(value, tuple | list):
            return (type(value).__name__, *(self.of(x) for x in value))
        if isinstance(value, frozenset | set):
            return ("set", frozenset(self.of(x) for x in value))
        if isinstance(value, Mapping):
            return ("dict", *((self.of(k), self.of(v)) for k, v in value.items()))
        if isinstance(value, Path):
            return ("path", self.of(value.tokens), value.node, value.depth, self.of(value.emitted), value.base)
        if isinstance(value, Edit):
            return ("edit", value.position, self.of(value.value))
        if isinstance(value, Canvas):
            return ("canvas", self.of(value.base), tuple(self.cell(x) for x in value.cells), value.capacity)
        if isinstance(value, Soft):
            return ("soft", self.of(value.value))
        if isinstance(value, Tree):
            return self.tree(value)
        if isinstance(value, NoiseKey):
            if value.kind != "output":
                raise Unknown("noise of an earlier step")
            return ("noise", self.of(value.index))
        if is_dataclass(value) and not isinstance(value, type):
            return (type(value).__name__, *(self.of(getattr(value, f.name)) for f in fields(value) if f.compare))
        if isinstance(value, Real):  # by its representation: equal numbers of different representations are not merged
            return ("real", value.key)
        if isinstance(value, Log):
            return ("log", self.of(value.ratio), value.den)
        raise Unknown(type(value).__name__)

    def tree(self, t: Tree, root: int = 0) -> Hashable:
        """A tree below a node: its draws in growth order, with where they hang and the author's columns."""
        inside = {root: 0}
        out: list[Hashable] = [("tree", self.of(t.base) if root == 0 else None)]
        for i in range(root + 1, len(t.nodes)):
            n = t.nodes[i]
            if n.parent in inside:
                inside[i] = len(inside)
                out.append((inside[n.parent], self.of(n.edge), tuple((k, self.of(v)) for k, v in n.columns.items())))
        if root == 0:
            out.append((t.new, t.frontier))
        return tuple(out)

    def row(self, row: Row) -> Hashable:
        """A distribution: by its origin and path where it has them, else by its numbers."""
        if row.origin is not None and row.path is not None:
            self.alive.append(row.origin)
            return ("row", id(row.origin[0]), *row.origin[1:], self.path(row.path))
        try:
            return ("numbers", self.of(list(row.face("shaped"))), self.of(list(row.face("raw"))))
        except Exception as error:
            raise Unknown(str(error)) from error

    def path(self, path: Sequence[Symbol]) -> Hashable:
        """The tokens of a path, unread draws by number."""
        context = self.context
        if context is not None and all(not isinstance(e, Draw) or e.known for e in path[: len(context)]):
            start = resolve_path(path[: len(context)])
            if start == context:
                return ("context", *self.path_below(path[len(context) :]))
            if start == context[: len(start)]:
                return ("context before", len(context) - len(start))
        return self.path_below(path)

    def path_below(self, path: Sequence[Symbol]) -> tuple[Hashable, ...]:
        return tuple(
            self.number(e) if isinstance(e, Draw) and not e.known else e.token if isinstance(e, Draw) else int(e) for e in path
        )

    def number(self, d: Draw) -> Hashable:
        n = self.numbers.setdefault(id(d), len(self.numbers))
        self.alive.append(d)
        return ("?", n)

    def draw(self, d: Draw) -> Hashable:
        """A draw: its token and distribution if it was read, else what it will be drawn from."""
        if d.point:
            return ("point", d.token)
        if d.known:
            return ("token", d.token, tuple(d.law_vector()), tuple(d.source.face("raw")) if d.source is not d.law else None)
        if id(d) in self.numbers:
            return self.number(d)
        of, *rest = getattr(d._resolve, "args", (None,))
        place = rest[0] if rest else None  # the arguments of late_token; of a draw of a group its list comes first
        if isinstance(of, list):  # one of a group without replacement: those before it are in the list
            drawn: Hashable = ("group", self.group(of), d.rank, tuple(of))
        elif of is None or place is None or place in self.places or (place in self.races and self.races[place].reads):
            raise Unknown("a draw whose noise is read elsewhere")
        else:
            self.places.add(place)  # output noise may be read by what comes after the run, any other by this draw alone
            drawn = ("fresh", place if place.site == "output" else None)
        return (self.number(d), drawn, d.law_face, self.row(d.source), d.race is not None)

    def cell(self, x: Cell) -> Hashable:
        """A cell of a canvas: models and programs see its token, not its distribution."""
        return x.token if isinstance(x, Draw) and x.known else self.of(x)

    def group(self, group: list[int]) -> Hashable:
        n = self.numbers.setdefault(id(group), len(self.numbers))
        self.alive.append(group)
        return n


def free_values(ops: Sequence[Op], yields: Sequence[Value], args: Sequence[Value] = ()) -> list[Value]:
    """Values that ops (and the regions inside them) and `yields` use but do not define, in order of first use."""
    defined = set(args)
    out: dict[Value, None] = {}

    def use(values: Sequence[Value]) -> None:
        for v in values:
            if v not in defined:
                out.setdefault(v)

    for op in ops:
        use(op.operands)
        for region in op.regions:
            use(free_values(region.ops, region.yields, region.args))
        defined.update(op.results)
    use(yields)
    return list(out)


@lru_cache(maxsize=256)
def live_values(f: Function) -> dict[int, tuple[Value, ...]]:
    """For every while loop of a function, and every for loop that commits or decides something, by the id of its op: the values
    that the rest of the run may read, besides those that the loop carries."""
    out: dict[int, tuple[Value, ...]] = {}

    def look(region: Region, outside: tuple[Value, ...]) -> None:
        for j, op in enumerate(region.ops):
            later = free_values(region.ops[j + 1 :], region.yields)
            after = tuple(dict.fromkeys([*(v for v in later if v not in op.results), *outside]))
            inside = [v for r in op.regions for v in free_values(r.ops, r.yields, r.args)]
            here = tuple(dict.fromkeys([*inside, *after]))
            if op.opcode == "while":
                out[id(op)] = here
            elif op.opcode == "for" and not op.attrs.get("lanes") and any(o.opcode in DECIDES for o in op.regions[0].walk()):
                out[id(op)] = tuple(dict.fromkeys([*here, *op.operands[:2]]))
            if op.opcode in ("while", "for", "if"):
                left = () if op.opcode == "if" else op.operands  # how many iterations are left
                for r in op.regions:
                    look(r, tuple(dict.fromkeys([*here, *left, *(() if op.opcode == "if" else r.args[:1])])))

    look(f.body, ())
    return out


@lru_cache(maxsize=1024)
def read_again(f: Function, loop: Op) -> tuple[bool, ...]:
    """For every value that a while loop of a function carries: whether an iteration reads it before setting it, or the ops
    after the loop do."""
    read = {v for op in f.body.walk() for v in op.operands if v in loop.results}
    for r in loop.regions:
        for op in r.ops:
            read.update(op.operands)
            read.update(v for inner in op.regions for v in free_values(inner.ops, inner.yields, inner.args))
        args = r.args[1:]
        read.update(v for j, v in enumerate(r.yields) if r is loop.regions[0] or j >= len(args) or v is not args[j])
    count = len(loop.regions[1].args) - 1
    after = [loop.results[j] in read if j < len(loop.results) else True for j in range(count)]
    return tuple(after[j] or any(r.args[j + 1] in read for r in loop.regions if len(r.args) > j + 1) for j in range(count))


def carried_on(f: Function, loop: Op, values: Sequence[Datum]) -> list[Datum]:
    """The carried values of a while loop that something reads."""
    return [v for v, used in zip(values, read_again(f, loop), strict=True) if used]


@lru_cache(maxsize=256)
def settled_walks(f: Function) -> frozenset[int]:
    """Verifications, by the id of their op, of which the rest of a decoding step reads the accepted tokens only: they are in
    the body of `while not done`, the accepted path is committed as it is, and nothing else is committed."""
    out: set[int] = set()
    for loop in f.body.ops:
        if loop.opcode != "while" or loop.attrs.get("bound") != "done" or loop.attrs.get("stops"):
            continue
        body = loop.regions[1]
        commits = [op for op in body.walk() if op.opcode in ("commit", "return")]
        for j, op in enumerate(body.ops):
            later = [o for top in body.ops[j + 1 :] for o in (top, *(x for r in top.regions for x in r.walk()))]
            noises = [v for r in op.regions for v in free_values(r.ops, r.yields, r.args) if v.type.elem == "noise"]
            if (
                op.opcode == "tree.walk"
                and op.attrs["scope"] == "node"
                and len(commits) == 1
                and commits[0] in body.ops
                and commits[0].operands[0] is op.results[0]
                and not noises
                and not any(o.opcode in ("extern", "run", "if", "while") for o in later)
            ):
                out.add(id(op))
    return frozenset(out)


__all__ = ["Signer", "Unknown", "carried_on", "free_values", "live_values", "read_again", "settled_walks"]
