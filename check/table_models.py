"""Tables of the worlds: rows of every sort that a claim may depend on, drawn from a seed in fractions.

Rows of small weights alone hide much: no probability is ever below 1/19 or zero, nothing is certain, nothing ties, and a text
of forty tokens has too many runs to follow. A style says what rows look like; `point_until` and `rare` make most of them
certain, the same token for every model of the world, so that late steps, deep drafts and large parameters are reached in a
few runs.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zlib import crc32

from decgraph.runtime.models.free import FreeModel, small_weights
from decgraph.runtime.models.interface import Model, Scores
from decgraph.runtime.models.table import TableFeatures, TableModel, _Table
from decgraph.runtime.noise import hash32

NOTHING, ALL, SMALL = Fraction(0), Fraction(1), Fraction(1, 10)
BESIDE = (Fraction(1, 2), Fraction(1), Fraction(3, 2))  # factors that give masses just below, at and just above a number
MODELS = 101  # a model's seed is a multiple of this plus its number in the program


@dataclass(frozen=True)
class Style:
    """What the rows of a world look like.

    sort: "plain" (weights 1 to 9), "zeros" (a quarter of the tokens have no mass), "peaked" (one token has 0.96 to 0.9999),
    "tails" (masses down to 1e-4), "ties" (equal masses), "sure" (every second row is certain), "mixed" (each row of a sort of
    its own), "apart" (the first model's rows plain, the others' peaked: drafts are refused one after the other, and each takes
    little from what is left), "near" (a mass beside one of the numbers `near`, or as far from 1; the rows of other models
    differ by less than such a number), "exactly" (a mass that is one of them).
    power: weights are perfect powers, so that temperatures and penalties stay rational.
    support: how many tokens have mass (0: all). near: the numbers of that sort. among: tokens that are among those with mass
    where `support` leaves others without. point_until: rows after fewer tokens than this are certain, and those of cells of a
    canvas that have their token; point_from: rows after as many tokens or more are certain (0: none). rare: all rows but one
    in `rare` are certain (0: none). window: how many of the last tokens a row depends on. shared: the seed of certain rows,
    equal for all models of a world. strays: where rows are certain, all models but the first are certain of another token in
    one context of `strays` (0: never, 1: always), so that whatever comes of their rows alone shows in the text. soft: such rows
    have a tenth of their mass elsewhere, for requests that cut this off.
    """

    sort: str = "plain"
    power: int = 1
    support: int = 0
    among: tuple[int, ...] = ()
    point_until: int = 0
    rare: int = 0
    window: int | None = None
    shared: int = 0
    point_from: int = 0
    strays: int = 0
    soft: bool = False
    near: tuple[Fraction, ...] = ()

    def __str__(self) -> str:
        words = [self.sort] + [
            f"{k} {v}"
            for k, v in (
                ("power", self.power),
                ("support", self.support),
                ("certain before", self.point_until),
                ("one in", self.rare),
                ("window", self.window),
                ("strays one in", self.strays),
            )
            if v not in (0, 1, None)
        ]
        return ", ".join(words)


def tokens_in(key: Hashable) -> tuple[int, ...]:
    """The tokens of an entry's key, in order."""
    if isinstance(key, tuple):
        return tuple(t for part in key for t in tokens_in(part))
    return (key,) if isinstance(key, int) else ()


def decided(key: Hashable) -> bool:
    """Whether an entry is that of a cell of a canvas that has its token already."""
    return (
        isinstance(key, tuple)
        and len(key) == 2
        and isinstance(key[0], tuple)
        and isinstance(key[1], int)
        and key[1] < len(key[0])
        and isinstance(key[0][key[1]], int)
    )


@lru_cache(maxsize=200_000)
def row(style: Style, seed: int, size: int, key: Hashable) -> tuple[Fraction, ...]:
    """The row of an entry: `size` fractions that sum to one."""
    path = tokens_in(key) if style.point_until or style.rare or style.point_from else ()
    if style.point_until and isinstance(key, tuple) and key[:1] == ("head",):  # the row predicts a token further on
        path = path[1:]
        for _ in range(key[1] + 1):
            path += (hash_of(style.shared, *path) % size,)
    sure = len(path) < style.point_until or 0 < style.point_from <= len(path) or (style.point_until > 0 and decided(key))
    allowed = _support(style, size, key)
    if sure or (style.rare and hash_of(style.shared, 7, *path) % style.rare):
        at = hash_of(style.shared, *path)
        if style.strays and seed % MODELS and hash_of(style.shared, 3, *path) % style.strays == 0:
            at += 1 + at // len(allowed) % (len(allowed) - 1)
        return certain(allowed[at % len(allowed)], size, style.soft)
    weights = _near(style, seed, key, len(allowed)) if style.near else _weights(style, f"{seed}:{key!r}", len(allowed))
    out = [Fraction(0)] * size
    for v, w in zip(allowed, weights, strict=True):
        out[v] = w
    return tuple(out)


def certain(token: int, size: int, soft: bool = False) -> tuple[Fraction, ...]:
    """The row in which a token has all of the mass, or nine tenths of it."""
    out = [SMALL / (size - 1) if soft else NOTHING] * size
    out[token] = 1 - SMALL if soft else ALL
    return tuple(out)


def hash_of(*words: int) -> int:
    """A hash of a path and other numbers. Long paths are hashed by C: a run over long contexts has thousands of them."""
    return hash32(words) if len(words) < 100 else crc32(array("q", words).tobytes())


