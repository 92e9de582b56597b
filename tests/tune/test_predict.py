"""What is predicted from a few runs, against simulations in which the truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from decgraph.ir.data.topology import Topology
from decgraph.runtime.trace import Accepted, Committed, Drafted, Emitted, ModelCall, Rejected
from decgraph.runtime.tune import predict, steps
from decgraph.runtime.tune.predict import Anchor, Line, Unpredictable
from decgraph.runtime.tune.steps import Step
from decgraph.runtime.tune.trees import best, worth

HOST, FORWARD, CELL, DRAFT = 1e-3, 4e-3, 1e-4, 6e-4  # seconds: of a step, of the target's forward, a cell in it, a drafter's


def cost(cells: float, _: float) -> float:
    return FORWARD + CELL * cells


def drafter(cells: float, _: float) -> float:
    return DRAFT


COSTS = {"target": cost, "drafter": drafter}


def chain_step(rng: random.Random, chances: Sequence[float], length: int) -> Step:
    """A step whose depth-d draft is accepted with chances[d]."""
    taken = 0
    while taken < length and rng.random() < chances[taken]:
        taken += 1
    drafts = [(n + 1, n) for n in range(length)]
    return Step(drafts, list(range(1, taken + 1)), taken + 1)


def chain_anchor(chances: Sequence[float], length: int, steps_: int = 4000) -> Anchor:
    rng = random.Random(length)
    made = [chain_step(rng, chances, length) for _ in range(steps_)]
    return Anchor(made, {"target": (1.0, length + 1.0), "drafter": (float(length), float(length))}, chain_seconds(length), 50.0)


def chain_seconds(length: int) -> float:
    return HOST + cost(length + 1, 0) + length * DRAFT


def chain_tokens(chances: Sequence[float], length: int) -> float:
    """The truth."""
    total, reached = 1.0, 1.0
    for d in range(length):
        reached *= chances[d]
        total += reached
    return total


def test_every_chain_from_one_long_run() -> None:
    chances = [0.9 - 0.03 * d for d in range(16)]
    anchors = {n: chain_anchor(chances, n) for n in (1, 4, 16)}
    found = predict.chains(anchors, COSTS, range(1, 17))
    for p in found:
        assert p.tokens == pytest.approx(chain_tokens(chances, p.value), rel=0.04)
        assert p.rate == pytest.approx(chain_tokens(chances, p.value) / chain_seconds(p.value), rel=0.05)
    truth = max(range(1, 17), key=lambda n: chain_tokens(chances, n) / chain_seconds(n))
    at_best = chain_tokens(chances, truth) / chain_seconds(truth)
    assert chain_tokens(chances, found[0].value) / chain_seconds(found[0].value) > 0.98 * at_best
    assert [p.rate for p in found] == sorted((p.rate for p in found), reverse=True)


def test_nothing_is_said_of_longer_chains_than_were_run() -> None:
    anchors = {n: chain_anchor([0.5] * 8, n) for n in (1, 8)}
    assert max(p.value for p in predict.chains(anchors, COSTS, range(1, 33))) == 8


def changed(anchor: Anchor, change: Callable[[Step], Step]) -> Anchor:
    return Anchor([change(s) for s in anchor.steps], anchor.work, anchor.seconds, anchor.context)


def test_what_is_no_chain_or_works_otherwise_is_not_predicted() -> None:
    good = {n: chain_anchor([0.8] * 8, n) for n in (2, 8)}
    empty = lambda s: Step([], [], 1)
    forked = lambda s: Step([*s.drafts, (99, 0)], s.accepted, s.tokens)
    cases = [
        ({**good, 2: changed(good[2], empty)}, "nothing is drafted"),
        ({**good, 8: changed(good[8], forked)}, "no chains"),
        ({1: good[8], 8: good[8]}, "longer than its value"),
        ({2: good[2], 8: good[2]}, "does not set the length"),
        ({8: good[8]}, "does not set the length"),
        ({**good, 2: changed(good[2], lambda s: Step(s.drafts, s.accepted[:1], min(s.tokens, 1)))}, "tokens, where"),
    ]
    for anchors, why in cases:
        with pytest.raises(Unpredictable, match=why):
            predict.chains(anchors, COSTS, [1, 2, 4])


def tree_step(rng: random.Random, shape: Topology, chances: Sequence[Sequence[float]]) -> Step:
    """A step on a tree: from a node at depth d, verification goes on to its child of rank r with chances[d][r]."""
    paths = predict.paths_of(shape)
    number = {(): 0, **{path: n + 1 for n, path in enumerate(paths)}}
    at: tuple[int, ...] = ()
    accepted = []
    while len(at) < len(chances):
        u, child = rng.random(), None
        for rank, chance in enumerate(chances[len(at)]):
            if u < chance:
                child = (*at, rank)
                break
            u -= chance
        if child not in number:
            break
        at = child
        accepted.append(number[at])
    return Step([(number[p], number[p[:-1]]) for p in paths], accepted, len(accepted) + 1)


CHANCES = [[0.6, 0.2, 0.1], [0.5, 0.2, 0.05], [0.4, 0.1, 0.05], [0.3, 0.1, 0.0]]


def tree_seconds(shape: Topology) -> float:
    return HOST + 1e-5 * shape.size + cost(shape.size + 1, 0) + len(shape) * DRAFT


def tree_anchor(text: str, count: int = 3000) -> tuple[Topology, Anchor]:
    shape, rng = Topology.of(text), random.Random(text)
    made = [tree_step(rng, shape, CHANCES) for _ in range(count)]
    inner = 1 + sum(len(shape[n].parent) for n in range(len(shape) - 1))
    work = {"target": (1.0, shape.size + 1.0), "drafter": (float(len(shape)), float(inner))}
    return shape, Anchor(made, work, tree_seconds(shape), 50.0)


def test_acceptance_by_depth_and_rank() -> None:
    anchor = tree_anchor("3x3x2", 6000)[1]
    table = steps.ranks(anchor.steps).table()
    assert [len(row) for row in table] == [3, 3, 2]
    for row, truth in zip(table, CHANCES, strict=False):
        assert row == pytest.approx(truth[: len(row)], abs=0.035)


def test_ranks_that_verification_never_came_to_are_not_known() -> None:
    counts = steps.ranks([Step([(1, 0), (2, 0), (3, 1)], [], 1)] * 10)
    assert len(counts.table()) == 1 and len(counts.table()[0]) == 2
    assert steps.ranks([]).table() == []


def test_the_best_shape_from_three_runs() -> None:
    anchors = dict(tree_anchor(text) for text in ("2x1", "3x2x1x1", "3x2x2"))
    found, table = predict.trees(anchors, COSTS, lambda paths: Topology.of([list(p) for p in paths]), 32)
    truth: dict[int, float] = {}
    for depth in range(1, 5):
        answers = best(CHANCES, 32, depth)
        for n in range(1, 33):
            if answers.worths[n] == answers.worths[n]:
                shape = Topology.of([list(p) for p in answers.paths(n)])
                truth[n] = max(truth.get(n, 0.0), (1 + float(answers.worths[n])) / tree_seconds(shape))
    chosen = found[0].value
    real = (1 + worth(predict.paths_of(chosen), CHANCES)) / tree_seconds(chosen)
    assert real > 0.97 * max(truth.values())
    assert found[0].rate == pytest.approx(real, rel=0.06)


def test_a_shape_that_is_not_worth_what_ranks_say_is_not_predicted() -> None:
    """As where the same child is never accepted twice in a row: acceptance depends on the path."""
    shape, anchor = tree_anchor("2x2")
    flat = [Step(s.drafts, s.accepted[:1], 3 * s.tokens) for s in anchor.steps]
    with pytest.raises(Unpredictable, match="were predicted"):
        other, usual = tree_anchor("2x1")
        predict.trees({shape: Anchor(flat, anchor.work, anchor.seconds, 50.0), other: usual}, COSTS, Topology.of, 8)


def test_regular_trees() -> None:
    made = [sorted(paths) for paths in predict.even(CHANCES, 12)]
    assert all(len(m) <= 12 for m in made) and len(made) == len({tuple(m) for m in made})
    assert sorted(predict.paths_of(Topology.of("3x2"))) in made and sorted(predict.paths_of(Topology.of("1x1x1x1"))) in made
    for m in made:
        shape = Topology.of([list(p) for p in m])
        assert all(len(shape[n].parent) == (len(shape[n - 1].parent) if n else 1) * shape[n].width for n in range(len(shape)))


def test_lines() -> None:
    line, off = Line.through([1, 2, 4], [3, 5, 9])
    assert off == pytest.approx(0, abs=1e-9) and line(10) == pytest.approx(21)
    level, off = Line.through([2, 2], [1, 3])
    assert level(7) == 2 and off == 1
    assert Line(1, -1)(5) == 0


def test_steps_from_events() -> None:
    events = [
        ModelCall("drafter", 1, 1, "draft"), Drafted(1, 0, 7, 0.5, "drafter"), Drafted(2, 1, 8, 0.5, "drafter"),
        Accepted(1, 7, 1), Rejected(2, 8, 2), Emitted(9, "residual"), Committed((7, 9)),
        Drafted(1, 0, 7, 0.5, "drafter"), Accepted(1, 7, 1), Committed((7,)),
    ]  # fmt: skip
    (step,) = steps.steps_of(events)  # the limit cut the second one
    assert step == Step([(1, 0), (2, 1)], [1], 2) and step.is_chain
    assert steps.chain([step], 1) == (1.0, 2.0) and steps.chain([step], 0) == (0.0, 1.0)
    assert not Step([(1, 0), (2, 0)], [], 1).is_chain
    counts = steps.ranks([step])
    assert counts.visits == {(0, 0): 1, (1, 0): 1} and counts.taken == {(0, 0): 1}


def test_candidates_that_are_nearly_the_same_are_left_out() -> None:
    found = [predict.Predicted(v, 10 - n, 1) for n, v in enumerate((10, 11, 5, 12, 20, 6))]
    assert [p.value for p in predict.apart(found, 3, lambda v: (float(v), 0.0))] == [10, 5, 20]
