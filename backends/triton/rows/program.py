"""Row programs: computations on rows over a vocabulary, as a small graph from which a kernel is generated.

A node is a vector over the vocabulary (one a row), a number (one a row) or several tokens (k a row). Equal nodes are one node.
The builder saves passes over the row: the largest probability is one over the sum, the likeliest token and the race of a
softmax need no normalising, entropy is computed with the sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from decgraph.ir.values import Op

FOLDS = {"max": 1, "min": 1, "sum": 1, "any": 1, "all": 1, "count": 1, "argmax": 2, "argmin": 2, "logsum": 3, "best": 2}
"""Folds of a row, and how many results each has."""

CONDITIONS = ("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not")
"""Elementwise functions with bool results."""

RESERVED = ("row", "token", "lane", "inside", "split", "splits", "start", "iteration", "j", "tl", "triton")
"""Names of a kernel's own."""


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a row program. shape: "vector", "number", "several" or "none"; type: "real", "int" or "bool".
    name: in the kernel; op: of the program, which it came from."""

    kind: str
    args: tuple[Node, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    shape: str = "number"
    type: str = "real"
    name: str = ""
    op: Op | None = None


class RowProgram:
    """A program over R rows of V entries. wide: computed in float64.

    Inputs are named; outputs are (name, node) in the order in which they were added.
    """

    def __init__(self, name: str, *, wide: bool = False) -> None:
        self.name, self.wide = name, wide
        self.inputs: dict[str, Node] = {}
        self.outputs: list[tuple[str, Node]] = []
        self.op: Op | None = None  # marks nodes created now
        self.hint = ""  # and names them
        self._known: dict[Hashable, Node] = {}
        self._names = set(RESERVED)

    # -- inputs --------------------------------------------------------------------------------------------------------

    def row(self, name: str, *, scores: bool, gathered: bool = False) -> Node:
        """Rows of scores (beyond the end: -inf) or of probabilities (beyond the end: 0), [N, V]; `gathered`: row r is row
        `name_at[r]`."""
        return self._input("row", name, "vector", "real", scores=scores, gathered=gathered)

    def shared(self, name: str) -> Node:
        """A vector float[V] that all rows add or multiply."""
        return self._input("shared", name, "vector", "real")

    def point(self, tokens: Node) -> Node:
        """One-hot at a token of each row (a negative token: zeros)."""
        return self._node("point", (tokens,), "vector", "real")

    def number(self, name: str) -> Node:
        """A number of each row, float[R]."""
        return self._input("number", name, "number", "real")

    def token(self, name: str) -> Node:
        """A token of each row, int64[R]."""
        return self._input("number", name, "number", "int")

    def noise(self, name: str) -> Node:
        """The noise of each row: `name_words` int32[R, 3], the bits of (c0, c1, c2), and `name_seeds` int64[R, 2]."""
        return self._input("noise", name, "none", "real")

    def members(self, name: str, k: int) -> Node:
        """Tokens of each row, int64[R, k]."""
        return self._input("members", name, "none", "int", k=k)

    def setting(self, name: str) -> Node:
        """One number for all rows, an argument of the launch: a temperature."""
        return self._input("setting", name, "number", "real")

    def literal(self, value: float | bool) -> Node:
        """A compile-time constant."""
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"
        return self._node("literal", (), "number", kind, value=value)

    # -- elementwise ---------------------------------------------------------------------------------------------------

    def map(self, fn: str, *args: Node) -> Node:
        """An elementwise function of vectors and numbers."""
        shape = "vector" if any(a.shape == "vector" for a in args) else "number"
        kind = args[-1].type if fn == "select" else "int" if all(a.type == "int" for a in args) and fn != "div" else "real"
        kind = "bool" if fn in CONDITIONS else kind
        return self._node("map", args, shape, kind, fn=fn)

    def softmax(self, scores: Node, temperature: Node | float = 1.0) -> Node:
        """Probabilities of scores over a temperature; a row of -inf alone is zeros."""
        heat = self.heat(temperature)
        base, mass, _ = self._logsum(scores, *heat)
        return self._node("softmax", (scores, base, mass, *heat), "vector", "real")

    def heat(self, temperature: Node | float) -> tuple[Node, ...]:
        """A temperature as an argument: a setting or a compile-time constant; none where it is 1."""
        if isinstance(temperature, Node):
            return (temperature,)
        return () if temperature == 1 else (self.literal(float(temperature)),)

    def exclude(self, values: Node, members: Node, count: Node) -> Node:
        """The values, 0 at the first `count` members of the row."""
        return self._node("exclude", (values, members, count), "vector", "real")

    def arrival(self, q: Node, noise: Node) -> Node:
        """The times at which tokens arrive in a race: E_v / q_v, inf where q has no mass."""
        return self._node("arrival", (q, noise), "vector", "real")

    def race_key(self, scores: Node, noise: Node, temperature: Node | float = 1.0) -> Node:
        """The same race in logarithms, highest first: scores / temperature - log E."""
        return self._node("race_key", (scores, noise, *self.heat(temperature)), "vector", "real")

    def normalized(self, weights: Node) -> Node:
        """Weights over their sum; zeros stay zeros."""
        mass = self.fold("sum", weights)[0]
        return self.map("div", weights, self.map("select", self.map("gt", mass, self.literal(0.0)), mass, self.literal(1.0)))

    # -- folds ---------------------------------------------------------------------------------------------------------

    def fold(self, kind: str, values: Node, *more: Node, **attrs: Any) -> tuple[Node, ...]:
        """A fold of a row, all its results. argmax and argmin: (value, token), ties to the lowest; best: (values, tokens) of
        the `k` largest, largest first."""
        kept = self._node(kind, (values, *more), "none", "real", **attrs)
        shape = "several" if kind == "best" else "number"
        types = {
            "argmax": ("real", "int"),
            "argmin": ("real", "int"),
            "best": ("real", "int"),
            "any": ("bool",),
            "all": ("bool",),
            "count": ("int",),
        }.get(kind, ("real",) * FOLDS[kind])
        return tuple(self._node("result", (kept,), shape, t, index=i) for i, t in enumerate(types))

    def _logsum(self, scores: Node, *temperature: Node) -> tuple[Node, ...]:
        """(the largest, the sum of e = exp((x - largest) / temperature), the sum of e (x - largest) / temperature)."""
        return self.fold("logsum", scores, *temperature)

    def max(self, values: Node) -> Node:
        """The largest entry."""
        if values.kind == "softmax":  # exp(0) over the sum
            mass = values.args[2]
            return self.map(
                "select", self.map("gt", mass, self.literal(0.0)), self.map("div", self.literal(1.0), mass), self.literal(0.0)
            )
        return self.fold("max", values)[0]

    def argmax(self, values: Node) -> Node:
        """The lowest token of the largest entries. Of a softmax in float32 it is decided on the scores, which tell apart what
        rounded probabilities may not."""
        if values.kind == "softmax" and not self.wide:
            values = values.args[0]
        return self.fold("argmax", values)[1]

    def entropy(self, p: Node) -> Node:
        """In nats. In float64 term by term as the reference; else from the sums of the softmax."""
        if p.kind == "softmax" and not self.wide:
            _, mass, moment = self._logsum(p.args[0], *p.args[3:])
            return self.map(
                "select",
                self.map("gt", mass, self.literal(0.0)),
                self.map("sub", self.map("log", mass), self.map("div", moment, mass)),
                self.literal(0.0),
            )
        return self.fold("sum", self.map("entr", p))[0]

    def lookup(self, values: Node, token: Node) -> Node:
        """The entry at a token of each row; 0 at a negative one. Reads one entry, not the row."""
        return self._node("lookup", (values, token), "number", values.type)

    def race(self, q: Node, noise: Node) -> Node:
        """The token that wins each row's race, -1 for a row without mass."""
        if q.kind == "softmax" and not self.wide:
            raced = self._node("race_key", (q.args[0], noise, *q.args[3:]), "vector", "real")
            key, token = self.fold("argmax", raced)
            ran = self.map("gt", key, self.literal(float("-inf")))
        else:
            time, token = self.fold("argmin", self.arrival(q, noise))
            ran = self.map("lt", time, self.literal(float("inf")))
        return self.map("select", ran, token, self.literal(-1))

    def output(self, name: str, node: Node) -> None:
        """Ask for a value."""
        self.outputs.append((name, node))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _input(self, kind: str, name: str, shape: str, type_: str, **attrs: Any) -> Node:
        if name not in self.inputs:
            self.hint = name
            self.inputs[name] = Node(kind, (), attrs, shape, type_, self._fresh(kind))
        return self.inputs[name]

    def _node(self, kind: str, args: tuple[Node, ...], shape: str, type_: str, **attrs: Any) -> Node:
        key = (kind, tuple(map(id, args)), repr(sorted(attrs.items())))
        if key not in self._known:
            name = self._fresh(attrs.get("fn", kind)) if kind not in ("literal", "result") else ""
            self._known[key] = Node(kind, args, attrs, shape, type_, name, self.op)
        return self._known[key]

    def _fresh(self, base: str) -> str:
        base, self.hint = self.hint or base + "_", ""
        n, name = 1, base if not base.endswith("_") else f"{base}1"
        while name in self._names:
            n += 1
            name = f"{base.rstrip('_')}_{n}"
        self._names.add(name)
        return name


def level(node: Node, known: dict[int, int]) -> int:
    """The number of passes over the row before a value can be computed (of a vector: the numbers that it needs)."""
    if id(node) not in known:
        known[id(node)] = max((level(a, known) for a in node.args), default=0) + (node.kind in FOLDS)
    return known[id(node)]


def reached(nodes: list[Node]) -> Iterator[Node]:
    """The nodes and all that they depend on, arguments first."""
    seen: set[int] = set()

    def visit(n: Node) -> Iterator[Node]:
        if id(n) not in seen:
            seen.add(id(n))
            for a in n.args:
                yield from visit(a)
            yield n

    for n in nodes:
        yield from visit(n)
