"""Distributions: over a vocabulary of three, with zeros and ties."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from meanings.registry import Draw, Raises, Sample, V, says
from meanings.selection import best_first
from meanings.values import REALS, TOKENS, dist, dists, exactly, lists, probs, reals, row, rows, tokens

SCORES = REALS | st.just(-math.inf)


def soft(xs: list[float]) -> list[float]:
    weights = [math.exp(x) for x in xs]
    return [w / sum(weights) for w in weights]


@says("softmax")
def of_scores(draw: Draw) -> Sample:
    some = exactly(SCORES, V).filter(lambda xs: max(xs) > -math.inf)
    if draw(st.booleans()):
        m = draw(lists(some, 1, 3))
        return Sample("%z = softmax(%m)", {"m": rows(m)}, ([soft(xs) for xs in m],))
    xs = draw(lists(REALS, 1))
    return Sample("%z = softmax(%x)", {"x": reals(xs)}, (soft(xs),))


@says("normalize")
def of_weights(draw: Draw) -> Sample:
    w = draw(exactly(st.sampled_from([0.0, 1.0, 2.0, 5.0]), V))
    text, given = "%q = normalize(%w)\n%z = lookup(%q, %x)", {"w": row(w), "x": ("token<V>", draw(TOKENS))}
    if sum(w) == 0:  # no law, which only a draw minds
        if draw(st.booleans()):
            drawn = '%q = normalize(%w)\n%g = noise(kind = "race", site = "f.0")\n%z = draw(%q, %g)'
            return Sample(drawn, given, Raises("mass"))
        return Sample(text, given, (0.0,))
    if draw(st.booleans()):
        return Sample("%z = normalize(%w)", {"w": row(w)}, ([x / sum(w) for x in w],))
    return Sample(text, given, (w[given["x"][1]] / sum(w),))


@says("face")
def another_face(draw: Draw) -> Sample:
    """Numbers that were made a distribution have one face."""
    p = probs(draw)
    return Sample('%z = face(%q, face = "raw")', {"q": dist(p)}, (p,))


@says("warp")
def unshaped(draw: Draw) -> Sample:
    """A request without constraints at temperature 1 leaves a law as it is, and makes scores their softmax."""
    if draw(st.booleans()):
        xs = draw(exactly(REALS, V))
        return Sample("%z = warp(%w)", {"w": row(xs)}, (soft(xs),))
    p = probs(draw)
    return Sample("%z = warp(%q)", {"q": dist(p)}, (p,))


@says("adjust")
def unadjusted(draw: Draw) -> Sample:
    """A request that asks for nothing leaves scores as they are: they are not normalised."""
    xs = draw(exactly(REALS, V))
    return Sample("%c = context()\n%z = adjust(%w, %c)", {"w": row(xs)}, (xs,))


@says("lookup")
def entries(draw: Draw) -> Sample:
    p = probs(draw)
    xs = draw(lists(TOKENS))
    which = draw(st.integers(0, 3))
    if which == 0:
        x = draw(TOKENS)
        return Sample("%z = lookup(%q, %x)", {"q": dist(p), "x": ("token<V>", x)}, (p[x],))
    if which == 1:
        return Sample("%z = lookup(%q, %x)", {"q": dist(p), "x": tokens(xs)}, ([p[x] for x in xs],))
    m = [probs(draw) for _ in range(draw(st.integers(1, 3)))]
    each = draw(exactly(TOKENS, len(m)))
    if which == 2:
        want = [q[x] for q, x in zip(m, each, strict=True)]
        return Sample("%z = lookup(%q, %x)", {"q": dists(m), "x": tokens(each)}, (want,))
    return Sample("%z = lookup(%q, %x)", {"q": dists(m), "x": ("token<V>", each[0])}, ([q[each[0]] for q in m],))


@says("info")
def nats(draw: Draw) -> Sample:
    """0 log 0 is 0; where q has nothing and p something, the divergence has no bound."""
    p, q = probs(draw), probs(draw)
    if draw(st.booleans()):
        return Sample('%z = info(%p, kind = "entropy")', {"p": dist(p)}, (-sum(x * math.log(x) for x in p if x > 0),))
    want = sum(math.inf if y == 0 else x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0)
    return Sample('%z = info(%p, %q, kind = "kl")', {"p": dist(p), "q": dist(q)}, (want,))


@says("renorm")
def cut(draw: Draw) -> Sample:
    p = probs(draw)
    order = best_first([p])
    if draw(st.booleans()):
        k = draw(st.integers(1, V + 1))
        keep, given, kind = order[:k], {"q": dist(p), "k": ("int", k)}, "topk"
    else:
        mass = draw(st.sampled_from([0.05, 0.3, 0.55, 0.9]))
        n = next(n for n in range(1, V + 1) if sum(p[v] for v in order[:n]) >= mass)
        keep, given, kind = order[:n], {"q": dist(p), "k": ("real", mass)}, "topp"
    total = sum(p[v] for v in keep)
    return Sample(f'%z = renorm(%q, %k, kind = "{kind}")', given, ([x / total if v in keep else 0.0 for v, x in enumerate(p)],))


@says("draw.point", "draw.get")
def certain(draw: Draw) -> Sample:
    """Draws without randomness: their law is certain, so its own token has probability 1."""
    xs = draw(lists(TOKENS, 1))
    field = draw(st.sampled_from(["token", "prob", "point", "law"]))
    want = {
        "token": xs,
        "prob": [1.0] * len(xs),
        "point": [True] * len(xs),
        "law": [[float(v == x) for v in range(V)] for x in xs],
    }[field]
    return Sample(f'%d = draw.point(%x)\n%z = draw.get(%d, field = "{field}")', {"x": tokens(xs)}, (want,))


@says("draw.stated")
def stated(draw: Draw) -> Sample:
    """Tokens drawn elsewhere: each has the distribution that is said, and its probability there."""
    m = [probs(draw) for _ in range(draw(st.integers(1, 3)))]
    xs = draw(exactly(TOKENS, len(m)))
    field = draw(st.sampled_from(["token", "prob", "point", "law"]))
    want = {
        "token": xs,
        "prob": [q[x] for q, x in zip(m, xs, strict=True)],
        "point": [False] * len(xs),
        "law": m,
    }[field]
    text = f'%d = draw.stated(%x, %q)\n%z = draw.get(%d, field = "{field}")'
    return Sample(text, {"x": tokens(xs), "q": dists(m)}, (want,))


@says("draw.race")
def raced(draw: Draw) -> Sample:
    """Every token with a key, the largest first; one without mass comes last and has none. The law of the order is in
    test_laws.py."""
    p = probs(draw)
    text = '%g = noise(kind = "race", site = "f.0")\n%d = draw.race(%q, %g)\n%t = draw.get(%d, field = "token")\n'
    text += '%s = sort(%t)\n%z = map(%s, %s, fn = "minimum")'
    return Sample(text, {"q": dist(p)}, (sorted(v for v in range(V) if p[v] > 0),))
