"""The search space: the parameters' declared ranges, and which parameters change committed tokens."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Function, Param
from decgraph.runtime.session import check_value

Setting = tuple[tuple[str, object], ...]  # values by name, in the order of the parameters: hashable
SHAPES = (  # by size; between them lie those that a search along one parameter passes
    "1", "2", "1x1", "3", "1x1x1", "2x1", "drafter_3", "4", "1x1x1x1", "drafter_4", "6", "2x1x1", "3x1", "1x1x1x1x1x1",
    "drafter_6", "2x1x1x1", "3x1x1", "8", "drafter_8", "1x1x1x1x1x1x1x1", "2x2x1", "4x1x1", "table_12", "drafter_12", "4x2",
    "3x1x1x1x1", "16", "6x2", "drafter_16", "table_16", "4x2x1", "4x2x1x1", "heads_24", "drafter_24", "4x2x2", "table_32",
    "drafter_32", "6x2x1x1x1x1", "8x2x1", "drafter_48", "8x4x1", "drafter_64", "heads_64",
)  # fmt: skip


class Entrant(NamedTuple):
    """An algorithm with a setting, by which it is measured."""

    algorithm: str
    setting: Setting = ()

    @property
    def label(self) -> str:
        """As `decgraph bench` takes and shows it: `speculative:gamma=6`."""
        return self.algorithm + ":" * bool(self.setting) + ",".join(f"{name}={spelt(value)}" for name, value in self.setting)

    def at(self, setting: Setting) -> Entrant:
        """The same with another setting."""
        return Entrant(self.algorithm, setting)

    def moved(self, name: str, value: object) -> Entrant:
        """The same with another value of one parameter."""
        return self.at(tuple((n, value if n == name else v) for n, v in self.setting))


@dataclass(frozen=True)
class Axis:
    """One parameter to search: its values in order, and which is the default. `changes`: another value may commit other
    tokens, which is why it was named."""

    name: str
    kind: str
    values: tuple[object, ...]
    default: object
    changes: bool = False
    listed: bool = False  # the values were listed by the caller: nothing in between is searched

    def around(self, value: object, *, wide: bool = False) -> list[object]:
        """Values near one, the nearest first: two on both sides, three of shapes, which differ in more than their size. With
        `wide`, those 2, 4, 8, ... places away, and both ends."""
        if self.listed or value not in self.values:
            return [v for v in self.values if v != value]
        at, last = self.values.index(value), len(self.values) - 1
        steps = [2 << n for n in range(last.bit_length())] if wide else [1, 2, 3] if self.kind == "topology" else [1, 2]
        near = [at + side * step for step in steps for side in (-1, 1)]
        ends = [0, last] if wide else []
        return [self.values[n] for n in dict.fromkeys([*near, *ends]) if 0 <= n <= last and n != at]


def smallest(axes: Sequence[Axis], default: Setting) -> Setting:
    """The setting that drafts least: every whole number and shape at the smallest value of its range, but for those that
    change what is committed or whose values the caller listed."""
    least = {a.name: a.values[0] for a in axes if a.kind in ("int", "topology") and not a.changes and not a.listed}
    return tuple((name, least.get(name, value)) for name, value in default)


def setting(function: Function, values: Mapping[str, object]) -> Setting:
    """Values by name in the parameters' order."""
    names = [p.name for p in function.params if p.name in values]
    return tuple((name, values[name]) for name in names)


