"""The whole of tuning: a search by measurement, and the final rounds that decide.

Only measurements decide: the best few settings and the default run the same requests alternately, and a setting
wins if it is significantly faster than the default. Ctrl-C ends any phase; the measurements so far then decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decgraph.runtime.tune import search
from decgraph.runtime.tune.search import Left
from decgraph.runtime.tune.space import Axis, Setting, shown, smallest
from decgraph.runtime.tune.trial import LEAST_PAIRS, Figures, Interrupted, Trials

GAIN = 1.01  # a gain that is not worth a profile
FINALISTS = 3
PAIRS = 40  # pairs of a finalist and the default after which more would say little


@dataclass
class TuningOutcome:
    """What tuning found. `chosen` is the default where nothing beat it. `finals`: figures of the last rounds, `searched` of
    what came before."""

    default: Setting
    chosen: Setting
    finals: dict[Setting, Figures]
    searched: dict[Setting, Figures]
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def kept_default(self) -> bool:
        """Whether the default stays."""
        return self.chosen == self.default

    def figures(self, of: Setting) -> Figures:
        """The figures that a setting is judged by: those of the final rounds, if it came that far."""
        last = self.finals.get(of, Figures())
        return last if last.runs or last.failed else self.searched.get(of, Figures())

    @property
    def judged(self) -> bool:
        """Whether there is a judgement to write down: not where Ctrl-C came before anything beat the default."""
        return not (self.interrupted and self.kept_default)

    @property
    def enough(self) -> bool:
        """Whether the final rounds had time to say anything."""
        return not self.finals or any(len(f.ratios) >= LEAST_PAIRS for f in self.finals.values())


class Tuner:
    """trials: runs settings and compares tokens. axes: the search space. seconds: how long all of it may take. told: called
    with a message for each phase."""

    def __init__(
        self,
        trials: Trials,
        axes: Sequence[Axis],
        *,
        seconds: float = 60.0,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.trials, self.axes, self.told = trials, list(axes), told
        self.seconds = seconds
        self.seconds_left: Left = search.until(seconds)

    def share(self, part: float) -> Left:
        """What is left of the first `part` of the whole time, and not needed for the final rounds (but never all of it is)."""

        def seconds_left() -> float:
            needed = min(0.7 * self.seconds, (LEAST_PAIRS + 2) * (FINALISTS + 1) * self.trials.lasts)
            return self.seconds_left() - max((1 - part) * self.seconds, needed)

        return seconds_left

    def tune(self) -> TuningOutcome:
        """All phases. Raises DecError for a default that cannot run and for tokens that a claim rules out."""
        began = time.monotonic()
        self.seconds_left = search.until(self.seconds)
        default = self.trials.default
        finals = self.trials.again(seed=1)
        interrupted = False
        try:
            self.trials.warm([default])
            self.trials.once([])  # says how long a run takes, whatever comes of the rest
            found = self.candidates()
            self.decide(finals, found)
        except (Interrupted, KeyboardInterrupt):
            interrupted = True
        judged = finals if any(f.ratios for f in finals.figures.values()) else self.trials
        rivals = [s for s, f in judged.figures.items() if s != default and f.ratios and not f.failed]
        ahead = [s for s in rivals if judged.of(s).surely_above(GAIN, len(rivals))]
        chosen = max(ahead, key=lambda s: judged.of(s).ratio, default=default)
        return TuningOutcome(default, chosen, finals.figures, self.trials.figures, interrupted, time.monotonic() - began)

    def candidates(self) -> list[Setting]:
        """The settings worth the final rounds. The search begins at the default, or at the setting that drafts least where one
        request says that it is faster: where every row of a forward costs (`rows.py`), as of a batch on a CPU, a published tree
        is so far from the best that a search along one parameter at a time would not get away from it."""
        self.told("searching")
        start, left = self.trials.default, self.share(0.65)
        least = smallest(self.axes, start)
        if least != start and self.seconds_left() > 0:
            self.trials.warm([least])
            self.trials.once([least])
            if not self.trials.of(least).failed and self.trials.of(least).ratio > 1:
                start = least
        search.descend(self.trials, self.axes, start, left, told=lambda s: self.told(f"at {shown(s)}"))
        fitting = self.seconds_left() / max(1e-9, (LEAST_PAIRS + 2) * self.trials.lasts) - 1  # for so many there is time
        return search.fastest(self.trials, self.trials.figures, max(1, min(FINALISTS, int(fitting))))

    def decide(self, finals: Trials, settings: Sequence[Setting]) -> None:
        """The final rounds: until the time is up, or all is clear."""
        if not settings:
            return
        finals.warm(settings)
        while self.seconds_left() > 0 and (runs := min(len(finals.of(s).ratios) for s in settings)) < PAIRS:
            self.told(f"final rounds: {runs} runs each of {len(settings)} and the default")
            finals.once(settings)
            settings = [s for s in settings if not finals.of(s).failed]
            if not settings:
                return
