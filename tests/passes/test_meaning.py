"""What passes write into the IR means what it says: proofs hold after them, stores keep cells, waits are where data decides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lib.programs.for_passes import small

import decgraph
from decgraph.backends.reference.cells import CanvasCells, CausalCells, FeatureCells, Sequences
from decgraph.check import check_algorithm
from decgraph.dsl.lower import load_text
from decgraph.passes.batching import distribution_only, meets
from decgraph.passes.manager import optimise
from decgraph.passes.placement import waits
from decgraph.runtime.models.free import FreeFeatures, FreeModel
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("name", ["speculative", "lookahead", "eagle2", "token_recycling"])
def test_claims_hold_after_all_passes(name: str) -> None:
    """The exact checker runs fused calls and segments too; it computes every call from scratch."""
    made, _ = optimise(decgraph.load(name).module)
    report = check_algorithm(made, models=4)
    assert report.verdict in ("proved", "holds") or not report.counterexample and name == "token_recycling", report.reasons


def test_a_false_claim_stays_refuted() -> None:
    text = """algorithm forgets(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            x ~ drafter(t.leaves)
            grow x
        verify t by careless against target(t)
        commit t.accepted

rule careless(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
    y ~ p
    emit y
"""
    made, _ = optimise(load_text(text))
    assert check_algorithm(made, models=4).verdict == "refuted"


# -- stores
def free(seed: int = 1, **more: object) -> FreeModel:
    return FreeModel(seed, 4, 2, name="m", **more)  # type: ignore[arg-type]


PATHS: Sequence[tuple[int, ...]] = [(0, 1), (0, 1, 2), (0, 1, 3), (0, 1, 2), (0, 2, 2), (0, 1, 3, 3)]


@pytest.mark.parametrize("model", [free(), TableModel(4, seed=3, name="m")], ids=["free", "table"])
def test_a_causal_store_computes_each_cell_once(model: FreeModel) -> None:
    store = CausalCells(model)
    counts = []
    for path in PATHS:
        (scores,), computed = store.scores([path])
        assert scores == model.eval([path])[0]
        counts.append(computed)
    assert counts == [2, 1, 1, 0, 2, 1]
    assert store.scores([(0, 1, 0), (0, 1, 0, 0), (0, 1, 0, 1)])[1] == 3


def test_a_causal_store_gives_memories_and_heads() -> None:
    model = free(heads=2)
    store = CausalCells(model)
    assert store.memory((0, 1, 2)) == (model.memory((0, 1, 2)), 3)
    assert store.heads((0, 1)) == (model.heads((0, 1)), 0)
    assert store.memory((0, 1, 3))[1] == 1


def test_a_store_of_features_tells_roots_apart() -> None:
    target = free()
    head = FreeFeatures(target, 5)
    store = FeatureCells(head)
    counts = []
    for known, paths in [(2, [(0, 1, 2)]), (2, [(0, 1, 2, 3), (0, 1, 2, 1)]), (3, [(0, 1, 2, 3, 0)]), (3, [(0, 1, 2, 3, 0)])]:
        memory = target.memory(paths[0][:known])
        got, computed = store.scores(paths, memory)
        assert got == head.eval(paths, memory)
        counts.append(computed)
    assert counts == [3, 2, 2, 0]  # the accepted cell is computed again from the target's feature


def test_a_store_of_canvases_keeps_the_last_call() -> None:
    model = FreeModel(2, 3, 2, visibility="full", name="m")
    store = CanvasCells(model)
    a, b = (0, MASK, MASK), (0, 1, MASK)
    counts = []
    for cells in (a, a, b, a):
        store.begin()
        got, computed = store.scores(cells, [1, 2], None, None, 0)
        assert got == model.eval_canvas(cells, [1, 2])
        counts.append(computed)
    assert counts == [3, 0, 3, 3]


def test_a_sub_run_continues_the_stores_of_its_models() -> None:
    model, other = free(), free(7)
    outer = Sequences()
    outer.of("target", model).scores([(0, 1)])
    inner = Sequences(outer)
    assert inner.of("m", model).scores([(0, 1)])[1] == 0
    assert inner.of("target", other).scores([(0, 1)])[1] == 2


# -- batches
def test_where_a_batch_commits_other_tokens() -> None:
    shared = """algorithm a(target: causal, drafter: causal):
    state b: int per session = 1

    while not done:
        draft t:
            for i in 0..min(b, 3):
                x ~ drafter(t.leaves)
                grow x
        verify t by {rule} against target(t)
        b = 1 + t.accepted.depth
        commit t.accepted
"""
    law = load_text(shared.format(rule="rejection")).entry
    assert meets(law)
    assert distribution_only(law).startswith(
        "in distribution only: state b is shared, and tree t is verified by a rule that draws against q"
    )
    assert "depends on the batch" in distribution_only(load_text(shared.format(rule="match")).entry)
    assert distribution_only(small("table").entry) == ""
    assert meets(small("table").entry)
    assert not meets(small("chain").entry)


# -- waits
def test_counters_and_shapes_are_not_waited_for() -> None:
    assert [str(w) for w in waits(small("chain").entry)] == [
        "the verification by rejection: what it accepts (line 9)",
        "the stop test, once a step (line 4)",
    ]


def test_decisions_on_data_are() -> None:
    assert [str(w) for w in waits(small("decides").entry)] == [
        "a branch decided by data (line 7)",
        "the committed tokens (line 9)",
        "the stop test, once a step (line 2)",
    ]


def test_sizes_that_data_chooses_are() -> None:
    found = [str(w) for w in waits(decgraph.load("fast_dllm").module.entry)]
    assert found == [
        "how many pass the test (line 17)",
        "whether a loop goes on, once an iteration (line 14)",
        "the committed tokens (line 18)",
    ]


@pytest.mark.parametrize("name", ["fast_dllm", "llada", "medusa", "freedave"])
def test_a_device_segment_ends_where_data_decides_a_size(name: str) -> None:
    made, _ = optimise(decgraph.load(name).module)
    sized = 0
    for op in made.entry.body.walk():
        if op.opcode == "segment" and op.attrs["kind"] == "device":
            inside = list(op.regions[0].walk())
            chosen = {v for o in inside if o.opcode == "compact" for v in o.results}
            sized += bool(chosen)
            assert not any(v in chosen for o in inside for v in o.operands)
    assert sized
