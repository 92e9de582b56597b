"""What the masked engine computes and what it does not: batches, the memo, writing in place, faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import make, transformers

from decgraph.backends.reference.canvas_calls import fresh as fresh_of_reference
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput, fresh_of
from decgraph.runtime.models.engine.masked import HFMaskedEngine
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import LayerMemory, Memory, Vocab

V, MASK_ID = 19, 18


@pytest.fixture(scope="module", params=[False, True], ids=["module", "decoder"])
def net(request: pytest.FixtureRequest) -> Net:
    torch.manual_seed(1)
    config = transformers.EuroBertConfig(
        vocab_size=V,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        mask_token_id=MASK_ID,
    )
    return make.net_of_module(transformers.EuroBertForMaskedLM(config), entry=request.param)


@pytest.fixture
def engine(net: Net) -> HFMaskedEngine:
    model = HFMasked(net, name="tiny", vocab=Vocab("test", V), context=64, family="tiny", mask=MASK_ID)
    return HFMaskedEngine(model)


def another(engine: HFMaskedEngine, **options: Any) -> HFMaskedEngine:
    """A fresh engine of the same model."""
    return HFMaskedEngine(engine.model, **options)


def canvas(length: int, seed: int = 0, base: int = 3) -> torch.Tensor:
    cells = torch.randint(0, MASK_ID, (length,), generator=torch.Generator().manual_seed(seed))
    cells[base:] = MASK_ID
    return cells


def one(engine: HFMaskedEngine, call: CanvasCall) -> CanvasOutput:
    (output,) = engine.compute([call])
    assert isinstance(output, CanvasOutput), str(output)
    return output


def rows_of(engine: HFMaskedEngine, cells: torch.Tensor, rows: Any) -> torch.Tensor:
    """What a fresh engine says to whole canvases."""
    return one(another(engine), CanvasCall("alone", cells, rows=rows)).logits


def test_sequences_of_all_lengths_and_phases_share_one_forward(engine: HFMaskedEngine) -> None:
    first = [CanvasCall(n, canvas(12 + n, n), rows=range(3), keep=True) for n in range(5)]
    kept = [a.memory for a in engine.compute(first)]  # type: ignore[union-attr]
    assert engine.counted.calls == 1 and engine.counted.computed == sum(12 + n for n in range(5))
    assert engine.counted.padding == sum(4 - n for n in range(5))
    calls = [CanvasCall(n, canvas(12 + n, n), None, range(4, 8), kept[n], range(4, 8), True) for n in range(3)]
    calls += [CanvasCall(3, canvas(15, 3), None, range(4, 6), kept[3], [5], True), CanvasCall(9, canvas(40, 9), rows=[30])]
    alone = [one(another(engine), call).logits for call in calls]
    together = engine.compute(calls)
    assert engine.counted.calls == 3  # one forward for all of a kind
    assert engine.counted.computed == 70 + 3 * 4 + 2 + 40
    for a, b in zip(alone, together, strict=True):
        assert isinstance(b, CanvasOutput) and torch.allclose(a, b.logits, atol=1e-4)


def test_a_budget_splits_a_batch_and_changes_nothing(engine: HFMaskedEngine) -> None:
    calls = [CanvasCall(n, canvas(16, n), rows=range(16), keep=True) for n in range(6)]
    whole = engine.compute(calls)
    small = another(engine, budget=2 * engine._cost(engine._plan(calls[0], calls[0].cells.numpy()).units[0]))
    split = small.compute(calls)
    assert (engine.counted.calls, small.counted.calls) == (1, 3)
    for a, b in zip(whole, split, strict=True):
        assert isinstance(a, CanvasOutput) and isinstance(b, CanvasOutput)
        assert torch.allclose(a.logits, b.logits, atol=1e-4)
        assert torch.allclose(a.memory.rows(1)[7][0], b.memory.rows(1)[7][0], atol=1e-4)


def test_freedaves_accepted_canvas_costs_nothing(engine: HFMaskedEngine) -> None:
    """The canvases of a tree are asked for together, then the accepted one alone: it is remembered."""
    start = canvas(16)
    tree = start.repeat(4, 1)
    for depth in range(1, 4):
        tree[depth:, 2 + depth] = depth
    one(engine, CanvasCall("s", start, rows=range(16)))
    drafts = one(engine, CanvasCall("s", tree, rows=range(16)))
    assert drafts.logits.shape == (4, 16, V)
    assert engine.counted.calls == 2 and engine.counted.computed == 16 + 3 * 16  # the root was known
    accepted = one(engine, CanvasCall("s", tree[2], rows=range(16)))
    assert engine.counted.calls == 2 and engine.counted.requested == 16 + 4 * 16 + 16
    assert torch.equal(accepted.logits, drafts.logits[2])
    assert torch.allclose(accepted.logits, rows_of(engine, tree[2], range(16)), atol=1e-4)
    assert one(engine, CanvasCall("s", tree[2], rows=[9, 4])).logits.equal(accepted.logits[[9, 4]])


def test_rows_not_asked_for_before_come_from_the_states_that_are_held(engine: HFMaskedEngine) -> None:
    one(engine, CanvasCall("s", canvas(16), rows=[3]))
    later = one(engine, CanvasCall("s", canvas(16), rows=[10, 3]))
    assert engine.counted.calls == 1
    assert torch.allclose(later.logits, rows_of(engine, canvas(16), [10, 3]), atol=1e-4)


def test_scores_and_memory_of_one_call_are_one_forward(engine: HFMaskedEngine) -> None:
    cells, block = canvas(16), range(4, 8)
    one(engine, CanvasCall("s", cells, rows=block))
    memory = one(engine, CanvasCall("s", cells, keep=True)).memory
    assert engine.counted.calls == 1
    cells = cells.clone()
    cells[4] = 1
    given = memory.without(block)
    one(engine, CanvasCall("s", cells, None, block, given, block))
    # Held rows at fresh positions are overridden, so both memories mean the same call.
    after = one(engine, CanvasCall("s", cells, None, block, memory, block, keep=True)).memory
    assert engine.counted.calls == 2 and after.positions.tolist() == list(range(16))


def test_calls_are_forgotten_with_age_size_and_their_sequence(engine: HFMaskedEngine) -> None:
    for n in range(3):
        one(engine, CanvasCall("s", canvas(16, n), rows=[4]))
    one(engine, CanvasCall("s", canvas(16, 0), rows=[4]))
    assert engine.counted.calls == 4 and len(engine.memo) == 2
    engine.close("s")
    engine.close("never seen")
    assert len(engine.memo) == 0 and engine.memo.nbytes == 0
    small = another(engine, remembered=1)
    for _ in range(2):
        one(small, CanvasCall("s", canvas(16), rows=[4]))
    assert small.counted.calls == 2 and len(small.memo) == 0 and small.memo.nbytes == 0


def same_rows(a: Any, b: Any) -> bool:
    """Whether two memories hold the same."""
    if a.positions.tolist() != b.positions.tolist():
        return False
    return all(
        torch.allclose(x, y, atol=1e-4)
        for layer in range(2)
        for i, pair in a.rows(layer).items()
        for x, y in zip(pair, b.rows(layer)[i], strict=True)
    )


def test_old_values_stay_what_they_were_when_newer_ones_are_written_over_them(engine: HFMaskedEngine) -> None:
    """Values fork: from each of five versions of one slot other calls go on, and all equal a fresh engine's."""
    cells = canvas(24)
    kept = [one(engine, CanvasCall("s", cells, keep=True)).memory]
    for step in range(4):
        cells = cells.clone()
        cells[4 + step] = step
        block = [4 + step, 9, 10 + 2 * step]
        kept.append(one(engine, CanvasCall("s", cells, None, block, kept[-1], block, keep=True)).memory)
    assert all(k.store is kept[0].store for k in kept) and [k.newest for k in kept] == [False] * 4 + [True]
    other = another(engine)
    mine = one(other, CanvasCall("s", canvas(24), keep=True)).memory
    cells = canvas(24)
    for step in range(5):
        assert same_rows(kept[step], mine)
        other.close("s")
        block = range(16, 19)
        a, b = (one(e, CanvasCall("t", cells, None, block, k, block)).logits for e, k in ((engine, kept[step]), (other, mine)))
        assert torch.allclose(a, b, atol=1e-4)
        cells = cells.clone()
        cells[4 + step] = step
        block = [4 + step, 9, 10 + 2 * step]
        other = another(engine)  # which holds nothing of the sequence but what it is given
        mine = one(other, CanvasCall("s", cells, None, block, mine, block, keep=True)).memory


