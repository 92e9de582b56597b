"""Which worlds a program is checked in: small ones of every sort, and those that straddle what the program itself names.

What the worlds are there for stands in their labels:

- base: small models, contexts and parameters of every style, half of the requests plain;
- second: in a request after another one of the session with its seed and id; beside: in one beside another, in every order;
- resumed: a step begins after one to three committed tokens; carried: with carried values of any kind; session: in a later
  request;
- setting: values of the parameters that a claim's condition reads, from one end to the other;
- parameter: the default, both ends, and the neighbours of the constants that a parameter meets, where most rows are certain;
- context, vocabulary: as long and as large as the program's constants are; numbers: masses beside its numbers;
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
from itertools import pairwise, product

from decgraph.check.case import Pinned, WorldPlan
from decgraph.check.constants import LARGEST, Facts, carried_types, facts, neighbours
from decgraph.check.initial_states import wholes
from decgraph.check.settings import own_worlds, speaks_of
from decgraph.check.table_models import Style
from decgraph.check.worlds import FEATURES
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.arguments import ParamValue

RUNS = {"parameter": 200, "deep": 300, "searched": 300}  # a limit of runs for sorts of worlds that are many or long
FEWER_RUNS = 350  # the limit for canvases in a quick check
QUICK = 10  # a check with fewer base worlds than this is a quick one

BASE_SORTS = ("plain", "plain", "zeros", "plain", "peaked", "mixed", "tails", "plain", "ties", "sure")
HALF, DOUBLE = Fraction(1, 2), Fraction(2)


def base(f: Function, known: Facts, claim: Claim, i: int, vocab: int) -> WorldPlan:
    """World number i of the first kind."""
    sampled = claim.mode == "distribution"
    style = Style(BASE_SORTS[i % len(BASE_SORTS)], shared=i, window=1 if i % 4 == 3 and not known.masked else None)
    features = () if i % 2 == 0 else (FEATURES[i // 2 % len(FEATURES)],)
    if known.masked:
        greedy = i % 3 == 2
        size, span = (vocab, 4) if greedy else (vocab, 2) if i % 3 == 0 else (2, 3 if i % 6 == 1 else 2)
        if span == 3:
            style = replace(style, rare=2)
        return WorldPlan(
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
    temperature: Fraction | int = 1
    if i % 7 == 5 or "repetition_penalty" in features:
        style, temperature = replace(style, sort="plain", power=2), (DOUBLE, HALF)[i % 2] if i % 7 == 5 else 1
    return WorldPlan(
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


SWITCHED = 6  # worlds for each combination of yes-or-no parameters
MOST_SWITCHES = 3  # combinations are tried of at most this many such parameters
FAR = 64  # parameters above this are tried by greedy requests
DEEPEST = 32  # the last position of a draft that is tried for a constant of the program
PLACES = 8  # how many such positions are tried


def defaults(f: Function, known: Facts) -> Pinned:
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


def values_of(f: Function, known: Facts) -> Iterator[tuple[str, ParamValue]]:
    """Values that parameters must be tried at: their default, both ends, and the neighbours of the constants that they meet."""
    met = dict(known.met)
    for p in f.params:
        t = p.value.type
        if p.name in (known.length, known.block) and known.masked:
            continue
        if p.has_default and isinstance(p.default, tuple) and t.elem in ("int", "prob", "real"):  # a vector: nothing between
            yield p.name, p.default
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


def switches(f: Function, known: Facts, fixed: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Every combination of the parameters that are yes or no, for causal programs with several: what two of them do together no
    world of one value shows. Texts end early where the program asks which do."""
    names = [p.name for p in f.params if p.value.type.elem == "bool" and p.name not in fixed]
    if known.masked or not 2 <= len(names) <= MOST_SWITCHES:
        return
    for n, values in enumerate(product((False, True), repeat=len(names))):
        for again in range(SWITCHED):
            seed = 2600 + SWITCHED * n + again
            features = (("several eos", "eos")[again % 2],) if known.ends else ()
            params = tuple(zip(names, values, strict=True))
            plan = _tight(seed, 3 + again % 2, Style("plain", shared=seed), 6, 2, params)
            yield replace(plan, features=features)


