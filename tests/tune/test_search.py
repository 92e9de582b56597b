"""Searching by measurement, on a machine that is made up: where the best setting is, is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.trace import Stats
from decgraph.runtime.tune import search
from decgraph.runtime.tune.space import Axis, Setting, smallest
from decgraph.runtime.tune.trial import LEAST_PAIRS, Figures, Interrupted, TrialRun, Trials
from decgraph.runtime.tune.tuner import Tuner

DEPTH = Axis("depth", "int", tuple(range(1, 13)), 6)
BUDGET = Axis("budget", "int", (1, 2, 4, 8, 16, 32, 59, 64, 128), 59)
DEFAULT: Setting = (("depth", 6), ("budget", 59))
BEST: Setting = (("depth", 3), ("budget", 16))


@dataclass
class Machine:
    """A runner whose settings take the seconds that `seconds` says, with some noise and a drift that all share."""

    seconds: Callable[[dict[str, Any]], float]
    noise: float = 0.03
    tokens: Callable[[Setting, int], tuple[int, ...]] = lambda chosen, number: (number,) * 32
    requests: list[Request] = field(default_factory=lambda: [Request((1, 2)), Request((3, 4)), Request((5, 6))])
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    drift: float = 1.0
    ran: list[Setting] = field(default_factory=list)

    def settle(self) -> None:
        pass

    def run(self, chosen: Setting, number: int, *, max_tokens: int | None = None) -> TrialRun:
        if max_tokens is None:
            self.ran.append(chosen)
        self.drift *= self.rng.lognormvariate(0, 0.02)
        took = self.seconds(dict(chosen)) * self.drift * self.rng.lognormvariate(0, self.noise) * (1 + number)
        return TrialRun(self.tokens(chosen, number), took, Stats(tokens=32, target_calls=8))


def bowl(values: dict[str, Any]) -> float:
    """Seconds, least at BEST."""
    return 1 + 0.1 * abs(values["depth"] - 3) + 0.15 * abs(values["budget"].bit_length() - 5)


def trials(machine: Any, **options: Any) -> Trials:
    return Trials(machine, DEFAULT, **options)


def test_runs_without_tokens_have_no_speed() -> None:
    """A prompt may fill the context: nothing is committed, by any setting."""
    tuner = Tuner(trials(Machine(bowl, tokens=lambda chosen, number: ())), [DEPTH, BUDGET], seconds=0.05)
    assert tuner.tune().kept_default


def plenty() -> float:
    return 1e9


@pytest.mark.parametrize("seed", range(5))
def test_descent_finds_the_best_and_does_not_try_all(seed: int) -> None:
    machine = Machine(bowl, rng=random.Random(seed))
    met = trials(machine)
    found = search.descend(met, [DEPTH, BUDGET], DEFAULT, plenty)
    assert bowl(dict(found)) <= 1.1, found
    assert len(set(machine.ran)) < len(DEPTH.values) * len(BUDGET.values) / 2


def test_halving_ranks_and_runs_the_good_ones_more() -> None:
    machine = Machine(bowl)
    met = trials(machine)
    settings = [(("depth", d), ("budget", 16)) for d in range(1, 9)]
    ranked = search.halved(met, settings, plenty)
    assert ranked[0] == BEST and set(ranked) == set(settings)
    assert met.of(ranked[0]).runs > met.of(ranked[-1]).runs


def test_time_that_is_up_ends_the_search() -> None:
    machine = Machine(bowl)
    assert search.descend(trials(machine), [DEPTH, BUDGET], DEFAULT, lambda: 0.0) == DEFAULT
    assert not machine.ran
    left = iter([5.0] * 6 + [0.0] * 1000)
    search.descend(trials(machine), [DEPTH, BUDGET], DEFAULT, lambda: next(left))
    assert 0 < len(set(machine.ran)) < 12
    clock = iter([10.0, 11.0, 14.0])
    left_of_3 = search.until(3, lambda: next(clock))
    assert (left_of_3(), left_of_3()) == (2.0, -1.0)


def test_what_cannot_run_is_passed_over_and_said() -> None:
    def seconds(values: dict[str, Any]) -> float:
        if values["depth"] < 5:
            raise DecError("the head is not that shallow")
        return bowl(values)

    met = trials(Machine(seconds))
    found = search.descend(met, [DEPTH], DEFAULT, plenty)
    assert dict(found)["depth"] == 5
    assert met.of((("depth", 4), ("budget", 59))).failed == "the head is not that shallow"


def test_a_default_that_cannot_run_is_an_error() -> None:
    def seconds(values: dict[str, Any]) -> float:
        raise DecError("no such head")

    with pytest.raises(DecError, match="no such head"):
        Tuner(trials(Machine(seconds)), [DEPTH]).tune()


# -- the whole of it


def tune(machine: Any, axes: list[Axis] | None = None, rounds: int = 120, **options: Any):
    """Tune with as much time as this many requests of the default take."""
    tuner = Tuner(trials(machine, **options), axes or [DEPTH, BUDGET], seconds=1.0)
    tuner.seconds_left = plenty
    spent = lambda: 1.0 - len(machine.ran) / (8 * rounds)
    # `until` is by the clock: what is made up has its own
    return with_clock(tuner, spent)


def with_clock(tuner: Tuner, left: Callable[[], float]):
    before = search.until
    search.until = lambda seconds, clock=None: left
    try:
        return tuner.tune()
    finally:
        search.until = before


def test_the_best_is_chosen_and_confirmed() -> None:
    found = tune(Machine(bowl))
    assert bowl(dict(found.chosen)) <= 1.1 and not found.kept_default and not found.interrupted
    figures = found.finals[found.chosen]
    assert figures.ratio == pytest.approx(bowl(dict(DEFAULT)) / bowl(dict(found.chosen)), rel=0.05)
    assert len(figures.ratios) >= LEAST_PAIRS and found.enough


@pytest.mark.parametrize("seed", range(3))
def test_a_default_far_from_the_best_is_left_at_once(seed: int) -> None:
    """Every row costs, so the least drafts are ten times as fast: few runs find that, though both parameters must change."""
    machine = Machine(lambda v: 0.05 * v["depth"] * v["budget"] ** 0.8, rng=random.Random(seed))
    found = tune(machine, rounds=12)
    assert dict(found.chosen) == {"depth": 1, "budget": 1}


def test_listed_values_and_those_that_change_tokens_are_no_beginning() -> None:
    listed = Axis("depth", "int", (2, 6, 12), 6, listed=True)
    lossy = Axis("budget", "int", (1, 59, 128), 59, changes=True)
    assert smallest([listed, lossy], DEFAULT) == DEFAULT
    assert smallest([DEPTH, BUDGET], DEFAULT) == (("depth", 1), ("budget", 1))


@pytest.mark.parametrize("seed", range(8))
def test_where_all_are_alike_the_default_stays(seed: int) -> None:
    """Noise alone makes some setting look best; it must not be chosen for that."""
    found = tune(Machine(lambda values: 1.0, noise=0.1, rng=random.Random(seed)))
    assert found.kept_default and found.chosen == DEFAULT


def test_a_default_that_is_best_stays() -> None:
    assert tune(Machine(lambda v: 2 - 0.5 * (v["depth"] == 6) - 0.5 * (v["budget"] == 59))).kept_default


def test_ctrl_c_keeps_what_is_measured() -> None:
    class Stopped(Machine):
        def run(self, chosen: Setting, number: int, **options: Any) -> TrialRun:
            if len(self.ran) == 300:
                raise Interrupted
            return super().run(chosen, number, **options)

    found = tune(Stopped(bowl))
    assert found.interrupted and not found.kept_default and bowl(dict(found.chosen)) < bowl(dict(DEFAULT))

    class AtOnce(Machine):
        def run(self, chosen: Setting, number: int, **options: Any) -> TrialRun:
            raise KeyboardInterrupt

    found = tune(AtOnce(bowl))
    assert found.interrupted and found.kept_default and found.figures(DEFAULT).rate == 0


# -- tokens


def other_tokens(chosen: Setting, number: int) -> tuple[int, ...]:
    return (1, 2, 3, 4) if dict(chosen)["depth"] >= 5 else (1, 2, 9, 9)


def test_tokens_that_a_claim_rules_out_are_an_error() -> None:
    with pytest.raises(DecError, match=r"commits other tokens than depth=6.*prompt 1, new token 3: tokens 9 and 3"):
        trials(Machine(bowl, tokens=other_tokens), promise="tokens", gap=lambda *_: 0.5, tie=1e-3).once([BEST])


def test_near_ties_are_counted() -> None:
    asked = []

    def gap(number: int, path: Any, one: int, other: int) -> float:
        asked.append((number, tuple(path), one, other))
        return 1e-4

    met = trials(Machine(bowl, tokens=other_tokens), promise="tokens", gap=gap, tie=1e-3)
    met.once([BEST])
    figures = met.of(BEST)
    assert (figures.near_ties, figures.same, figures.compared, figures.agreement) == (1, 2, 4, 0.5)
    assert asked == [(0, (1, 2, 1, 2), 9, 3)]


def test_another_length_is_never_a_near_tie() -> None:
    tokens = lambda chosen, number: (1, 2) if dict(chosen)["depth"] == 3 else (1, 2, 3)
    with pytest.raises(DecError, match="2 tokens and 3"):
        trials(Machine(bowl, tokens=tokens), promise="tokens", gap=lambda *_: 0.0, tie=1).once([BEST])


@pytest.mark.parametrize("promise", ["", "law"])
def test_without_the_promise_agreement_is_counted(promise: str) -> None:
    met = trials(Machine(bowl, tokens=other_tokens), promise=promise)
    met.once([BEST])
    assert met.of(BEST).agreement == 0.5 and not met.of(BEST).near_ties


# -- figures


def test_what_is_beyond_the_noise() -> None:
    assert not Figures(ratios=[1.5] * (LEAST_PAIRS - 1)).surely_above(1.0)
    assert Figures(ratios=[1.5, 1.51, 1.49, 1.5, 1.52]).surely_above(1.01)
    assert not Figures(ratios=[1.5, 0.7, 1.6, 0.8, 1.2]).surely_above(1.01)
    rng = random.Random(3)
    wrong = sum(Figures(ratios=[rng.lognormvariate(0, 0.2) for _ in range(6)]).surely_above(1.0, 3) for _ in range(3000))
    assert wrong / 3000 < 0.03  # 0.05 / 3, and some for the approximation
    right = sum(Figures(ratios=[rng.lognormvariate(0.4, 0.2) for _ in range(12)]).surely_above(1.0, 3) for _ in range(500))
    assert right > 480


def test_requests_take_turns_and_the_default_runs_every_time() -> None:
    machine = Machine(bowl)
    met = trials(machine)
    for _ in range(6):
        met.once([BEST])
    assert machine.ran.count(DEFAULT) == machine.ran.count(BEST) == 6 and met.turn == 6
    assert met.of(BEST).rate > met.of(DEFAULT).rate and met.of(BEST).per_call == 4.0
