"""What is believed of ops is tested by their own meanings: whatever is said not to fail does not raise, and a value is what
is said of it. Straight-line programs of any ops, with the attributes of the op table's samples, over operands at the edges."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import pytest
from lib.ops.machine import Machine, V, draws
from lib.ops.operands import OPERANDS, _draw, _tree

from decgraph.check.proof.derive import judged
from decgraph.check.proof.kernel import Kernel
from decgraph.check.proof.terms import PROMPT, ROOM
from decgraph.ir.data.dist import Dist, Draws, Path, value_row
from decgraph.ir.data.tree import Tree
from decgraph.ir.failing import NEVER, OUTSIDE, RULES, SAFE, Failing
from decgraph.ir.known_numbers import INDEX
from decgraph.ir.linear import Linear
from decgraph.ir.opdef import OpError
from decgraph.ir.ops.common import array
from decgraph.ir.table import TABLE
from decgraph.ir.types import parse_type
from decgraph.ir.values import Function, Module, Op, Param, Region, Value
from tests.ir.test_ops import module_of

NAN, INF = float("nan"), float("inf")


def _dist(*rows: list[float]) -> Dist:
    return Dist.of([value_row(np.array(row)) for row in rows], "shaped")


def _row(row: list[float]) -> Dist:
    made = _dist(row)
    return Dist(made.rows.reshape(()), made.face)


def _vector(*xs: float) -> np.ndarray:
    return np.array(xs, dtype=np.float64)


def _whole(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


EDGES: dict[str, tuple[str, list[Any], Any, Any]] = {
    "n": ("int", [0, 1, -1, -8, 2, 3, 9, 50], None, None),
    "k": ("int", [0, 1, 8], 0, 8),
    "j": ("int", [-8, -1, 0, 3], -8, 3),
    "r": ("real", [0.0, -0.0, 0.5, -0.5, 2.7, INF, -INF, NAN, 1e-320], None, None),
    "a": ("real", [0.0, 0.5, 4.0], 0, 4),
    "pr": ("prob", [0.0, 0.5, 1.0, -0.0], None, None),
    "b": ("bool", [True, False], None, None),
    "tok": ("token<V>", [0, V - 1], None, None),
    "xs": ("int[k<=4]", [_whole(), _whole(0), _whole(3, 1, 2), _whole(-1, 2), _whole(0, 0, 5, -9)], None, None),
    "ys": ("int[k<=4]", [_whole(), _whole(1), _whole(1, 2, 3)], None, None),
    "rs": ("real[k<=3]", [_vector(), _vector(NAN), _vector(INF, -INF), _vector(0.5, -0.0, 2.7)], None, None),
    "ps": ("prob[k<=3]", [_vector(), _vector(0.0), _vector(1.0, 1.0, 0.5)], None, None),
    "bs": ("bool[k<=3]", [np.zeros(0, bool), np.ones(2, bool), np.array([True, False, True])], None, None),
    "toks": ("token<V>[k<=3]", [_whole(), _whole(2), _whole(0, 2, 1)], None, None),
    "w": ("real[vocab.V]", [np.zeros(V), _vector(NAN, 0, 1), _vector(INF, -INF, 0), _vector(-1, -2, -3)], None, None),
    "q": (
        "dist<V,shaped>",
        [_row([0.5, 0.5, 0.0]), _row([0.0, 0.0, 0.0]), _row([-1.0, 3.0, -1.0]), _row([NAN] * 3)],
        None,
        None,
    ),
    "qs": ("dist<V,shaped>[k<=2]", [_dist(), _dist([0.5, 0.5, 0.0]), _dist([0, 0, 0], [1, 0, 0])], None, None),
    "ds": ("draw<V>[k<=2]", [draws([]), draws([_draw(2)]), draws([_draw(0), None])], None, None),
    "ctx": ("node<ctx>", [(), (1,), (1, 0, 2)], None, None),
    "t": ("tree<t,token,V>", [Tree.start((1,)), _tree()], None, None),
    **{
        name: (OPERANDS[name][0], [OPERANDS[name][1]], None, None)
        for name in ("c", "shape", "word", "nil", "ix", "au", "st", "g")
    },
}
"""Parameters with values that their types allow, at the edges; their declared ranges."""
SAMPLES = []
"""The ops without regions that the table's samples end in: opcode and attributes."""
for _name in sorted(TABLE.keys() - {"note", "token"}):  # which compute nothing
    for _text, _ in TABLE[_name].samples:
        _last = module_of(_text).functions["f"].body.ops[-1]
        if not _last.regions and not TABLE[_last.opcode].regions:
            SAMPLES.append((_last.opcode, _last.attrs, [v.type.elem for v in _last.operands]))
