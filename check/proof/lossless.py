"""The judgment `lossless`: a rule of one loop over the children of a node pays the distribution that it owes.

What is owed is a row, at first the evidence p. One iteration over a child x ~ q must satisfy

    accepted mass + (mass of going on) * (row owed afterwards) = row owed before

as rows, for all p and q, where the sums that are divided by are positive and where they are 0; after the loop a fresh draw of
what is owed is emitted. Induction over the children gives any number of siblings (`siblings_lossless`), induction over depth a
tree (`grown_Law`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from decgraph.check.proof.matching import MOST_PATHS, NoRule
from decgraph.check.proof.rows import (
    ONE,
    SHARE,
    P,
    Q,
    RowNames,
    Scalar,
    SymbolicRow,
    added,
    below,
    inverse,
    plus,
    scaled,
    times,
    where,
    where_zero,
)
from decgraph.ir.values import Constant, Op, Region, Value


@dataclass(frozen=True)
class Is:
    """An abstract value: the index of the loop, the child, a noise, a row, a row at the child, and what is told by the row n: a
    ratio n[x] / q[x], a chance (such a ratio, at most 1), a coin with it, a row that is normalized when it is emitted; a number
    that is the same for all tokens; a test of a row against such a number, of all tokens or at the child."""

    kind: str
    row: SymbolicRow = field(default_factory=dict, hash=False)


INDEX, CHILD, CHILDREN, NOISE, OWED, UNKNOWN = (Is(k) for k in ("index", "child", "children", "noise", "owed", "unknown"))
LossValue: TypeAlias = Is | Constant
"""What is known of a value in a rule: what it is, or a constant."""
FLIPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
Branch = tuple[SymbolicRow, Mapping[Value, LossValue]]
"""Of one way through an iteration: its mass as a row over the child's token, and what values are."""


def _share(s: Scalar) -> LossValue:
    """A number that is the same for all tokens."""
    return s.get((), Fraction(0)) if all(not m for m in s) else Is("share", {"": s})


def _scalar(x: LossValue) -> Scalar | None:
    """Such a number as a scalar."""
    if isinstance(x, Is):
        return x.row[""] if x.kind == "share" else None
    number = isinstance(x, int | Fraction) and not isinstance(x, bool)
    return {(): Fraction(x)} if number and x else ({} if number else None)  # type: ignore[arg-type]


def _is_share(s: Scalar) -> bool:
    """Whether it is known to lie between 0 and 1."""
    return not below(s) and not below(plus(ONE, s, -1))


