"""Conditions of claims over a function's parameters and the request: `when delta == 0 and k > 1`, `when window >= len(prompt) +
room`; what values satisfy them, and what ranges they leave.

A condition is data, nested tuples: ("param", name), ("request", quantity), ("const", value), (op, operands...) with `and`,
`or`, `not`, the comparisons and arithmetic. () is no condition. Values stand in one mapping, parameters by name and what is
known of the request by `of_request`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from decgraph.ir.values import Claim, Condition, Constant, Function, Param

COMPARES: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: dict[str, Callable[..., Constant]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: Fraction(a) / Fraction(b),
    "%": operator.mod,
}
FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
NEAR = Fraction(1, 100)
"""How far beside a constant a number is tried."""
WHOLE = 12
"""Whole numbers of a range are all tried up to here."""
MOST = 20_000
"""Combinations of values that are looked at."""
REQUEST = {"prompt": "len(prompt)", "room": "room"}
"""What a condition may read of a request, in whole tokens, and how it is spelt: its prompt, and what may be generated."""
SIZES = (1, 3, 8, 64)
"""Tokens that are tried for what is not known of a request."""


def of_request(prompt: int, room: int) -> dict[str, int]:
    """What conditions read of a request, in tokens: its prompt, and how many may be generated. No parameter is named so."""
    return {"request.prompt": prompt, "request.room": room}


def plain(value: Any) -> Constant:  # Any: also an array or a tensor, of a run
    """A parameter's value as conditions compare it: exact numbers, vectors as tuples, topologies by name."""
    if hasattr(value, "tolist"):  # a run's parameters are arrays and tensors
        value = value.tolist()
    if isinstance(value, float):
        return value if value in (float("inf"), -float("inf")) or value != value else Fraction(str(value))
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool | int | Fraction | str) or value is None:
        return value
    if isinstance(value, frozenset | set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return tuple(value)
    found: Constant = getattr(value, "name", value)
    return found


def evaluate(condition: Condition, params: Mapping[str, object]) -> Constant:
    """The value of a condition, or of a part of one. Raises KeyError for a parameter without a value, or a request that is not
    known, and TypeError for values that do not compare."""
    op, *rest = condition
    match op:
        case "param":
            return plain(params[rest[0]])
        case "request":
            return plain(params[f"request.{rest[0]}"])
        case "const":
            return plain(rest[0])
        case "and":
            return all(evaluate(c, params) for c in rest)
        case "or":
            return any(evaluate(c, params) for c in rest)
        case "not":
            return not evaluate(rest[0], params)
        case "neg":
            return ARITHMETIC["-"](0, evaluate(rest[0], params))
    a, b = (evaluate(c, params) for c in rest)
    if isinstance(a, frozenset) and isinstance(b, tuple):
        b = frozenset(b)
    if isinstance(b, frozenset) and isinstance(a, tuple):
        a = frozenset(a)
    if op in COMPARES:
        if _sort(a) is not _sort(b):
            raise TypeError(f"{a!r} and {b!r} do not compare")
        return COMPARES[op](a, b)
    return ARITHMETIC[op](a, b)


def _sort(value: Constant) -> type:
    return bool if isinstance(value, bool) else Fraction if isinstance(value, int | float | Fraction) else type(value)


def holds(condition: Condition, params: Mapping[str, object]) -> bool:
    """Whether parameter values satisfy a condition; False where that cannot be said."""
    try:
        return not condition or evaluate(condition, params) is True
    except (KeyError, TypeError, ZeroDivisionError):
        return False


def holds_for(claim: Claim, function: Function, values: Mapping[str, object]) -> bool:
    """Whether a claim's condition holds for the values given (`of_request` among them), the other parameters at their defaults.
    One that reads the request does not hold where it is not known."""
    return holds(claim.setting, {**{p.name: p.default for p in function.params if p.has_default}, **values})


def names(condition: Condition) -> tuple[str, ...]:
    """The parameters that a condition reads, in order."""
    return _read(condition, "param")


def quantities(condition: Condition) -> tuple[str, ...]:
    """What a condition reads of the request, in order: keys of `REQUEST`."""
    return _read(condition, "request")


def _read(condition: Condition, kind: str) -> tuple[str, ...]:
    if not condition or condition[0] in ("param", "request", "const"):
        return (condition[1],) if condition and condition[0] == kind else ()
    return tuple(dict.fromkeys(n for part in condition[1:] for n in _read(part, kind)))


def constants(condition: Condition) -> tuple[Constant, ...]:
    """The constants of a condition, in order."""
    if not condition or condition[0] in ("param", "request"):
        return ()
    if condition[0] == "const":
        return (plain(condition[1]),)
    return tuple(c for part in condition[1:] for c in constants(part))


def settings(function: Function, condition: Condition, beside: Mapping[str, object] | None = None) -> list[dict[str, Constant]]:
    """Values of the parameters that a condition reads, with which it holds: both ends of the declared ranges, the default, the
    constants of the condition and their neighbours, small whole numbers. `beside`: other values to try, those of parameters
    that are fixed, which are not among the condition's, and what is known of the request (`of_request`); of a request that is
    not known it is enough that the condition holds for one. The smallest numbers come first."""
    wanted, beside = names(condition), beside or {}
    known = {p.name: p for p in function.params}
    request = [{k: v for k, v in beside.items() if k.startswith("request.") and isinstance(v, int)}]
    if quantities(condition) and not request[0]:
        request = [of_request(prompt, room) for prompt in SIZES for room in SIZES]
    numbers = [c for c in constants(condition) if isinstance(c, int | Fraction) and not isinstance(c, bool)]
    others = [c for c in constants(condition) if isinstance(c, str | tuple | frozenset)]
    near = [v for v in (plain(x) for x in beside.values()) if isinstance(v, int) and not isinstance(v, bool)]
    near += [sum(r.values()) for r in request if quantities(condition)]
    choices = [list(_values(known[n], numbers, others, near, len(wanted))) for n in wanted]
    for n, tried in zip(wanted, choices, strict=True):
        if n in beside and plain(beside[n]) not in tried:
            tried.append(plain(beside[n]))
    out = []
    for values in itertools.islice(itertools.product(*choices), MOST):
        setting = dict(zip(wanted, values, strict=True))
        if any(holds(condition, {**setting, **r}) for r in request):
            out.append(setting)
    return out


def _values(
    p: Param, numbers: Sequence[int | Fraction], others: Sequence[Constant], near: Sequence[int], count: int
) -> Iterator[Constant]:
    """Values of one parameter to try."""
    t = p.value.type
    if t.elem == "bool":
        yield from (True, False)
    elif t.elem in ("int", "token") and not t.dims:
        low = int(p.low) if p.low is not None else 0
        high = int(p.high) if p.high is not None else None
        default = [p.default] if p.has_default and isinstance(p.default, int) else []
        beside = [int(x) + d for x in numbers for d in (-1, 0, 1)] + [x + d for x in near for d in (0, 1)]
        small = range(low, low + (WHOLE if count < 3 else 5))
        ends = [] if high is None else [high - 1, high]
        found = {v for v in (*small, *beside, *default, *ends) if v >= low and (high is None or v <= high)}
        yield from sorted(found)
    elif t.elem in ("prob", "real", "int"):
        low_f, high_f = ends_of(p)
        inside = [] if low_f is None or high_f is None else [low_f + (high_f - low_f) * f / 4 for f in (1, 2, 3)]
        beside_f = [Fraction(x) + d for x in numbers for d in (-NEAR, Fraction(0), NEAR)]
        usual = plain(p.default) if p.has_default else None
        default_f = [usual] if isinstance(usual, int | Fraction) else []
        for v in sorted({Fraction(x) for x in (low_f, high_f, *inside, *beside_f, *default_f) if x is not None}):
            if (low_f is None or v >= low_f) and (high_f is None or v <= high_f):
                yield v
    else:
        default_o = [plain(p.default)] if p.has_default else []
        same = [frozenset(c) if t.elem == "set" and isinstance(c, tuple) else c for c in others]
        yield from dict.fromkeys([*default_o, *same])


def ends_of(p: Param) -> tuple[Fraction | None, Fraction | None]:
    """The ends of a number's declared range; 0 and 1 of a probability."""
    low, high = plain(p.low), plain(p.high)
    if p.value.type.elem == "prob":
        low, high = 0 if low is None else low, 1 if high is None else high
    return (
        Fraction(low) if isinstance(low, int | Fraction) else None,
        Fraction(high) if isinstance(high, int | Fraction) else None,
    )


def conjuncts(condition: Condition) -> Iterable[Condition]:
    """The parts that all hold where a condition does."""
    if condition and condition[0] == "and":
        for part in condition[1:]:
            yield from conjuncts(part)
    elif condition[:1] == ("not",) and condition[1][0] in NEGATED:
        op, a, b = condition[1]
        yield (NEGATED[op], a, b)
    elif condition:
        yield condition


def alternatives(function: Function, condition: Condition) -> list[Function]:
    """The function with its parameters' ranges narrowed, once for each part of a condition with `or`, without those parts that
    leave a parameter no value."""
    parts = condition[1:] if condition[:1] == ("or",) else ()
    found = [g for part in parts for g in alternatives(narrowed(function, part), part)] or [function]
    empty = [any(p.low is not None and p.high is not None and p.low > p.high for p in g.params) for g in found]
    return [g for g, none in zip(found, empty, strict=True) if not none] or [function]


def narrowed(function: Function, condition: Condition) -> Function:
    """The function with the ranges of its parameters narrowed by the comparisons with constants that a condition demands."""
    params = {p.name: p for p in function.params}
    for part in conjuncts(condition):
        if part[0] == "not" and part[1][0] == "param":
            part = ("==", part[1], ("const", False))
        elif part[0] == "param":
            part = ("==", part, ("const", True))
        if part[0] not in COMPARES:
            continue
        op, a, b = part
        if a[0] != "param" and b[0] == "param":
            op, a, b = FLIPPED[op], b, a
        if a[0] != "param" or names(b) or quantities(b):
            continue
        p, value = params[str(a[1])], evaluate(b, {})
        if isinstance(value, bool) and p.value.type.elem == "bool" and op in ("==", "!="):
            params[p.name] = replace(p, low=int(value is (op == "==")), high=int(value is (op == "==")))
            continue
        if isinstance(value, bool) or not isinstance(value, int | Fraction):
            continue
        whole = p.value.type.elem == "int" and value == int(value)
        strictly = 1 if whole and op in ("<", ">") else 0
        if op in ("==", ">=", ">"):
            low = value + strictly
            params[p.name] = p = replace(p, low=low if p.low is None else max(p.low, low))
        if op in ("==", "<=", "<"):
            high = value - strictly
            params[p.name] = replace(p, high=high if p.high is None else min(p.high, high))
    return replace(function, params=tuple(params[p.name] for p in function.params))


__all__ = [
    "REQUEST",
    "Condition",
    "alternatives",
    "conjuncts",
    "constants",
    "evaluate",
    "holds",
    "holds_for",
    "names",
    "narrowed",
    "of_request",
    "plain",
    "quantities",
    "settings",
]
