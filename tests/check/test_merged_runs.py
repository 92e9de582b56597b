"""Runs in tokens that come to a state again are followed once: what is found is what all runs find, in fewer of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import pytest

from decgraph.backends.exact.choices import Choices, Point, TooMany, hopeless, runs
from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.states import Signer, Unknown
from decgraph.backends.exact.world import World
from decgraph.check import claims
from decgraph.check.algorithm import find
from decgraph.check.case import Case
from decgraph.check.claims import Failure, in_tokens, mergeable
from decgraph.check.distributions import RunTally
from decgraph.check.report import cases
from decgraph.ir.data.dist import value_row
from decgraph.ir.ops.draws import NoiseKey

TEXT = """
algorithm drafts(target: causal, drafter: causal, gamma: int in 1..1 = 1):
    refines autoregressive(target) in tokens

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by match against {evidence}
        commit t.accepted
"""
UNSURE = """
algorithm unsure(model: masked, length: int in 1..8 = 3):
    keeps support of model
    canvas c: length

    while any(c.masked):
        p = model(c)
        x ~ p
        c[first(c.all where c.masked, 1)] = {value}
    commit c
"""


def outcome(text: str, merge: bool, monkeypatch: pytest.MonkeyPatch, world: int = 0) -> tuple[Failure | None, int, set]:
    module, _ = find(text)
    case = cases(module, module.entry.claims[0], vocab=3, models=world + 1, params=None)[world]
    case = replace(case, ran=CoveredRun.of(module, module.entry), limit=5000, request=replace(case.request, max_tokens=2))
    with monkeypatch.context() as patch:
        if not merge:
            patch.setattr(claims, "mergeable", lambda case: False)
        tally = RunTally()
        found = in_tokens(case, tally) if case.claim.kind == "refines" else claims.every_token(case, tally)
    return found, tally.runs, {(op.opcode, what) for key, what in case.ran.seen if (op := case.ran.watched[key]) is not None}


@pytest.mark.parametrize("evidence", ["target(t)", "drafter(t)"])
def test_merged_runs_find_what_all_runs_find(evidence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    merged, few, seen = outcome(TEXT.format(evidence=evidence), True, monkeypatch)
    followed, many, all_seen = outcome(TEXT.format(evidence=evidence), False, monkeypatch)
    assert seen <= all_seen
    if evidence == "target(t)":
        assert merged is followed is None and few < many and seen == all_seen
    else:
        assert merged is not None and followed is not None and merged.points == followed.points


@pytest.mark.parametrize("value", ["x[first(c.all where c.masked, 1)]", "0"])
def test_a_bad_cell_is_found_in_whichever_run_it_is_decided(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal canvases of which one was decided against the claim: that run ends there, and is not merged with the other."""
    for world in (2, 8):
        merged, _, _ = outcome(UNSURE.format(value=value), True, monkeypatch, world)
        followed, _, _ = outcome(UNSURE.format(value=value), False, monkeypatch, world)
        assert (merged is None) == (followed is None)


def test_what_is_merged() -> None:
    def case(name: str) -> Case:
        module, _ = find(name)
        return cases(module, module.entry.claims[0], vocab=2, models=1, params=None)[0]

    own = """algorithm again(target: causal):
    refines sampled(target) in tokens
    while not done:
        x ~ target(ctx)
        commit x
"""
    plain = own.replace("again", "sampled").replace("    refines sampled(target) in tokens\n", "")
    assert mergeable(case(TEXT.format(evidence="target(t)")))
    assert not mergeable(case(plain + own)), "a specification with noise of its own, which the program may have read"
    machine = type("Buggy", (claims.ExactMachine,), {})
    assert not mergeable(replace(case(TEXT.format(evidence="target(t)")), engine=machine))


def test_a_draw_whose_noise_was_read_is_not_fresh() -> None:
    """Two draws at one place of the noise: what one tells, the other knows."""
    module, _ = find(TEXT.format(evidence="target(t)"))
    case = cases(module, module.entry.claims[0], vocab=3, models=1, params=None)[0]
    world = World(coupled=True)
    m = case.program().machine(case.request, world)
    row = value_row(m.vector((F(1, 2), F(1, 3), F(1, 6))))
    op = next(op for op in module.entry.body.walk() if op.opcode == "draw")
    first, again, other = (m.draw(op, row, "shaped", NoiseKey("here", (n,)), 0, None) for n in (0, 0, 1))
    signed = Signer(world.races).of([first, other])
    assert signed == Signer(world.races).of([first, other])
    with pytest.raises(Unknown, match="read elsewhere"):
        Signer(world.races).of([first, again])
    assert first.token in (0, 1, 2)
    with pytest.raises(Unknown, match="read elsewhere"):
        Signer(world.races).of([again])
    Signer(world.races).of([other])
    at = [m.draw(op, row, "shaped", NoiseKey("output", (), "output"), 0, n) for n in (4, 5)]
    one, two = (Signer(world.races).of([d]) for d in at)
    assert one != two, "the specification reads the noise of each position"


def test_states_are_asked_for_where_a_run_is_new() -> None:
    """The way to the first other choice was gone before, and none of its states had been met."""
    asked: list[tuple[int, ...]] = []

    def program(choices: Choices) -> None:
        for step in range(3):
            choices.choose([F(1, 2), F(1, 2)], [0, 1], "coin")
            if choices.new:
                asked.append(tuple(p.taken for p in choices.points))
                choices.arrive(step)

    assert len(list(runs(program, 100, merge=True))) == 4
    assert len(asked) == len(set(asked)) == 6


def test_what_has_no_end_in_sight_is_given_up_early() -> None:
    def coins(n: int, limit: int = 256) -> int:
        def program(choices: Choices) -> None:
            for _ in range(n):
                choices.choose([F(1, 2), F(1, 2)], [0, 1], "coin")

        return sum(1 for _ in runs(program, limit))

    assert coins(8) == 256
    for depth, first in ((18, 32), (10, 32), (9, 64)):
        with pytest.raises(TooMany, match=f"more than 256 runs, by the first {first}$"):
            coins(depth)
    with pytest.raises(TooMany, match="more than 400 runs$"):
        coins(9, 400)
    with pytest.raises(TooMany, match="more than 400 runs, by the first 100$"):
        coins(10, 400)
    with pytest.raises(TooMany, match="more than 100 runs$"):  # small limits: only what is many times as large
        coins(8, 100)
    with pytest.raises(TooMany, match="more than 100 runs, by the first 25$"):
        coins(10, 100)
    for depth in (30, 300):
        with pytest.raises(TooMany, match="more than 256 runs, by the first 8$"):  # millions of times as many
            coins(depth)
    half = Point("chance", (F(1, 2), F(1, 2)), 0, "coin", 0)
    assert hopeless(32, 256, [half] * 225, 1.0) and not hopeless(32, 256, [half] * 224, 1.0)
    assert not hopeless(63, 256, [half] * 300, 1e-9), "asked at an eighth, a quarter and a half of the limit"
    assert hopeless(64, 256, [half], 64 / 256 / 4.1, merged=True) and not hopeless(64, 256, [half], 64 / 256 / 3.9, merged=True)
    assert not hopeless(15, 60, [half], 1e-9, merged=True), "merged runs of a small limit say nothing"
