"""A hypothesis strategy of well-typed modules, made from the op table: the samples say which attributes an op has.

Every op is tried on values that happen to be visible; what its type rule refuses is left out. So a new op takes
part as soon as it has a sample. Hypothesis draws how much there is of everything, a seed decides the rest.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from decgraph.ir.build import Builder
from decgraph.ir.opdef import OpError
from decgraph.ir.table import TABLE
from decgraph.ir.text import parse_module
from decgraph.ir.types import BOOL, INT, Dim, Type, parse_type
from decgraph.ir.values import Claim, Function, Loc, Module, Op, Param, Region, StateDecl, Value
from decgraph.ir.verify import fits, unbounded
from lib.ops.operands import OPERANDS

NAMES = ("", "", "x", "x", "p", "t", "t.1", "%acc", "%", "été", "1", "a b", 'say "x"', "in", "_", "x1")
PATHS = ("", "a.dec", "/tmp/my file.dec", "c:1", 'q".dec')
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.fractions()
    | st.text(max_size=8)
    | st.sampled_from([INT, parse_type("list<token<V>[k<=3],-1>"), Dim("k", "", 4), Dim("vocab", "a b")])
)
DATA = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=2)
    ),
    max_leaves=6,
)


def _straight_ops() -> list[tuple[str, tuple[Type, ...], dict[str, Any]]]:
    """Opcode, operand types and attributes of every sample that is one op without regions."""
    found = []
    for row in TABLE.values():
        for text, _ in row.samples:
            if "\n" in text or "{" in text:
                continue
            names = re.findall(r"%(\w+)", text.split("(", 1)[1])
            params = ", ".join(f"%{n}: {OPERANDS[n][0]}" for n in dict.fromkeys(names))
            module = parse_module(f'module(main = "f")\nfunc f({params}) {{\nbody {{\n{text}\n}}\n}}\n')
            op = module.functions["f"].body.ops[0]
            found.append((op.opcode, tuple(v.type for v in op.operands), op.attrs))
    return found


STRAIGHT = _straight_ops()
RECURSION = 2


class Maker:
    """Fills regions with ops; `visible` holds what an op may use, `counters` the turns of the loops around."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), Builder()
        self.visible: list[Value] = []
        self.counters: list[Value] = []

    def pick(self, want: Callable[[Value], bool]) -> Value | None:
        options = [v for v in self.visible if want(v)]
        return self.random.choice(options) if options else None

    def like(self, t: Type) -> Value | None:
        """Something visible that is probably taken where a `t` is."""
        chance = self.random.random()
        if chance < 0.8 and (same := self.pick(lambda v: v.type == t)) is not None:
            return same
        close = self.pick(lambda v: v.type.elem == t.elem) if chance < 0.97 else None
        return close or self.pick(lambda v: True)

    def name(self) -> str:
        return self.random.choice(NAMES)

    def loc(self) -> Loc:
        return Loc(self.random.choice(PATHS), *(self.random.randrange(99) for _ in range(4)))

    def emit(self, opcode: str, operands: Any, attrs: Any, regions: Any = ()) -> None:
        try:
            names = [self.name() for _ in range(self.random.randrange(4))]
            results = self.b.emit(opcode, operands, attrs, regions, loc=self.loc(), names=names)
        except (OpError, LookupError, AttributeError):  # not a place for this op
            return
        self.visible.extend(results)

    def step(self, depth: int) -> None:
        kinds = ["straight"] * 24 + (["for", "while", "if", "each", "walk", "run"] if depth < RECURSION else [])
        kind = self.random.choice(kinds)
        if kind == "straight":
            self.straight()
        else:
            getattr(self, f"make_{kind}")(depth)

    def straight(self) -> None:
        opcode, types, attrs = self.random.choice(STRAIGHT)
        if opcode == "noise" and attrs["kind"] != "output":
            self.emit("noise", self.counters, attrs)
            return
        operands = [self.like(t) for t in types]
        if all(v is not None for v in operands):
            self.emit(opcode, operands, attrs)

    def region(
        self, args: list[Value], depth: int, yields: Callable[[], list[Value]], counts: bool, size: int | None = None
    ) -> Region:
        before, counters = list(self.visible), list(self.counters)
        self.b.open(args)
        self.visible += args
        if counts:
            self.counters.append(args[0])
        for _ in range(self.random.randrange(8) if size is None else size):
            self.step(depth + 1)
        region = self.b.close(yields())
        self.visible, self.counters = before, counters
        return region

    def arg(self, t: Type) -> Value:
        return Value(t, self.name())

    def const(self, value: Any, t: Type) -> Value:
        value = self.b.const(value, t)
        self.visible.append(value)
        return value

    def fitting(self, t: Type, otherwise: Value) -> Value:
        return self.pick(lambda v: fits(unbounded(v.type), unbounded(t))) or otherwise

    def carried(self) -> list[Value]:
        return [self.random.choice(self.visible) for _ in range(self.random.randrange(3))]

    def make_for(self, depth: int) -> None:
        lo, hi, inits, stops = self.const(0, INT), self.const(2, INT), self.carried(), self.random.random() < 0.5
        args = [self.arg(INT), *(self.arg(v.type) for v in inits)]
        body = self.region(
            args,
            depth,
            lambda: ([self.const(False, BOOL)] if stops else []) + [self.fitting(a.type, a) for a in args[1:]],
            True,
        )
        self.emit("for", [lo, hi, *inits], {"stops": stops, "bound": 2}, [body])

    def make_while(self, depth: int) -> None:
        inits = self.carried()
        test = [self.arg(INT), *(self.arg(v.type) for v in inits)]
        args = [self.arg(INT), *(self.arg(v.type) for v in inits)]
        cond = self.region(test, depth, lambda: [self.const(False, BOOL)], True)
        body = self.region(args, depth, lambda: [self.fitting(a.type, a) for a in args[1:]], True)
        self.emit("while", inits, {"bound": "progress"}, [cond, body])

    def make_if(self, depth: int) -> None:
        some = self.carried()
        both = [self.region([], depth, lambda: [self.fitting(v.type, v) for v in some], False) for _ in range(2)]
        self.emit("if", [self.const(True, BOOL)], {}, both)

    def make_each(self, depth: int) -> None:
        xs = self.pick(lambda v: bool(v.type.dims))
        if xs is not None:
            body = self.region(
                [self.arg(INT), self.arg(xs.type.drop())], depth, lambda: [self.random.choice(self.visible)], True
            )
            self.emit("each", [xs], {}, [body])

    def make_walk(self, depth: int) -> None:
        t = self.pick(lambda v: v.type.elem == "tree" and not v.type.dims)
        if t is None:
            return
        evidence = self.pick(lambda v: v.type.elem == "dist" and v.type.dims[:1] == (Dim("nodes", str(t.type.of[0])),))
        if evidence is None:
            return
        edge = Type("edit" if t.type.of[1] == "edit" else "draw", (t.type.of[2],), (Dim("k"),))
        args = [self.arg(INT), self.arg(evidence.type.drop()), self.arg(edge)]

        def yields() -> list[Value]:
            zero, no = self.const(0, INT), self.const(False, BOOL)
            return [no, zero, no, zero]

        self.emit("tree.walk", [t, evidence], {"scope": "node"}, [self.region(args, depth, yields, True)])

    def make_run(self, depth: int) -> None:
        start, bound = self.pick(lambda v: v.type.elem == "node"), self.const(3, INT)
        until = self.region([self.arg(Type("path", ("V",)))], depth, lambda: [self.const(True, BOOL)], False)
        if start is not None:
            attrs = {"callee": "f", "args": (), "has_tree": False, "site": "f.9"}
            self.emit("run", [start, bound, *self.counters], attrs, [until])