def _support(style: Style, size: int, key: Hashable) -> Sequence[int]:
    if not style.support or style.support >= size:
        return range(size)
    rng = random.Random(f"support {style.shared} {tokens_in(key)}")
    named = [v for v in style.among if 0 <= v < size]
    chosen = set(rng.sample(named, min(len(named), max(1, style.support - 1))))
    while len(chosen) < style.support:
        chosen.add(rng.randrange(size))
    return tuple(sorted(chosen))


def _weights(style: Style, key: str, n: int) -> tuple[Fraction, ...]:
    rng = random.Random(key)
    sort = style.sort
    if sort == "apart":
        sort = "peaked" if int(key.split(":", 1)[0]) % MODELS else "plain"
    if sort == "mixed":
        sort = rng.choice(("plain", "zeros", "peaked", "tails", "ties", "sure"))
    if sort in ("plain", "zeros"):
        return small_weights(key, n, zeros=sort == "zeros", power=style.power)
    if sort == "sure" and rng.random() < 0.5:
        return _normal([0] * n, rng, n)
    if sort == "peaked":
        top = rng.choice((25, 100, 1000, 10_000))
        raw = [rng.randint(1, 3) for _ in range(n)]
        raw[rng.randrange(n)] = top * sum(raw)
        return _normal([w**style.power for w in raw], rng, n)
    if sort == "tails":
        return _normal(
            [
                (10 ** rng.randint(0, 4 // style.power)) ** style.power * 3 ** (style.power * rng.randint(0, 1))
                for _ in range(n)
            ],
            rng,
            n,
        )
    if sort == "ties":
        return _normal([rng.choice((1, 1, 2)) ** style.power for _ in range(n)], rng, n)
    return small_weights(key, n, power=style.power)


def _near(style: Style, seed: int, key: Hashable, n: int) -> tuple[Fraction, ...]:
    """A row in which a token's mass, or all the others', is beside a small number; that of a model behind the first one differs
    from the first one's by less than such a number."""
    rng = random.Random(f"near {style.shared} {tokens_in(key)}")
    number = rng.choice(style.near)
    if style.sort == "exactly":
        out = [(1 - number) * w for w in small_weights(f"{rng.random()} {seed}", n - 1)]
        out.insert(rng.randrange(n), number)
        return tuple(out)
    small = min(number, 1 - number) * rng.choice(BESIDE)
    token, other = rng.sample(range(n), 2)
    out = [(1 - small) * w for w in small_weights(f"{rng.random()}", n - 1)]
    out.insert(token, small)
    if rng.random() < 0.5:  # then the others' masses are small as well
        out = [small / (n - 1)] * n
        out[token] = 1 - small
    if seed % MODELS and rng.random() < 0.7:
        moved = min(out[token], small) / random.Random(f"{seed} {key!r}").randint(2, 4)
        out[token], out[other] = out[token] - moved, out[other] + moved
    return tuple(out)


def _normal(raw: list[int], rng: random.Random, n: int) -> tuple[Fraction, ...]:
    if not any(raw):
        raw[rng.randrange(n)] = 1
    total = sum(raw)
    return tuple(Fraction(w, total) for w in raw)


class StyledTable(_Table):
    """The entries of one model."""

    def __init__(self, size: int, seed: int, style: Style) -> None:
        super().__init__(size, seed, {}, False, 1)
        self.seed, self.style = seed, style

    def __call__(self, key: tuple[Hashable, ...], name: str) -> Scores:
        if key not in self.touched:
            seen = key[-self.style.window :] if self.style.window and key and isinstance(key[-1], int) else key
            self.touched[key] = Scores(weights=row(self.style, self.seed, self._size, seen))
        return self.touched[key]


class StyledModel(TableModel):
    """A table model whose rows have a style. Derived models have it too."""

    def __init__(self, size: int, seed: int, style: Style, **more: Any) -> None:
        super().__init__(size, seed, window=style.window if more.get("kind") != "masked" else None, **more)
        self.style = style
        self._table = StyledTable(size, seed, replace(style, window=None))

    def derive(self, how: str, *args: object) -> Model:
        made = super().derive(how, *args)
        if isinstance(made, TableModel) and made.seed is not None and made._table is not self._table:
            made._table = StyledTable(self.vocab.size, made.seed, self.style)
        return made


class StyledFree(FreeModel):
    """A free model whose rows have a style: what they are is still a hash of all that they were computed from."""

    def __init__(self, seed: int, size: int, layers: int, style: Style, **more: Any) -> None:
        super().__init__(seed, size, layers, **more)
        self.style = style

    def read_out(self, state: Hashable, head: int | None = None) -> Scores:
        style, size = self.style, self.vocab.size
        key = state if head is None else (state, head)
        if style.rare and hash32((style.shared, *str(state).encode())) % style.rare:
            token = hash32((style.shared, 1, *str(state).encode())) % size
            return Scores(weights=tuple(Fraction(v == token) for v in range(size)))
        return Scores(weights=row(replace(style, rare=0, point_until=0), self.seed, size, str(key)))


def styled_features(target: Model, seed: int, style: Style) -> TableFeatures:
    """A head on a table target's features, in the world's style."""
    made = TableFeatures(target, seed)
    made._table = StyledTable(target.vocab.size, seed, style)
    return made


__all__ = ["Style", "StyledFree", "StyledModel", "row", "styled_features", "tokens_in"]
