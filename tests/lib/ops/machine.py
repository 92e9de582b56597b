"""A machine that is just enough for the ops' meanings: canned models and hosts, draws without randomness.

It interprets a body and holds every value that an op gives against the type that the op's rule predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, Row, value_row
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.tree import Tree
from decgraph.ir.ops.draws import NoiseKey, point
from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Op, Region, Value

V = 3


class Memory:
    """A memory of positions."""

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = sorted(positions)

    def quantized(self, bits: int) -> Memory:
        return self

    def merged(self, groups: Sequence[Sequence[int]]) -> Memory:
        gone = {i for group in groups for i in group[:-1]}
        return Memory([i for i in self.positions if i not in gone])

    def join(self, other: Memory) -> Memory:
        return Memory({*self.positions, *other.positions})


class Index:
    """What an index was asked: which tokens followed a key, and how often."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.key, self.index = tokens, (), self

    def counts(self, key: tuple[int, ...]) -> dict[int, int]:
        return {0: 3, 1: 1} if len(key) < 2 else {}

    def total(self, key: tuple[int, ...]) -> int:
        """How often a key stands in what was learned."""
        return 4 if len(key) < 2 else 0


class Automaton:
    """Even numbers of token 1: state 0 may end, token 2 ends in neither."""

    states = 2
    live = frozenset({0})
    next = ((0, 1, -1), (1, 0, -1))


class Model:
    """A model with so many layers."""

    layers = 2