def test_the_memory_of_a_remembered_call_is_that_calls(engine: HFMaskedEngine) -> None:
    """Written over in place since, and asked for again."""
    calls = [CanvasCall(n, canvas(16, n), keep=True) for n in range(2)]
    first = [a.memory for a in engine.compute(calls)]  # type: ignore[union-attr]
    cells, block = canvas(16, 1), range(4, 8)
    cells[4] = 3
    later = one(engine, CanvasCall(1, cells, None, block, first[1], block, keep=True)).memory
    again = one(engine, calls[1]).memory
    assert engine.counted.calls == 2 and later.newest and not again.newest
    assert same_rows(again, one(another(engine), calls[1]).memory) and not same_rows(again, later)


@pytest.mark.parametrize("wide", [False, True], ids=["in one part", "in two"])
@pytest.mark.parametrize("where", ["__call__", "_logits"])
def test_what_failed_half_way_can_be_computed_again(
    engine: HFMaskedEngine, monkeypatch: pytest.MonkeyPatch, where: str, wide: bool
) -> None:
    """A batch without room is computed one call after the other, on the memories that the first attempt overwrote; also of the
    forwards before the one that failed."""
    other, fresh = another(engine), [range(4, 8), range(2, 22) if wide else range(4, 8)]
    first = [CanvasCall(n, canvas(24, n), keep=True) for n in range(2)]
    memories, others = ([a.memory for a in e.compute(first)] for e in (engine, other))  # type: ignore[union-attr]
    calls = [CanvasCall(n, canvas(24, n).roll(1), None, fresh[n], memories[n], fresh[n], keep=True) for n in range(2)]
    owner: Any = type(engine.step) if where == "__call__" else HFMaskedEngine
    inner, left = getattr(owner, where), [wide, None]

    def failing(*given: Any) -> Any:
        made = inner(*given)
        if not left.pop(0):
            raise RuntimeError("no memory")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, failing)
        with pytest.raises(RuntimeError, match="no memory"):
            engine.compute(calls)
    for n, call in enumerate(calls):
        assert same_rows(one(engine, first[n]).memory, others[n]), "remembered"
        engine.close(n)
        got, want = one(engine, call), one(other, replace(call, memory=others[n]))
        assert torch.allclose(got.logits, want.logits, atol=1e-4) and same_rows(got.memory, want.memory)


