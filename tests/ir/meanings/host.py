"""The host, the batch of one, and what a request has."""

from __future__ import annotations

import re

from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.selection import best_first
from meanings.values import INTS, REALS, TOKENS, exactly, ints, lists, reals, tokens

from decgraph.ir.data.dist import Path
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.spelling import spelled


@says("extern")
def called(draw: Draw) -> Sample:
    """The caller's function, once for each of a vector."""
    f = lambda n: int(n) * int(n) + 1
    if draw(st.booleans()):  # what is declared as a vector is passed as one
        ys = draw(lists(INTS))
        whole = 'extern = "g", params = (!int[k]), returns = !int'
        return Sample(f"%z = extern(%x, {whole})", {"x": ints(ys)}, (sum(ys),), (("g", lambda n: int(sum(n))),))
    attrs = 'extern = "f", params = (!int), returns = !int'
    xs, x = draw(lists(INTS)), draw(INTS)
    if draw(st.booleans()):
        return Sample(f"%z = extern(%x, {attrs})", {"x": ("int", x)}, (x * x + 1,), (("f", f),))
    return Sample(f"%z = extern(%x, {attrs})", {"x": ints(xs)}, ([x * x + 1 for x in xs],), (("f", f),))


@says("batch.top")
def alone(draw: Draw) -> Sample:
    xs, k = draw(lists(INTS)), draw(st.integers(0, 6))
    key = draw(exactly(REALS, len(xs)))
    return Sample(
        "%z = batch.top(%x, %k, %a)",
        {"x": ints(xs), "k": ("int", k), "a": reals(key)},
        ([xs[i] for i in best_first([key])[:k]] if xs else [],),
    )


@says("batch.fold")
def own_number(draw: Draw) -> Sample:
    """Alone, what is folded is the sequence's own."""
    fn = draw(st.sampled_from(["max", "min", "sum"]))
    if draw(st.booleans()):
        x = draw(INTS)
        return Sample(f'%z = batch.fold(%x, fn = "{fn}")', {"x": ("int", x)}, (x,))
    b = draw(st.booleans())
    return Sample('%z = batch.fold(%x, fn = "any")', {"x": ("bool", b)}, (b,))


@says("vocab_size")
def size(draw: Draw) -> Sample:
    return Sample("%z = vocab_size()", {}, (V,))


@says("text_of", "completes")
def letters(draw: Draw) -> Sample:
    """The tokenizer of the samples writes 0 as a, 1 as b, 2 as c."""
    xs = draw(lists(TOKENS))
    text = "".join({0: "a", 1: "b", 2: "c"}[x] for x in xs)
    if draw(st.booleans()):
        return Sample("%z = text_of(%x)", {"x": tokens(xs)}, (text,))
    word = draw(st.sampled_from(["a", "ab", "cc", "bca"]))
    found = any(text[i : i + len(word)] == word for i in range(len(text)))
    return Sample("%z = completes(%p, %w)", {"p": ("path<V>", Path(xs)), "w": ("text", word)}, (found,))


@says("retokenize")
def spelled_again(draw: Draw) -> Sample:
    """The longest token that fits, from the left; letters that no token begins with are left out; a whole text without a token
    is the first one."""
    pieces = draw(st.lists(st.sampled_from(["a", "b", "ab", "ba", "aab", "c"]), min_size=1, max_size=5, unique=True))
    source, to = FreeModel(3, V, 2, name="source"), FreeModel(4, len(pieces), 2, vocab="W", name="to")
    source.spelling, to.spelling = spelled(["a", "b", "ab"]), spelled(pieces)
    xs, whole = draw(lists(TOKENS)), draw(st.booleans())
    text = "".join(["a", "b", "ab"][x] for x in xs)
    found = re.findall("|".join(sorted(pieces, key=lambda p: -len(p))), text)
    want = [pieces.index(p) for p in found] or [0] * whole
    models = {"m": ("model<causal,V,m,causal>", source), "n": ("model<causal,W,n,causal>", to)}
    return Sample(f"%z = retokenize(%x, %m, %n, whole = {str(whole).lower()})", {"x": tokens(xs), **models}, (want,))


@says("ctx.get")
def of_the_context(draw: Draw) -> Sample:
    """The context of the samples is 1 0 2."""
    field = draw(st.sampled_from(["token", "length", "path", "last"]))
    n = draw(st.integers(0, 5))
    if field == "last":
        return Sample(
            '%c = context()\n%z = ctx.get(%c, %n, field = "last", bound = 5)', {"n": ("int", n)}, ([1, 0, 2][max(0, 3 - n) :],)
        )
    want = {"token": 2, "length": 3, "path": [1, 0, 2]}[field]
    return Sample(f'%c = context()\n%z = ctx.get(%c, field = "{field}")', {}, (want,))