BOUNDS = st.none() | st.integers(-9, 99) | st.floats(0, 1) | st.builds(Fraction, st.integers(0, 9), st.integers(1, 9))
SCOPES = st.sampled_from(["sequence", "session", "batch"])


@st.composite
def params(draw: Callable[[Any], Any]) -> tuple[Param, ...]:
    """The samples' operands, and a few parameters with ranges and defaults of any kind."""
    known = [Param(Value(parse_type(t), n), default=None, has_default=True) for n, (t, _) in OPERANDS.items()]
    names = draw(st.lists(st.sampled_from(["gamma", "Ω", "a b", "1"]), unique=True, max_size=2))
    more = [Param(Value(INT, n), draw(BOUNDS), draw(BOUNDS), draw(DATA), True, draw(SCOPES)) for n in names]
    return tuple(known + more)


@st.composite
def functions(draw: Callable[[Any], Any], name: str) -> Function:
    """A function: a state, claims, and a body of ops in and out of regions."""
    ps = draw(params())
    maker = Maker(draw(st.integers(0, 2**32)))
    maker.visible = [p.value for p in ps]
    start = maker.region([], RECURSION, lambda: [maker.const(0, INT)], False)
    token = Value(parse_type("token<V>"), "y")
    ensured = maker.region([token], RECURSION, lambda: [maker.const(True, BOOL)], False)
    body = maker.region([], 0, list, False, draw(st.integers(0, 40)))
    body = Region(draw(st.sampled_from([(), tuple(p.value for p in ps)])), body.ops, body.yields)
    claims = (
        Claim("refines", draw(st.text(max_size=9)), "f", (("i", ("param", "i")),), "tokens", "greedy", loc=maker.loc()),
        Claim("ensures", "ensures", region=ensured),
        Claim("keeps_support", "keeps", models=("target",)),
    )
    policies = draw(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2).map(tuple))
    states = (StateDecl("count", INT, draw(SCOPES), start),)
    claims = claims[draw(st.integers(0, 3)) :]
    return Function(name, ps, states, body, claims, draw(st.text(max_size=20)), maker.loc(), policies)


@st.composite
def modules(draw: Callable[[Any], Any]) -> Module:
    """A module that the verifier accepts."""
    found = {"f": draw(functions("f"))} | ({"g h": draw(functions("g h"))} if draw(st.booleans()) else {})
    return Module(found, "f", draw(st.text(max_size=9)), {"judge": ((parse_type("text"),), BOOL)})


def all_ops(module: Module) -> list[Op]:
    return [op for f in module.functions.values() for op in f.body.walk()]