FUNCTIONS = [
    *(
        ("map", {"fn": fn})
        for fn in ("add", "sub", "mul", "weigh", "div", "mod", "floor", "minimum", "maximum", "clamp", "relu", "log")
    ),
    *(("reduce", {"fn": fn}) for fn in ("max", "min", "mean", "sum", "prod", "logsumexp", "any", "count")),
    *(("slice", {"has_lo": lo, "has_hi": not lo}) for lo in (True, False)),
    *(("arg", {"fn": fn}) for fn in ("max", "min")),
    *(("tree.nodes", {"which": which}) for which in ("root", "all", "leaves", "drafted", "new", "frontier")),
    *(("ctx.get", {"field": field}) for field in ("token", "path", "length", "last")),
    *(("tile", {"kind": kind, "dims": parse_type("real[k]").dims, "elem": "real"}) for kind in ("iota", "zeros")),
    ("context", {}),
    ("context", {"parent": True}),
    ("len", {}),
    ("as_int", {}),
    ("lookup", {}),
    ("gather", {}),
    ("vocab_size", {}),
    *(("const", {"value": x, "type": parse_type("int")}) for x in (0, 1, -1, 3)),
    *(("const", {"value": x, "type": parse_type("real")}) for x in (Fraction(1, 2), "inf", "-inf")),
]
NAMED = ("noise", "model", "tree", "node", "canvas", "path", "memory", "index", "automaton", "topology", "level")
"""Elements that an operand has because lowering puts it there, whatever the type rule takes."""
COUNTS = {opcode: {len(n) for name, _, n in SAMPLES if name == opcode} for opcode, _, _ in SAMPLES}
COUNTS |= {"slice": {2}, "map": {1, 2, 3}}
LEFT_OUT = OUTSIDE | {"commit", "return", "break", "verdict", "state.read", "state.write", "unfailing"}
LIMITS = ("at most", "beyond 64 bits", "too large")
"""What is said of numbers beyond the limits of every program."""


class Edge(Machine):
    """The machine of the samples, with a text of one token or three, and zeros where there is no mass."""

    def __init__(self, tokens: tuple[int, ...]) -> None:
        super().__init__()
        self.tokens = tokens

    def context(self) -> tuple[int, ...]:
        return self.tokens

    def no_mass(self, op: Op, row: Any) -> Any:
        return np.zeros_like(row)

    def nothing(self, op: Op, what: str) -> Any:
        raise OpError(what)

    def beta(self, op: Op, a: Any, b: Any, key: Any) -> float:
        if not (a > 0 and b > 0):
            raise OpError("no distribution")
        return super().beta(op, a, b, key)

    def request_field(self, name: str) -> Any:
        return np.array(self.tokens) if name == "prompt" else super().request_field(name)


def program(r: random.Random, size: int = 14) -> Function:
    """A body of random ops: operands are what the type rule of the op takes."""
    chosen = r.sample(sorted(EDGES), 9)
    params = tuple(Param(Value(parse_type(EDGES[name][0]), name), *EDGES[name][2:]) for name in chosen)
    values, ops = [p.value for p in params], list[Op]()
    for _ in range(40 * size):
        opcode, attrs, elems = r.choice(SAMPLES)
        count = len(elems)
        if r.random() < 0.6:
            (opcode, attrs), count, elems = r.choice(FUNCTIONS), r.choice((0, 1, 1, 2, 2, 3)), []
        count = 1 + (attrs["field"] == "last") if opcode == "ctx.get" else 1 if opcode == "tree.nodes" else count
        recent = values[-6:] if r.random() < 0.5 else values
        operands = tuple(r.choice(recent) for _ in range(count))
        if count not in COUNTS[opcode] or opcode in LEFT_OUT:
            continue
        texts = [v for v in operands if v.type.elem in ("topology", "level") or v.type.elem == "node" and v.type.of[0] == "ctx"]
        real = [v for v in operands if v.type.elem != "int"]
        if texts and opcode in ("map", "list", "concat", "compact", "state") or real and attrs.get("fn") == "mul":
            continue  # no program joins them; of reals lowering makes `weigh`
        if opcode == "tile" and any(v.type.dims or v.type.elem == "dist" for v in operands) or opcode == "index.learn":
            continue
        if opcode == "tree.new" or any(v.type.elem != e for v, e in zip(operands, elems) if e in NAMED):
            continue
        try:
            types = TABLE[opcode].type([v.type for v in operands], dict(attrs), ())
        except (OpError, ValueError, IndexError, KeyError, TypeError, AttributeError, StopIteration):
            continue
        results = tuple(Value(t, f"z{len(ops)}") for t in types)
        ops.append(Op(opcode, operands, dict(attrs), (), results))
        values += results
        if len(ops) == size:
            break
    return Function("f", params, (), Region((), tuple(ops), ()))