class Machine:
    """What the meanings ask of a machine (ir/ops/__init__.py lists it)."""

    num = FLOAT
    vocab_size = V
    mask_token = V

    def __init__(self) -> None:
        self.env: dict[Value, Any] = {}
        self.log: list[Any] = []
        self.state: dict[str, Any] = {"count": 5}

    # -- running
    def run_ops(self, ops: Sequence[Op]) -> tuple[Any, ...]:
        """Runs ops in order; the results of the last one."""
        out: tuple[Any, ...] = ()
        for op in ops:
            out = lookup(op.opcode).meaning(self, op, *(self.env[v] for v in op.operands))
            assert len(out) == len(op.results), f"{op.opcode} gives {len(out)} values for {len(op.results)}"
            for value, result in zip(op.results, out, strict=True):
                fault = misfit(self.shown(result), value.type)
                assert not fault, f"{op.opcode}: {fault}; its type rule says {value.type}"
                self.env[value] = result
        return out

    def shown(self, value: Any) -> Any:
        """A value as its type's dtype says it."""
        return value

    def region(self, region: Region, args: Sequence[Any]) -> tuple[Any, ...]:
        self.env.update(zip(region.args, args, strict=True))
        self.run_ops(region.ops)
        return tuple(self.env[v] for v in region.yields)

    def decide(self, op: Op, cond: Any) -> bool:
        return bool(cond)

    def carried(self, op: Op, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values

    def for_iteration(self, op: Op, i: int, values: tuple[Any, ...]) -> None:
        pass

    def while_iteration(self, op: Op, i: int, values: tuple[Any, ...] = ()) -> None:
        self.log.append(("turn", i))

    def lane(self, op: Op, i: int) -> tuple[Any, ...]:
        return self.region(op.regions[0], (i,))

    def sub_run(self, op: Op, start: Any, bound: int, args: dict[str, Any], tree: Any, counters: Any) -> Path:
        path = Path([0, 1][:bound])
        assert list(args) == list(op.attrs["args"])
        self.region(op.regions[0], (path,))
        return path

    def walk(self, op: Op, t: Tree, evidence: Any, rest: Any) -> Any:
        row = Dist(evidence.rows[:1].reshape(()), evidence.face)
        edges = [t.nodes[i].edge for i in t.children(0)]
        accepts, what, emits, token = self.region(op.regions[0], (0, row, draws(edges)))
        node = t.children(0)[0]
        return Path([t.nodes[node].edge], node=node, depth=1) if accepts else Path([token], emitted=token)

    # -- the request
    def context(self) -> tuple[int, ...]:
        return (1, 0, 2)

    def committed(self) -> int:
        return 2

    def done(self) -> bool:
        return False

    def ended(self, x: Any, tree: Any) -> Any:
        return np.zeros(np.shape(x), dtype=bool) if isinstance(x, np.ndarray) else False

    def request_field(self, name: str) -> Any:
        return {"prompt": np.array([1, 0]), "limit": 9, "room": 7, "eos": 2, "eos_or_none": 2, "pad": 0, "greedy": False}[name]

    def canvas_room(self) -> int:
        return 4

    def commit(self, op: Op, x: Any, tree: Any) -> None:
        self.log.append(("commit", x))

    def returned(self, op: Op, values: Any) -> None:
        self.log.append(("return", values))

    def note(self, name: str, value: Any, /, *, token: bool) -> None:
        self.log.append((name, value))

    def token_of(self, text: str) -> int:
        return "abc".index(text)

    def read_state(self, name: str) -> Any:
        return self.state[name]

    def write_state(self, name: str, value: Any) -> None:
        self.state[name] = value

    def retokenize(self, tokens: Any, source: Any, to: Any, *, whole: bool) -> tuple[int, ...]:
        return tuple(int(i) for i in (tokens.tokens if isinstance(tokens, Path) else np.ravel(tokens)))

    def text(self, x: Any, tree: Any) -> str:
        return "".join("abc"[int(i)] for i in (x.tokens if isinstance(x, Path) else np.ravel(x)))

    def paths(self, at: Any, shape: Any) -> list[Any]:
        return [(1, 0, 2)] * int(np.prod(shape))

    def last_token(self, t: Tree) -> int:
        return 2

    def root_draw(self, t: Tree) -> Draw:
        return point(self, 2)

    # -- randomness: the most probable tokens
    def _order(self, row: Row, face: str) -> list[int]:
        return [int(i) for i in self.num.order([list(row.face(face))], True)]

    def draw(self, op: Op, row: Row, face: str, key: NoiseKey, n: int, index: Any) -> Draw:
        return Draw(self._order(row, face)[0], row, face)

    def draw_many(self, op: Op, row: Row, face: str, k: int, replace: bool, key: NoiseKey, n: int) -> list[Draw]:
        return [Draw(t, row, face, rank=i) for i, t in enumerate(self._order(row, face)[:k])]

    def stated(self, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
        return [Draw(t, row, face) for t, row in zip(tokens, rows, strict=True)]

    def draw_race(self, op: Op, row: Row, face: str, key: NoiseKey, n: int, bound: Any) -> list[Draw]:
        return [Draw(t, row, face, race=float(-i)) for i, t in enumerate(self._order(row, face))]

    def flip(self, op: Op, p: Any, key: NoiseKey, n: int) -> bool:
        return bool(p >= 0.5)

    def beta(self, op: Op, a: Any, b: Any, key: NoiseKey) -> float:
        return a / (a + b)

    def no_mass(self, op: Op, row: Any) -> Any:
        raise ArithmeticError("no mass")

    def nothing(self, op: Op, what: str) -> Any:
        raise LookupError(what)

    def warp_row(self, a: Any, path: Any, is_dist: bool, old: Any) -> Row:
        return value_row(a if is_dist else self.num.softmax(a))

    def adjusted_row(self, a: Any, path: Any) -> Any:
        return a

    # -- models
    def read_head(self, op: Op, head: Model, place: Any, tree: Any) -> Any:
        if isinstance(place, Tree):
            return np.full(len(place), 0.5)
        return np.full(place.shape, 0.5) if isinstance(place, np.ndarray) else 0.5

    def attention(self, model: Model, place: Any, extra: dict[str, Any]) -> np.ndarray:
        return np.full(3, 1 / 3)

    def read_states(self, op: Op, head: Model, states: np.ndarray, **beside: Any) -> Any:
        return np.full(states.shape[:-1], 0.5)

    def score_states(self, op: Op, head: Model, states: np.ndarray, **beside: Any) -> Dist:
        return dists(len(states), at=None)

    def states(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> np.ndarray:
        return np.array([0.0, 1.0]) if isinstance(place, tuple) else np.ones((len(extra.get("at", place)), 2))

    def evaluate(self, op: Op, model: Model, place: Any, extra: dict[str, Any]) -> Dist:
        if isinstance(place, Canvas):
            at = extra.get("at", np.arange(len(place)))
            return dists(len(at), at=np.asarray(at))
        if isinstance(place, Tree):
            return dists(len(place), at=None)
        if op.attrs.get("part") == "heads":
            return dists(op.attrs["heads"], at=None)
        return dists(len(place), at=place) if isinstance(place, np.ndarray) else dists(1, at=None, single=True)

    def read_tokens(self, op: Op, model: Model, tokens: Any, given: Any = None) -> Dist:
        text = tokens.tokens if isinstance(tokens, Path) else tokens
        return dists(len(text), at=None) if op.attrs.get("each") else dists(1, at=None, single=True)

    def evaluate_parts(self, op: Op, model: Model, parts: Sequence[tuple[Any, dict[str, Any]]]) -> list[Dist]:
        return [self.evaluate(op, model, place, extra) for place, extra in parts]

    def memory(self, op: Op, model: Model, place: Any, extra: Any) -> Memory:
        return Memory(range(len(place)))

    def restrict(self, mem: Memory, ps: Any, kind: str) -> Memory:
        return Memory([p for p in mem.positions if (p in list(ps)) == (kind == "only")])

    def derive(self, op: Op, base: Model, args: Any) -> Model:
        return Model()

    def host(self, what: str, *args: Any) -> Any:
        if what in ("layer", "put"):
            return args[0]
        if what == "scores":
            return np.zeros(len(args[2]) if len(args) > 2 and args[2] is not None else V)
        return np.zeros((*np.shape(args[1]), 2) if what == "embed" else (1, 2))

    # -- trees and canvases
    def fits(self, tree: Tree, parent: int) -> bool:
        return len(tree) < 8

    def bounds(self, until: Any) -> tuple[Any, Any]:
        return None, frozenset()

    def add_log(self, up: Any, edge: Any) -> Any:
        if not isinstance(edge, Draw):
            return up
        return up + float(np.log(edge.source.face("raw")[edge.token]))

    def grew(self, tree: Tree, node: int, edge: Any) -> None:
        self.log.append(("grew", node))

    def pruned(self, before: Tree, after: Tree) -> None:
        self.log.append(("pruned", len(before) - len(after)))

    def unmasked(self, c: Canvas, chosen: Any, values: Any) -> None:
        self.log.append(("unmasked", list(chosen)))

    def masked_again(self, c: Canvas, chosen: Any) -> None:
        self.log.append(("masked", list(chosen)))

    def reals(self, values: Sequence[Any]) -> Any:
        return np.array([float(v) for v in values])

    def column(self, values: Sequence[Any], type: Type) -> Any:
        filled = [0 if v is None else v for v in values]
        return np.array(filled, dtype=np.int64 if type.elem in ("int", "token") else np.float64)

    def level_field(self, level: Any, field: str) -> Any:
        value = getattr(level, field)
        return np.array(value, dtype=np.int64) if isinstance(value, tuple) else value

    # -- stores and the host
    def new_index(self, op: Op, sizes: Any) -> Any:
        return Index()

    def ask(self, op: Op, index: Any, args: Any) -> Any:
        what = op.attrs["what"]
        if what == "has":
            return bool(index.tokens)
        if what == "matched":
            return len(index.tokens)
        if what == "score":
            return np.full(V, 1 / V)
        return draws([point(self, t) for t in index.tokens]) if what == "path" else [] if what == "get" else index

    def learn(self, op: Op, index: Any, args: Any) -> Any:
        return Index(*(int(t) for t in np.ravel(args[0])))

    def automaton(self, op: Op, g: Any, args: Any) -> Any:
        what = op.attrs["what"]
        if what == "allowed":
            return np.array([after >= 0 for after in g.next[args[0]]])
        if what == "run":
            for token in np.ravel(args[1]):
                args = (g.next[args[0]][token], args[1])
            return args[0]
        return g.next[args[0]][args[1]] if what == "step" else 0

    def extern(self, op: Op, args: Any) -> Any:
        return True

    def batch_top(self, op: Op, x: Any, k: Any, by: Any) -> Any:
        return x[: int(k)]

    def batch_fold(self, op: Op, x: Any) -> Any:
        return x


def draws(items: Sequence[Any]) -> Draws:
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        out[i] = item
    return Draws(out)


def dists(n: int, at: Any = None, single: bool = False) -> Dist:
    """n distributions, the i-th for (1 + i) : 2 : 3."""
    rows = []
    for i in range(n):
        weights = np.array([1.0 + i, 2.0, 3.0])
        rows.append(value_row(weights / weights.sum()))
    out = Dist.of(rows, "shaped", at)
    return Dist(out.rows.reshape(()), out.face) if single else out


_INTEGERS = ("int", "token", "position")
_OBJECTS: dict[str, Any] = {
    "astate": (int, np.integer, type(None)),  # none after a token that an automaton does not read; in a column they are objects
    "path": Path,
    "tree": Tree,
    "canvas": Canvas,
    "memory": object,
    "noise": NoiseKey,
    "text": str,
    "model": object,
    "edit": Edit,
}


def misfit(value: Any, t: Type) -> str:
    """What keeps `value` from being a value of type `t` ('' if nothing)."""
    if t.elem in ("any", "index", "automaton", "topology", "level"):
        return ""
    if t.elem == "none":
        return "" if value is None else f"{value!r} is not none"
    if t.elem == "list":
        if not isinstance(value, list):
            return f"{type(value).__name__} is not a list"
        wrong = [f for v in value if v is not None and (f := misfit(v, t.of[0]))]  # type: ignore[arg-type]
        return wrong[0] if wrong else ""
    shape = value.shape if isinstance(value, (Dist, Draws)) else np.shape(value) if t.dims else ()
    if t.elem in ("hidden", "embedding"):
        shape = np.shape(value)[:-1]  # the last axis is the width of the model, or the coordinates
    if len(shape) != len(t.dims):
        return f"{len(shape)} dimensions {shape}"
    for n, d in zip(shape, t.dims, strict=True):
        if d.kind == "vocab" and d.of == "V" and n != V:
            return f"{n} along {d}, which has {V}"
        if d.bound is not None and n > d.bound:
            return f"{n} along {d}"
    return element_misfit(value, t)


def element_misfit(value: Any, t: Type) -> str:
    if t.elem == "node" and t.of[0] == "ctx" and not t.dims:
        return "" if isinstance(value, tuple) else f"{value!r} is not a context"
    if t.elem == "dist":
        if not isinstance(value, Dist):
            return f"{type(value).__name__} is not a Dist"
        return "" if t.of[1] == value.face or t.of[1] == "shaped" else f"face {value.face}"
    if t.elem == "draw":
        return "" if isinstance(value, Draws) else f"{type(value).__name__} is not Draws"
    if t.elem in _OBJECTS:
        items = list(np.ravel(value)) if t.dims else [value]
        wrong = [v for v in items if not isinstance(v, _OBJECTS[t.elem])]
        return f"{wrong[0]!r} is not a {t.elem}" if wrong else ""
    if isinstance(value, (Dist, Draws, Path, Fraction)):
        return f"{type(value).__name__} for {t.elem}"
    a = np.asarray(value)
    if t.elem == "hidden" and a.dtype == object and all(isinstance(x, str | tuple) for x in a.flat):
        return ""  # the states of tables and of models whose rows are hashes are no numbers
    if t.elem == "bool":
        return "" if a.dtype.kind == "b" else f"dtype {a.dtype}"
    if t.elem in _INTEGERS or t.elem == "node":
        if a.dtype.kind not in "iu" and a.size:
            return f"dtype {a.dtype}"
        # V is the mask. A cell that is masked has the token -1 where the model has no mask among its tokens.
        least = -1 if t.dims and t.dims[0].kind in ("cells", "part") else 0
        outside = t.elem == "token" and a.size and (a.min() < least or a.max() > V)
        return f"{value!r} outside the vocabulary" if outside else ""
    if a.dtype.kind not in "iuf":
        return f"dtype {a.dtype}"
    wrong_mass = t.elem == "prob" and a.size and (a.min() < 0 or a.max() > 1 + 1e-9)
    return f"{value!r} is no probability" if wrong_mass else ""
