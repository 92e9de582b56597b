"""Worlds with a second request of the same seed, and with two sequences whose steps and lines interleave: wrong programs that
are right when they are alone are refuted there, and their twins are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any, Literal

import pytest

from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.run import ExactMachine
from decgraph.check import report
from decgraph.check.algorithm import check_algorithm
from decgraph.check.beside import orders
from decgraph.check.claims import Failure, decide
from decgraph.check.distributions import RunTally
from decgraph.check.exploration import DecidedSettings, Exploration
from decgraph.check.initial_states import Start
from decgraph.check.plans import first_plans, shared_plans
from decgraph.check.worlds import world
from decgraph.dsl.lower import load_text

HEAD = """algorithm program(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
"""
# Each coin of the request before decides what a coin of this one means, where both read the same noise.
KEPT_COIN = (
    HEAD
    + """    state kept: int per session = 1
    state steps: int = 0
    while not done:
        n = kept
        x ~ target(ctx){stream}
        y ~ target(ctx)
        if steps == 0:
            kept = int(x)
        steps = steps + 1
        if n == 1:
            commit x
        else:
            commit y
"""
)
REFUSED = (
    HEAD
    + """    state refused: int per session = 0
    state steps: int = 0
    while not done:
        n = refused
        draft t:
            if n == 0:
                x ~ drafter(ctx)
                grow x
        verify t by rejection against target(t)
        if steps == 0:
            refused = 1 - t.accepted.depth
        steps = steps + 1
        commit t.accepted
"""
)
# The batch's largest draw of this step is read where that of the last step is meant.
LARGEST = (
    HEAD
    + """    state before: int per batch = 0
    while not done:
        {early}
        x ~ target(ctx)
        y ~ target(ctx)
        across batch:
            largest = max(int(x))
        {late}
        before = largest
        if n == 0:
            commit x
        else:
            commit y
"""
)
# Another sequence may write down again what this one wrote.
COPIED = (
    HEAD
    + """    state told: int per session = 0
    state again: int per session = 0
    while not done:
        {early}
        x ~ target(ctx)
        y ~ target(ctx)
        again = told
        told = int(x)
        {late}
        if n == 0:
            commit x
        else:
            commit y
"""
)
SHARE = (
    HEAD
    + """    while not done:
        draft t:
            grow topk(drafter(ctx), 2)
        across batch:
            keep = top(t.drafted, 2, by = {key})
        prune t to keep
        verify t by match against target(t)
        commit t.accepted
"""
)
# Two that go back and forth copy each other's copies. By somebody who knew the docs alone.
AHEAD = (
    HEAD
    + """    state a: token per batch = 0
    state b: token per batch = 0
    while not done:
        x ~ target(ctx)
        a = x.token
        {between}
        seen = b
        b = a
        if seen == {what}:
            commit x
        else:
            y ~ target(ctx)
            commit y
"""
)
READS = "n = before", "n = again"


class Unnumbered(ExactMachine):
    """Of an engine whose noise goes by the seed and the request's id alone."""

    def _number(self) -> int:
        return self.request.request_id


def failures(text: str, label: str, engine: type[ExactMachine] = ExactMachine) -> Iterator[Failure]:
    """What the worlds of a label show, each of which is decided."""
    module = load_text(text)
    claim = module.entry.claims[0]
    for plan in shared_plans(module, claim, 3):
        if plan.label != label:
            continue
        ran = CoveredRun.of(module, module.entry)
        explored = Exploration(module, claim, RunTally(), ran, DecidedSettings(), engine=engine)
        found = explored.one(plan)
        assert explored.decided == 1, explored.notes
        if found is not None:
            yield found


def test_noise_of_the_stream_output_that_a_session_remembers() -> None:
    (found, *_) = failures(KEPT_COIN.format(stream=" as output"), "second")
    assert found.kind == "distribution" and "same seed" in str(found.case.start)
    wrong = check_algorithm_of(KEPT_COIN.format(stream=" as output"))
    assert wrong.verdict == "refuted" and any("the request before's x" in d for d in wrong.counterexample.decisions)
    assert list(failures(KEPT_COIN.format(stream=""), "second")) == []


@pytest.mark.parametrize("text", [KEPT_COIN.format(stream=""), REFUSED])
def test_noise_that_is_not_numbered_would_be_wrong(text: str) -> None:
    """Which is what decision 0016 numbers it for."""
    assert list(failures(text, "second")) == []
    (found, *_) = failures(text, "second", Unnumbered)
    assert found.kind == "distribution" and found.case.start.before is not None


@pytest.mark.parametrize(("text", "read"), list(zip((LARGEST, COPIED), READS, strict=True)))
def test_what_another_sequence_writes_between(text: str, read: str) -> None:
    wrong, right = text.format(early="", late=read), text.format(early=read, late="")
    (found, *_) = failures(wrong, "beside")
    assert found.kind == "distribution" and "other" in str(found.case.start)
    assert list(failures(wrong, "second")) == []
    assert list(failures(right, "beside")) == []
    again = decide(replace(found.case, turns=[]), RunTally())  # in the order that it names
    assert again is not None and again.ours == found.ours


def test_a_wrong_program_of_a_batch_is_refuted_at_once() -> None:
    wrong = check_algorithm_of(LARGEST.format(early="", late=READS[0]))
    assert wrong.verdict == "refuted" and "beside another sequence" in wrong.counterexample.render()
    assert any("the other sequence's x" in d for d in wrong.counterexample.decisions) and wrong.models <= 2


@pytest.mark.parametrize(("between", "what"), [("z ~ drafter(ctx)", "z"), ("", "0")])
def test_sequences_that_go_back_and_forth(between: str, what: str) -> None:
    wrong = check_algorithm_of(AHEAD.format(between=between, what=what))
    assert wrong.verdict == "refuted" and wrong.models <= 2


def test_no_order_is_left_out_for_another_that_only_begins_like_it() -> None:
    """An order that is over goes on with whoever moved last, so (1, 1, 0) is no beginning of (1, 1, 0, 1)."""
    used: list[int] = []
    found = []
    for order in orders(True, used):
        found.append(order)
        used.append(9)
    assert {(1, 1, 0), (1, 1, 0, 0, 1, 1, 1, 0), (0, 0, 1, 0)} <= set(found)


@pytest.mark.parametrize("key", ["t.prob[t.drafted]", "0 - t.prob[t.drafted]"])
def test_candidates_of_two_sequences(key: str) -> None:
    assert list(failures(SHARE.format(key=key).replace("in distribution", "in tokens"), "beside")) == []


def check_algorithm_of(text: str) -> Any:
    return check_algorithm(text, derive=False, models=2)


COUNTED = """algorithm program(target: causal):
    refines autoregressive(target) in tokens
    state n: int per session = 0
    while not done:
        x ~ target(ctx) as output
        n = n + 1
        commit x
"""


def moves(beside: Literal["steps", "lines"]) -> set[tuple[int, ...]]:
    """Which sequence reads or writes `n` in turn, in all orders of two texts of two tokens, up to the last time that the one
    which is judged does."""
    module = load_text(COUNTED)
    claim = module.entry.claims[0]
    case = world(module, claim, replace(first_plans(module, claim, 2, 1)[0], temperature=0, limit=2, length=2, steps=None))
    seen: set[tuple[int, ...]] = set()
    log: list[int] = []

    class Noting(ExactMachine):
        def read_state(self, name: str) -> Any:
            value = super().read_state(name)
            log.append(getattr(self, "me", 0))
            return value

        def write_state(self, name: str, value: Any) -> None:
            super().write_state(name, value)
            log.append(getattr(self, "me", 0))

    for order in orders(beside == "lines", case.turns):
        log.clear()
        here = replace(case, engine=Noting, start=Start(beside=beside, order=order), limit=1)
        assert decide(here, RunTally(), far=False) is None
        seen.add(tuple(log))
    return seen


def test_steps_and_lines_come_in_every_order() -> None:
    steps = {tuple(x for n in order for x in (n, n)) for order in permutations((0, 0, 1, 1))}
    assert moves("steps") == {order[: len(order) - order[::-1].index(0)] for order in steps}
    lines = moves("lines")
    assert (0, 1, 1, 0, 0, 0) in lines and (0, 0, 0, 1, 0) in lines and (0, 0, 0, 0) in lines


def test_what_was_not_compared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = KEPT_COIN.format(stream="")
    told = (
        "no second request of a session with the seed of the first was compared",
        "no two sequences side by side were compared",
    )
    assert not {*told} & {*check_algorithm_of(text).reasons}
    monkeypatch.setattr(report, "shared_plans", lambda *_: [])
    without = check_algorithm_of(text)
    assert {*told} <= {*without.reasons} and without.verdict == "undecided"
    batch = check_algorithm_of(LARGEST.replace("per batch", "per sequence").format(early=READS[0], late=""))
    assert told[1] in batch.reasons and told[0] not in batch.reasons
