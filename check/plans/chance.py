"""Worlds of any sort, for a search after what no other world has shown."""

from __future__ import annotations

import random
from dataclasses import replace

from decgraph.check.constants import LARGEST, facts
from decgraph.check.plans.parameters import values_of
from decgraph.check.tables import Style
from decgraph.check.worlds import FEATURES, WorldPlan
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Claim, Module


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
