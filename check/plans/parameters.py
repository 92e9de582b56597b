"""Worlds for every value that a parameter must be tried at: the default, both ends, and the neighbours of what it meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from decgraph.check.constants import Facts, neighbours
from decgraph.check.settings import own_worlds
from decgraph.check.tables import Style
from decgraph.check.worlds import WorldPlan
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Claim, Function
from decgraph.runtime.arguments import ParamValue

SWITCHED = 6  # worlds of one combination of switches
MOST_SWITCHES = 3  # ... of so many parameters at most
FAR = 64  # larger values of parameters are tried greedily
DEEPEST = 32  # a place of a draft that a constant of the program names is tried up to here
PLACES = 8  # so many of them


def defaults(f: Function, known: Facts) -> tuple[tuple[str, Any], ...]:
    """The declared values of whole numbers, or the largest that a constant which they meet needs, where these are small."""
    met = dict(known.met)
    out = []
    for p in f.params:
        if p.value.type.elem == "int" and p.has_default and isinstance(p.default, int):
            near = neighbours([int(x) for x in met.get(p.name, ())], int(p.low or 0), int(p.high if p.high is not None else 8))
            value = max([p.default if p.default <= 8 else 0, *(n for n in near if n <= 8)])
            if value:
                out.append((p.name, value))
    return tuple(out)


def values_of(f: Function, known: Facts) -> Iterator[tuple[str, Any]]:
    """Values that parameters must be tried at: their default, both ends, and the neighbours of the constants that they meet."""
    met = dict(known.met)
    for p in f.params:
        t = p.value.type
        if p.name in (known.length, known.block) and known.masked:
            continue
        if t.elem == "int":
            low = int(p.low) if p.low is not None else 0
            high = int(p.high) if p.high is not None else max(low, 4)
            default = [int(p.default)] if p.has_default and isinstance(p.default, int) else []
            near = neighbours([int(x) for x in met.get(p.name, ())], low, high)
            for v in dict.fromkeys([*default, low, low + 1, high, *near, min(high, 4), min(high, 5)]):
                if low <= v <= high:
                    yield p.name, v
        elif t.elem in ("prob", "real"):
            low_f = Fraction(str(p.low)) if p.low is not None else Fraction(0)
            high_f = Fraction(str(p.high)) if p.high is not None else Fraction(1) if t.elem == "prob" else low_f + 4
            usual = [Fraction(str(p.default))] if p.has_default and p.default is not None else []
            beside = [Fraction(x) + d for x in met.get(p.name, ()) for d in (Fraction(-1, 50), Fraction(0), Fraction(1, 50))]
            span = high_f - low_f
            for x in dict.fromkeys(
                [*usual, low_f, low_f + span / 1000, low_f + span / 4, low_f + span / 2, high_f - span / 1000, high_f, *beside]
            ):
                if low_f <= x <= high_f:
                    yield p.name, x
        elif t.elem == "bool":
            yield p.name, True
            yield p.name, False
        elif t.elem == "topology" and p.has_default:
            yield p.name, Topology.of(p.default)
            yield p.name, Topology.of("3x2")


def switches(f: Function, known: Facts, given: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Every combination of the parameters that are yes or no, for causal programs with several: what two of them do together no
    world of one value shows. Texts end early where the program asks which do."""
    names = [p.name for p in f.params if p.value.type.elem == "bool" and p.name not in given]
    if known.masked or not 2 <= len(names) <= MOST_SWITCHES:
        return
    for n, values in enumerate(product((False, True), repeat=len(names))):
        for again in range(SWITCHED):
            seed = 2600 + SWITCHED * n + again
            features = (("several eos", "eos")[again % 2],) if known.ends else ()
            params = tuple(zip(names, values, strict=True))
            yield _tight(seed, 3 + again % 2, Style("plain", shared=seed), 6, 2, params, features=features)


def _tight(seed: int, vocab: int, style: Style, limit: int, length: int, params: Any, **more: Any) -> WorldPlan:
    """A world that is about some values of parameters, the others as small as they can be."""
    return WorldPlan("parameter", seed, vocab, style, limit=limit, length=length, params=params, tight=True, **more)