def spelt(value: object) -> str:
    """A value as it is written on the command line and in profiles."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Fraction):
        return str(float(value)) if Fraction(str(float(value))) == value else str(value)
    if isinstance(value, frozenset):
        return ",".join(map(str, sorted(value)))
    return str(getattr(value, "name", "") or value)


def shown(chosen: Setting) -> str:
    """A setting in a table: long shapes by their size."""
    words = []
    for name, value in chosen:
        text = spelt(value)
        if len(text) > 24 and isinstance(value, Topology):
            text = f"{value.size} nodes, {len(value)} deep"
        words.append(f"{name}={text}")
    return " ".join(words) or "-"


def guarantee(function: Function, temperature: float) -> tuple[str, frozenset[str]]:
    """What the claims promise for all parameters: ("tokens", names) the same committed tokens, ("distribution", names) the same
    distribution, ("", ()) nothing; and the parameters that the specification itself reads, for which it promises nothing.

    A claim in distribution promises the same tokens for greedy requests; one for greedy requests nothing for others.
    """
    for claim in function.claims:
        if claim.kind != "refines" or claim.setting or (claim.for_greedy and temperature):
            continue  # a condition on parameters promises nothing for all of them
        fixed = frozenset(str(value[1]) for _, value in claim.args if isinstance(value, tuple) and value[0] == "param")
        if claim.mode == "tokens" or not temperature:
            return "tokens", fixed
        if claim.mode == "distribution":
            return "distribution", fixed
    return "", frozenset()


def safe(function: Function, temperature: float) -> list[str]:
    """The parameters that change no committed token (or no distribution), so that they may be tuned without being named.

    Thresholds of algorithms that are lossless for greedy requests only are not among them: they trade quality for speed.
    """
    promise, fixed = guarantee(function, temperature)
    if not promise:
        return []
    greedy_only = all(c.for_greedy for c in function.claims if c.kind == "refines" and not c.setting)
    out = []
    for p in _params(function):
        kinds = ("int", "topology", "bool") if greedy_only else ("int", "real", "prob", "topology", "bool")
        if p.value.type.elem in kinds and p.name not in fixed and p.has_default:
            out.append(p.name)
    return out


def axes(function: Function, fixed: Mapping[str, object], wishes: Sequence[str], temperature: float) -> list[Axis]:
    """The axes to search. `wishes` are those of `--search`: `gamma`, `gamma=1..8`, `shape=4x2x1,8x4`; without any, all
    that are safe. `fixed` are values given with `--set`, which are not searched.

    Raises DecError for an unknown parameter, a range outside the declared one, and where nothing may be searched.
    """
    params = {p.name: p for p in _params(function)}
    allowed = safe(function, temperature)
    asked: dict[str, str] = {}
    for wish in wishes:
        name, equals, text = wish.partition("=")
        if name not in params:
            near = difflib.get_close_matches(name, params, 1, 0.5)
            raise DecError(
                f"{function.name} has no parameter `{name}`",
                hint=f"did you mean {near[0]}?" if near else f"parameters: {', '.join(params) or 'none'}",
            )
        if name in asked or name in fixed:
            raise DecError(f"`{name}` is given twice", hint="either --set, a value that stays, or --search, one to try")
        if equals and not text.strip():
            raise DecError(f"--search {wish} has no range", hint=f"--search {name}, {name}=1..8 or {name}=1,2,4")
        asked[name] = text.strip()
    if not params:
        raise DecError(f"{function.name} has no parameters to tune")
    names = list(asked) if wishes else [name for name in allowed if name not in fixed]
    if not names and allowed:
        raise DecError(f"all that may be tuned of {function.name} is set", hint=f"leave {' or '.join(allowed)} out")
    if not names:
        others = ", ".join(name for name in params if name not in fixed)
        raise DecError(
            f"every parameter of {function.name} changes what is committed, so none is tuned unasked",
            hint=f"name what may change, with a range: --search NAME=LOW..HIGH ({others or 'all are set'})",
        )
    return [_axis(function, params[name], asked.get(name, ""), fixed, name not in allowed) for name in names]


def _params(function: Function) -> list[Param]:
    return [p for p in function.params if p.value.type.elem != "model"]


def _axis(function: Function, p: Param, text: str, fixed: Mapping[str, object], changes: bool) -> Axis:
    """One parameter's axis."""
    elem = p.value.type.elem
    default = check_value(function.name, p, p.default) if p.has_default else None
    if text and (elem == "topology" or ".." not in text):
        parts = text.split(",") if not text.startswith("[") else [text]
        values = tuple(dict.fromkeys(check_value(function.name, p, part.strip()) for part in parts))
        return Axis(p.name, elem, _with(default, values, elem, elem == "topology"), default, changes, True)
    if elem == "bool":
        return Axis(p.name, elem, (False, True), default, changes)
    if elem == "topology":
        shapes = tuple(check_value(function.name, p, shape) for shape in SHAPES)
        return Axis(p.name, elem, _with(default, shapes, elem), default, changes)
    if elem not in ("int", "real", "prob"):
        raise DecError(f"`{p.name}` of {function.name} has no range to search", hint=f"list values: --search {p.name}=...,...")
    low, high = p.low, p.high
    if elem == "prob":
        low, high = 0 if low is None else low, 1 if high is None else high
    if text:
        ends = [part.strip() for part in text.split("..")]
        if len(ends) != 2 or not all(ends):
            raise DecError(f"--search {p.name}={text} is no range", hint=f"{p.name}={spelt(low)}..{spelt(high)}")
        low, high = (_number(check_value(function.name, p, end)) for end in ends)
        if low is not None and high is not None and low > high:
            raise DecError(f"--search {p.name}={text} is empty", hint=f"{p.name}={spelt(high)}..{spelt(low)}")
    if low is None or high is None:
        raise DecError(f"`{p.name}` of {function.name} declares no range", hint=f"say one: --search {p.name}=LOW..HIGH")
    values = whole(int(low), int(high)) if elem == "int" else real(Fraction(str(low)), Fraction(str(high)))
    return Axis(p.name, elem, _with(default, values, elem), default, changes)


def _with(default: object, values: tuple[object, ...], elem: str, listed: bool = False) -> tuple[object, ...]:
    """The default is always there: it is what everything is compared with."""
    out = dict.fromkeys(([] if default is None or default in values else [default]) + list(values))
    return tuple(out) if elem == "set" or listed else tuple(sorted(out, key=_place))


def _place(value: object) -> tuple[int | float | Fraction, int]:
    """Shapes are searched in the order of their sizes; of one size the deeper is the later."""
    if isinstance(value, Topology):
        return value.size, len(value)
    if not isinstance(value, int | float | Fraction):
        raise TypeError(f"{value!r} has no place in an order")
    return value, 0


def _number(value: object) -> int | float | Fraction | None:
    """An end of a range; None for one that is no number: infinity is written as a word."""
    return value if isinstance(value, int | float | Fraction) else None


def whole(low: int, high: int) -> tuple[int, ...]:
    """All whole numbers of a small range; of a large one those whose steps grow with them."""
    out, n = [], low
    while n < high:
        out.append(n)
        n = max(n + 1, n + (abs(n) + 1) // 5)
    return (*out, high)


def real(low: Fraction, high: Fraction, steps: int = 10) -> tuple[Fraction, ...]:
    """Evenly over a range, both ends among them."""
    if low == high:
        return (low,)
    return tuple(low + (high - low) * n / steps for n in range(steps + 1))