class Lossless:
    """The judgment on the region of one `tree.walk`. outside: the constant that a value from outside is, or whether it is a
    parameter between 0 and 1."""

    def __init__(self, op: Op, outside: Callable[[Value], Constant | bool] = lambda v: None) -> None:
        self.op, self.rows, self.outside = op, RowNames(), outside
        self.shares: dict[Value, LossValue] = {}
        self.accepted: tuple[LossValue, ...] | None = None

    def judge(self) -> None:
        """Raises NoRule unless the rule is lossless."""
        region = self.op.regions[0]
        _, p, children = region.args
        loops = [o for o in region.ops if o.opcode == "for"]
        if self.op.attrs["scope"] != "node" or len(loops) != 1:
            raise NoRule("not one loop over the children of a node")
        self.noises(region, (region.args[0],), {})
        (loop,) = loops
        made = {o.result: o for o in region.ops if len(o.results) == 1}
        low, high = (made.get(v) for v in loop.operands[:2])
        whole = low is not None and low.opcode == "const" and low.attrs["value"] == 0
        if not (whole and high is not None and high.opcode == "len" and high.operands[0] is children):
            raise NoRule("the loop does not go over all the children in order")
        carried = list(loop.operands[2:])
        if p not in carried:
            raise NoRule("what is owed is not carried from child to child")
        owed, consts = carried.index(p), self._before(region, loop)
        start = tuple(consts.get(v, UNKNOWN) if v is not p else None for v in carried)
        self._iteration(loop, start, owed, children, consts)
        self._after(region, loop, start, owed, consts)

    def _before(self, region: Region, loop: Op) -> dict[Value, LossValue]:
        """Constants that are set before the loop."""
        out = {}
        for op in region.ops[: region.ops.index(loop)]:
            if op.opcode == "const":
                out[op.result] = op.attrs["value"]
            elif op.opcode != "len":
                raise NoRule(f"{op.opcode} before the loop")
        return out

    def noises(self, region: Region, counters: tuple[Value, ...], keys: dict[Value, tuple[Value, ...]]) -> None:
        """Every noise is keyed by all loops around it, made where it is read, and read once."""
        for op in region.ops:
            if op.opcode == "noise":
                if op.attrs["kind"] == "output":
                    raise NoRule("reads the output stream, and tests the distributions of drafts")
                if not set(counters) <= set(op.operands):
                    raise NoRule("a noise that is not keyed by depth and child")
                keys[op.result] = counters
            for v in op.operands:
                if v.type.elem == "noise" and keys.pop(v, None) != counters:
                    raise NoRule("a noise that is read twice, or elsewhere than it is made")
            for inner in op.regions:
                looped = op.opcode in ("for", "while", "each")
                self.noises(inner, (*counters, inner.args[0]) if looped else counters, keys)

    def _iteration(
        self, loop: Op, start: tuple[LossValue, ...], owed: int, children: Value, consts: dict[Value, LossValue]
    ) -> None:
        body = loop.regions[0]
        if not loop.attrs.get("stops"):
            raise NoRule("the loop never accepts")
        env = {**consts, **dict(zip(body.args[1:], start)), body.args[0]: INDEX, children: CHILDREN}
        env[body.args[1 + owed]] = Is("row", P)
        accepted: SymbolicRow = {}
        again: list[tuple[Scalar, Is]] = []
        for mass, after in self._run(body, [(Q, env)]):
            stop, *state = (after.get(v, UNKNOWN) for v in body.yields)
            row, others = state[owed], [x for n, x in enumerate(state) if n != owed]
            if stop is True and others.count(CHILD) == 1 and others.count(True) == 2:
                accepted = added(accepted, mass)
                self.accepted = tuple(None if n == owed else x for n, x in enumerate(state))
            elif (
                stop is False
                and others == [x for n, x in enumerate(start) if n != owed]
                and isinstance(row, Is)
                and row.kind in ("row", "normalized")
                and not self.rows.negative(row.row)
            ):
                again.append((self.rows.total(mass), row))
            else:
                raise NoRule("an iteration ends in a state that is neither accepted nor as before")
        self._balanced(accepted, again)

    def _balanced(self, accepted: SymbolicRow, going: list[tuple[Scalar, Is]]) -> None:
        """accepted + the sum of mass * row owed = P. Where the row owed is P - accepted, divided by its sum, it holds: the sum
        is the mass of going on, and where it is 0 none goes on."""
        left = added(P, accepted, -1)
        if all(row.kind == "normalized" and row.row == left for _, row in going):
            return
        again = [(mass, row.row if row.kind == "row" else self.rows.normalized(row.row)) for mass, row in going]
        whole = accepted
        for mass, row in again:
            whole = added(whole, scaled(row, mass))
        if added(whole, P, -1):
            raise NoRule("accepted mass + the rest's mass * what is owed then is not what was owed before")
        divided = {s for _, row in again for x in row.values() for m in x for s, e in m if e < 0}
        for symbol in divided:
            goes_on = any(dict(m).get(symbol, 0) <= 0 for mass, _ in again for m in mass)
            if goes_on or where_zero(added(accepted, P, -1), symbol):
                raise NoRule(f"not right where {symbol} is 0")

    def _after(self, region: Region, loop: Op, start: tuple[LossValue, ...], owed: int, consts: dict[Value, LossValue]) -> None:
        """Nothing accepted: a fresh draw of what is owed is emitted. Accepted: the child, and nothing is emitted."""
        rest = Region((), region.ops[region.ops.index(loop) + 1 :], ())
        for state, accepts in ((start, False), (self.accepted, True)):
            if state is None:
                continue
            env: dict[Value, LossValue] = {**consts, **dict(zip(loop.results, state))}
            env[loop.results[owed]] = Is("row", P)
            for _, after in self._run(rest, [(Q, env)]):
                has, what, emits, token = (after.get(v, UNKNOWN) for v in region.yields)
                if accepts and not (has is True and what == CHILD and emits is False):
                    raise NoRule("what was accepted is not what the rule yields")
                if not accepts and not (has is False and emits is True and token == OWED):
                    raise NoRule("what is owed is not emitted after the children, or emitted twice")

    def _run(self, region: Region, paths: list[Branch]) -> list[Branch]:
        for op in region.ops:
            paths = [after for path in paths for after in self._step(op, *path)]
            if len(paths) > MOST_PATHS:
                raise NoRule("too many paths")
        return paths

    def _step(self, op: Op, mass: SymbolicRow, env: Mapping[Value, LossValue]) -> list[Branch]:
        xs = [env[v] if v in env else self._from_outside(v) for v in op.operands]
        if op.opcode == "if":
            return self._branch(op, xs[0], mass, env)
        value = self._value(op, xs) if len(op.results) == 1 else UNKNOWN
        return [(mass, {**env, **dict.fromkeys(op.results, value)})]

    def _from_outside(self, v: Value) -> LossValue:
        known = self.outside(v)
        if known is True:
            return self.shares.setdefault(v, _share({((f"{SHARE}{len(self.shares)}", 1),): Fraction(1)}))
        return UNKNOWN if known is None or isinstance(known, bool) else known

    def _value(self, op: Op, xs: list[LossValue]) -> LossValue:
        if op.opcode == "map" and (made := self._number(op.attrs["fn"], xs)) is not None:
            return made
        match op.opcode, op.attrs.get("fn"), xs:
            case "const", _, _:
                value: Constant = op.attrs["value"]
                return value
            case "noise", _, _:
                return NOISE
            case "gather", _, [Is("children"), Is("index")]:
                return CHILD
            case "lookup", _, [Is("row") as x, Is("child")]:
                return Is("row at child", x.row)
            case "draw.get", _, [Is("child")] if op.attrs["field"] == "law":
                return Is("row", Q)
            case "map", "div", [Is("row at child") as x, Is("row at child") as y] if y.row == Q:
                return Is("ratio", x.row)
            case "map", "sub" | "contrast" | "add" as fn, [Is("row" | "row at child" as kind) as x, Is() as y] if (
                y.kind == kind
            ):
                return Is(kind, added(x.row, y.row, 1 if fn == "add" else -1))
            case "map", "add", [Is("ratio" | "chance") as x, Is("ratio" | "chance") as y]:
                return Is("ratio", added(x.row, y.row))
            case "map", "relu", [Is("row") as x]:
                return Is("row", self.rows.relu(x.row))
            case "map", "minimum", [Is("row") as x, Is("row") as y]:
                return Is("row", self.rows.minimum(x.row, y.row))
            case "map", "select", [Is("test of all" | "no test of all" as kind) as x, a, b]:
                rows = [y.row if isinstance(y, Is) and y.kind == "row" else {} if y == 0 else None for y in (a, b)]
                yes, no = rows if kind == "test of all" else rows[::-1]
                return UNKNOWN if yes is None or no is None else Is("row", added(no, where(added(yes, no, -1), *x.row)))
            case "map", "and", [Is("coin") as x, Is("test") as y] | [Is("test") as y, Is("coin") as x]:
                return Is("coin", where(x.row, *y.row))
            case "normalize", _, [Is("row") as x]:
                return Is("normalized", x.row) if len(self.rows.total(x.row)) > 1 else Is("row", self.rows.normalized(x.row))
            case "map", "not", [bool() as x]:
                return not x
            case "map", "and", _ if all(isinstance(x, bool) for x in xs):
                return all(xs)
            case "map", "or", _ if all(isinstance(x, bool) for x in xs):
                return any(xs)
            case "draw", _, [Is("row") as x, Is("noise")]:
                return OWED if x.row == P else UNKNOWN
            case "bernoulli", _, [Is("ratio") as x, Is("noise")] if not self.rows.negative(x.row):
                return Is("coin", self.rows.minimum(x.row, Q))  # q * min(1, n / q) = min(n, q), for n >= 0
            case "bernoulli", _, [Is("chance") as x, Is("noise")]:
                return Is("coin", x.row)
            case "bernoulli", _, [x, Is("noise")] if (share := _scalar(x)) is not None and _is_share(share):
                return Is("coin", scaled(Q, share))
        return UNKNOWN

    def _number(self, fn: str, xs: list[LossValue]) -> LossValue:
        """An elementwise function of two operands, of which one is the same number for all tokens; or None."""
        if len(xs) != 2 or all(_scalar(x) is None for x in xs):
            return None
        (x, y), swapped = xs, False
        if _scalar(y) is None and fn != "sub":
            (x, y), swapped = (y, x), True
        a, b = _scalar(x), _scalar(y)
        kind = x.kind if isinstance(x, Is) and a is None else ""
        match fn:
            case "sub" if b is None:
                less = isinstance(y, Is) and y.kind == "chance" and a == ONE
                return Is("chance", added(Q, y.row, -1)) if less and isinstance(y, Is) else None
            case "mul" | "weigh" | "add" | "sub" if a is not None and b is not None:
                return _share(times(a, b) if fn in ("mul", "weigh") else plus(a, b, 1 if fn == "add" else -1))
            case "mul" | "weigh" if b == {}:
                return 0
            case "mul" | "weigh" if b == ONE:
                return x
            case "add" if b == {}:
                return x
        if b is None or not isinstance(x, Is):
            return None
        rowlike = kind in ("row", "row at child")
        match fn:
            case "mul" | "weigh" if rowlike or kind in ("ratio", "chance"):
                return Is("ratio" if kind == "chance" and not _is_share(b) else kind, scaled(x.row, b))
            case "div" if rowlike and not swapped and len(b) == 1 and () in b:
                return Is(kind, scaled(x.row, inverse(b)))
            case "minimum" if kind in ("ratio", "chance") and _is_share(b) and not self.rows.negative(x.row):
                return Is("chance", self.rows.minimum(x.row, scaled(Q, b)))
            case "gt" | "ge" | "lt" | "le" if rowlike:
                return self._test(FLIPPED[fn] if swapped else fn, x, b)
        return None

    def _test(self, how: str, x: Is, bound: Scalar) -> Is:
        """A test of a row's numbers; `lt` is `ge` that does not hold."""
        kind = ("no test" if how in ("lt", "le") else "test") + (" of all" if x.kind == "row" else "")
        return Is(kind, {self.rows.test({"lt": "ge", "le": "gt"}.get(how, how), x.row, bound): ONE})

    def _branch(self, op: Op, condition: LossValue, mass: SymbolicRow, env: Mapping[Value, LossValue]) -> list[Branch]:
        if isinstance(condition, bool):
            return self._arm(op, 0 if condition else 1, mass, env)
        if not (isinstance(condition, Is) and condition.kind in ("coin", "test", "no test")):
            raise NoRule("a branch on something that is no coin with the chance p[x] / q[x]")
        if condition.kind != "coin":
            yes = where(mass, *condition.row)
            yes = yes if condition.kind == "test" else added(mass, yes, -1)
        else:
            if any(atom.split(" ")[-1] != "Q" for atom in mass):
                raise NoRule("a second coin about the same child")
            yes = {}
            for atom, share in mass.items():  # the coin is tossed for a share of q, where some tests hold
                part = scaled(condition.row, share)
                for test in atom.split(" ")[:-1]:
                    part = where(part, test)
                yes = added(yes, part)
        return self._arm(op, 0, yes, env) + self._arm(op, 1, added(mass, yes, -1), env)

    def _arm(self, op: Op, n: int, mass: SymbolicRow, env: Mapping[Value, LossValue]) -> list[Branch]:
        region = op.regions[n]
        after = self._run(region, [(mass, env)])
        return [(m, {**e, **{r: e.get(y, UNKNOWN) for r, y in zip(op.results, region.yields)}}) for m, e in after]
