"""Draws over rationals, with choices instead of noise. A draw is split when its token is read."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from decgraph.backends.exact.beta import Affine, BetaVariable
from decgraph.backends.exact.numbers import EXACT
from decgraph.backends.exact.races import Race
from decgraph.backends.exact.reals import Log, real, shares
from decgraph.backends.exact.world import RaceKey, Unlikely, World, said
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draw, Draws, Row
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Op
from decgraph.runtime.faults import noted_outside
from decgraph.runtime.noise import Key


class ExactDraws(ReferenceMachine):
    """The draws of a run whose noise is unknown: every draw is a choice of `world`."""

    num: Any = EXACT  # Any: as in `Run`
    world: World

    def start_run(self) -> None:
        super().start_run()
        self.read_before: list[tuple[str, tuple[Fraction, ...], int]] = []
        """Sites whose noise an earlier step has read: the distribution and the token, which the text shows."""

    def draw(self, op: Op, row: Row, face: str, key: NoiseKey, lane: int, index: int | None) -> Draw:
        place = self.key(key, (lane,), row, index)
        name = said(op, place, self.module.path, key.kind == "output")
        return Draw(None, row, face, resolve=partial(self.late_token, op, place, row, face, name))

    def said(self, op: Op, place: Key) -> str:
        return said(op, place, self.module.path)

    def late_token(self, op: Op | None, place: Key, row: Row, face: str, name: str) -> int:
        if self.world.ran is not None and op is not None:
            self.world.ran.token_read(op, row.face(face))
        return self.race_token(place, row.face(face), name)

    def race_token(self, place: Key, q: Sequence[Number] | np.ndarray, name: str) -> int:
        """The token of a race over q [vocab] at a key. Raises DecError for a distribution without mass."""
        masses = tuple([real(x) for x in q])
        live = [v for v, x in enumerate(masses) if x > 0]
        if not live:
            raise DecError(f"{name} is drawn from a distribution without mass")
        race = self.world.races.get(place)
        if race is None:
            race = self.world.races[place] = Race(len(masses))
            for site, law, token in self.read_before:
                if place.site == site and len(law) == len(masses):
                    race.read(law, token)
        known = race.known(masses)
        if known is not None:
            return known
        if len(live) == 1:  # certain: it says nothing about the noise, and is no read of it
            only = live[0]
            if only not in race.told:
                race.told.add(only)
                self.world.choices.choose([Fraction(1)], [only], name)
            return only
        options = race.possible(masses)
        if self.world.coupled and race.reads:
            weights = [Fraction(1, len(options))] * len(options)  # a claim in tokens depends on the possible tokens only
        else:
            given = race.weights(masses)
            if given is None:
                raise Unlikely(f"three different draws read the noise of {name}")
            weights = [given[y] for y in options]
        y = self.world.choices.choose(weights, options, name)
        race.read(masses, y)
        return int(y)

    def draw_many(self, op: Op, row: Row, face: str, k: int, replace: bool, key: NoiseKey, lane: int) -> list[Draw]:
        if replace:
            out = []
            for j in range(k):
                place = self.key(key, (lane, j), row)
                resolve = partial(self.late_token, op, place, row, face, f"{self.said(op, place)}, number {j}")
                out.append(Draw(None, row, face, group=lane, rank=j, resolve=resolve))
            return out
        k = min(k, sum(1 for x in row.face(face) if x > 0))
        return self.siblings(op, row, face, self.key(key, (lane,), row), k, lane)

    def siblings(self, op: Op, row: Row, face: str, place: Key, k: int, lane: int, race: bool = False) -> list[Draw]:
        """k draws without replacement, each lazily, in order."""
        group = self.world.groups.setdefault(place, [])
        name = self.said(op, place)
        out: list[Draw] = []
        for j in range(k):
            law = (
                row
                if j == 0
                else Row(
                    partial(self.law_after, group, row, face, j, name), position=row.position, node=row.node, path=row.path
                )
            )
            out.append(
                Draw(
                    None,
                    law,
                    face,
                    source=row,
                    group=lane,
                    rank=j,
                    race=RaceKey(row, j) if race else None,
                    resolve=partial(self.sibling, group, row, face, j, name),
                )
            )
        return out

    def law_after(self, group: list[int], row: Row, face: str, j: int, name: str, asked: str) -> np.ndarray:
        """The conditional distribution [V] of the j-th token of a group: without the ones before it."""
        return self.less(row.face(face), tuple(self.sibling(group, row, face, i, name) for i in range(j)))

    def sibling(self, group: list[int], row: Row, face: str, j: int, name: str) -> int:
        """The j-th token of a group in its order. Raises DecError where the distribution has fewer tokens, which is no error of
        the program: other machines leave out those that are missing."""
        while len(group) <= j:
            q = [Fraction(0) if v in group else real(x) for v, x in enumerate(row.face(face))]
            if not any(x > 0 for x in q):
                raise noted_outside(DecError("more draws without replacement than the distribution has tokens"))
            group.append(self.world.choices.choose(shares(q), list(range(len(q))), f"{name}, number {len(group)}"))
        return group[j]

    def less(self, q: np.ndarray, gone: tuple[int, ...]) -> np.ndarray:
        left = np.empty(len(q), dtype=object)
        left[:] = shares([Fraction(0) if v in gone else real(x) for v, x in enumerate(q)])
        return left

    def draw_race(self, op: Op, row: Row, face: str, key: NoiseKey, lane: int, under: Number | None) -> list[Draw]:
        k = sum(1 for x in row.face(face) if x > 0)
        return self.siblings(op, row, face, self.key(key, (lane,), row), k, lane, race=True)

    def select_race(self, x: Draws, k: int) -> Draws:
        """The k candidates with the highest race keys, given the order of their rows' own keys: leaves are drawn without
        replacement over all rows; a row's first candidate may only come after the first of the row before it."""
        rows: dict[int, list[Draw]] = {}
        for d in x.items.ravel():
            if d is not None:
                rows.setdefault(id(d.source), []).append(d)
        lists = list(rows.values())
        mass = [self.path_mass(r[0]) for r in lists]
        left = [Fraction(1)] * len(lists)
        at = [0] * len(lists)
        seen, total_outside = 1, 1 - sum(mass, Fraction(0))
        out: list[Draw] = []
        first = True
        while len(out) < k and any(at[i] < len(r) for i, r in enumerate(lists)):
            if first:
                pick, first = 0, False
            else:
                options = [i for i in range(seen) if at[i] < len(lists[i])]
                weights = [mass[i] * left[i] for i in options]
                if seen < len(lists):
                    options.append(seen)
                    weights.append(sum(mass[seen:], Fraction(0)) + total_outside)
                total = sum(weights)
                if not options or total == 0:
                    break
                pick = self.world.choices.choose([w / total for w in weights], options, "race")
                if pick == seen:
                    seen += 1
            d = lists[pick][at[pick]]
            at[pick] += 1
            left[pick] -= real(d.source.face(d.law_face)[d.token])
            out.append(d)
        items = np.empty(len(out), dtype=object)
        items[:] = out
        return Draws(items)

    def path_mass(self, d: Draw) -> Fraction:
        mass = Fraction(1)
        for e in d.source.path or ():
            if isinstance(e, Draw):
                mass *= real(e.source.face(e.law_face)[e.token])
        return mass

    def flip(self, op: Op, p: Number, key: NoiseKey, lane: int) -> bool:
        if isinstance(p, Affine):
            return p.coin(self.said(op, self.key(key, (lane,))))
        if p != p:
            raise DecError("bernoulli of NaN (0 / 0)")
        p = Fraction(int(p > 0)) if isinstance(p, float) else real(p)
        p = min(Fraction(1), max(Fraction(0), p))
        place = self.key(key, (lane,))
        lo, hi = self.world.units.get(place, (Fraction(0), Fraction(1)))
        below = max(Fraction(0), min(hi, p) - lo) / (hi - lo)
        hit = self.world.choices.choose([below, 1 - below], [True, False], f"{self.said(op, place)} with probability {p}")
        self.world.units[place] = (lo, min(hi, p)) if hit else (max(lo, p), hi)
        return bool(hit)

    def beta(self, op: Op, a: Datum, b: Datum, key: NoiseKey) -> Number:
        return Affine(BetaVariable(real(a), real(b), self.world, self.said(op, self.key(key, ()))))

    def lazy_log(self, logprob: Number, edge: Draw) -> Number:
        return logprob + Log(lambda: real(edge.source.face("raw")[edge.token]))

    def reals(self, values: Sequence[Datum]) -> np.ndarray:
        out = np.empty(len(values), dtype=object)
        out[:] = list(values)
        return out

    def no_mass(self, op: Op, weights: np.ndarray) -> np.ndarray:
        return np.array([Fraction(0)] * len(weights), dtype=object)
