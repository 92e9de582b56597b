"""The whole of tuning at one load: all that enters is halved, the parameters of what is left are searched, and final rounds
decide.

Only measurements decide: the fastest few and the base run the same requests alternately, and one of them wins if it is
significantly faster than the base. Ctrl-C ends any phase; the measurements so far then decide.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decgraph.bench import bootstrap, search
from decgraph.bench.measure import ALL, Measured, MeasureSettings, Row, measured, rows_of
from decgraph.bench.race import AlgorithmRace
from decgraph.bench.search import Left
from decgraph.runtime.trace import Stats
from decgraph.runtime.tune.space import Axis, Entrant, smallest

GAIN = 1.01  # a gain that is not worth a profile
FINALISTS = 3
PAIRS = 40  # pairs of a finalist and the base after which more would say little
LEAST_PAIRS = 5  # below which nothing is sure
SHORTEST = 8  # new tokens of the first requests


@dataclass
class TuningOutcome:
    """What tuning found at a load. `chosen` is the base where nothing beat it. finals: what the last rounds measured, of
    `finalists`; None where Ctrl-C or the time came before. race: what came before them. rows: those of a benchmark, of the base
    and the finalists, by label. chances: how many settings a search that was cut short may have picked from by luck, which its
    intervals allow for."""

    base: Entrant
    chosen: Entrant
    race: AlgorithmRace
    finals: Measured | None
    finalists: list[Entrant]
    rows: dict[str, Row]
    interrupted: bool = False
    seconds: float = 0.0
    chances: int = 1

    @property
    def kept_base(self) -> bool:
        """Whether nothing is faster."""
        return self.chosen == self.base

    @property
    def ran(self) -> int:
        """How many were measured beside the base."""
        return sum(bool(self.race.pairs(one)) for one in self.race.entrants.values() if one != self.base)

    @property
    def judged(self) -> bool:
        """Whether there is a judgement to write down: not where Ctrl-C came before anything beat the base."""
        return not (self.interrupted and self.kept_base)

    @property
    def enough(self) -> bool:
        """Whether the final rounds had time to say anything."""
        return not self.finalists or (self.finals is not None and len(self.finals.times.groups) >= LEAST_PAIRS)

    def ratio(self, one: Entrant) -> bootstrap.ConfidenceInterval | None:
        """How many times as fast as the base it is, by the final rounds if it came that far; None where it never ran."""
        pairs = self.race.pairs(one) if self.finals is None else pairs_of(self.finals, self.race, one) or self.race.pairs(one)
        return bootstrap.ratio(pairs, level=1 - (1 - bootstrap.LEVEL) / self.chances) if pairs else None

    def draft_errors(self, one: Entrant) -> dict[str, int]:
        """How often which error ended a draft of its last runs."""
        ran = [found.ran.get(one.label, {}) for found in (self.race.found, self.finals) if found is not None]
        return Stats.errors_of(stats for groups in ran for made in groups.values() for stats in made.stats)


def pairs_of(found: Measured, race: AlgorithmRace, one: Entrant) -> list[list[float]]:
    """By group, how many times as fast as a race's base an entrant was in other measurements."""
    return found.ratios(race.base.label, one.label, ALL, cpu=race.cpu)


