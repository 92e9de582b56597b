"""Measures settings: one request (or one batch of them) at a time, alternating with the default, and compares their tokens.

The speed of a shared machine drifts within seconds, so the measure is the ratio of two consecutive runs of one request.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.trace import Stats
from decgraph.runtime.tune.space import Setting, shown

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
NEAR_TIES = {"float32": 1e-3, "float64": 1e-9}  # of two scores: below this, order of additions decides
HALF = 0.125  # ... in bfloat16 and float16
LEAST_PAIRS = 5  # of runs, below which nothing is sure
FEW = 6  # tokens of a run that only warms up
SESSIONS = 64  # kept open at most: each has generated code, the models are shared


@dataclass(frozen=True)
class TrialRun:
    """One run by one setting: seconds by the chosen clock. tokens: of all of its requests, one after the other; each: those
    of every request of a batch."""

    tokens: tuple[int, ...]
    seconds: float
    stats: Stats
    each: tuple[tuple[int, ...], ...] = ()


class Interrupted(Exception):
    """Ctrl-C during a run."""


class Runner:
    """Runs settings on requests. `make` opens a session with a setting's values; `models` are shared by all. batch: how many
    requests are decoded together, those of run n from number n on. Raises DecError where there are not so many."""

    def __init__(
        self, make: Callable[[dict[str, object]], Session], requests: Sequence[Request], clock: str = "wall", batch: int = 1
    ) -> None:
        self.make, self.requests, self.clock, self.batch = make, list(requests), CLOCKS[clock], batch
        if len(self.requests) < batch:
            raise DecError(f"a batch of {batch} needs as many prompts, and there are {len(self.requests)}",
                           hint="more prompts, or a smaller batch")  # fmt: skip
        self._open: OrderedDict[Setting, Session] = OrderedDict()

    def session(self, chosen: Setting) -> Session:
        """The session of a setting. Raises DecError for one that cannot be opened."""
        found = self._open.pop(chosen, None)
        if found is None:
            found = self.make(dict(chosen))
        self._open[chosen] = found
        if len(self._open) > SESSIONS:
            self._open.popitem(last=False)
        return found

    def settle(self) -> None:
        """Collects garbage before runs that are compared, so that no run pays for another's."""
        gc.collect()

    def run(self, chosen: Setting, number: int, *, max_tokens: int | None = None) -> TrialRun:
        """Run one request or batch, of at most `limit` tokens each if it is given. Raises what ended it early: a DecError,
        `Interrupted`."""
        session = self.session(chosen)
        session.shared.clear()  # as in `decgraph run`, no request starts with session state
        requests = [self.requests[n % len(self.requests)] for n in range(number, number + self.batch)]
        if max_tokens is not None:
            requests = [replace(request, max_tokens=min(max_tokens, request.max_tokens)) for request in requests]
        started = self.clock()
        if self.batch == 1:
            results = [session.run(requests[0], keep_events=False)]
        else:
            results = session.generate(requests, batch=self.batch, keep_events=False)
        seconds = self.clock() - started
        for result in results:
            if result.reason == "interrupted":
                raise Interrupted
            if result.error is not None:
                raise result.error
        each = tuple(result.tokens for result in results)
        stats = results[0].stats if self.batch == 1 else _summed([result.stats for result in results])
        return TrialRun(tuple(t for tokens in each for t in tokens), max(seconds, 1e-9), stats, each)


def _summed(all_stats: Sequence[Stats]) -> Stats:
    """What the runs of a batch counted in all."""
    return Stats(
        tokens=sum(stats.tokens for stats in all_stats),
        target_calls=sum(stats.target_calls for stats in all_stats),
        draft_calls=sum(stats.draft_calls for stats in all_stats),
        drafted=sum(stats.drafted for stats in all_stats),
        draft_errors=Stats.errors_of(all_stats),
    )


@dataclass
class Figures:
    """The measurements of one setting. `ratios`: the speed over the default's, pair by pair."""

    seconds: float = 0.0
    tokens: int = 0
    calls: int = 0
    runs: int = 0
    ratios: list[float] = field(default_factory=list)
    same: int = 0  # tokens equal to the default's, place by place
    compared: int = 0
    near_ties: int = 0
    draft_errors: dict[str, int] = field(default_factory=dict)
    failed: str = ""

    @property
    def rate(self) -> float:
        """Tokens a second over all runs."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def per_call(self) -> float:
        """Tokens a call of the target."""
        return self.tokens / self.calls if self.calls else 0.0

    @property
    def ratio(self) -> float:
        """The geometric mean of the ratios; 1 before there are any."""
        return math.exp(statistics.fmean(map(math.log, self.ratios))) if self.ratios else 1.0

    @property
    def quartiles(self) -> tuple[float, float]:
        """Of the ratios."""
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    def surely_above(self, level: float, chances: int = 1) -> bool:
        """Whether the mean of the ratios is above a level by more than the noise, one of `chances` tries being allowed to
        look so by accident in twenty."""
        n = len(self.ratios)
        if n < LEAST_PAIRS:
            return False
        logs = [math.log(r) for r in self.ratios]
        error = statistics.stdev(logs) / math.sqrt(n)
        z, free = statistics.NormalDist().inv_cdf(1 - 0.05 / max(1, chances)), n - 1
        z += (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)  # Student's quantile, nearly
        return statistics.fmean(logs) - z * error > math.log(level)

    @property
    def agreement(self) -> float:
        """The share of places with the default's token."""
        return self.same / self.compared if self.compared else 1.0


