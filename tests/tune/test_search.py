"""The search and the whole of tuning on contenders that take made-up times: what is found, and that noise decides nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from decgraph.bench import bootstrap, search, timing
from decgraph.bench.contenders import ContenderRun
from decgraph.bench.measure import BenchWork
from decgraph.bench.race import AlgorithmRace
from decgraph.bench.tuner import LEAST_PAIRS, Tuner
from decgraph.errors import DecError
from decgraph.runtime.tune.space import Axis, Entrant, smallest

DEPTH = Axis("depth", "int", tuple(range(1, 13)), 6)
BUDGET = Axis("budget", "int", (1, 2, 4, 8, 16, 32, 59, 64, 128), 59)
DEFAULT = Entrant("a", (("depth", 6), ("budget", 59)))
BEST = Entrant("a", (("depth", 3), ("budget", 16)))
PROMPTS = 3


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Clocks that stand still but for what contenders say they took."""
    clock = SimpleNamespace(now=0.0)
    clock.perf_counter = clock.process_time = lambda: clock.now
    monkeypatch.setattr(timing, "time", clock)
    return clock


@dataclass
class Machine:
    """Opens contenders that take the seconds that `seconds` says of an algorithm and its values, with some noise and a drift
    that all share."""

    clock: Any
    seconds: Callable[..., float]
    noise: float = 0.03
    tokens: Callable[[Entrant, int], tuple[int, ...]] = lambda chosen, number: (number,) * 32
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    drift: float = 1.0
    ran: list[Entrant] = field(default_factory=list)
    stop: int = -1

    def __call__(self, one: Entrant) -> Any:
        return Fake(self, one)


@dataclass
class Fake:
    """An entrant as a contender."""

    machine: Machine
    one: Entrant
    limit: int = 32
    params = algorithm = session = None

    @property
    def label(self) -> str:
        return self.one.label

    def __call__(self, number: int) -> int:
        return 32

    def observed(self, number: int) -> ContenderRun:
        m = self.machine
        if len(m.ran) == m.stop:
            raise KeyboardInterrupt
        m.ran.append(self.one)
        m.drift *= m.rng.lognormvariate(0, 0.02)
        took = m.seconds(self.one) * m.drift * m.rng.lognormvariate(0, m.noise) * (1 + number) * self.limit / 32
        m.clock.now += took
        return ContenderRun([m.tokens(self.one, number)[: self.limit]], 8)


def bowl(one: Entrant) -> float:
    """Seconds, least at BEST."""
    values: Any = dict(one.setting)
    return 1 + 0.1 * abs(values["depth"] - 3) + 0.15 * abs(values["budget"].bit_length() - 5)


def race(machine: Machine, base: Entrant = DEFAULT, prompts: int = PROMPTS, **options: Any) -> AlgorithmRace:
    work = BenchWork(tuple(((n, n + 1),) for n in range(prompts)), ("all",) * prompts)
    return AlgorithmRace(base, machine, work, limit=32, **options)


def plenty() -> float:
    return 1e9


def test_runs_without_tokens_have_no_speed(clock: Any) -> None:
    """A prompt may fill the context: nothing is committed, by any setting."""
    assert tune(Machine(clock, bowl, tokens=lambda chosen, number: ())).kept_base


@pytest.mark.parametrize("seed", range(5))
def test_descent_finds_the_best_and_does_not_try_all(seed: int, clock: Any) -> None:
    machine = Machine(clock, bowl, rng=random.Random(seed))
    found = search.descend(race(machine), [DEPTH, BUDGET], DEFAULT, plenty)
    assert bowl(found) <= 1.1, found
    assert len(set(machine.ran)) < len(DEPTH.values) * len(BUDGET.values) / 2


def test_halving_drops_the_slow_and_runs_the_good_ones_more_and_longer(clock: Any) -> None:
    met = race(Machine(clock, bowl))
    entrants = [Entrant("a", (("depth", d), ("budget", 16))) for d in range(1, 9)] + [
        Entrant("b", (("depth", 60), ("budget", 1)))
    ]
    told: list[str] = []
    ranked = search.halved(met, entrants, plenty, tokens=8, told=told.append)
    assert ranked[0] == BEST and set(ranked) == set(entrants)
    assert met.ran(ranked[0]) > met.ran(ranked[-2]) > met.ran(ranked[-1]) == 1  # b was so slow that one run was enough
    assert met.found.ran[BEST.label][0].count == 32 and met.found.ran[entrants[7].label][0].count == 8
    assert "6 of 9 ran 8 tokens" in told[0] and BEST.label in told[-1]