class Tuner:
    """race: at one load. entrants: what it begins with. axes: what may be searched of one. seconds: how long all may take.
    told: called with a message for each phase. short: called where a first look at so many algorithms takes so many seconds
    each, and so many times as long as there is for it."""

    def __init__(
        self,
        race: AlgorithmRace,
        entrants: Sequence[Entrant],
        axes: Callable[[Entrant], Sequence[Axis]],
        *,
        seconds: float = 60.0,
        told: Callable[[str], None] = lambda _: None,
        short: Callable[[int, float, float], None] = lambda *_: None,
    ) -> None:
        self.race, self.entrants, self.axes, self.told, self.short = race, list(entrants), axes, told, short
        self.seconds = seconds
        self.seconds_left: Left = search.until(seconds)

    def share(self, part: float) -> Left:
        """What is left of the first `part` of the whole time, and not needed for the final rounds (but never all of it is)."""

        def seconds_left() -> float:
            needed = min(0.7 * self.seconds, (LEAST_PAIRS + 2) * (FINALISTS + 1) * self.race.lasts)
            return self.seconds_left() - max((1 - part) * self.seconds, needed)

        return seconds_left

    def tune(self) -> TuningOutcome:
        """All phases. Raises DecError for a base that cannot run, and for tokens that a claim rules out."""
        began = time.monotonic()
        self.seconds_left = search.until(self.seconds)
        race, finals, finalists, interrupted = self.race, None, list[Entrant](), False
        try:
            race.warm([])
            race.once([])  # says how long a run takes, whatever comes of the rest
            finalists = self.candidates()
            finals = self.decided(finalists)
        except KeyboardInterrupt:
            interrupted = True
        if finals is not None:
            interrupted |= finals.times.interrupted
            for label, error in finals.failed.items():
                race.found.times.drop(label, error)
        met = finalists or search.fastest(race, FINALISTS, each=1)
        rows = self.rows(finals, met)
        for one in met:
            race.judge(one, rows.get(one.label, {}).get("tokens_equal", {}).get("first", ""))
        rivals = [one for one in (race.entrants.values() if finals is None else met) if one.label not in race.failed]
        # Of a few finalists each by the interval that is shown; a search cut short has had many chances.
        chances = 1 if finals is not None else max(1, len(rivals))
        pairs = {one: race.pairs(one) if finals is None else pairs_of(finals, race, one) for one in rivals if one != race.base}
        met_often = {one: runs for one, runs in pairs.items() if sum(map(len, runs)) >= LEAST_PAIRS}
        ahead = {one: bootstrap.figure(r) for one, r in met_often.items() if bootstrap.surely_above(r, GAIN, chances)}
        chosen = max(ahead, key=lambda one: ahead[one], default=race.base)
        return TuningOutcome(race.base, chosen, race, finals, met, rows, interrupted, time.monotonic() - began, chances)

    def candidates(self) -> list[Entrant]:
        """What is worth the final rounds. Each entrant begins at its default and at the setting that drafts least: where every
        row of a forward costs (`rows.py`), as of a batch on a CPU, a published tree is so far from the best that a search along
        one parameter at a time would not get away from it. Of several, what is hopeless with the least drafts is not run with
        its defaults."""
        race, several = self.race, len(self.entrants) > 1
        tokens, part = (max(SHORTEST, race.limit // 4), 0.5) if several else (None, 0.2)
        begun = {one.at(smallest(self.axes(one), one.setting)): one for one in self.entrants}
        entrants = [one for both in begun.items() for one in both[::-1]]
        if several:
            near = [one for one in self.looked(list(begun), tokens, 0.3) if race.ratio(one) > search.HOPELESS]
            near += self.looked([default for one in near if (default := begun[one]) != one], tokens, 0.4)
            near.sort(key=race.ratio, reverse=True)
            entrants, tokens = near[: (len(near) + 1) // 2], 2 * (tokens or 0)
        ranked = search.halved(race, entrants, self.share(part), rounds=1, tokens=tokens, told=self.told)
        first = search.best_of_each(ranked)[:FINALISTS]
        for n, start in enumerate(first, 1):
            if (axes := self.axes(start)) and start.label in race.warmed:
                until = part + (0.65 - part) * n / len(first)
                search.descend(race, axes, start, self.share(until), told=lambda one: self.told(f"at {one.label}"))
        fitting = self.seconds_left() / max(1e-9, (LEAST_PAIRS + 2) * race.lasts) - 1  # for so many there is time
        least = FINALISTS if several else 1  # short requests and few prompts say little of different algorithms
        return search.fastest(race, max(least, min(FINALISTS, int(fitting))), each=1 if several else FINALISTS)

    def looked(self, entrants: Sequence[Entrant], tokens: int | None, part: float) -> list[Entrant]:
        """Those that there was time for to run a request, and that could."""
        left = self.share(part)
        given, paces = left(), list[float]()

        def told(what: str) -> None:
            paces.append((given - left()) / min(search.TOGETHER, len(entrants)))
            if len(paces) == 1 and paces[0] * len(entrants) > given and part < 0.4:
                self.short(len(entrants), paces[0], paces[0] * len(entrants) / given)
            self.told(what)

        met = search.looked_at(self.race, entrants, left, rounds=1, tokens=tokens, told=told)
        return [one for one in met if self.race.pairs(one)]

    def decided(self, finalists: Sequence[Entrant]) -> Measured | None:
        """The final rounds: until the time is up, or all is clear. None where there is nothing to decide, or no time for it."""
        if not finalists:
            return None
        race = self.race
        race.warm(finalists)
        contenders = [made for one in (race.base, *finalists) if (made := race.contender(one)) is not None]
        groups = len(race.found.work.groups)
        settings = MeasureSettings(rounds=max(1, math.ceil(PAIRS / groups)), seed=1)

        def on_progress(what: str, done: float) -> None:
            self.told(f"final rounds of {', '.join(one.label for one in finalists)}: {done:.0%}")

        found = measured(
            contenders, race.found.work, settings, on_progress=on_progress, warm=True, enough=lambda: self.seconds_left() <= 0
        )
        if (error := found.failed.get(race.base.label)) is not None:
            raise error
        return found

    def rows(self, finals: Measured | None, shown: Sequence[Entrant]) -> dict[str, Row]:
        """The rows of a benchmark over all prompts, by label: of the final rounds, or of the race, whose requests differ in
        length, so that their tokens are not compared."""
        found, race = finals or self.race.found, self.race
        labels = [one.label for one in (race.base, *shown) if one.label in found.ran and one.label not in found.times.failed]
        kept = Measured(found.work, {label: found.contenders[label] for label in labels}, found.ran, found.times)
        target = race.target if finals is not None else None
        against = dict.fromkeys(labels, [race.base.label])
        rows = rows_of(kept, against, MeasureSettings(race.limit), target, shares_too=False)
        return {row["algorithm"]: row for row in reversed(rows)}  # the first of a label is about all kinds
