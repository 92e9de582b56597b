"""Numbers where facts need them: the context's length, what loops keep of lengths, which positions a vector covers. Sums are
made op by op in check/proof/terms.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from decgraph.check.proof.terms import PROMPT, ROOM, Terms
from decgraph.ir.facts import Context, Fact, Memory, Size
from decgraph.ir.failing_vectors import counted
from decgraph.ir.known_numbers import INDEX, ZERO
from decgraph.ir.linear import Condition, Inequality, Linear, at_least, compared, negated
from decgraph.ir.values import Op, Value

PARTS = ("compact", "take_first", "slice", "sort", "within")
"""Ops that give elements of their first operand."""

T = TypeVar("T")


def _copy(known: dict[Value, T], v: Value, other: Value) -> None:
    """Know of a value what is known of another one."""
    if other in known:
        known[v] = known[other]


class Sizes(Terms):
    """Sums, the versions of the context, and what is asked of both."""

    def is_context(self, start: Linear, end: Linear, version: int) -> bool:
        """Whether a piece of the committed text is all of it."""
        return self.equal(start, ZERO) and self.equal(end, self.context[version])

    def covers(self, v: Value, n: Linear) -> bool:
        """Whether a vector of whole numbers has 0, ..., n - 1 among its elements."""
        op = self.producers.get(v)
        if op is None:
            return self.at_least(ZERO, n)
        match op.opcode:
            case "tile" if op.attrs["kind"] == "iota":
                first = ZERO if len(op.operands) == 1 else self.end(v, op.operands[0])
                length = self.lengths.get(v)
                if first is None or length is None:
                    return False
                return self.at_least(ZERO, first) and self.at_least(first + length, n)
            case "select.top" if "order" not in op.attrs or op.attrs["order"] == "kept":
                count, length = self.sum(op.operands[1]), self.lengths.get(op.operands[0])
                whole = count is not None and length is not None and self.at_least(count, length)
                return whole and self.covers(op.operands[0], n)
            case "concat":
                return any(self.covers(x, n) for x in op.operands)
            case "sort" | "within":
                return self.covers(op.operands[0], n)
            case "compact" if self.sums.get(op.operands[0]) == Linear.of(INDEX) and self.covers(op.operands[0], n):
                kept = self.conditions.get(op.operands[1])
                return self.proves(("or", negated(self.within(n)), kept))
        return False

    def below(self, v: Value) -> Linear | None:
        """A number that all elements of a vector of whole numbers are below, none of them negative."""
        op = self.producers.get(v)
        length = self.lengths.get(v)
        return length if op is not None and self.sums.get(v) == Linear.of(INDEX) else None

    def empty(self, v: Value) -> bool:
        """Whether a vector has no elements."""
        return self.at_least(ZERO, self.length(v))

    def committed(self, old: int, new: int, one: bool) -> None:
        """A new version of the context after a commit, of one token or of any number."""
        if one and self.alive:
            self.context[new] = self.context[old] + 1
        else:
            self.begun(old, new)
            if one:
                self.know(("context", new), at_least(self.context[old] + 1, self.context[new]))
        self.alive = False

    def begun(self, old: int, new: int) -> None:
        """A new version of the context, no shorter than an old one."""
        now = self.context[new] = self.symbol(s := ("context", new))
        self.know(s, at_least(now, self.context[old]), at_least(Linear.of(PROMPT) + Linear.of(ROOM), now))

    @contextmanager
    def under(self, condition: Condition, alive: bool) -> Iterator[None]:
        """What follows where a condition holds; after it nothing of that is known."""
        self.alive = alive
        many = len(self.assumed)
        if condition is not None:
            self.assumed.append(condition)
        yield
        del self.assumed[many:]
        self.alive = False

    def goes_on(self, version: int) -> None:
        """The request is not done: at least one more token may be committed."""
        self.alive = True
        self.assumed.append(at_least(Linear.of(PROMPT) + Linear.of(ROOM), self.context[version] + 1))

    def end(self, key: Value, v: Value) -> Linear | None:
        """A number at which a loop or a vector begins or ends: it is taken without its fraction (`truncated`)."""
        known = self.sum(v)
        return None if known is None else self.truncated(known, (key, v))

    def counter(self, v: Value, loop: Op) -> None:
        """The counter of a loop: from its first number up to its last one."""
        i = self._symbol(v, None, None)
        ends = [self.end(v, x) for x in loop.operands[:2]] if loop.opcode == "for" else [ZERO, None]
        self.know(v, *([] if ends[0] is None else [at_least(i, ends[0])]))
        self.know(v, *([] if ends[1] is None else [Inequality(ends[1] - i, True)]))

    def carried(self, v: Value) -> None:
        """A value that a loop or branch hands on, by what is known of it (ir/facts.py `Size`)."""
        fact, vector = self.of(v), bool(v.type.dims) or v.type.elem in ("path", "list")
        fact = fact if isinstance(fact, Size) and fact.version in self.context else None
        known = None if fact is None else fact.of(self.context[fact.version])
        if known is not None and (vector or v.type.elem == "int"):
            (self.lengths if vector else self.sums)[v] = known
            self._constant(v)
            if fact is not None and fact.beyond is not None:
                self.assumed.append(compared("eq", known, fact.beyond + self.context[fact.version]))
        elif v.type.elem == "int" and not vector and self.ints:
            self._symbol(v, fact.low if fact is not None else None, None)
        elif vector and fact is not None and fact.low:
            self.know(("length", v), at_least(self._some(v, None), Linear.of(fact.low)))
        if vector and v.type.elem == "int" and len(v.type.dims) == 1 and self.ints:
            self._element(v)

    def size(self, v: Value, version: int, wanted: Fact | None = None) -> Size | None:
        """What is known of a number, or of a vector's length, for a loop or a branch. wanted: what should be shown again."""
        vector, now = bool(v.type.dims) or v.type.elem in ("path", "list"), self.context[version]
        known = self.length(v) if vector else self.sum(v) if v.type.elem == "int" else None
        if known is None:
            return None
        if not isinstance(wanted, Size):
            low = Fraction(int(self.at_least(known, 1))) if vector else known.number
            return Size(version, known, known - now, None if low is None else Fraction(low))
        fixed = wanted.fixed if wanted.fixed is not None and self.equal(known, wanted.fixed) else None
        beyond = wanted.beyond if wanted.beyond is not None and self.equal(known, wanted.beyond + now) else None
        low = wanted.low if wanted.low is not None and self.at_least(known, Linear.of(wanted.low)) else None
        return Size(version, fixed, beyond, low)

    def same(self, v: Value, other: Value) -> None:
        """A value is another one."""
        if v.type.dims:
            self.length(other)
        _copy(self.consts, v, other)
        _copy(self.sums, v, other)
        _copy(self.lengths, v, other)
        _copy(self.conditions, v, other)
        _copy(self.pieces, v, other)

    def chosen(self, v: Value, condition: Condition, x: Value, y: Value) -> None:
        """A value that is x where a condition holds, else y."""
        if v.type.elem == "bool" and not v.type.dims:
            a, b = self.condition(x), self.condition(y)
            self.conditions[v] = ("or", ("and", condition, a), ("and", negated(condition), b))
            if (known := self.decided(v)) is not None:
                self.consts[v] = known
        self.carried(v)

    def now(self, fact: Fact | None, version: int) -> Fact | None:
        """A fact about an earlier context, of which that of a memory of its beginning says something of this one."""
        if not isinstance(fact, Memory):
            return fact
        grown = self.context[version] - self.context[fact.version]
        return replace(fact, version=version, short=None if fact.short is None else fact.short + grown)

    # -- errors
    def safe(self, op: Op) -> bool:
        """Whether an op cannot fail here: its numbers are finite, its indices are in range, its vectors have one length."""
        xs = list(op.operands)
        match op.opcode:
            case "as_int":
                return self.sum(xs[0]) is not None
            case "bernoulli":
                noise = self.producers.get(xs[1])  # a coin has no place in the output stream
                placed = noise is not None and (noise.attrs["kind"] != "output" or bool(noise.operands))
                return self.sum(xs[0]) is not None and not op.result.type.dims and placed
            case "tile" | "topk" | "ctx.get" | "take_first" | "slice" if counted(op):
                return all(self.sum(v) is not None for v in counted(op))
            case "ctx.get" | "model.eval" if isinstance(here := self.of(xs[op.opcode == "model.eval"]), Context):
                return not here.parent or self.at_least(self.context[here.version], 2)
            case "arg" | "reduce" if len(xs) == 1 and len(xs[0].type.dims) <= 1:
                made = self.producers.get(xs[0])
                nones = made is not None and any(v.type.elem == "none" for v in made.operands)
                return not nones and self.at_least(self.length(xs[0]), 1)
            case "model.read" if xs[1].type.dims:
                return self.at_least(self.length(xs[1]), 1)
            case "gather" if len(xs) == 2 and not op.attrs.get("axis") and xs[1].type.elem == "int":
                return self.among(xs[1], self.length(xs[0]))
            case "map" if op.attrs["fn"] not in ("div", "mod", "pow"):
                vectors = [v for v in xs if v.type.dims]
                flat = all(len(v.type.dims) == 1 for v in vectors)
                flat &= op.attrs["fn"] != "floor" or self.sum(xs[0]) is not None
                return flat and all(self.equal(self.length(v), self.length(vectors[0])) for v in vectors)
            case "model.derive" if op.attrs["how"] == "skip":
                layers = self.layers(xs[0])
                return all(v.type.dims and self.among(v, layers) for v in xs[1:])
            case "memory.quantized":
                made = self.producers.get(xs[1])
                two = made.operands if made is not None and made.opcode == "list" and len(made.operands) == 2 else xs[1:]
                bits = [self.sum(v) for v in two if not v.type.dims]
                return (
                    isinstance(self.of(xs[0]), Memory)
                    and len(bits) == len(two)
                    and all(b is not None and self.at_least(b, 1) and self.at_least(Linear.of(16), b) for b in bits)
                )
        return False

    def among(self, v: Value, n: Linear) -> bool:
        """Whether a whole number, or each of a vector, is at least 0 and below n."""
        x, op = self.sum(v), self.producers.get(v)
        if not v.type.dims and x is not None and x.number is not None and x.number < 0:
            x = x + n  # counted from the end
        if x is not None:
            within = self.within(self.length(v)) if v.type.dims else True
            if self.proves(("or", negated(within), ("and", at_least(x, ZERO), Inequality(n - x, True)))):
                return True
        if not v.type.dims or op is None:
            return False
        parts = op.operands if op.opcode in ("list", "concat") else op.operands[:1] if op.opcode in PARTS else ()
        return self.empty(v) or bool(parts) and all(self.among(part, n) for part in parts)
