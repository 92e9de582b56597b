"""Hidden states as values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.values import REALS, TOKENS, exactly, lists, tokens

from decgraph.runtime.models.derive import Upto
from decgraph.runtime.models.free import FreeModel


class Counting(Upto):
    """A trunk whose state says how many tokens there are, and how many of them are 0."""

    def __init__(self) -> None:
        super().__init__(FreeModel(3, V, 2, name="target"), 1)

    def hidden_states(self, paths: Sequence[tuple[int, ...]], memory: object = None) -> list[np.ndarray]:
        return [np.array([len(p), p.count(0)], dtype=np.float64) for p in paths]


@says("model.states")
def counted(draw: Draw) -> Sample:
    """Of the context, which is 1 0 2, of other tokens, or of every beginning of them."""
    trunk = ("model<trunk,V,target,causal>", Counting())
    if draw(st.booleans()):
        return Sample("%c = context()\n%z = model.states(%trunk, %c)", {"trunk": trunk}, ([3, 1],))
    xs = draw(lists(TOKENS, 1))
    if draw(st.booleans()):
        want = [[i + 1, xs[: i + 1].count(0)] for i in range(len(xs))]
        return Sample("%z = model.states(%trunk, %x, each = true)", {"trunk": trunk, "x": tokens(xs)}, (want,))
    return Sample("%z = model.states(%trunk, %x)", {"trunk": trunk, "x": tokens(xs)}, ([len(xs), xs.count(0)],))


@says("hidden.similarity")
def cosine(draw: Draw) -> Sample:
    """The cosine of the angle between two states, row by row."""
    rows = draw(lists(exactly(REALS.filter(lambda x: abs(x) > 1e-3), 4), 1, 3))
    a, b = [r[:2] for r in rows], [r[2:] for r in rows]
    want = [sum(x * y for x, y in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v) for u, v in zip(a, b, strict=True)]
    kind = "hidden<target>[k<=3]"
    return Sample("%z = hidden.similarity(%a, %b)", {"a": (kind, np.array(a)), "b": (kind, np.array(b))}, (want,))


@says("hidden.mean")
def centre(draw: Draw) -> Sample:
    """The mean of each number of the states."""
    rows = draw(lists(exactly(REALS, 2), 1, 3))
    want = [sum(r[i] for r in rows) / len(rows) for i in range(2)]
    return Sample("%z = hidden.mean(%h)", {"h": ("hidden<target>[k<=3]", np.array(rows))}, (want,))
