"""Worlds for every setting of a request, and for a context window that ends the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decgraph.check.constants import Facts
from decgraph.check.plans.base import DOUBLE, HALF
from decgraph.check.tables import Style
from decgraph.check.worlds import FEATURES, WorldPlan
from decgraph.ir.values import Claim


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
        if known.masked:
            if n % 2 == 0:
                cells: dict[str, Any] = {"limit": 3, "length": 3, "span": 3, "free": known.memory, "temperature": 0}
                yield WorldPlan("request", 5000 + n, vocab, style, features=features, **cells)
            continue
        yield WorldPlan("request", 5000 + n, vocab, style, features=features, limit=3, length=2, tight=True)
        if any("penalty" in name for name in features):
            long: dict[str, Any] = {"committed": 2, "repeat": True, "limit": 6, "length": 2, "tight": True}
            for k in range(2):
                seed = 5050 + 2 * n + k
                yield WorldPlan("request", seed, vocab, replace(style, shared=seed), features=features, prompt=1 + k, **long)
    for n, t in enumerate((DOUBLE, HALF, DOUBLE)):
        style = Style(("plain", "plain", "zeros")[n], shared=5100 + n, power=2)
        features = ("top_k",) if n == 2 else ()
        more: dict[str, Any] = {"length": 2, "tight": True}
        if known.masked:
            more = {"length": 2, "span": 2, "free": known.memory}
        size = 2 if known.masked else vocab
        yield WorldPlan("request", 5100 + n, size, style, temperature=t, features=features, limit=3, runs=2000, **more)
    for n in range(0 if known.masked else 3):
        style, steps = Style("plain", shared=5200 + n), None if n == 1 else 1
        yield WorldPlan("window", 5200 + n, vocab if n else 2, style, window=1 + n, limit=6, length=3, tight=n < 2, steps=steps)