def parameters(f: Function, known: Facts, claim: Claim, vocab: int, given: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Every value that a parameter must be tried at: once where most rows are certain, once greedily, small ones as they
    are."""
    for n, (name, value) in enumerate(values_of(f, known)):
        if name in given:
            continue
        seed = 2000 + 3 * n
        pinned = ((name, value),)
        if known.masked:
            for again, cells in enumerate((4, 3)):
                size, style = (vocab, 2)[again], Style("mixed", shared=seed + again, rare=2 * again)
                square: dict[str, Any] = {"limit": cells, "length": cells, "span": cells, "params": pinned}
                yield WorldPlan("parameter", seed + again, size, style, free=known.memory, temperature=again, **square)
            continue
        big = value > 3 if isinstance(value, int) and not isinstance(value, bool) else isinstance(value, Topology)
        if not big:
            yield _tight(seed, vocab, Style(("plain", "mixed")[n % 2], shared=seed), 5, 3, pinned)
            yield _tight(seed + 1, vocab, Style("peaked", shared=seed + 1), 5, 2, pinned)
            if isinstance(value, Fraction) and value in (0, 1) or claim.kind != "refines":  # thresholds at which all passes
                yield _tight(seed + 2, vocab, Style("zeros", shared=seed + 2), 5, 2, pinned)
            continue
        if isinstance(value, int) and value > 12:  # drafts far beyond the text, which are long: certain from there on
            style = Style("plain", shared=seed, rare=0 if value > FAR else 4, point_from=5)
            yield _tight(seed, vocab, style, 3, 3, pinned, steps=None, runs=40, temperature=int(value <= FAR))
            continue
        limit = value + 2 if isinstance(value, int) else 6
        yield _tight(seed, vocab, Style("plain", shared=seed, rare=5), limit, limit, pinned, steps=None, runs=250)
        if not isinstance(value, int) or value <= 12:
            yield _tight(seed + 1, 2, Style("mixed", shared=seed + 1), 4, 4, pinned)
            if claim.mode == "distribution":
                yield _tight(seed + 1, max(vocab, 3), Style("apart", shared=seed + 1), 3, 1, pinned, prompt=1)
        if isinstance(value, int) and value <= 7:
            style = Style("plain", shared=seed + 2, point_until=value + 1)
            yield _tight(seed + 2, 2, style, value + 1, value + 1, pinned)


def places(f: Function, known: Facts, claim: Claim, given: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Drafts that are certain up to a place that a constant of the program names, open there, and certain behind it: what is
    wrong at the tenth draft alone needs a parameter that lets drafts be as long, whatever it is that the constant meets. For
    claims of distributions also as many siblings."""
    if known.masked:
        return
    found = [
        (p.name, min(c + 2, int(p.high)), c)
        for c in known.counts
        if 3 < c <= DEEPEST
        for p in f.params
        if p.value.type.elem == "int" and p.name not in given and p.high is not None and (p.low or 0) <= c < p.high
    ]
    for n, (name, value, place) in enumerate(found[:PLACES]):
        style = Style("plain", shared=2800 + n, point_until=place + 1, point_from=place + 4)
        yield _tight(2800 + n, 2 + n % 2, style, value + 2, value + 1, ((name, value),))
        if claim.mode == "distribution":
            yield _tight(2850 + n, 4, Style("apart", shared=2850 + n), 3, 1, ((name, value),), prompt=1)


def at_settings(f: Function, known: Facts, claim: Claim, vocab: int, given: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Two worlds for each of some values that satisfy a claim's condition."""
    for n, setting in enumerate(own_worlds(f, claim, given, {known.length} if known.masked else ())):
        large = any(isinstance(v, int) and not isinstance(v, bool) and v > 3 for v in setting.values())
        for again, sort in enumerate(("plain", "mixed")):
            seed = 2600 + 2 * n + again
            drawn = not known.masked or again == 1
            few = known.masked and drawn  # tokens, of which most are certain
            style = Style(sort, shared=seed, rare=4 if large and not known.masked else 2 if few else 0)
            cells: dict[str, Any] = {"length": 3, "tight": True}
            if known.masked:
                cells = {"length": 4, "span": (4, 3)[again]}
            how: dict[str, Any] = {
                "free": known.memory,
                "temperature": int(drawn),
                "limit": 4,
                "params": tuple(setting.items()),
            }
            yield WorldPlan("setting", seed, 2 if few else vocab, style, **how, **cells)