class Trials:
    """All that is measured, by setting. `promise`: "tokens" where the default's tokens must come out of every setting;
    `gap(request, prompt and tokens, a, b)` then says how near two tokens' scores are, and `tie` how near is a tie."""

    def __init__(
        self,
        runner: Runner,
        default: Setting,
        *,
        promise: str = "",
        gap: Callable[[int, Sequence[int], int, int], float] | None = None,
        tie: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.runner, self.default, self.promise, self.gap, self.tie = runner, default, promise, gap, tie
        self.figures: dict[Setting, Figures] = {}
        self.order = random.Random(seed)
        self.turn = 0
        self.spent, self.count = 0.0, 0  # seconds on the wall of whole runs, and how many: what a further one will take

    def again(self, seed: int) -> Trials:
        """The same with no figures yet, for rounds that judge what these have chosen."""
        return Trials(self.runner, self.default, promise=self.promise, gap=self.gap, tie=self.tie, seed=seed)

    def of(self, chosen: Setting) -> Figures:
        """A setting's figures."""
        return self.figures.setdefault(chosen, Figures())

    def once(self, settings: Sequence[Setting]) -> None:
        """Run the next request by every setting and by the default, in random order, and keep what came out.

        A setting that cannot run is marked as failed. Raises DecError where committed tokens differ that must not, and
        for a default that cannot run.
        """
        number = self.turn % len(self.runner.requests)
        self.turn += 1
        names = [s for s in dict.fromkeys([self.default, *settings]) if not self.of(s).failed]
        self.order.shuffle(names)
        self.runner.settle()
        done: dict[Setting, TrialRun] = {}
        for chosen in names:
            made = self.run(chosen, number)
            if made is not None:
                done[chosen] = made
        base = done[self.default]
        for chosen, made in done.items():
            figures = self.of(chosen)
            self._count(figures, made)
            if chosen != self.default:
                if made.tokens and base.tokens:  # a run that commits nothing has no speed
                    figures.ratios.append((len(made.tokens) / made.seconds) / (len(base.tokens) / base.seconds))
                pairs = zip(made.each or (made.tokens,), base.each or (base.tokens,), strict=True)
                for n, (ours, theirs) in enumerate(pairs, number):
                    self.compare(chosen, n % len(self.runner.requests), ours, theirs)

    def run(self, chosen: Setting, number: int, *, max_tokens: int | None = None) -> TrialRun | None:
        """One run; None for a setting that cannot. Raises DecError where that is the default."""
        started = time.monotonic()
        try:
            made = self.runner.run(chosen, number, max_tokens=max_tokens)
        except DecError as error:
            if chosen == self.default:
                raise
            self.of(chosen).failed = str(error).splitlines()[0].removeprefix("error: ")
            return None
        if max_tokens is None:
            self.spent, self.count = self.spent + time.monotonic() - started, self.count + 1
        return made

    @property
    def lasts(self) -> float:
        """Seconds that a run takes, whatever clock it is judged by."""
        return self.spent / self.count if self.count else 0.0

    def warm(self, settings: Sequence[Setting]) -> None:
        """Run what was never run before for a few tokens, unmeasured: code is generated and memory allocated then."""
        for chosen in dict.fromkeys([self.default, *settings]):
            if not self.of(chosen).runs and not self.of(chosen).failed:
                self.run(chosen, self.turn % len(self.runner.requests), max_tokens=FEW)

    @staticmethod
    def _count(figures: Figures, run: TrialRun) -> None:
        figures.seconds += run.seconds
        figures.tokens += len(run.tokens)
        figures.calls += run.stats.target_calls
        for error, count in run.stats.draft_errors.items():
            figures.draft_errors[error] = figures.draft_errors.get(error, 0) + count
        figures.runs += 1

    def compare(self, chosen: Setting, number: int, ours: Sequence[int], theirs: Sequence[int]) -> None:
        """Count where two runs of a request agree. Raises DecError where they must and do not."""
        figures = self.of(chosen)
        figures.same += sum(a == b for a, b in zip(ours, theirs, strict=False))
        figures.compared += max(len(ours), len(theirs))
        if self.promise != "tokens" or tuple(ours) == tuple(theirs):
            return
        at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        if at < min(len(ours), len(theirs)) and self.gap is not None:
            apart = self.gap(number, [*self.runner.requests[number].prompt, *theirs[:at]], ours[at], theirs[at])
            if apart <= self.tie:
                figures.near_ties += 1
                return
            why = f"tokens {ours[at]} and {theirs[at]}, scores {apart:.3g} apart"
        else:
            why = f"{len(ours)} tokens and {len(theirs)}"
        raise DecError(
            f"{shown(chosen)} commits other tokens than {shown(self.default)}, which its claim rules out: "
            f"prompt {number + 1}, new token {at + 1}: {why}",
            hint="the claim is wrong or decgraph is: `decgraph check` decides claims; nothing was written",
        )