def test_calls_that_differ_in_what_they_see_are_different_calls(engine: HFMaskedEngine) -> None:
    cells, block = canvas(16), [4, 5]
    changed = cells.clone()
    changed[9] = 1
    memory = one(engine, CanvasCall("s", cells, keep=True)).memory
    newer = one(engine, CanvasCall("s", changed, None, [9], memory, [9], keep=True)).memory
    for given in (memory, newer, newer.without([12]), newer.with_layer(1, newer[1].without([12]))):
        got = one(engine, CanvasCall("s", cells, None, block, given, block)).logits
        alone = one(another(engine), CanvasCall("s", cells, None, block, given, block)).logits
        assert torch.allclose(got, alone, atol=1e-4)
    assert engine.counted.calls == 6


def test_a_batch_that_stays_together_is_written_in_place(engine: HFMaskedEngine) -> None:
    kept = [a.memory for a in engine.compute([CanvasCall(n, canvas(16, n), keep=True) for n in range(3)])]  # type: ignore[union-attr]
    store, block = kept[0].store, range(4, 8)
    assert all(k.store is store for k in kept)
    for step in range(2):
        cells = [canvas(16, n) for n in range(3)]
        for c in cells:
            c[4 + step] = 1
        calls = [CanvasCall(n, cells[n], None, block, kept[n], block, True) for n in (2, 0, 1)]
        kept = [a.memory for a in sorted_by_sequence(calls, engine.compute(calls))]
        assert all(k.store is store for k in kept)
    calls = [CanvasCall(n, canvas(16, n), None, range(8, 12), kept[n], [8], True) for n in (0, 2)]
    left = [a.memory for a in sorted_by_sequence(calls, engine.compute(calls))]
    assert left[0].store is left[1].store is not store


