"""Draws of the reference: exponential races over keyed Philox noise.

The `lane` of a draw is its number in a vector of draws, each of which reads a random stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from decgraph.backends.reference.numbers import number
from decgraph.backends.reference.protocols import Machine
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.dist import Draw, Draws, NoiseKey, Row
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import NO_PLACE
from decgraph.ir.values import Op
from decgraph.runtime import noise


def key(m: Machine, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> noise.Key:
    """The Philox key of a draw. Raises DecError for output noise of a distribution
    that stands at no position of the text, without an index."""
    seed = m.request.seed
    if key.kind != "output":
        return noise.Key(seed, m.noise_id, m.site_prefix + key.site, m.counter_prefix + key.counters, lane)
    position = index if index is not None else (row.position if row is not None else None)
    if position is None:
        raise DecError("`as output` needs an index here: the distribution has no place of its own", hint=NO_PLACE)
    place = (row.node,) if index is not None and row is not None and row.node is not None else ()
    if m.site_prefix:
        return noise.Key(seed, m.noise_id, m.site_prefix + "output", m.counter_prefix + (int(position),), place)
    return noise.output_key(seed, m.request.request_id, int(position), place)


def draw(m: Machine, op: Op, row: Row, face: str, key: NoiseKey, lane: int, index: int | None) -> Draw:
    """The meaning of `sample`: the winner of an exponential race. Raises DecError where the distribution has no mass."""
    q = np.asarray(row.face(face), dtype=np.float64)
    possible = np.flatnonzero(q > 0)
    if not possible.size:
        raise DecError("a draw from a distribution without mass")
    if possible.size == 1:  # one-hot: no noise is read, so it needs no key
        return Draw(int(possible[0]), row, face)
    return Draw(noise.race(q, noise.exponentials(m.key(key, (lane,), row, index), len(q))), row, face)


def draw_many(m: Machine, op: Op, row: Row, face: str, k: int, replace: bool, key: NoiseKey, lane: int) -> list[Draw]:
    """k draws, with replacement (a race each) or without it (the first k of one race)."""
    q = np.asarray(row.face(face), dtype=np.float64)
    if replace:
        out = []
        for j in range(k):
            times = noise.exponentials(m.key(key, (lane, j), row), len(q))
            out.append(Draw(noise.race(q, times), row, face, group=lane, rank=j))
        return out
    times = noise.exponentials(m.key(key, (lane,), row), len(q))
    with np.errstate(divide="ignore"):
        order = noise.race_order(noise.race_keys(np.log(q), times), k)
    return m.group(row, face, [int(v) for v in order], lane)


def stated(m: Machine, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
    """Tokens that were drawn elsewhere, each from the row that is said."""
    return [Draw(x, row, face) for x, row in zip(tokens, rows, strict=True)]


def group(m: Machine, row: Row, face: str, tokens: list[int], lane: int, race: np.ndarray | None = None) -> list[Draw]:
    """Draws without replacement, in order: each has the conditional distribution without the tokens before it. race[vocab]
    are the race keys, where a program reads them."""
    out: list[Draw] = []
    for j, v in enumerate(tokens):
        own = row
        if j:
            own = Row(conditional(m, row, face, tuple(tokens[:j])), position=row.position, node=row.node, path=row.path)
        out.append(Draw(v, own, face, source=row, group=lane, rank=j, race=None if race is None else race[v]))
    return out


def conditional(m: Machine, row: Row, face: str, gone: tuple[int, ...]) -> Callable[[str], np.ndarray]:
    """The conditional distribution prob[vocab] of a draw after the siblings `gone`, computed when read."""
    return lambda _: m.less(row.face(face), gone)


def less(m: Machine, q: np.ndarray, gone: tuple[int, ...]) -> np.ndarray:
    """q[vocab] without the tokens `gone`, renormalised."""
    left = np.array(q)
    left[list(gone)] = left[list(gone)] * 0
    return left / left.sum()


def draw_race(m: Machine, op: Op, row: Row, face: str, key: NoiseKey, lane: int, under: Number | None) -> list[Draw]:
    """Every token in the order of its race key, that of its path included; under: the key of the parent, which bounds them."""
    q = np.asarray(row.face(face), dtype=np.float64)
    times = noise.exponentials(m.key(key, (lane,), row), len(q))
    above = sum(np.log(d.source.face(face)[d.token]) for d in (row.path or ()) if isinstance(d, Draw))
    with np.errstate(divide="ignore"):
        keys = noise.race_keys(np.log(q) + above, times)
    if under is not None:
        keys = noise.under(keys, number(under))
    order = [int(v) for v in noise.race_order(keys, len(q))]
    return m.group(row, face, order, lane, race=keys)


def select_race(m: Machine, x: Draws, k: int) -> Draws:
    """The k candidates with the highest race keys, of a machine whose keys are no numbers: the reference's are."""
    raise InternalError("race keys that are numbers are ordered as numbers")


def flip(m: Machine, op: Op, p: Number, key: NoiseKey, lane: int) -> bool:
    """The meaning of `bernoulli`. Raises DecError for NaN."""
    if p != p:
        raise DecError("bernoulli of NaN (0 / 0)")
    return bool(noise.unit(m.key(key, (lane,))) < min(1.0, max(0.0, number(p))))


def beta(m: Machine, op: Op, a: Datum, b: Datum, key: NoiseKey) -> Number:
    """The meaning of `beta`: one draw, from a generator that the key seeds."""
    words = noise.words(m.key(key, ()), 4)
    return float(np.random.Generator(np.random.Philox(key=[int(words[0]), int(words[1])])).beta(number(a), number(b)))