def test_what_there_is_no_time_for_comes_last(clock: Any) -> None:
    left = iter([5.0] * 3 + [0.0] * 100)
    entrants = [Entrant("a", (("depth", d), ("budget", 16))) for d in range(1, 13)]
    met = race(Machine(clock, bowl))
    ranked = search.halved(met, entrants, lambda: next(left))
    assert ranked[0] == BEST and set(ranked[6:]) == set(entrants[6:]) and not any(met.ran(one) for one in entrants[6:])


def test_time_that_is_up_ends_the_search(clock: Any) -> None:
    machine = Machine(clock, bowl)
    assert search.descend(race(machine), [DEPTH, BUDGET], DEFAULT, lambda: 0.0) == DEFAULT
    assert not machine.ran
    left = iter([5.0] * 6 + [0.0] * 1000)
    search.descend(race(machine), [DEPTH, BUDGET], DEFAULT, lambda: next(left))
    assert 0 < len(set(machine.ran)) < 12
    times = iter([10.0, 11.0, 14.0])
    left_of_3 = search.until(3, lambda: next(times))
    assert (left_of_3(), left_of_3()) == (2.0, -1.0)


def test_what_cannot_run_is_passed_over_and_said(clock: Any) -> None:
    def seconds(one: Entrant) -> float:
        if dict(one.setting)["depth"] < 5:
            raise DecError("the head is not that shallow")
        return bowl(one)

    met = race(Machine(clock, seconds))
    found = search.descend(met, [DEPTH], DEFAULT, plenty)
    assert dict(found.setting)["depth"] == 5
    assert "not that shallow" in str(met.failed[DEFAULT.moved("depth", 4).label])


def test_a_base_that_cannot_run_is_an_error(clock: Any) -> None:
    def seconds(one: Entrant) -> float:
        raise DecError("no such head")

    with pytest.raises(DecError, match="no such head"):
        tune(Machine(clock, seconds), [DEPTH])


# -- the whole of it


def tune(machine: Machine, axes: list[Axis] | None = None, rounds: int = 120, **options: Any) -> Any:
    """Tune with as much time as this many requests of the default take."""
    mine = axes or [DEPTH, BUDGET]
    return within(
        machine, rounds, Tuner(race(machine, **{"prompts": PROMPTS, **options}), [DEFAULT], lambda _: mine, seconds=1.0)
    )


def within(machine: Machine, rounds: int, tuner: Tuner) -> Any:
    before = search.until
    search.until = lambda seconds, clock=None: lambda: 1.0 - len(machine.ran) / (8 * rounds)  # type: ignore[assignment]
    try:
        return tuner.tune()
    finally:
        search.until = before


def test_the_best_is_chosen_and_confirmed(clock: Any) -> None:
    found = tune(Machine(clock, bowl))
    assert bowl(found.chosen) <= 1.1 and not found.kept_base and not found.interrupted
    ratio = found.ratio(found.chosen)
    assert ratio.value == pytest.approx(bowl(DEFAULT) / bowl(found.chosen), rel=0.05)
    assert ratio.n == PROMPTS and len(found.finals.times.groups) >= LEAST_PAIRS and found.enough
    assert found.rows[found.chosen.label]["ratios"][DEFAULT.label]["wall"]["n"] == PROMPTS


@pytest.mark.parametrize("seed", range(3))
def test_a_default_far_from_the_best_is_left_at_once(seed: int, clock: Any) -> None:
    """Every row costs, so the least drafts are ten times as fast: few runs find that, though both parameters must change."""

    def seconds(one: Entrant) -> float:
        values: Any = dict(one.setting)
        return 0.05 * values["depth"] * values["budget"] ** 0.8

    found = tune(Machine(clock, seconds, rng=random.Random(seed)), rounds=12)
    assert dict(found.chosen.setting) == {"depth": 1, "budget": 1}