class Beliefs:
    """What the analyses say of a program, and what is wrong with it in a run."""

    def __init__(self, function: Function) -> None:
        self.function, self.failing = function, Failing(function, {})
        self.kernel = Kernel(Module({"f": function}, "f"), function, "target", "own", judged, {})
        for op in function.body.ops:
            self.kernel.step(op)
        self.tried: Counter[str] = Counter()

    def wrong(self, r: random.Random) -> list[str]:
        """The beliefs that one run contradicts."""
        tokens = r.choice([(1,), (1, 0), (1, 0, 2)])
        self.machine = m = Edge(tokens)
        m.env = {p.value: r.choice(EDGES[p.name][1]) for p in self.function.params}
        self.symbols = {PROMPT: len(tokens), ROOM: 7, ("vocabulary", "V"): V}
        found = []
        for op in self.function.body.ops:
            safe = not self.failing.why(op) or op in self.kernel.sound
            if not safe and (op.attrs.get("fn") == "mod" or op.opcode == "draw.point"):
                return found  # what it may fail at shows later only
            if not safe and len({len(_rows(m.env[v])) for v in op.operands if v.type.dims}) > 1:
                return found  # an error, though NumPy may make something of a single one beside many
            try:
                with np.errstate(all="ignore"):
                    out = TABLE[op.opcode].meaning(m, op, *(m.env[v] for v in op.operands))
            except Exception as error:
                if any(words in str(error) for words in LIMITS) and "inf" not in self.shown(op):
                    return found
                return [*found, f"{op.opcode} {op.attrs} raised {error!r}: {self.shown(op)}"] if safe else found
            self.tried[op.opcode] += safe
            m.env.update(zip(op.results, out, strict=True))
            found += [
                f"{op.opcode} {op.attrs}: {what} of {m.env[v]!r}: {self.shown(op)}" for v in op.results for what in self.lies(v)
            ]
        return found

    def shown(self, op: Op) -> str:
        return ", ".join(f"{v.name or v.type}={self.machine.env[v]!r}" for v in op.operands)

    def lies(self, v: Value) -> list[str]:
        """What is said of a value and is not so."""
        k, x, sizes, out = self.failing, self.machine.env[v], self.kernel.sizes, []
        flat = _numbers(self.machine, x)
        vector = bool(v.type.dims)
        if v.type.is_number or v.type.elem in ("dist", "token"):
            low, high = k.range(v)
            if not vector and flat.size == 1:
                self.tried["range"] += (low, high) != (-INF, INF)
                if (low, high) != (-INF, INF) and not low <= flat[0] <= high:
                    out.append(f"range {low}..{high}")
                if k.finite(v) and v.type.elem != "dist":
                    self.tried["finite"] += 1
                    out += [] if isfinite(flat[0]) else ["finite"]
            if k.share(v):
                self.tried["share"] += 1
                out += [] if np.all((flat >= 0) & (flat <= 1)) else ["share"]
            between = self.kernel.limits(v)
            if flat.size and not all(between[0] <= y <= between[1] for y in flat) and between != (-INF, INF):
                out.append(f"numbers between {between}")
        if vector and k.filled(v):
            self.tried["filled"] += 1
            out += [] if len(_rows(x)) else ["filled"]
        if vector:
            for other in self.machine.env:
                if other is not v and other.type.dims and k.rows(other) == k.rows(v):
                    self.tried["rows"] += 1
                    out += [] if len(_rows(x)) == len(_rows(self.machine.env[other])) else [f"rows of {other.name}"]
            length = sizes.lengths.get(v)
            expected = None if length is None else self.sum(length, 0)
            if expected is not None:
                self.tried["length"] += 1
                out += [] if expected == len(_rows(x)) else [f"length {length}"]
            for atom in sizes.facts.get(("length", v), ()):
                least = self.sum(atom.sum, 0)
                out += [] if least is None or least >= 0 else [f"length beyond {atom}"]
        elif v.type.elem == "int":
            for other in self.machine.env:
                if other is not v and other.type.elem == "int" and not other.type.dims and k.key(other) == k.key(v):
                    self.tried["key"] += 1
                    out += [] if int(x) == int(self.machine.env[other]) else [f"equal to {other.name}"]
        if v in sizes.sums or v in sizes.facts:
            for j, y in enumerate(flat):
                expected = self.sum(sizes.sums[v], j) if v in sizes.sums else None
                self.tried["sum"] += expected is not None
                if expected is not None and not abs(float(y) - float(expected)) <= 1e-9 * max(1.0, abs(float(y))):
                    out.append(f"sum {sizes.sums[v]}")
                for atom in sizes.facts.get(v, ()):
                    least = self.sum(atom.sum, j)
                    self.tried["bound"] += least is not None
                    out += [f"beyond {atom}"] if least is not None and not least > -1e-9 else []
        known = self.kernel.const(v)
        if isinstance(known, bool | int | float | Fraction) and v.type.elem in ("int", "real", "prob", "bool"):
            self.tried["constant"] += 1
            out += [] if np.allclose(flat.astype(float), float(known), rtol=1e-9) else [f"constant {known}"]
        return out

    def sum(self, linear: Linear, j: int) -> Any:
        total: Any = linear.constant
        for s, f in linear.terms:
            x = self.value(s, j)
            if x is None or not isfinite(x):
                return None if x is None else NAN
            total = total + f * Fraction(float(x) if isinstance(x, float | np.floating) else int(x))
        return total

    def value(self, s: Any, j: int) -> Any:
        if s == INDEX:
            return j
        if isinstance(s, Value):
            flat = _numbers(self.machine, self.machine.env[s])
            return flat[0] if flat.size == 1 and not s.type.dims else flat[j] if flat.size > j else None
        if isinstance(s, tuple) and s[0] == "length":
            return len(_rows(self.machine.env[s[1]])) if s[1] in self.machine.env else None
        return self.symbols.get(s)


