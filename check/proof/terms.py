"""What numbers and lengths are: sums of symbols (ir/linear.py), op by op, under the claim's condition and that of the branch.

A vector of numbers stands for its generic element, the one at an index J that all vectors of a formula share, so that
`range_(0, n)` is J itself with 0 <= J < n. Real numbers take part only where their type or declared range keeps them finite: of
an infinity or a NaN no sum says anything. The context's length is a symbol of its own for each version of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from decgraph.ir import values
from decgraph.ir.expressions import COUNTING, LARGE, Expressions
from decgraph.ir.facts import Context, Fact, Path, Piece
from decgraph.ir.known_numbers import INDEX, ONE, ZERO, KnownNumbers
from decgraph.ir.linear import Condition, Exact, Inequality, Linear, at_least, compared, condition_of, negated
from decgraph.ir.ops.common import numeric
from decgraph.ir.values import Constant, Op, Value

PROMPT, ROOM = ("prompt",), ("room",)
"""The request's prompt and how many tokens it may generate."""
COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")
Ask = Callable[[Value], Fact | None]


class Terms(KnownNumbers):
    """Sums of the values of one function, as the kernel walks it."""

    def __init__(self, expressions: Expressions, consts: dict[Value, Constant], setting: values.Condition, of: Ask) -> None:
        super().__init__()
        self.expressions, self.consts, self.of = expressions, consts, of
        self.function, self.producers, self.ints = expressions.function, expressions.producers, expressions.ints
        self.sums: dict[Value, Linear] = {}
        self.lengths: dict[Value, Linear] = {}
        self.conditions: dict[Value, Condition] = {}
        self.symbol(PROMPT, 1)
        self.symbol(ROOM, 1)
        self.pieces: dict[Value, Piece] = {}
        self.context: dict[int, Linear] = {0: Linear.of(PROMPT)}
        self.alive = True  # a request is for a token at least
        for p in self.function.params:
            if (known := self.parameter(p, p.value)) is not None:
                self.sums[p.value] = known
        self.assumed += [condition_of(setting, self.asked)] if setting else []

    def asked(self, kind: str, name: str) -> Linear | None:
        """What a claim reads: a parameter, or a quantity of the request."""
        if kind == "request":
            return {"prompt": Linear.of(PROMPT), "room": Linear.of(ROOM)}.get(name)
        return self.sum(self.function.param(name).value)

    def _symbol(self, v: Value, low: Exact | None, high: Exact | None, real: bool = False) -> Linear:
        """A value that stands for itself, between two numbers."""
        self.sums[v] = self.symbol(v, low, high, real)
        return self.sums[v]

    def condition(self, v: Value) -> Condition:
        """A truth value as a condition on numbers, or as a constant."""
        known = self.consts.get(v)
        return known if isinstance(known, bool) else self.conditions.get(v)

    def decided(self, v: Value) -> bool | None:
        """Whether a condition is true, of a vector all along; or false; None where that is not known."""
        condition = self.conditions.get(v)
        if condition is None:
            return None
        if isinstance(condition, bool):
            return condition
        within = self.within(self.lengths.get(v)) if v.type.dims else True
        for answer, it in ((True, condition), (False, negated(condition))):
            if self.proves(("or", negated(within), it)):
                return answer
        return None

    @staticmethod
    def within(length: Linear | None) -> Condition:
        """That the generic index is one of a vector of this length."""
        return True if length is None else Inequality(length - Linear.of(INDEX), True)

    def sum(self, v: Value) -> Linear | None:
        """A number as a sum; of a vector its generic element."""
        known = self.consts.get(v)
        if isinstance(known, int | float | Fraction) and not isinstance(known, bool):
            return Linear.of(Fraction(str(known))) if -LARGE <= known <= LARGE else None
        return self.sums.get(v)

    def length(self, v: Value) -> Linear:
        """How many elements a vector has."""
        known, dims = self.consts.get(v), numeric(v.type).dims[:1]
        if isinstance(known, tuple | list):
            return Linear.of(len(known))
        if dims and dims[0].kind == "vocab":
            self.lengths[v] = self.symbol(("vocabulary", dims[0].of), 1)
        elif v not in self.lengths:
            self._some(v, None)
        return self.lengths[v]

    def _some(self, v: Value, most: Linear | None) -> Linear:
        """A length of which only a bound is known."""
        root = int(bool(v.type.dims) and v.type.dims[0].kind == "nodes")  # of all nodes of a tree there is one
        length = self.lengths[v] = self.symbol(s := ("length", v), root)
        self.know(s, *([] if most is None else [at_least(most, length)]))
        return length

    def _constant(self, v: Value) -> None:
        made = self.sums.get(v) if not v.type.dims else None
        if made is not None and made.number is not None:
            self.consts.setdefault(v, int(made.number) if v.type.elem == "int" else made.number)

    def note(self, op: Op, version: int) -> None:
        """What the results of an op are, and how long."""
        rule = RULES.get(op.opcode)
        if rule is not None and op.results:
            rule(self, op, version)
        for v in op.results:
            if len(v.type.dims) == 1 or v.type.elem in ("list", "path"):
                self.length(v)
            if v in self.conditions:
                if (known := self.decided(v)) is not None:
                    self.consts[v] = known
            elif v in self.sums:
                self._constant(v)
            elif len(v.type.dims) < 2:
                if v.type.elem == "int" and (self.ints or op.opcode in COUNTING) or self.expressions.share(v):
                    self._element(v)

    def _element(self, v: Value) -> None:
        low, high = (None if abs(end) > LARGE else Fraction(end) for end in self.expressions.range(v))
        self._symbol(v, low, high, real=v.type.elem != "int")

    def _map(self, op: Op, version: int) -> None:
        v, fn = op.result, str(op.attrs["fn"])
        vectors = [x for x in op.operands if x.type.dims or x.type.elem in ("dist", "scores")]
        if len(v.type.dims) > 1 or any(len(x.type.dims) > 1 or x.type.elem == "none" for x in (*vectors, *op.operands)):
            return
        sizes = {self.length(x) for x in vectors if x.type.dims}
        if any(not self.equal(a, b) for a, b in pairwise(sizes)):
            return  # one element goes with a vector of many: they share no index
        if sizes:
            self.lengths[v] = sizes.pop()
        if v.type.elem == "bool":
            self.conditions[v] = self._condition(op)
            return
        xs = [x for o in op.operands if (x := self.sum(o)) is not None]
        if len(xs) == len(op.operands) and (found := self.applied(fn, xs, v)) is not None:
            self.sums[v] = found

    def _condition(self, op: Op) -> Condition:
        fn = op.attrs["fn"]
        if fn in COMPARES:
            a, b = (self.sum(x) for x in op.operands)
            return None if a is None or b is None else compared(fn, a, b)
        if fn in ("and", "or", "not"):
            parts = [self.condition(x) for x in op.operands]
            return negated(parts[0]) if fn == "not" else (fn, *parts)
        return None

    def _as_int(self, op: Op, version: int) -> None:
        a = self.sum(op.operands[0])
        if op.result.type.dims:
            self.lengths[op.result] = self.length(op.operands[0])
        if a is None or op.operands[0].type.elem not in ("int", "real", "prob"):
            return
        self.sums[op.result] = self.truncated(a, op.result)

    def _same(self, op: Op, version: int) -> None:
        v, x = op.result, op.operands[0]
        if (known := self.sum(x)) is not None:
            self.sums[v] = known
        if x.type.dims or x in self.lengths:
            self.lengths[v] = self.length(x)

    def _len(self, op: Op, version: int) -> None:
        x = op.operands[0]
        if x.type.dims or x.type.elem in ("path", "list"):
            self.sums[op.result] = self.length(x)

    def _tile(self, op: Op, version: int) -> None:
        v, kind = op.result, op.attrs["kind"]
        if kind == "zeros" and len(v.type.dims) != 1 or kind == "zeros" and len(op.operands) != 1:
            return
        xs = [self.sum(x) for x in op.operands]
        first, count = ZERO, xs[-1]
        if kind == "iota" and len(xs) == 2:
            low, high = (None if x is None else self.truncated(x, (v, n)) for n, x in enumerate(xs))
            first, count = low or ZERO, None if low is None or high is None else high - low
        if count is not None:
            self.lengths[v] = self._clipped(v, count, None)
            if kind == "iota":
                self.sums[v] = first + Linear.of(INDEX)

    def _clipped(self, v: Value, n: Linear, most: Linear | None) -> Linear:
        """n without its fraction where it is not negative, and no more than `most`."""
        n = self.truncated(n, v)
        if self.at_least(ZERO, n):
            return ZERO
        if most is not None and self.at_least(n, most):
            return most
        if self.at_least(n) and (most is None or self.at_least(most, n)):
            return n
        length, s = self._some(v, most), ("length", v)
        if most is None:
            self.know(s, at_least(length, n))
        elif self.at_least(n):
            self.know(s, at_least(n, length))
            if self.at_least(n, 1) and self.at_least(most, 1):
                self.know(s, at_least(length, 1))
        return length

    def _concat(self, op: Op, version: int) -> None:
        if op.result.type.elem == "path" or any(x.type.elem in ("topology", "path", "node") for x in op.operands):
            return
        parts = [self.length(x) if x.type.dims or x.type.elem == "list" else ONE for x in op.operands]
        self.lengths[op.result] = parts[0] + parts[1]

    def _compact(self, op: Op, version: int) -> None:
        v, (xs, kept) = op.result, op.operands[:2]
        if not v.type.dims:
            return
        known, length = self.consts.get(kept), self.length(xs) if xs.type.dims else ONE
        if known is True and xs.type.dims:
            self._same(op, version)
            return
        self.lengths[v] = ZERO if known is False else self._some(v, length)

    def _slice(self, op: Op, version: int) -> None:
        v, (xs, *ends) = op.result, op.operands
        if not (xs.type.dims or xs.type.elem == "list"):
            return
        length, at = self.length(xs), [self.sum(e) for e in ends]
        at = [None if x is None else self.truncated(x, (v, n)) for n, x in enumerate(at)]
        low = at[0] if op.attrs.get("has_lo") else ZERO
        high = at[-1] if op.attrs.get("has_hi") else length
        if self.at_least(ZERO, length):
            self.lengths[v] = ZERO
        elif low is None or high is None or not all(self.at_least(x) for x in (low, high)):
            self.lengths[v] = self._some(v, length)
        else:
            high = length if self.at_least(high, length) else high
            if low == ZERO:
                self.lengths[v] = self._clipped(v, high, length)
            elif self.at_least(length, high):
                self.lengths[v] = self._clipped(v, high - low, None)
            else:
                self.lengths[v] = self._some(v, length)

    def _sort(self, op: Op, version: int) -> None:
        if op.operands[0].type.dims:
            self.lengths[op.result] = self.length(op.operands[0])

    def _top(self, op: Op, version: int) -> None:
        if op.operands[0].type.elem == "draw":  # where little was left to draw, some of them are none
            self._some(op.result, self.length(op.operands[0]))
            return
        count = self.sum(op.operands[1])
        if len(op.result.type.dims) == 1 and len(op.operands[0].type.dims) == 1 and count is not None:
            self.lengths[op.result] = self._clipped(op.result, count, self.length(op.operands[0]))

    def _first(self, op: Op, version: int) -> None:
        """The first few; of a condition the places of the first few that are true, of which there may be fewer."""
        v, (xs, count) = op.result, op.operands
        n = self.sum(count)
        if len(v.type.dims) != 1 or len(xs.type.dims) != 1 or n is None:
            return
        if v.type.elem == xs.type.elem:
            self.lengths[v] = self._clipped(v, n, self.length(xs))
        else:
            n, length = self.truncated(n, v), self._some(v, self.length(xs))
            self.know(("length", v), *([at_least(n, length)] if self.at_least(n) else []))

    def _tree(self, op: Op, version: int) -> None:
        """How many nodes a tree has below its root."""
        if op.opcode == "tree.new":
            self.lengths[op.result] = ZERO
        elif op.attrs["what"] == "size" and op.operands[0] in self.lengths:
            self.sums[op.result] = self.lengths[op.operands[0]]

    def _bernoulli(self, op: Op, version: int) -> None:
        """A coin that never or always comes up."""
        p = self.sum(op.operands[0]) if not op.result.type.dims else None
        if p is not None and p.number is not None and not 0 < p.number < 1:
            self.conditions[op.result] = p.number >= 1

    def _list(self, op: Op, version: int) -> None:
        if op.result.type.dims or op.result.type.elem == "list":
            self.lengths[op.result] = Linear.of(len(op.operands))

    def _layers(self, op: Op, version: int) -> None:
        self.lengths[op.result], self.sums[op.result] = self.layers(op.operands[0]), Linear.of(INDEX)

    def layers(self, model: Value) -> Linear:
        """How many layers a model has."""
        return self.symbol(("layers", model), 1)

    def _attention(self, op: Op, version: int) -> None:
        """A weight for each position of the text."""
        place, text = self.of(op.operands[1]), op.operands[1]
        if isinstance(place, Context):
            self.lengths[op.result] = self.context[place.version] - (1 if place.parent else 0)
        elif text.type.dims:
            self.lengths[op.result] = self.length(text)

    def _request(self, op: Op, version: int) -> None:
        if op.attrs["field"] == "prompt":
            self.lengths[op.result] = Linear.of(PROMPT)
        elif op.attrs["field"] == "room":
            left = self._symbol(op.result, 0, None)
            most = Linear.of(PROMPT) + Linear.of(ROOM) - self.context[version]
            self.know(op.result, at_least(most, left))

    def _context(self, op: Op, version: int) -> None:
        place = self.of(op.operands[0])
        if not isinstance(place, Context):
            return
        now = self.context[place.version] - (1 if place.parent else 0)
        match op.attrs["field"]:
            case "length":
                self.sums[op.result] = now
            case "path":
                self.lengths[op.result] = now
            case "last" if (count := self.sum(op.operands[1])) is not None:
                self.lengths[op.result] = self._clipped(op.result, count, now)

    def _reduce(self, op: Op, version: int) -> None:
        """How many, and what the mean or an end of finite numbers lies between; the mean of none is 0."""
        fn, xs = op.attrs["fn"], op.operands[0]
        if len(numeric(xs.type).dims) != 1 or op.result.type.dims:
            return
        if fn == "count":
            n = self._symbol(op.result, 0, None)
            self.know(op.result, at_least(self.length(xs), n))
        x = self.sum(xs)
        if x is None or fn not in ("mean", "max", "min") or fn != "mean" and not self.at_least(self.length(xs), 1):
            return
        low = 0 if self.at_least(x) else None
        high = 1 if self.at_least(ONE, x) else None
        self._symbol(op.result, low, high, real=op.result.type.elem != "int")

    def _scan(self, op: Op, version: int) -> None:
        """How many are true at the front."""
        if op.attrs["fn"] == "leading" and not op.result.type.dims:
            known = self.consts.get(op.operands[0])
            n = self._symbol(op.result, 0, None)
            self.know(op.result, at_least(ZERO if known is False else self.length(op.operands[0]), n))
            if known is False:
                self.sums[op.result] = ZERO

    def _gather(self, op: Op, version: int) -> None:
        if len(op.operands) == 2 and len(op.operands[1].type.dims) == 1 and len(op.result.type.dims) == 1:
            self.lengths[op.result] = self.length(op.operands[1])

    def _path(self, op: Op, version: int) -> None:
        """What is accepted or run has a token."""
        if op.result.type.dims and isinstance(self.of(op.operands[0]), Path) and op.attrs["field"] in ("prob", "token"):
            self.know(("length", op.result), at_least(self._some(op.result, None), 1))

    def _as_long(self, op: Op, version: int) -> None:
        """An element for each element of the first operand that is a vector; of rows of a text, one for each token."""
        read = op.opcode in ("model.read", "model.states", "head.read")
        xs = op.operands[1 if read else 0]
        whole = op.opcode not in ("model.read", "model.states") or op.attrs.get("each")
        if op.opcode == "arg" and len(op.operands) == 1 and op.result.type.elem == "int" and not op.result.type.dims:
            i = self._symbol(op.result, 0, None)
            self.know(op.result, Inequality(self.length(xs) - i, True))
        if len(op.result.type.dims) == 1 and xs.type.dims and whole and op.result.type.dims[0].kind != "vocab":
            self.lengths[op.result] = self.length(xs)


RULES: dict[str, Callable[[Terms, Op, int], None]] = {
    "map": Terms._map,
    "as_int": Terms._as_int,
    "within": Terms._same,
    "sort": Terms._sort,
    "len": Terms._len,
    "tile": Terms._tile,
    "concat": Terms._concat,
    "compact": Terms._compact,
    "slice": Terms._slice,
    "select.top": Terms._top,
    "take_first": Terms._first,
    "list": Terms._list,
    "tree.new": Terms._tree,
    "tree.size": Terms._tree,
    "bernoulli": Terms._bernoulli,
    "scan": Terms._scan,
    "model.layers": Terms._layers,
    "model.attention": Terms._attention,
    "path.get": Terms._path,
    "lookup": Terms._gather,
    "request": Terms._request,
    "ctx.get": Terms._context,
    "reduce": Terms._reduce,
    "gather": Terms._gather,
    **dict.fromkeys(("contains", "face", "softmax", "model.read", "model.states", "head.read", "arg"), Terms._as_long),
}
