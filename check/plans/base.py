"""Worlds of the first kind: small models, contexts and parameters of every style, half of the requests plain."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from decgraph.check.constants import Facts
from decgraph.check.tables import Style
from decgraph.check.worlds import FEATURES, WorldPlan
from decgraph.ir.values import Claim, Function

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
    temperature: Any = 1
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
