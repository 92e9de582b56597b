"""Worlds as long and as large as what the program names: long contexts, large vocabularies, deep drafts, several layers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from decgraph.check.constants import LARGEST, Facts
from decgraph.check.tables import Style
from decgraph.check.worlds import WorldPlan
from decgraph.ir.values import Claim

TINY = Fraction(1, 500)  # other masses are in all worlds


def straddling(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Contexts as long, and vocabularies as large, as the numbers that the program names."""
    some: dict[str, Any] = {"support": 3, "among": known.tokens}
    sizes = [size for size in known.vocabularies() if size > vocab]
    if known.masked:
        for n, size in enumerate(sizes):
            style = Style("plain", shared=n, **some)
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
        style = Style("plain", shared=n, **some)
        yield WorldPlan("vocabulary", 3500 + 2 * n, size, style, limit=3, length=2, tight=True, prompt=3)
        if any(w + 2 == size for w in known.widths):
            style = Style("tails", shared=n)
            yield WorldPlan("vocabulary", 3501 + 2 * n, size, style, limit=1, length=1, tight=True, runs=4000)
    for n, size in enumerate((4, 6)):
        style = Style("zeros" if n else "plain", shared=n, support=3 if n else 0)
        yield WorldPlan("vocabulary", 3600 + n, size, style, limit=3, length=2 - n, tight=True, runs=1500)


def beside(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Rows with masses beside the numbers of the program that are nearly 0 or 1, and models that differ by as little."""
    numbers = tuple(x for x in known.numbers if 0 < x < 1 and min(x, 1 - x) < TINY)
    for n, number in enumerate(numbers[:4]):
        for again in range(2):
            seed, size = 3800 + 2 * n + again, max(vocab, 3) if again else 2
            style, span = Style("near", shared=seed, near=(number,)), 2 if known.masked else 0
            yield WorldPlan("numbers", seed, size, style, limit=2, length=2, span=span, tight=True)


def deep(known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Texts that are certain up to some token and open from there on, run to their end: late steps, deep drafts, long texts."""
    if known.masked:
        return
    reach = sorted({3, 5, 9, *(n for n in known.counts if 3 < n <= LARGEST), *(n + 1 for n in known.counts if 3 < n < LARGEST)})

    def text(seed: int, size: int, style: Style, limit: int, **more: Any) -> WorldPlan:
        return WorldPlan("deep", seed, size, style, limit=limit, length=limit, steps=None, **more)

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
        how: dict[str, Any] = {"free": True, "deep": n >= 2, "prompt": 2 + n, "committed": n % 2, "tight": True}
        yield WorldPlan("layers", 7000 + n, size, style, limit=4, length=2, **how)