def _tight(seed: int, vocab: int, style: Style, limit: int, length: int, params: Pinned) -> WorldPlan:
    """A world that is about some values of parameters, the others as small as they can be."""
    return WorldPlan("parameter", seed, vocab, style, limit=limit, length=length, params=params, tight=True)


def parameters(f: Function, known: Facts, claim: Claim, vocab: int, fixed: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Every value that a parameter must be tried at: once where most rows are certain, once greedily, small ones as they
    are."""
    for n, (name, value) in enumerate(values_of(f, known)):
        if name in fixed:
            continue
        seed = 2000 + 3 * n
        pinned = ((name, value),)
        if known.masked:
            for again, cells in enumerate((4, 3)):
                size, style = (vocab, 2)[again], Style("mixed", shared=seed + again, rare=2 * again)
                square = WorldPlan("parameter", seed + again, size, style, limit=cells, length=cells, span=cells)
                yield replace(square, free=known.memory, temperature=again, params=pinned)
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
            plan = _tight(seed, vocab, style, 3, 3, pinned)
            yield replace(plan, steps=None, runs=40, temperature=int(value <= FAR))
            continue
        limit = value + 2 if isinstance(value, int) else 6
        plan = _tight(seed, vocab, Style("plain", shared=seed, rare=5), limit, limit, pinned)
        yield replace(plan, steps=None, runs=250)
        if not isinstance(value, int) or value <= 12:
            yield _tight(seed + 1, 2, Style("mixed", shared=seed + 1), 4, 4, pinned)
            if claim.mode == "distribution":
                plan = _tight(seed + 1, max(vocab, 3), Style("apart", shared=seed + 1), 3, 1, pinned)
                yield replace(plan, prompt=1)
        if isinstance(value, int) and value <= 7:
            style = Style("plain", shared=seed + 2, point_until=value + 1)
            yield _tight(seed + 2, 2, style, value + 1, value + 1, pinned)


def places(f: Function, known: Facts, claim: Claim, fixed: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
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
        if p.value.type.elem == "int" and p.name not in fixed and p.high is not None and (p.low or 0) <= c < p.high
    ]
    for n, (name, value, place) in enumerate(found[:PLACES]):
        style = Style("plain", shared=2800 + n, point_until=place + 1, point_from=place + 4)
        yield _tight(2800 + n, 2 + n % 2, style, value + 2, value + 1, ((name, value),))
        if claim.mode == "distribution":
            yield replace(_tight(2850 + n, 4, Style("apart", shared=2850 + n), 3, 1, ((name, value),)), prompt=1)


def at_settings(f: Function, known: Facts, claim: Claim, vocab: int, fixed: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Two worlds for each of some values that satisfy a claim's condition."""
    for n, setting in enumerate(own_worlds(f, claim, fixed, {known.length} if known.masked else ())):
        large = any(isinstance(v, int) and not isinstance(v, bool) and v > 3 for v in setting.values())
        for again, sort in enumerate(("plain", "mixed")):
            seed = 2600 + 2 * n + again
            drawn = not known.masked or again == 1
            few = known.masked and drawn  # tokens, of which most are certain
            style = Style(sort, shared=seed, rare=4 if large and not known.masked else 2 if few else 0)
            plan = WorldPlan("setting", seed, 2 if few else vocab, style, limit=4, params=tuple(setting.items()))
            plan = replace(plan, free=known.memory, temperature=int(drawn))
            yield replace(plan, length=4, span=(4, 3)[again]) if known.masked else replace(plan, length=3, tight=True)


TINY = Fraction(1, 500)  # other masses are in all worlds


def straddling(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Contexts as long, and vocabularies as large, as the numbers that the program names."""
    sizes = [size for size in known.vocabularies() if size > vocab]
    if known.masked:
        for n, size in enumerate(sizes):
            style = Style("plain", shared=n, support=3, among=known.tokens)
            yield WorldPlan("vocabulary", 3500 + n, size, style, temperature=n % 2, limit=3, length=3, span=3)
        return
    lengths = sorted({m for n in known.counts if 1 < n <= LARGEST for m in (n - 1, n, n + 1) if m > 3})
    for n, length in enumerate(lengths[:24]):
        size, style = 2 if n % 2 else vocab, Style("plain", shared=n)
        yield WorldPlan("context", 3000 + n, size, style, prompt=length, limit=3, length=2, tight=True)
    longer = sorted({n + 2 for n in known.cuts if n > 6})  # texts of which something is left out
    for n, length in enumerate([*longer[:3], *longer[3:][-3:]]):
        yield WorldPlan("context", 3200 + n, 2, Style("plain", shared=n), prompt=length, limit=2, length=1, tight=True)
    for n, size in enumerate(sizes[:8]):
        style = Style("plain", shared=n, support=3, among=known.tokens)
        yield WorldPlan("vocabulary", 3500 + 2 * n, size, style, limit=3, length=2, tight=True, prompt=3)
        if any(w + 2 == size for w in known.widths):
            style = Style("tails", shared=n)
            yield WorldPlan("vocabulary", 3501 + 2 * n, size, style, limit=1, length=1, tight=True, runs=4000)
    for n, size in enumerate((4, 6)):
        style = Style("zeros" if n else "plain", shared=n, support=3 if n else 0)
        yield WorldPlan("vocabulary", 3600 + n, size, style, limit=3, length=2 - n, tight=True, runs=1500)


def beside(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Rows with masses beside the numbers of the program that are nearly 0 or 1, and models that differ by as little; rows with
    masses between two numbers that are close to one another."""
    numbers = tuple(x for x in known.numbers if 0 < x < 1 and min(x, 1 - x) < TINY)
    for n, number in enumerate(numbers[:4]):
        for again in range(2):
            seed, size = 3800 + 2 * n + again, max(vocab, 3) if again else 2
            style, span = Style("near", shared=seed, near=(number,)), 2 if known.masked else 0
            yield WorldPlan("numbers", seed, size, style, limit=2, length=2, span=span, tight=True)
    for n, (low, high) in enumerate([(a, b) for a, b in pairwise(known.numbers) if a > 0 and b < 1 and b - a < TINY][:2]):
        middle = (low + high) / 2
        for again, mass in enumerate((middle, middle / (1 + middle))):  # a mass, and a share of the largest one
            seed, span = 3820 + 2 * n + again, 2 if known.masked else 0
            style = Style("exactly", shared=seed, near=(mass,))
            yield WorldPlan("numbers", seed, 2, style, limit=2, length=2, span=span, tight=True)


def deep(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Texts that are certain up to some token and open from there on, run to their end: late steps, deep drafts, long texts."""
    if known.masked:
        return
    reach = sorted({3, 5, 9, *(n for n in known.counts if 3 < n <= LARGEST), *(n + 1 for n in known.counts if 3 < n < LARGEST)})

    def text(seed: int, size: int, style: Style, limit: int, *, tight: bool, prompt: int = 2, runs: int = 700) -> WorldPlan:
        plan = WorldPlan("deep", seed, size, style, limit=limit, length=limit, steps=None)
        return replace(plan, prompt=prompt, tight=tight, runs=runs)

    for n, late in enumerate(reach[:16]):
        size = 2 if n % 2 else vocab
        yield text(4000 + n, size, Style("plain", shared=4000 + n, point_until=late + 1), late + 1, tight=n % 2 == 0)
        style = Style("mixed", shared=4100 + n, rare=3 + late)
        yield text(4100 + n, size, style, late + 2, prompt=1 + n % 3, tight=n % 2 == 1)
    for n in range(3):
        style = Style(("plain", "zeros", "ties")[n], shared=4200 + n)
        yield text(4200 + n, 2, style, 3, prompt=1 + n, tight=True, runs=2000)


def remembering(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Free models of several layers for causal programs that speak of memories, layers or derived models."""
    if known.masked or not known.memory:
        return
    for n in range(4):
        style, size = Style("zeros" if n == 3 else "plain", shared=n), vocab if n % 2 else 2
        plan = WorldPlan("layers", 7000 + n, size, style, limit=4, length=2, tight=True)
        yield replace(plan, free=True, deep=n >= 2, prompt=2 + n, committed=n % 2)


def requested(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Every setting of a request, one at a time and some together."""
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
        plan = WorldPlan("request", 5000 + n, vocab, style, features=features, limit=3)
        if known.masked:
            if n % 2 == 0:
                yield replace(plan, length=3, span=3, free=known.memory, temperature=0)
            continue
        plan = replace(plan, length=2, tight=True)
        yield plan
        if any("penalty" in name for name in features):
            long = replace(plan, committed=2, repeat=True, limit=6)
            for k in range(2):
                seed = 5050 + 2 * n + k
                yield replace(long, seed=seed, style=replace(style, shared=seed), prompt=1 + k)
    for n, t in enumerate((DOUBLE, HALF, DOUBLE)):
        style = Style(("plain", "plain", "zeros")[n], shared=5100 + n, power=2)
        features = ("top_k",) if n == 2 else ()
        size = 2 if known.masked else vocab
        plan = WorldPlan("request", 5100 + n, size, style, temperature=t, features=features, limit=3, length=2, runs=2000)
        yield replace(plan, span=2, free=known.memory) if known.masked else replace(plan, tight=True)
    for n in range(0 if known.masked else 3):
        style, steps = Style("plain", shared=5200 + n), None if n == 1 else 1
        yield WorldPlan("window", 5200 + n, vocab if n else 2, style, window=1 + n, limit=6, length=3, tight=n < 2, steps=steps)


LATER = (("top_k",), ("bans",), ("repetition_penalty",), ("min_length",))


def noisy(f: Function) -> bool:
    """Whether drafts are drawn with the noise of the output stream."""
    opcodes = [op.opcode for op in f.body.walk()]
    output = any(op.opcode == "noise" and op.attrs.get("kind") == "output" for op in f.body.walk())
    return output and "tree.walk" in opcodes and "tree.grow" in opcodes


def twos(f: Function) -> tuple[tuple[str, int], ...]:
    """Whole numbers at 2, where they can be: a draft after a refused one."""
    whole = [p for p in f.params if p.value.type.elem == "int" and not p.value.type.dims]
    return tuple((p.name, 2) for p in whole if (p.low is None or p.low <= 2) and (p.high is None or p.high >= 2))


def started(f: Function, known: Facts, claim: Claim, vocab: int, rounds: int) -> Iterator[WorldPlan]:
    """Steps from other states than the first."""
    if known.masked or not known.stepwise:
        return
    sampled = claim.mode == "distribution"
    sorts = ("plain", "zeros", "peaked", "plain")
    short = WorldPlan("steps", limit=3, length=3, tight=True, steps=2)
    for n in range(3 * rounds):
        style, features = Style(sorts[n % 4], shared=n), ("eos",) if n % 3 == 2 else ()
        plan = WorldPlan("resumed", 1000 + n, vocab, style, limit=8, length=2, features=features)
        yield replace(plan, prompt=1 + n % 3, committed=1 + n % 3)
    if sampled and noisy(f):
        for n in range(3):  # what one step's rule read of a draft that it refused, the next step's draft reads again
            style = Style(("plain", "zeros", "plain")[n], shared=1270 + n)
            yield replace(short, seed=1270 + n, vocab=2, style=style, prompt=1 + n % 2, params=twos(f), runs=1500)
    if known.states or known.carries:
        counts = len(wholes(known)) if any(t.elem == "int" and not t.dims for t in carried_types(f)) else 0
        free = any(t.elem == "memory" for t in carried_types(f))  # a table's memory tells little
        for n in range(max(9 * rounds, min(60, 2 * counts))):
            plan = WorldPlan("carried", 1100 + n, vocab if n % 2 else 2, Style(sorts[n % 4], shared=n), free=free)
            plan = replace(plan, prompt=2 + n % 2, committed=n % 3, arbitrary=n, tight=n % 3 == 1)
            yield replace(plan, limit=8, length=2 if sampled else 3, params=defaults(f, known) if n % 3 == 2 else ())
        for n in range(3 if sampled else 0):
            plan = WorldPlan("steps", 1200 + n, 2, Style(sorts[n % 4], shared=n), limit=4, length=4)
            yield replace(plan, prompt=1 + n, steps=2 + n % 2, tight=True, runs=1500)
        for n, features in enumerate(LATER if sampled else ()):  # the request applies in the next step, too
            style = Style("plain", shared=1250 + n, power=2 if "repetition_penalty" in features else 1)
            yield replace(short, seed=1250 + n, vocab=vocab, style=style, prompt=1 + n % 2, features=features)
    if known.session or known.batch:
        for n in range(3 * rounds):
            plan = WorldPlan("session", 1300 + n, vocab if n % 2 else 2, Style(sorts[n % 4], shared=n), limit=4, length=3)
            yield replace(plan, prompt=2, session=1 + n % 2, steps=None if n % 2 else 1, tight=True, runs=1500)


CANVASES = ((1, 1), (3, 1), (5, 2), (6, 2), (6, 3), (8, 4), (4, 4), (7, 3))
SAMPLED = ((2, 1, 0), (3, 1, 0), (3, 3, 2), (4, 2, 2), (4, 4, 3), (4, 4, 2), (6, 2, 10), (7, 7, 16), (8, 4, 16))


def canvases(f: Function, known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Canvases of one to eight cells in up to seven blocks: greedy ones of several layers, sampled ones over two tokens, half
    of them with the program's own values of parameters: of what it does several times at once, small values show little."""
    if not known.masked:
        return
    free = (True,) if known.memory else (False, True)
    n = 0

    def canvas(cells: int, block: int, size: int, style: Style, pinned: Pinned = ()) -> WorldPlan:
        params = (*(((known.block, block),) if known.block else ()), *pinned)
        return WorldPlan("canvas", 6000 + n, size, style, limit=cells, length=cells, span=cells, params=params)

    for cells, block in CANVASES:
        for sort in free:
            for again in range(3):
                n += 1
                size, style = (vocab, 2, vocab)[again], Style("plain", shared=n)
                yield replace(canvas(cells, block, size, style), free=sort, prompt=1 + n % 3, temperature=0)
    if claim.kind == "keeps_support":  # tokens without mass beside cells of which none is sure
        for cells, block in CANVASES[2:]:
            for size in (3, 5, 5, 8):
                n += 1
                style = Style("zeros", shared=n)
                plan = canvas(cells, block, size, style)
                yield replace(plan, free=known.memory, prompt=1 + n % 3, temperature=0)
    if claim.mode == "greedy":
        return
    own = tuple((k, v) for k, v in defaults(f, known) if k not in (known.length, known.block))
    for cells, block, rare in SAMPLED:
        for sort in free:
            for _ in range(2 if rare in (2, 3) else 1):
                n += 1
                style = Style(("plain", "zeros")[n % 2], shared=n, rare=rare)
                plan = canvas(cells, block, 2, style, own if n % 4 < 2 else ())
                yield replace(plan, free=sort, prompt=1 + n % 2, runs=400)
    for cells, open_ in () if known.memory else ((4, 2), (5, 2), (7, 2), (8, 2)):  # certain until the last cells are open
        for block in (cells, (cells + 1) // 2):
            n += 1
            plan = canvas(cells, block, 2, Style("plain", shared=n, point_until=1 + cells - open_ + 1))
            yield replace(plan, prompt=1, runs=300)


def chance_plan(module: Module, claim: Claim, vocab: int, seed: int) -> WorldPlan:
    """A world of any sort, for a search after what no other world has shown."""
    f = module.entry
    known = facts(module, f)
    r = random.Random(f"chance {seed}")
    values = list(values_of(f, known))
    pinned = dict(r.sample(values, min(len(values), r.randint(0, 3)))) if values else {}
    big = any((isinstance(v, int) and v > 5) or (isinstance(v, Topology) and v.size > 8) for v in pinned.values())
    huge = any(isinstance(v, int) and v > 12 for v in pinned.values())
    sort = r.choice(("plain", "zeros", "peaked", "tails", "ties", "sure", "mixed"))
    sizes = [2, 3, 4, *known.vocabularies()]
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
        return WorldPlan(
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
    if known.ends and r.random() < 0.5:  # few other requests have texts that end
        features = (r.choice(("eos", "several eos")),)
    power = 2 if "repetition_penalty" in features else 1
    length = r.choice(lengths)
    style = replace(style, power=power, point_from=length + 3 if huge else 0)
    greedy = r.random() < 0.2 or claim.mode == "greedy"
    return WorldPlan(
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


def shared_plans(module: Module, claim: Claim, vocab: int) -> list[WorldPlan]:
    """Requests that are not alone, of programs with something that outlives a request or that sequences share."""
    f = module.entry
    known = facts(module, f)
    out = []
    for n, sort in enumerate(("plain", "plain", "zeros", "mixed")):
        plan = WorldPlan("second", 1400 + n, 2, Style(sort, shared=1400 + n), limit=2, length=2, steps=None, tight=True)
        plan = replace(plan, runs=1500, span=2 * known.masked)
        if known.session:
            out.append(replace(plan, pair="another" if n == 2 else "after", params=twos(f) if n == 1 else ()))
        if known.session or known.batch:
            pair = replace(plan, label="beside", seed=1450 + n, pair="steps")
            out.append(pair if n % 2 else replace(pair, limit=1, length=1, pair="lines", params=twos(f) if n == 2 else ()))
    return out


def first_plans(module: Module, claim: Claim, vocab: int, models: int, first: int = 0) -> list[WorldPlan]:
    """The `models` worlds of the first kind."""
    f = module.entry
    return [base(f, facts(module, f), claim, i, vocab) for i in range(first, first + models)]


def further_plans(module: Module, claim: Claim, vocab: int, models: int, fixed: Mapping[str, ParamValue]) -> list[WorldPlan]:
    """All the others, in the order in which they are decided."""
    f = module.entry
    known = facts(module, f)
    rounds = 1 if models < 40 else models // 20
    out = [
        *started(f, known, claim, vocab, rounds),
        *parameters(f, known, claim, vocab, fixed),
        *places(f, known, claim, fixed),
        *straddling(known, claim, vocab),
        *beside(known, claim, vocab),
        *deep(known, claim, vocab),
        *requested(known, claim, vocab),
        *canvases(f, known, claim, vocab),
        *remembering(known, claim, vocab),
        *(chance_plan(module, claim, vocab, 700 + n) for n in range(16 * rounds)),
    ]
    if models < QUICK:  # a quick check takes some of each sort
        seen: Counter[str] = Counter()
        step, out, every = -(-QUICK // models), [], out
        for plan in every:
            of = step + 1 if plan.label == "canvas" else step  # there are many of these
            turn = seen[plan.label] // of if plan.label == "canvas" else 0  # every second one has the same models and rows
            if seen[plan.label] % of == turn % of:
                out.append(plan)
            seen[plan.label] += 1
    fitted = []
    out += switches(f, known, fixed)
    if claim.setting:
        out = [plan for plan in out if plan.label != "parameter" or speaks_of(f, claim, dict(plan.params))]
        out += at_settings(f, known, claim, vocab, fixed)
    for plan in out:
        if claim.kind != "refines" and plan.committed:
            plan = replace(plan, limit=min(plan.limit, plan.committed + 3))
        if claim.for_greedy and plan.temperature != 0:
            plan = replace(plan, temperature=0)
        if claim.mode in ("tokens", "greedy") and plan.label in ("resumed", "base"):
            plan = replace(plan, length=3)
        most = RUNS.get(plan.label, plan.runs)
        if plan.label == "canvas" and models < QUICK:
            most = FEWER_RUNS
        fitted.append(replace(plan, runs=min(plan.runs, most)))
    return fitted


__all__ = ["chance_plan", "first_plans", "further_plans", "shared_plans", "values_of"]
