"""Table, free and tiny models: what a memory is worth, and where reuse is not exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from lib.models.tiny import TinyFeatures, TinyModel

from decgraph.errors import DecError
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.interface import MASK, Memory, Model, Scores, check_vocab
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel

SEEDS = range(25)
PATH = (0, 1, 2, 1)


def same(a: list[Scores], b: list[Scores]) -> bool:
    if a[0].exact:
        return a == b
    return all(np.allclose(x.logits, y.logits, atol=1e-12) for x, y in zip(a, b, strict=True))


def causal_models(seed: int) -> list[Model]:
    return [TableModel(3, seed), TableModel(3, seed, window=2), FreeModel(seed), TinyModel(seed)]


def masked_models(seed: int) -> list[Model]:
    return [
        TableModel(3, seed, kind="masked"),
        FreeModel(seed, visibility="full"),
        TinyModel(seed, visibility="full"),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kept_causal_prefix_is_a_recomputed_one(seed: int) -> None:
    for model in causal_models(seed):
        for cut in range(len(PATH)):
            kept = model.memory(PATH[:cut])
            assert same(model.eval([PATH], memory=kept), model.eval([PATH]))
            assert model.memory(PATH, memory=kept).positions == frozenset(range(4))
        assert model.memory(PATH, memory=model.memory(PATH[:2])) == model.memory(PATH) or not model.exact


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_do_not_depend_on_their_neighbours(seed: int) -> None:
    paths = [PATH, (2,), PATH[:2], PATH]
    for model in causal_models(seed):
        assert model.eval(paths) == [model.eval([p])[0] for p in paths]
    cells = (1, MASK, 2, MASK)
    for model in masked_models(seed):
        whole = model.eval_canvas(cells, range(4))
        assert whole == [model.eval_canvas(cells, [i])[0] for i in range(4)]


@pytest.mark.parametrize("seed", SEEDS)
def test_exit_reads_the_targets_keys_and_values_and_skip_does_not_get_away_with_it(seed: int) -> None:
    target = FreeModel(seed)
    prefix = target.memory(PATH[:3])
    early = derive(target, "exit", 2)
    assert early.eval([PATH], memory=prefix) == early.eval([PATH]) != target.eval([PATH])
    skipping = derive(target, "skip", {1})
    assert skipping.eval([PATH], memory=prefix) != skipping.eval([PATH])
    coarse = derive(target, "quantized", 4)
    assert coarse.eval([PATH], memory=prefix) != coarse.eval([PATH]) != target.eval([PATH])
    assert derive(target, "exit", 3).eval([PATH]) == target.eval([PATH]) == derive(target, "skip", ()).eval([PATH])


@pytest.mark.parametrize("seed", SEEDS)
def test_exit_is_the_head_on_the_states_up_to_it(seed: int) -> None:
    for target in (FreeModel(seed), TinyModel(seed, layers=3)):
        upto = derive(target, "upto", 2)
        assert same(derive(target, "head", upto).eval([PATH]), derive(target, "exit", 2).eval([PATH]))
        given = target.memory(PATH[:2])
        assert same(derive(target, "head", upto).eval([PATH], memory=given), derive(target, "exit", 2).eval([PATH]))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_adapter_is_a_function_of_the_path(seed: int) -> None:
    target = FreeModel(seed)
    small = derive(target, "head", derive(FreeAdapter(target), "on", derive(target, "upto", 2)))
    assert small.eval([PATH], memory=target.memory(PATH[:3])) == small.eval([PATH])
    assert small.eval([PATH]) != small.eval([(1, *PATH[1:])])
    assert small.eval([PATH]) != target.eval([PATH])
    table = TableModel(3, seed)
    small = derive(table, "head", derive(TableAdapter(table, 5), "on", derive(table, "upto", 2)))
    assert small.eval([PATH], memory=table.memory(PATH[:3])) == small.eval([PATH])
    assert small.eval([PATH]) != derive(table, "head", derive(table, "upto", 2)).eval([PATH])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dual_cache_is_not_exact(seed: int) -> None:
    for model in masked_models(seed):
        masked = (MASK,) * 4
        stale = model.memory(masked)
        now = (1, MASK, MASK, MASK)
        assert not same(model.eval_canvas(now, [1], stale), model.eval_canvas(now, [1]))
        assert same(model.eval_canvas(now, range(4), stale), model.eval_canvas(now, range(4)))


def test_a_memory_of_cells_alone_is_exact_where_the_changed_ones_are_fresh() -> None:
    model = TableModel(3, 4, kind="masked")
    stale, now = model.memory((MASK,) * 3), (1, MASK, MASK)
    assert model.eval_canvas(now, [0, 1], stale) == model.eval_canvas(now, [0, 1])
    assert model.eval_canvas(now, [1], stale) == model.eval_canvas((MASK,) * 3, [1])


def test_masked_positions_differ_by_where_they_stand() -> None:
    for model in masked_models(0):
        assert len(set(model.eval_canvas((1, MASK, MASK, MASK), [1, 2, 3]))) == 3


def test_reuse_across_layers_is_stale_even_where_the_cell_is_not() -> None:
    model = FreeModel(3, visibility="full")
    stale, now = model.memory((MASK,) * 3), (1, MASK, MASK)
    assert model.eval_canvas(now, [0, 1], stale) != model.eval_canvas(now, [0, 1])
    one = FreeModel(3, layers=1, visibility="full")
    assert one.eval_canvas(now, [0, 1], one.memory((MASK,) * 3)) == one.eval_canvas(now, [0, 1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_finished_block_is_exact_and_one_step_too_early_is_not(seed: int) -> None:
    for make in (FreeModel, TinyModel):
        model = make(seed, visibility=("block", 2))
        cells = (1, 2, MASK, MASK)
        finished = model.memory(cells[:2])
        assert same(model.eval_canvas(cells, [2, 3], finished), model.eval_canvas(cells, [2, 3]))
        early = model.memory((1, MASK))
        assert not same(model.eval_canvas(cells, [2, 3], early), model.eval_canvas(cells, [2, 3]))


@pytest.mark.parametrize("seed", SEEDS)
def test_evicted_positions_are_not_seen(seed: int) -> None:
    for model in causal_models(seed):
        full = model.memory(PATH[:3])
        if getattr(model, "window", None) is None:
            assert not same(model.eval([PATH], memory=full.without([1])), model.eval([PATH]))
        assert full.without([1]).join(full.only([1])) == full
        assert full.only([0, 2]) == full.without([1])
        assert full.without([1]).length == 3


def test_a_layer_can_be_evicted_alone() -> None:
    model = FreeModel(0)
    full = model.memory(PATH[:3])
    thin = full.with_layer(1, full[1].without([0]))
    assert [sorted(layer.positions) for layer in thin.layers] == [[0, 1, 2], [1, 2], [0, 1, 2]]
    assert model.eval([PATH], memory=thin) != model.eval([PATH])
    assert thin.join(full) == full


@pytest.mark.parametrize("seed", SEEDS)
def test_a_features_head_depends_on_where_the_root_is(seed: int) -> None:
    cases = [
        (t := FreeModel(seed), FreeFeatures(t)),
        (t2 := TinyModel(seed), TinyFeatures(t2)),
        (t3 := TableModel(3, seed), TableFeatures(t3, seed)),
    ]
    for target, head in cases:
        near, far = target.memory(PATH[:3]), target.memory(PATH[:2])
        assert same(head.eval([PATH], memory=near), head.eval([PATH]))
        assert not same(head.eval([PATH], memory=far), head.eval([PATH]))
        # What the target computed at or below the root's own position is never read.
        assert same(head.eval([PATH], memory=target.memory((*PATH[:3], 0))), head.eval([PATH], memory=near))
        assert len(head.eval([(1,)], memory=target.memory(()))) == 1


def test_features_need_the_root_parents_feature() -> None:
    target = FreeModel(1)
    with pytest.raises(DecError, match="evicted"):
        FreeFeatures(target).eval([PATH], memory=target.memory(PATH[:3]).without([2]))


def test_heads_answer_once_per_head() -> None:
    for model in (FreeModel(0, heads=3), TinyModel(0, heads=3), TableModel(3, 0, heads=3)):
        rows = model.heads(PATH)
        assert len(rows) == 3 and len(set(rows)) == 3
    with pytest.raises(DecError, match="heads"):
        FreeModel(0).heads(PATH)


def test_a_table_shows_the_entries_it_used() -> None:
    model = TableModel(2, table={(0,): [1, 3], (0, 1): ["1/3", "2/3"]}, name="t")
    assert model.eval([(0,)])[0].weights == (Fraction(1, 4), Fraction(3, 4))
    model.eval([(0, 1)])
    assert model.describe() == "causal table t, 2 tokens:\n  p(. | 0) = 1/4 3/4\n  p(. | 0 1) = 1/3 2/3"
    with pytest.raises(DecError, match="no entry for 1 1"):
        model.eval([(1, 1)])
    model.forget()
    assert model.entries() == {}
    masked = TableModel(2, table={((0, MASK), 1): [1, 0]}, kind="masked")
    assert masked.eval_canvas((0, MASK), [1])[0].weights == (1, 0)


def test_a_table_window_forgets_what_is_before_it() -> None:
    model = TableModel(3, 7, window=1)
    assert model.eval([(0, 1)]) == model.eval([(2, 1)]) == model.eval([(1,)])
    assert TableModel(3, 7, window=0).eval([(0,)]) == TableModel(3, 7, window=0).eval([(2, 1)])


def test_seeds_give_the_same_table_in_every_process() -> None:
    assert TableModel(3, 5).eval([(0, 2)])[0].weights == (Fraction(5, 13), Fraction(6, 13), Fraction(2, 13))
    zeros = [TableModel(4, s, zeros=True).eval([(0,)])[0].weights for s in range(40)]
    assert any(0 in row for row in zeros) and all(sum(row) == 1 for row in zeros)


def test_misuse_is_an_error_with_a_name() -> None:
    free, other = FreeModel(0), FreeModel(1)
    with pytest.raises(DecError, match="do not share"):
        free.eval([PATH], memory=other.memory(PATH[:2]))
    with pytest.raises(DecError, match="different models"):
        free.memory(PATH).join(other.memory(PATH))
    with pytest.raises(DecError, match="not in the vocabulary"):
        free.eval([(0, 3)])
    with pytest.raises(DecError, match="at least one token"):
        free.eval([()])
    with pytest.raises(DecError, match="past the context length"):
        FreeModel(0, context=3).eval([PATH])
    with pytest.raises(DecError, match="must hold a token"):
        free.eval([(0, MASK)])  # type: ignore[list-item]
    with pytest.raises(DecError, match="cannot score the positions"):
        free.eval_canvas((0,), [0])
    with pytest.raises(DecError, match="cannot score the token"):
        FreeModel(0, visibility="full").eval([PATH])
    with pytest.raises(DecError, match="different vocabularies"):
        check_vocab(free, TableModel(3, 0))
    with pytest.raises(DecError, match="no exit"):
        derive(free, "exit", 4)
    with pytest.raises(DecError, match="cannot be used in upto"):
        derive(TableFeatures(free, 0), "upto", 1)


def test_memories_are_values() -> None:
    free = FreeModel(0)
    a, b = free.memory(PATH), free.memory(PATH)
    assert a == b and hash(a) == hash(b) and isinstance(a, Memory)
    tiny = TinyModel(0)
    assert tiny.memory(PATH) == tiny.memory(PATH) != tiny.memory(PATH[:3])
    with pytest.raises(TypeError):
        a[0].kv[0] = "x"  # type: ignore[index]


def test_numpy_integers_are_tokens_like_any_other() -> None:
    odd = tuple(np.array(PATH))
    for model in causal_models(3):
        fresh = type(model)(3, 3) if isinstance(model, TableModel) else type(model)(3)
        assert fresh.eval([odd]) == fresh.eval([PATH]) and fresh.memory(odd) == fresh.memory(PATH)
    cells = (np.int64(1), MASK, 2)
    for model in masked_models(3):
        assert same(model.eval_canvas(cells, [1]), model.eval_canvas((1, MASK, 2), [1]))
