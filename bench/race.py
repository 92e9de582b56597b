"""A race: algorithms and settings on the same groups of prompts, one turn after the other, against one of them.

Contenders, clocks and figures are those of every benchmark (contenders.py, timing.py, measure.py); what is added is that a
turn may be of some of them, and shorter than a whole request, so that a search can go on with the fastest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from decgraph.bench import bootstrap
from decgraph.bench.agreement import Agreement
from decgraph.bench.contenders import Ours
from decgraph.bench.measure import ALL, BenchWork, Measured
from decgraph.errors import DecError
from decgraph.runtime.tune.space import Entrant

FEW = 2
"""Tokens of a run that only warms up: code is generated and memory allocated then."""


class AlgorithmRace:
    """What is measured of entrants at one load. base: what they are compared with. opened: an entrant as a contender that runs
    the groups of `work`; raises DecError for one that cannot be opened. limit: new tokens of a whole request. cpu: the clock
    that ratios are of. target: the model that decides near-ties; None where tokens are not compared. bound: whether an
    entrant's claim says that its greedy tokens are the base's. strict: tokens that a claim rules out are an error, not the end
    of that entrant alone."""

    def __init__(
        self,
        base: Entrant,
        opened: Callable[[Entrant], Ours],
        work: BenchWork,
        *,
        limit: int,
        cpu: bool = False,
        target: Any = None,
        bound: Callable[[Entrant], bool] = lambda _: False,
        strict: bool = False,
        seed: int = 0,
    ) -> None:
        self.base, self.opened, self.limit, self.cpu = base, opened, limit, cpu
        self.target, self.bound, self.strict = target, bound, strict
        self.found = Measured(work, {})
        self.entrants: dict[str, Entrant] = {}
        self.warmed: set[str] = set()
        self.order, self.turns = random.Random(seed), 0

    def contender(self, one: Entrant, tokens: int | None = None) -> Ours | None:
        """An entrant that runs requests of so many tokens; None where it has failed. Raises DecError where the base cannot be
        opened."""
        if one.label in self.failed:
            return None
        self.entrants[one.label] = one
        try:
            made = self.opened(one)
        except DecError as error:
            self.fail(one, error)
            return None
        made.limit = min(tokens or self.limit, self.limit)
        self.found.contenders[one.label] = made
        return made

    def fail(self, one: Entrant, error: DecError) -> None:
        """It takes no further part. Raises the error where it is the base's."""
        if one == self.base:
            raise error
        self.found.times.drop(one.label, error)

    def warm(self, entrants: Iterable[Entrant]) -> None:
        """Run what was never run before for a few tokens, unmeasured."""
        for one in dict.fromkeys([self.base, *entrants]):
            if one.label not in self.warmed and (made := self.contender(one, FEW)) is not None:
                self.warmed.add(one.label)
                try:
                    made(self.turns % len(self.found.work.groups))
                except DecError as error:
                    self.fail(one, error)

    def once(self, entrants: Sequence[Entrant], tokens: int | None = None, turn: int | None = None) -> None:
        """A turn: the next group, or that of an earlier turn, by the base and all entrants, in random order; tokens: of each
        request at most.

        One that cannot run is out. Raises DecError for a base that cannot, and, if `strict`, for tokens that a claim rules out.
        """
        turn = self.turns if turn is None else turn
        number = turn % len(self.found.work.groups)
        going = [one for one in dict.fromkeys([self.base, *entrants]) if self.contender(one, tokens) is not None]
        runs = {one.label: self.found.noted(one.label) for one in going}
        self.found.times.turn(runs, turn, number, self.order)
        self.turns = max(self.turns, turn + 1)
        if self.base.label in self.failed:
            raise self.failed[self.base.label]
        for one in going:
            if self.target is not None and one != self.base and one.label not in self.failed:
                agreement = Agreement(self.target)
                mine, theirs = (self.found.ran[label][number].tokens for label in (one.label, self.base.label))
                agreement.compare_all(self.found.work.groups[number], mine, theirs)
                self.judge(one, agreement.first)

    def judge(self, one: Entrant, different: str) -> None:
        """It is out where its tokens differ from the base's and its claim rules that out. Raises DecError if `strict`."""
        if not different or not self.bound(one):
            return
        error = DecError(
            f"{one.label} commits other tokens than {self.base.label}, which its claim rules out: {different}",
            hint="the claim is wrong or decgraph is: `decgraph check` decides claims; nothing was written",
        )
        if self.strict:
            raise error
        self.fail(one, error)

    @property
    def failed(self) -> Mapping[str, DecError]:
        """Why an entrant is out, by its label."""
        return self.found.times.failed

    def pairs(self, one: Entrant) -> list[list[float]]:
        """By group, how many times as fast as the base it made a token, turn by turn."""
        return self.found.ratios(self.base.label, one.label, ALL, cpu=self.cpu)

    def ratio(self, one: Entrant) -> float:
        """The figure of these; 1 of the base, and before there are any."""
        return 1.0 if one == self.base else bootstrap.figure(self.pairs(one))

    def ran(self, one: Entrant) -> int:
        """How many turns it took part in."""
        return sum(one.label in turn for turn in self.found.times.runs)

    @property
    def lasts(self) -> float:
        """Seconds on the wall that a whole run takes, as far as is known."""
        runs = [run for turn in self.found.times.runs for run in turn.values()]
        made = sum(run.tokens for run in runs)
        return sum(run.wall for run in runs) / made * self.limit * len(self.found.work.groups[0]) if made else 0.0
