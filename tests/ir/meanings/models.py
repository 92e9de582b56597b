"""Parts of models that are arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.values import REALS, TOKENS, exactly, lists, reals, tokens

from decgraph.ir.data.dist import Path
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.reading import Reading


@says("model.layers")
def numbers_of_layers(draw: Draw) -> Sample:
    """The model of the samples has two."""
    return Sample("%z = model.layers(%target)", {"target": ("model<causal,V,target,causal>", None)}, ([0, 1],))


class Share(Reading):
    """Says of a text the share of its tokens that are 0."""

    def __init__(self) -> None:
        super().__init__(FreeModel(3, V, 2, name="target"), "prob", "share")

    def read(self, paths: Sequence[tuple[int, ...]]) -> list[float]:
        return [p.count(0) / len(p) for p in paths]


@says("head.read")
def said(draw: Draw) -> Sample:
    """Of the context, which is 1 0 2, or of a path after it."""
    share = lambda tokens: tokens.count(0) / len(tokens)
    judge = ("model<head,V,target,prob>", Share())
    xs = draw(lists(TOKENS))
    if draw(st.booleans()):
        path = ("path<V>", Path(xs))
        return Sample("%z = head.read(%judge, %p)", {"judge": judge, "p": path}, (share([1, 0, 2, *xs]),))
    return Sample("%c = context()\n%z = head.read(%judge, %c)", {"judge": judge}, (share([1, 0, 2]),))


class Turned(Reading):
    """Gives a state's three numbers as scores, begun as many places further as the token beside it says."""

    def __init__(self) -> None:
        super().__init__(FreeModel(3, V, 2, name="target"), "dist", "turned")

    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        by = [0] * len(states) if tokens is None else tokens
        return [Scores(logits=np.roll(row, -t)) for row, t in zip(states, by, strict=True)]


@says("head.score")
def scored(draw: Draw) -> Sample:
    """Of hidden states, with a token beside each or without."""
    rows = draw(lists(exactly(REALS, V), 1, 3))
    ts = draw(exactly(TOKENS, len(rows)))
    given = {"scorer": ("model<head,V,target,dist>", Turned()), "h": ("hidden<target>[k<=3]", np.array(rows))}
    bare = draw(st.booleans())
    turned = [r if bare else r[t:] + r[:t] for r, t in zip(rows, ts, strict=True)]
    want = [[math.exp(x - max(r)) / sum(math.exp(y - max(r)) for y in r) for x in r] for r in turned]
    if bare:
        return Sample("%z = head.score(%scorer, %h)", given, (want,))
    return Sample('%z = head.score(%scorer, %h, %x, named = ("token",))', {**given, "x": tokens(ts)}, (want,))


@says("maxpool")
def neighbours(draw: Draw) -> Sample:
    """`width` wide, the value in the middle; of an even width the middle is left of the centre."""
    xs, width = draw(lists(REALS)), draw(st.integers(1, 7))
    left = (width - 1) // 2
    want = [max(xs[j] for j in range(len(xs)) if i - left <= j < i - left + width) for i in range(len(xs))]
    return Sample("%z = maxpool(%x, %w)", {"x": reals(xs), "w": ("int", width)}, (want,))


@says("model.embed")
def coordinates(draw: Draw) -> Sample:
    """Of a token 1 at its place, of weights the weights, and nothing of the mask's."""
    model = ("model<causal,V,target,causal>", None)
    if draw(st.booleans()):
        xs = draw(lists(exactly(REALS, 3), 1, 3))
        weights = ("real[k<=3,vocab.V]", np.array(xs))
        return Sample("%z = model.embed(%target, %w)", {"target": model, "w": weights}, ([[*row, 0.0] for row in xs],))
    ids = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
    tokens = ("token<V>[k<=3]", np.array(ids))
    return Sample(
        "%z = model.embed(%target, %t)", {"target": model, "t": tokens}, ([[float(i == t) for i in range(4)] for t in ids],)
    )


@says("hidden.map")
def arithmetic(draw: Draw) -> Sample:
    """Each number of an embedding with each, or an embedding with its number."""
    fn = draw(st.sampled_from(["add", "sub", "mul", "neg"]))
    how = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
    a = draw(lists(exactly(REALS, 2), 1, 3))
    h = ("hidden<target>[k<=3]", np.array(a))
    if fn == "neg":
        return Sample('%z = hidden.map(%h, fn = "neg")', {"h": h}, ([[-x for x in xs] for xs in a],))
    if draw(st.booleans()):
        b = draw(exactly(exactly(REALS, 2), len(a)))
        return Sample(
            f'%z = hidden.map(%h, %g, fn = "{fn}")',
            {"h": h, "g": (h[0], np.array(b))},
            ([[how[fn](x, y) for x, y in zip(xs, ys, strict=True)] for xs, ys in zip(a, b, strict=True)],),
        )
    n = draw(exactly(REALS, len(a)))
    return Sample(
        f'%z = hidden.map(%h, %n, fn = "{fn}")',
        {"h": h, "n": reals(n)},
        ([[how[fn](x, y) for x in xs] for xs, y in zip(a, n, strict=True)],),
    )