def sorted_by_sequence(calls: list[CanvasCall], outputs: list[Any]) -> list[CanvasOutput]:
    assert all(isinstance(a, CanvasOutput) for a in outputs), outputs
    return [a for _, a in sorted(zip([call.sequence for call in calls], outputs, strict=True), key=lambda pair: pair[0])]


def test_equal_canvases_are_computed_once_and_nobody_loses_a_memory(engine: HFMaskedEngine) -> None:
    """Two sequences hold the same value; when a call of one overwrites it, the other still has it."""
    a, b = (x.memory for x in engine.compute([CanvasCall(n, canvas(16), keep=True) for n in range(2)]))  # type: ignore[union-attr]
    assert engine.counted.computed == 16 and engine.counted.requested == 32
    cells, block = canvas(16), range(4, 8)
    cells[4] = 2
    one(engine, CanvasCall(0, cells, None, block, a, block, True))
    other = one(engine, CanvasCall(1, cells.flip(0), None, block, b, block, True))
    fresh = one(another(engine), CanvasCall(1, canvas(16), keep=True)).memory
    alone = one(another(engine), CanvasCall(1, cells.flip(0), None, block, fresh, block))
    assert torch.allclose(other.logits, alone.logits, atol=1e-4)


def test_soft_cells_in_a_batch_of_other_widths(engine: HFMaskedEngine) -> None:
    """A shorter block repeats its last cell, which is soft here."""
    memory = one(engine, CanvasCall("a", canvas(16), keep=True)).memory
    soft = ([2, 5], torch.rand(2, V - 1, generator=torch.Generator().manual_seed(2)), torch.tensor([0.5, 0.1]))
    call = CanvasCall("a", canvas(16), soft, range(4, 6), memory, range(4, 6), keep=True)
    alone = one(another(engine), call)
    _, batched = engine.compute([CanvasCall("b", canvas(16), None, range(4, 11), memory, [4]), call])
    assert isinstance(batched, CanvasOutput) and engine.counted.padding == 5
    assert torch.allclose(alone.logits, batched.logits, atol=1e-4)
    assert torch.allclose(alone.memory.rows(0)[5][0], batched.memory.rows(0)[5][0], atol=1e-4)
    hard = one(engine, CanvasCall("c", canvas(16), None, range(4, 6), memory, range(4, 6)))
    assert not torch.allclose(hard.logits, batched.logits, atol=1e-2)


@pytest.fixture
def torn(net: Net) -> Iterator[None]:
    """Token 7 has no embedding."""
    with torch.no_grad():
        whole = net.decoder.embedding[7].clone()
        net.decoder.embedding[7] = float("nan")
        yield
        net.decoder.embedding[7] = whole