def _rows(x: Any) -> Any:
    return (
        []
        if x is None
        else x.rows
        if isinstance(x, Dist)
        else x.items
        if isinstance(x, Draws)
        else x.tokens
        if isinstance(x, Path)
        else x
    )


def _numbers(m: Machine, x: Any) -> np.ndarray:
    try:
        found = np.asarray(array(m, x)).ravel()
    except (ValueError, TypeError, IndexError, AttributeError, OpError):
        return np.zeros(0)
    return found if found.dtype.kind in "iufb" else np.zeros(0)


def tried(seeds: range, runs: int = 6) -> tuple[Counter[str], list[str]]:
    """How often each op and fact was tried over programs with these seeds, and what is not so."""
    counts, wrong = Counter[str](), list[str]()
    for seed in seeds:
        r = random.Random(f"believed {seed}")
        beliefs = Beliefs(program(r))
        for _ in range(runs):
            wrong += [f"seed {seed}: {what}" for what in beliefs.wrong(r)]
        counts += beliefs.tried
    return counts, wrong


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_nothing_is_believed_that_a_meaning_contradicts(first: int) -> None:
    counts, wrong = tried(range(first, first + 100))
    assert not wrong, "\n".join(wrong[:10])
    assert all(counts[fact] for fact in ("range", "finite", "share", "filled", "rows", "length", "sum", "bound", "constant"))


def test_every_op_has_a_rule_or_a_reason() -> None:
    assert all(SAFE.values()) and not NEVER & (set(RULES) | OUTSIDE)
    assert {*NEVER, *RULES, *OUTSIDE} <= set(TABLE)
