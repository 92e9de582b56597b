"""The exact machine over symbolic numbers: rows are any distributions, and draws and comparisons are forks of the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.check.smt.field import Field
from decgraph.check.smt.numbers import SYMBOLIC, Beyond, minimum
from decgraph.check.smt.ratio import Ratio
from decgraph.check.smt.trail import Trail
from decgraph.errors import DecError
from decgraph.ir.data.dist import Draw, Draws, Row
from decgraph.ir.ops.draws import NoiseKey
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, Vocab


class SymbolicModel(Model):
    """A causal model about which nothing is known: after every path some distribution."""

    def __init__(self, trail: Trail, name: str) -> None:
        self.trail, self.name, self.kind, self.family = trail, name, "causal", name
        self.vocab, self.exact, self.context = Vocab("table", trail.field.size), True, None
        self.rows: dict[Path, Scores] = {}

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        out = []
        for path in paths:
            path = tuple(int(x) for x in path)
            if path not in self.rows:
                row = self.trail.field.row(self.name, path)
                weights: Any = tuple(Ratio(self.trail, p) for p in row)
                self.rows[path] = Scores(weights=weights)
            out.append(self.rows[path])
        return out


class SymbolicWorld(World):
    """What the machines of one run share: the trail stands in the place of choices."""

    def __init__(self, trail: Trail, coupled: bool) -> None:
        super().__init__(coupled)
        self.trail = trail
        self.choices: Any = trail


class SymbolicMachine(ExactMachine):
    """The exact machine; what it does with numbers is symbolic."""

    num = SYMBOLIC
    world: Any

    @property
    def field(self) -> Field:
        found: Field = self.world.trail.field
        return found

    def normalized(self, weights: Iterable[Any]) -> list[Any]:
        """Weights as probabilities that sum to 1. Raises DecError where all are 0."""
        q = list(weights)
        total = sum(q, Fraction(0))
        if not isinstance(total, Ratio):
            if total == 0:
                raise DecError("a draw from a distribution without mass")
            return [x / total for x in q]
        if total.constant == 1:
            return q
        if not total > 0:
            raise DecError("a draw from a distribution without mass")
        return [x / total for x in q]

    def race_token(self, place: Any, q: Any, name: str) -> int:
        reads = self.world.races.setdefault(place, [])
        q = self.normalized(q)
        for other, y in reads:
            if all(self.world.trail.number(a).same(b) for a, b in zip(q, other, strict=True)):
                return int(y)
        if reads and not self.world.coupled:
            raise Beyond(f"the noise of {name} is read by two draws from different distributions")
        y = self.world.trail.choose(q, list(range(len(q))), name)  # coupled: whatever the other draw of this noise gave
        reads.append((q, y))
        return int(y)

    def draw_many(self, op: Any, row: Row, face: str, k: int, replace: bool, key: NoiseKey, lane: int) -> list[Draw]:
        if replace:
            return super().draw_many(op, row, face, k, replace, key, lane)
        q = self.supported(list(row.face(face)), k)
        have = sum(1 for x in q if isinstance(x, Ratio) or x > 0)
        shown = Row(lambda face: self.reals(q), position=row.position, node=row.node, path=row.path)
        return self.siblings(op, shown, face, self.key(key, (lane,), row), min(k, have), lane)

    def supported(self, q: list[Any], k: int) -> list[Any]:
        """A distribution of which k different tokens are drawn. Where fewer have mass, only these are left: a fork for each
        set."""
        live = [v for v, x in enumerate(q) if isinstance(x, Ratio) or x > 0]
        for kept in combinations(live, k - 1) if 1 < k <= len(live) else ():
            if not self.world.trail.number(1 - sum((q[v] for v in kept), Fraction(0))) > 0:
                last = 1 - sum((q[v] for v in kept[1:]), Fraction(0))
                fewer = [last if v == kept[0] else x if v in kept else Fraction(0) for v, x in enumerate(q)]
                return self.supported(fewer, k - 1)
        return q

    def sibling(self, group: list[int], row: Row, face: str, j: int, name: str) -> int:
        while len(group) <= j:
            q = self.less(row.face(face), tuple(group)) if group else row.face(face)
            group.append(self.world.trail.choose(list(q), list(range(len(q))), f"{name}, number {len(group)}"))
        return group[j]

    def less(self, q: Any, gone: tuple[int, ...]) -> Any:
        left = np.empty(len(q), dtype=object)
        left[:] = [Fraction(0) if v in gone else x for v, x in enumerate(q)]
        rest = 1 - sum((q[v] for v in gone), Fraction(0))
        return self.reals([x / rest if isinstance(x, Ratio) or x else x for x in left])

    def select_race(self, x: Draws, k: int) -> Draws:
        raise Beyond("a beam that is chosen by race")

    def flip(self, op: Any, p: Any, key: NoiseKey, lane: int) -> bool:
        trail, place = self.world.trail, self.key(key, (lane,))
        if isinstance(p, float):
            p = Fraction(1 if p > 0 else 0)
        p = minimum(self.num.fn("relu")(trail.number(p))[()], Fraction(1))
        lo, hi = self.world.units.get(place, (Fraction(0), Fraction(1)))
        below = p
        if place in self.world.units:  # the unit is known to lie between lo and hi
            below = self.num.fn("relu")(trail.number(minimum(hi, p) - lo))[()] / (hi - lo)
        hit = trail.choose([below, 1 - below], [True, False], self.said(op, place))
        self.world.units[place] = (lo, minimum(hi, p)) if hit else (self.num.fn("maximum")(trail.number(lo), p)[()], hi)
        return bool(hit)

    def beta(self, op: Any, a: Any, b: Any, key: NoiseKey) -> Any:
        raise Beyond("a draw from a Beta distribution")

    def lazy_log(self, logprob: Any, edge: Draw) -> Any:
        return LogProb(logprob, edge)

    def extern_once(self, name: str, f: Any, args: tuple[Any, ...]) -> Any:
        raise Beyond(f"the Python function {name}")


class LogProb:
    """The logarithm of a path's probability, compared through the probability itself."""

    def __init__(self, above: Any, edge: Draw) -> None:
        self._compute = partial(self._product, above, edge)

    @staticmethod
    def _product(above: Any, edge: Draw) -> Any:
        p = edge.source.face("raw")[edge.token]
        return above.prob * p if isinstance(above, LogProb) else p

    @property
    def prob(self) -> Any:
        return self._compute()

    def __lt__(self, other: Any) -> bool:
        return bool(self.prob < _prob(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.prob > _prob(other))

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other


def _prob(x: Any) -> Any:
    if isinstance(x, LogProb):
        return x.prob
    if x == 0:
        return Fraction(1)
    if x == -float("inf"):
        return Fraction(-1)  # below every probability, 0 among them
    raise Beyond("a logarithm that is compared with a number")


__all__ = ["SymbolicMachine", "SymbolicModel", "SymbolicWorld"]