def test_scores_that_are_no_numbers_are_one_sequences_fault(torn: None, engine: HFMaskedEngine) -> None:
    good, bad = canvas(12), canvas(12)
    good[0], bad[0] = 1, 7
    expected = rows_of(engine, good, range(4, 8))
    for _ in range(2):  # a fault is not remembered, and the engine goes on
        first, second = engine.compute([CanvasCall("x", bad, rows=[5, 4]), CanvasCall("y", good, rows=range(4, 8))])
        assert "'tiny' gave logits that are not numbers at position 5 of request x" in str(first)
        assert isinstance(second, CanvasOutput) and torch.allclose(second.logits[:, :7], expected[:, :7], atol=1e-4)
    both = torch.stack([good, bad])
    (named,) = engine.compute([CanvasCall(3, both, rows=[4], name="the user's name")])
    assert "at position 4 of the user's name" in str(named)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": torch.tensor([1, V])}, f"token {V} at position 1 of request s is not in the vocabulary"),
        ({"cells": torch.tensor([-1, 2])}, "token -1 at position 0 of request s"),
        ({"cells": torch.zeros(65, dtype=torch.long)}, "65 positions are past the context length of 'tiny' .64."),
        ({"cells": torch.zeros(0, dtype=torch.long), "rows": []}, "at least one token"),
        ({"rows": [16]}, "outside 0..15"),
        ({"rows": [-1]}, "outside 0..15"),
        ({"fresh": [3, 40]}, "outside 0..15"),
        ({"fresh": [3, 4], "rows": [5]}, "scores of a position that the call does not compute"),
        ({"cells": canvas(16).repeat(2, 1), "keep": True}, "one memory of 2 candidate canvases"),
        ({"memory": Memory("tiny", 0, ())}, "not a memory of its engine"),
        ({"soft": ([20], torch.ones(1, V), torch.zeros(1))}, "outside 0..15"),
    ],
)
def test_an_ask_that_makes_no_sense_is_said_in_its_place(engine: HFMaskedEngine, change: Any, message: str) -> None:
    memory = one(engine, CanvasCall("s", canvas(16), keep=True)).memory
    wrong = CanvasCall(**{"sequence": "s", "cells": canvas(16), "fresh": [3, 4], "memory": memory, "rows": [3]} | change)
    error, fine = engine.compute([wrong, CanvasCall("t", canvas(9), rows=[3])])
    assert isinstance(error, DecError) and isinstance(fine, CanvasOutput)
    with pytest.raises(DecError, match=message):
        raise error


def test_a_memory_of_another_model_is_refused(engine: HFMaskedEngine) -> None:
    memory = one(engine, CanvasCall("s", canvas(16), keep=True)).memory
    engine.model.family = "another"
    (error,) = engine.compute([CanvasCall("s", canvas(16), None, [3], memory, [3])])
    assert "cannot read the memory of 'tiny'" in str(error)
    with pytest.raises(DecError, match="cannot join memories of 'tiny' and 'another'"):
        memory.join(engine.empty(16))


def test_the_module_keeps_its_own_attention_and_its_weights_are_shared(engine: HFMaskedEngine) -> None:
    """The engine changes nothing for those who use the module."""
    rows = one(engine, CanvasCall("s", canvas(16), rows=[4])).logits
    own = engine.model.eval_canvas(tuple(canvas(16).tolist()), [4])[0].logits
    assert own is not None and np.allclose(own[:MASK_ID], rows[0, :MASK_ID].numpy(), atol=1e-4)
    net = engine.model.net
    assert net.base.config._attn_implementation == "sdpa"
    shared = {p.untyped_storage().data_ptr() for p in (*net.base.parameters(), net.output)}
    assert {p.untyped_storage().data_ptr() for p in net.parameters() if p.dim() > 1} <= shared


@pytest.mark.parametrize("given", [None, [], [0], [0, 1, 2, 5], [3, 4, 5, 6]])
@pytest.mark.parametrize("at", [None, [], [1], [2, 0], [0, 1, 2, 3]])
def test_what_is_fresh_is_what_the_reference_says(at: list[int] | None, given: list[int] | None) -> None:
    base, length = 3, 4
    held = None if given is None else Memory("m", 7, (LayerMemory(dict.fromkeys(given), {}),))
    place = Canvas.start((0,) * base, length)
    expected, seen = fresh_of_reference(place, at, held)
    kept = None if held is None else SimpleNamespace(positions=np.array(sorted(held.positions), np.int64))
    fresh, got = fresh_of(base, length, at, kept)
    assert (fresh is None) == (expected is None) and (got is None) == (seen is None)
    assert fresh is None or fresh.tolist() == sorted(expected or [])