def test_listed_values_and_those_that_change_tokens_are_no_beginning() -> None:
    listed = Axis("depth", "int", (2, 6, 12), 6, listed=True)
    lossy = Axis("budget", "int", (1, 59, 128), 59, changes=True)
    assert smallest([listed, lossy], DEFAULT.setting) == DEFAULT.setting
    assert smallest([DEPTH, BUDGET], DEFAULT.setting) == (("depth", 1), ("budget", 1))


def test_where_all_are_alike_the_default_stays(clock: Any) -> None:
    """Noise alone makes some setting look best; it must not be chosen for that, but for once in twenty times."""
    machines = [Machine(clock, lambda one: 1.0, noise=0.1, rng=random.Random(seed)) for seed in range(8)]
    assert sum(not tune(machine, rounds=60, prompts=8).kept_base for machine in machines) <= 1


def test_a_default_that_is_best_stays(clock: Any) -> None:
    def seconds(one: Entrant) -> float:
        return 2 - 0.5 * (dict(one.setting)["depth"] == 6) - 0.5 * (dict(one.setting)["budget"] == 59)

    assert tune(Machine(clock, seconds)).kept_base


PLAIN = Entrant("plain")
SPEED = {"plain": 1.0, "slow": 1.4, "even": 1.0, "fast": 0.9, "deep": 1.3}


def speeds(one: Entrant) -> float:
    """`deep` is the fastest of all with a depth that is not its default's; of the others depths change nothing."""
    deep = 0.08 * abs(dict(one.setting).get("depth", 0) - 3) - 0.6 if one.algorithm == "deep" else 0.0
    return SPEED[one.algorithm] + deep


def among(machine: Machine, names: list[str], rounds: int = 400, prompts: int = 8) -> Any:
    """Choose among algorithms, of which `deep` and `slow` have a depth."""
    entrants = [Entrant(name, (("depth", 6),) if name in ("deep", "slow") else ()) for name in names]
    tuner = Tuner(race(machine, PLAIN, prompts), entrants, lambda one: [DEPTH] if one.setting else [], seconds=1.0)
    return within(machine, rounds, tuner)


@pytest.mark.parametrize("seed", range(3))
def test_an_algorithm_is_chosen_with_its_parameters_tuned(seed: int, clock: Any) -> None:
    found = among(Machine(clock, speeds, rng=random.Random(seed)), ["slow", "even", "fast", "deep"])
    assert found.chosen.algorithm == "deep" and abs(dict(found.chosen.setting)["depth"] - 3) <= 1
    assert found.ratio(found.chosen).n == 8 and found.base == PLAIN


def test_defaults_are_run_of_what_is_not_hopeless_and_a_lack_of_time_is_said(clock: Any) -> None:
    machine = Machine(clock, lambda one: 3.0 if one.algorithm == "slow" else speeds(one))
    entrants = [Entrant(name, (("depth", 6),)) for name in ("slow", "deep")]
    tuner = Tuner(race(machine, PLAIN, 8), entrants, lambda _: [DEPTH], seconds=1.0)
    within(machine, 400, tuner)
    slow = {one.setting[0][1] for one in machine.ran if one.algorithm == "slow"}
    assert slow == {1} and {1, 6} < {one.setting[0][1] for one in machine.ran if one.algorithm == "deep"}
    said: list[tuple[int, float, float]] = []
    many = [Entrant(f"even{n}") for n in range(30)]
    SPEED.update(dict.fromkeys((one.algorithm for one in many), 1.0))
    machine = Machine(clock, speeds)
    tuner = Tuner(race(machine, PLAIN, 8), many, lambda _: [], seconds=1.0, short=lambda *what: said.append(what))
    within(machine, 12, tuner)
    ((count, each, times),) = said
    assert count == 30 and each > 0 and times > 1 and len({one.algorithm for one in machine.ran}) < 30


def test_an_interval_allows_for_what_a_search_cut_short_could_pick_from(clock: Any) -> None:
    """The figures that are shown are those that decided."""
    found = tune(Machine(clock, bowl, noise=0.1, stop=150), rounds=100, prompts=8)
    assert found.interrupted and found.finals is None and found.chances > 5
    one = max((one for one in found.race.entrants.values() if one != DEFAULT), key=found.race.ran)
    assert found.ratio(one).low <= bootstrap.ratio(found.race.pairs(one)).low


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_faster_than_plain_decoding(seed: int, clock: Any) -> None:
    machine = Machine(clock, speeds, noise=0.1, rng=random.Random(seed))
    assert among(machine, ["slow", "even"]).kept_base


