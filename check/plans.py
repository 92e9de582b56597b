"""Which worlds a program is checked in: small ones of every sort, and those that straddle what the program itself names.

What the worlds are there for stands in their labels:

- base: small models, contexts and parameters of every style, half of the requests plain;
- resumed: a step begins after one to three committed tokens; carried: with carried values of any kind; session: in a later
  request;
- parameter: the default, both ends, and the neighbours of the constants that a parameter meets, where most rows are certain;
- context, vocabulary: as long and as large as the program's constants are;
- deep: texts that are certain up to a late token and open from there on, run to their end;
- request: everything that a request can ask for; window: a context window that ends the text;
- canvas: one to eight cells, up to three blocks and more, greedy and sampled; layers: free models for whatever remembers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from decgraph.check.constants import LARGEST, Facts, carried_types, facts, neighbours
from decgraph.check.starts import wholes
from decgraph.check.tables import Style
from decgraph.check.worlds import FEATURES, Plan
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Claim, Function, Module

RUNS = {"parameter": 200, "deep": 300, "searched": 300}  # most runs in worlds of which there are many, or which are long
FAR = 64  # larger values of parameters are tried greedily
QUICK = 10  # fewer worlds of the first kind than this, and of the others there are fewer too
BASE_SORTS = ("plain", "plain", "zeros", "plain", "peaked", "mixed", "tails", "plain", "ties", "sure")
LATER = (("top_k",), ("bans",), ("repetition_penalty",), ("min_length",))
HALF, DOUBLE = Fraction(1, 2), Fraction(2)


def base(f: Function, known: Facts, claim: Claim, i: int, vocab: int) -> Plan:
    """World number i of the first kind."""
    sampled = claim.mode == "distribution"
    style = Style(BASE_SORTS[i % len(BASE_SORTS)], shared=i, window=1 if i % 4 == 3 and not known.masked else None)
    features = () if i % 2 == 0 else (FEATURES[i // 2 % len(FEATURES)],)
    if known.masked:
        greedy = i % 3 == 2
        size, span = (vocab, 4) if greedy else (vocab, 2) if i % 3 == 0 else (2, 3 if i % 6 == 1 else 2)
        if span == 3:
            style = replace(style, rare=2)
        return Plan(
            "base",
            i,
            size,
            style,
            free=i % 3 == 1 or known.memory,
            prompt=1 + i % 3,
            temperature=0 if greedy else 1,
            features=() if "stop" in features or "limit 1" in features else features,
            limit=span,
            length=span,
            span=span,
        )
    temperature: Any = 1
    if i % 7 == 5 or "repetition_penalty" in features:
        style, temperature = replace(style, sort="plain", power=2), (DOUBLE, HALF)[i % 2] if i % 7 == 5 else 1
    return Plan(
        "base",
        i,
        vocab,
        style,
        free=i % 3 == 1 and known.memory,
        prompt=(2, 3, 1, 2, 4, 3, 2, 6, 3, 5)[i % 10],
        temperature=temperature,
        features=features,
        limit=5 if sampled else 3,
    )


def started(f: Function, known: Facts, claim: Claim, vocab: int, rounds: int) -> Iterator[Plan]:
    """Steps from other states than the first."""
    if known.masked or not known.stepwise:
        return
    sampled = claim.mode == "distribution"
    sorts = ("plain", "zeros", "peaked", "plain")
    for n in range(3 * rounds):
        yield Plan(
            "resumed",
            1000 + n,
            vocab,
            Style(sorts[n % 4], shared=n),
            prompt=1 + n % 3,
            committed=1 + n % 3,
            limit=8,
            length=2,
            features=("eos",) if n % 3 == 2 else (),
        )
    if known.states or known.carries:
        turns = len(wholes(known)) if any(t.elem == "int" and not t.dims for t in carried_types(f)) else 0
        for n in range(max(9 * rounds, min(60, 2 * turns))):
            yield Plan(
                "carried",
                1100 + n,
                vocab if n % 2 else 2,
                Style(sorts[n % 4], shared=n),
                prompt=2 + n % 2,
                committed=n % 3,
                arbitrary=n,
                limit=8,
                length=2 if sampled else 3,
                tight=n % 3 == 1,
                params=defaults(f, known) if n % 3 == 2 else (),
            )
        for n in range(3 if sampled else 0):
            yield Plan(
                "steps",
                1200 + n,
                2,
                Style(sorts[n % 4], shared=n),
                prompt=1 + n,
                steps=2 + n % 2,
                limit=4,
                length=4,
                tight=True,
                runs=1500,
            )
        for n, features in enumerate(LATER if sampled else ()):  # what a request asks for holds in the next step, too
            yield Plan(
                "steps",
                1250 + n,
                vocab,
                Style("plain", shared=1250 + n, power=2 if "repetition_penalty" in features else 1),
                prompt=1 + n % 2,
                steps=2,
                limit=3,
                length=3,
                tight=True,
                features=features,
            )
    if known.session or known.batch:
        for n in range(3 * rounds):
            yield Plan(
                "session",
                1300 + n,
                vocab if n % 2 else 2,
                Style(sorts[n % 4], shared=n),
                prompt=2,
                session=1 + n % 2,
                limit=4,
                length=3,
                steps=None if n % 2 else 1,
                tight=True,
                runs=1500,
            )


def defaults(f: Function, known: Facts) -> tuple[tuple[str, Any], ...]:
    """The declared values of whole numbers, or the largest that a constant which they meet asks for, where these are small."""
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


def parameters(f: Function, known: Facts, claim: Claim, vocab: int, given: Mapping[str, Any]) -> Iterator[Plan]:
    """Every value that a parameter must be tried at: once where most rows are certain, once greedily, small ones as they
    are."""
    for n, (name, value) in enumerate(values_of(f, known)):
        if name in given:
            continue
        seed = 2000 + 3 * n
        pinned = ((name, value),)
        if known.masked:
            yield Plan(
                "parameter",
                seed,
                vocab,
                Style("mixed", shared=seed),
                free=known.memory,
                temperature=0,
                limit=4,
                length=4,
                span=4,
                params=pinned,
            )
            yield Plan(
                "parameter",
                seed + 1,
                2,
                Style("mixed", shared=seed + 1, rare=2),
                free=known.memory,
                limit=3,
                length=3,
                span=3,
                params=pinned,
            )
            continue
        big = value > 3 if isinstance(value, int) and not isinstance(value, bool) else isinstance(value, Topology)
        if not big:
            yield Plan(
                "parameter",
                seed,
                vocab,
                Style(("plain", "mixed")[n % 2], shared=seed),
                limit=5,
                length=3,
                params=pinned,
                tight=True,
            )
            yield Plan(
                "parameter", seed + 1, vocab, Style("peaked", shared=seed + 1), limit=5, length=2, params=pinned, tight=True
            )
            continue
        if isinstance(value, int) and value > 12:  # drafts far beyond the text, which are long: certain from there on
            style = Style("plain", shared=seed, rare=0 if value > FAR else 4, point_from=5)
            yield Plan(
                "parameter",
                seed,
                vocab,
                style,
                limit=3,
                length=3,
                steps=None,
                params=pinned,
                tight=True,
                runs=40,
                temperature=int(value <= FAR),
            )
            continue
        limit = value + 2 if isinstance(value, int) else 6
        yield Plan(
            "parameter",
            seed,
            vocab,
            Style("plain", shared=seed, rare=5),
            limit=limit,
            length=limit,
            steps=None,
            params=pinned,
            tight=True,
            runs=250,
        )
        if not isinstance(value, int) or value <= 12:
            yield Plan("parameter", seed + 1, 2, Style("mixed", shared=seed + 1), limit=4, length=4, params=pinned, tight=True)
        if value <= 7 if isinstance(value, int) else False:
            late = 2 + value - 1
            yield Plan(
                "parameter",
                seed + 2,
                2,
                Style("plain", shared=seed + 2, point_until=late),
                limit=value + 1,
                length=value + 1,
                params=pinned,
                tight=True,
            )


def straddling(known: Facts, claim: Claim, vocab: int) -> Iterator[Plan]:
    """Contexts as long, and vocabularies as large, as the numbers that the program names."""
    if known.masked:
        for n, size in enumerate(sorted({min(LARGEST, t + 2) for t in known.tokens + known.widths if t + 2 > vocab})):
            yield Plan(
                "vocabulary",
                3500 + n,
                size,
                Style("plain", shared=n, support=3, among=known.tokens),
                temperature=n % 2,
                limit=3,
                length=3,
                span=3,
                free=False,
            )
        return
    lengths = sorted({m for n in known.counts if 1 < n <= LARGEST for m in (n - 1, n, n + 1) if m > 3})
    for n, length in enumerate(lengths[:24]):
        yield Plan(
            "context", 3000 + n, 2 if n % 2 else vocab, Style("plain", shared=n), prompt=length, limit=3, length=2, tight=True
        )
    sizes = sorted({min(LARGEST, t + 2) for t in known.tokens + known.widths if t + 2 > vocab})
    for n, size in enumerate(sizes[:8]):
        yield Plan(
            "vocabulary",
            3500 + 2 * n,
            size,
            Style("plain", shared=n, support=3, among=known.tokens),
            limit=3,
            length=2,
            tight=True,
            prompt=3,
        )
        if any(w + 2 == size for w in known.widths):
            yield Plan("vocabulary", 3501 + 2 * n, size, Style("tails", shared=n), limit=1, length=1, tight=True, runs=4000)
    for n, size in enumerate((4, 6)):
        yield Plan(
            "vocabulary",
            3600 + n,
            size,
            Style("zeros" if n else "plain", shared=n, support=3 if n else 0),
            limit=3,
            length=2 - n,
            tight=True,
            runs=1500,
        )


def deep(known: Facts, claim: Claim, vocab: int) -> Iterator[Plan]:
    """Texts that are certain up to some token and open from there on, run to their end: late steps, deep drafts, long texts."""
    if known.masked:
        return
    reach = sorted({3, 5, 9, *(n for n in known.counts if 3 < n <= LARGEST), *(n + 1 for n in known.counts if 3 < n < LARGEST)})
    for n, late in enumerate(reach[:16]):
        size = 2 if n % 2 else vocab
        yield Plan(
            "deep",
            4000 + n,
            size,
            Style("plain", shared=4000 + n, point_until=late + 1),
            prompt=2,
            limit=late + 1,
            length=late + 1,
            steps=None,
            tight=n % 2 == 0,
        )
        yield Plan(
            "deep",
            4100 + n,
            size,
            Style("mixed", shared=4100 + n, rare=3 + late),
            prompt=1 + n % 3,
            limit=late + 2,
            length=late + 2,
            steps=None,
            tight=n % 2 == 1,
        )
    for n in range(3):
        yield Plan(
            "deep",
            4200 + n,
            2,
            Style(("plain", "zeros", "ties")[n], shared=4200 + n),
            prompt=1 + n,
            limit=3,
            length=3,
            steps=None,
            tight=True,
            runs=2000,
        )


def requested(known: Facts, claim: Claim, vocab: int) -> Iterator[Plan]:
    """Everything that a request can ask for, one thing at a time and some together."""
    sets: list[tuple[str, ...]] = [(name,) for name in FEATURES]
    sets += [
        ("eos", "top_k"),
        ("min_length", "bans"),
        ("repetition_penalty", "top_p"),
        ("several eos", "stop"),
        ("bias", "min_p"),
    ]
    for n, features in enumerate(sets):
        power = 2 if "repetition_penalty" in features else 1
        style = Style("plain", shared=5000 + n, power=power)
        if known.masked:
            if n % 2 == 0:
                yield Plan(
                    "request",
                    5000 + n,
                    vocab,
                    style,
                    free=known.memory,
                    temperature=0,
                    limit=3,
                    length=3,
                    span=3,
                    features=features,
                )
            continue
        yield Plan("request", 5000 + n, vocab, style, features=features, limit=3, length=2, tight=True)
        if any("penalty" in name for name in features):
            for k in range(2):
                yield Plan(
                    "request",
                    5050 + 2 * n + k,
                    vocab,
                    replace(style, shared=5050 + 2 * n + k),
                    features=features,
                    prompt=1 + k,
                    committed=2,
                    repeat=True,
                    limit=6,
                    length=2,
                    tight=True,
                )
    for n, t in enumerate((DOUBLE, HALF, DOUBLE)):
        style = Style(("plain", "plain", "zeros")[n], shared=5100 + n, power=2)
        span = 2 if known.masked else 0
        yield Plan(
            "request",
            5100 + n,
            2 if known.masked else vocab,
            style,
            temperature=t,
            limit=3,
            length=span or 2,
            tight=not span,
            span=span,
            free=known.memory and known.masked,
            features=("top_k",) if n == 2 else (),
            runs=2000,
        )
    for n in range(0 if known.masked else 3):
        yield Plan(
            "window",
            5200 + n,
            vocab if n else 2,
            Style("plain", shared=5200 + n),
            window=1 + n,
            limit=6,
            length=3,
            tight=n < 2,
            steps=None if n == 1 else 1,
        )


CANVASES = ((1, 1), (3, 1), (5, 2), (6, 2), (6, 3), (8, 4), (4, 4), (7, 3))
SAMPLED = ((2, 1, 0), (3, 1, 0), (3, 3, 2), (4, 2, 2), (4, 4, 3), (4, 4, 2), (6, 2, 10), (7, 7, 16), (8, 4, 16))


def canvases(known: Facts, claim: Claim, vocab: int) -> Iterator[Plan]:
    """Canvases of one to eight cells in up to seven blocks: greedy ones of several layers, sampled ones over two tokens."""
    if not known.masked:
        return
    free = (True,) if known.memory else (False, True)
    n = 0
    for cells, block in CANVASES:
        for sort in free:
            for again in range(3):
                n += 1
                yield Plan(
                    "canvas",
                    6000 + n,
                    (vocab, 2, vocab)[again],
                    Style("plain", shared=n),
                    free=sort,
                    prompt=1 + n % 3,
                    temperature=0,
                    limit=cells,
                    length=cells,
                    span=cells,
                    params=_block(known, block),
                )
    if claim.mode == "greedy":
        return
    for cells, block, rare in SAMPLED:
        for sort in free:
            for _ in range(2 if rare in (2, 3) else 1):
                n += 1
                yield Plan(
                    "canvas",
                    6000 + n,
                    2,
                    Style(("plain", "zeros")[n % 2], shared=n, rare=rare),
                    free=sort,
                    prompt=1 + n % 2,
                    limit=cells,
                    length=cells,
                    span=cells,
                    params=_block(known, block),
                    runs=400,
                )
    for cells, open_ in () if known.memory else ((4, 2), (5, 2), (7, 2), (8, 2)):  # certain until the last cells are open
        for block in (cells, (cells + 1) // 2):
            n += 1
            yield Plan(
                "canvas",
                6000 + n,
                2,
                Style("plain", shared=n, point_until=1 + cells - open_ + 1),
                prompt=1,
                limit=cells,
                length=cells,
                span=cells,
                params=_block(known, block),
                runs=300,
            )


def _block(known: Facts, block: int) -> tuple[tuple[str, Any], ...]:
    return ((known.block, block),) if known.block else ()


def remembering(known: Facts, claim: Claim, vocab: int) -> Iterator[Plan]:
    """Free models of several layers for causal programs that speak of memories, layers or derived models."""
    if known.masked or not known.memory:
        return
    for n in range(4):
        yield Plan(
            "layers",
            7000 + n,
            vocab if n % 2 else 2,
            Style("zeros" if n == 3 else "plain", shared=n),
            free=True,
            prompt=2 + n,
            committed=n % 2,
            limit=4,
            length=2,
            tight=True,
        )


def first_plans(module: Module, claim: Claim, vocab: int, models: int, first: int = 0) -> list[Plan]:
    """The `models` worlds of the first kind."""
    f = module.entry
    return [base(f, facts(module, f), claim, i, vocab) for i in range(first, first + models)]


def further_plans(module: Module, claim: Claim, vocab: int, models: int, given: Mapping[str, Any]) -> list[Plan]:
    """All the others, in the order in which they are decided."""
    f = module.entry
    known = facts(module, f)
    rounds = 1 if models < 40 else models // 20
    out = [
        *started(f, known, claim, vocab, rounds),
        *parameters(f, known, claim, vocab, given),
        *straddling(known, claim, vocab),
        *deep(known, claim, vocab),
        *requested(known, claim, vocab),
        *canvases(known, claim, vocab),
        *remembering(known, claim, vocab),
        *(chance_plan(module, claim, vocab, 700 + n) for n in range(16 * rounds)),
    ]
    if models < QUICK:  # a quick look: some of each sort
        seen: Counter[str] = Counter()
        step, out, every = -(-QUICK // models), [], out
        for plan in every:
            if seen[plan.label] % step == 0:
                out.append(plan)
            seen[plan.label] += 1
    fitted = []
    for plan in out:
        if claim.kind != "refines" and plan.committed:
            plan = replace(plan, limit=min(plan.limit, plan.committed + 3))
        if claim.mode == "greedy" and plan.temperature != 0:
            plan = replace(plan, temperature=0)
        if claim.mode in ("tokens", "greedy") and plan.label in ("resumed", "base"):
            plan = replace(plan, length=3)
        fitted.append(replace(plan, runs=min(plan.runs, RUNS.get(plan.label, plan.runs))))
    return fitted


def chance_plan(module: Module, claim: Claim, vocab: int, seed: int) -> Plan:
    """A world of any sort, for a search after what no other world has shown."""
    f = module.entry
    known = facts(module, f)
    r = random.Random(f"chance {seed}")
    values = list(values_of(f, known))
    pinned = dict(r.sample(values, min(len(values), r.randint(0, 3)))) if values else {}
    big = any((isinstance(v, int) and v > 5) or (isinstance(v, Topology) and v.size > 8) for v in pinned.values())
    huge = any(isinstance(v, int) and v > 12 for v in pinned.values())
    sort = r.choice(("plain", "zeros", "peaked", "tails", "ties", "sure", "mixed"))
    sizes = [2, 3, 4, *(min(LARGEST, t + 2) for t in known.tokens + known.widths)]
    size = r.choice(sizes)
    style = Style(
        sort,
        support=3 if size > 5 else 0,
        among=known.tokens,
        shared=seed,
        rare=6 if big else r.choice((0, 0, 3, 8)),
        window=r.choice((None, None, 1, 2)) if not known.masked else None,
    )
    if known.masked:
        span = r.randint(1, 6)
        greedy = span > 4 or r.random() < 0.5
        style = replace(style, rare=style.rare or (2 if span > 2 and not greedy else 0))
        block = {known.block: r.randint(1, span)} if known.block else {}
        return Plan(
            "searched",
            9000 + seed,
            size if greedy else min(size, 3),
            style,
            free=known.memory or r.random() < 0.3,
            prompt=r.randint(1, 4),
            temperature=0 if greedy else 1,
            limit=span,
            length=span,
            span=span,
            params=tuple({**pinned, **block}.items()),
        )
    lengths = [1, 2, 3, 5, 8, *(m for n in known.counts if n <= LARGEST for m in (n - 1, n, n + 1) if m > 0)]
    limit = r.choice((2, 4, 8, 12))
    features = (r.choice(FEATURES),) if r.random() < 0.5 else ()
    power = 2 if "repetition_penalty" in features else 1
    length = r.choice(lengths)
    style = replace(style, power=power, point_from=length + 3 if huge else 0)
    greedy = r.random() < 0.2 or claim.mode == "greedy"
    return Plan(
        "searched",
        9000 + seed,
        size,
        style,
        runs=30 if huge else 120 if big else 300,
        free=known.memory and r.random() < 0.5,
        prompt=length,
        temperature=0 if greedy else 1,
        features=features,
        limit=limit,
        length=min(limit, 3),
        steps=None if style.rare else r.choice((1, 1, 2)),
        arbitrary=seed if known.stepwise and (known.states or known.carries) and r.random() < 0.6 else None,
        window=r.choice((None, None, None, 1, 3)),
        params=tuple(pinned.items()),
        tight=r.random() < 0.5,
        committed=r.choice((0, 0, 1, 2)) if known.stepwise else 0,
        repeat=r.random() < 0.25,
    )


__all__ = ["chance_plan", "first_plans", "further_plans", "values_of"]