def test_what_is_fast_on_one_prompt_of_five_is_not_sure(clock: Any) -> None:
    """An interval counts prompts: many runs of one that is twice as fast do not show that others are."""

    def seconds(one: Entrant) -> float:
        return 1.0

    machine = Machine(clock, seconds, noise=0.01)
    plain = Fake.observed

    def observed(self: Fake, number: int) -> ContenderRun:
        before = clock.now
        made = plain(self, number)
        if self.one.algorithm == "fast":
            clock.now = before + (clock.now - before) * (0.4 if number == 0 else 1.02)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fake, "observed", observed)
        found = among(machine, ["fast"], prompts=5, rounds=100)
    assert found.kept_base and found.ratio(Entrant("fast")).value > 1.1


def test_ctrl_c_keeps_what_is_measured(clock: Any) -> None:
    for stop in (100, 150, 200):  # in the search, and in the final rounds
        machine = Machine(clock, bowl, noise=0.01, stop=stop)
        found = tune(machine, rounds=100)
        assert found.interrupted and not found.kept_base and found.judged and bowl(found.chosen) < bowl(DEFAULT)
        assert DEFAULT.label in found.rows
    found = tune(Machine(clock, bowl, stop=0))
    assert found.interrupted and found.kept_base and not found.judged and not found.rows


# -- tokens


def other_tokens(chosen: Entrant, number: int) -> tuple[int, ...]:
    return (1, 2, 3, 4) if dict(chosen.setting)["depth"] >= 5 else (1, 2, 9, 9)


class Judge:
    """Decides how far apart two tokens are."""

    def __init__(self, gap: float, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("decgraph.bench.agreement.Agreement.gap", lambda *_: (gap, 1e-3))


@pytest.mark.parametrize("strict", [True, False])
def test_tokens_that_a_claim_rules_out_are_an_error(strict: bool, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Judge(0.5, monkeypatch)
    met = race(Machine(clock, bowl, tokens=other_tokens), target=target, bound=lambda _: True, strict=strict)
    if strict:
        with pytest.raises(DecError, match=r"commits other tokens than a:depth=6.*token 2"):
            met.once([BEST])
    else:
        met.once([BEST])
        assert "which its claim rules out" in str(met.failed[BEST.label])


def test_near_ties_are_counted_and_without_a_claim_nothing_is_ruled_out(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    met = race(Machine(clock, bowl, tokens=other_tokens), target=Judge(1e-4, monkeypatch), bound=lambda _: True, strict=True)
    met.once([BEST])
    assert not met.failed
    met = race(Machine(clock, bowl, tokens=other_tokens), target=Judge(0.5, monkeypatch), strict=True)
    met.once([BEST])
    assert not met.failed


def test_requests_take_turns_and_the_base_runs_every_time(clock: Any) -> None:
    machine = Machine(clock, bowl)
    met = race(machine)
    for _ in range(6):
        met.once([BEST])
    assert machine.ran.count(DEFAULT) == machine.ran.count(BEST) == 6 and met.turns == 6
    assert [n for _, n in met.found.times.groups] == [0, 1, 2, 0, 1, 2]
    assert met.lasts == pytest.approx(clock.now / 12, rel=0.01)


def test_tokens_that_a_claim_rules_out_in_the_final_rounds_alone(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that only the last rounds came to: what is fastest is not chosen then."""

    def tokens(chosen: Entrant, number: int) -> tuple[int, ...]:
        return (1, 2, 9) if chosen.algorithm == "fast" and number == 7 else (1, 2, 3)

    met = race(Machine(clock, speeds, tokens=tokens), PLAIN, 8, target=Judge(0.5, monkeypatch), bound=lambda _: True)
    found = within(met.opened, 100, Tuner(met, [Entrant("fast"), Entrant("even")], lambda _: [], seconds=1.0))
    assert found.kept_base and "which its claim rules out" in str(met.failed["fast"])
