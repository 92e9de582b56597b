"""The causal engine gives the logits of full forwards of the unmodified module, and computes each cell once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from lib.engines.random_loop import run
from lib.lazily import decoder_module
from lib.models.hf_modules import CONFIGS, logits, module

from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.engine import causal
from decgraph.runtime.models.engine.forward_call import ForwardCall, Output
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.saved_rows import copied, put_back
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.interface import Vocab


def check(of: Any, calls: list[ForwardCall], outputs: list[Output]) -> None:
    for call, output in zip(calls, outputs, strict=True):
        assert isinstance(output, torch.Tensor), output
        want = logits(of, call.paths())
        assert output.shape == want.shape and output.dtype == torch.float32
        assert torch.allclose(output, want, atol=1e-4, rtol=1e-4), (output - want).abs().max()
        sure = want.topk(2).values.diff().abs()[:, 0] > 1e-4
        assert (output.argmax(-1) == want.argmax(-1))[sure].all()


@pytest.mark.quick("llama", "gpt2", "gemma3")
@pytest.mark.parametrize("form", ["module", "decoder"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_random_asks_give_the_modules_own_logits(kind: str, form: str) -> None:
    of = module(kind)
    engine = engine_of(from_module(of, name=kind))
    if form == "module":
        engine.step = decoder_module.ModuleDecoder(of.base_model, kind)
    elif kind == "opt":
        assert isinstance(engine.step, decoder_module.ModuleDecoder)
        pytest.skip("embeddings of another width than the layers' have no entry")
    else:
        assert isinstance(engine.step, TransformerDecoder)
    engine.chunk = 16  # prompts go in chunks

    def output(calls: list[ForwardCall]) -> None:
        check(of, calls, engine.compute(calls))

    cells = run(7, 61, 60, 16, output, engine.close)
    assert engine.counted.computed == cells
    assert engine.counted.requested > 2 * cells
    assert engine.counted.moved > 0


@pytest.fixture(scope="module")
def of() -> Any:
    return module("llama")


@pytest.fixture
def engine(of: Any) -> Any:
    return engine_of(from_module(of, name="small"))


def test_rows_of_held_cells_need_no_forward(of: Any, engine: Any) -> None:
    context, tree = [5, 6, 7], ([1, 2, 3, 4], [-1, 0, 0, 2], [10, 11, 12, 13])
    calls = [ForwardCall(0, context, (), *tree, [0, 1, 2, 3])]
    check(of, calls, engine.compute(calls))
    calls = engine.counted.calls
    again = [
        ForwardCall(0, context, (), *tree, [3, -1, 1]),
        ForwardCall(0, context[:2]),  # a place on the chain
        ForwardCall(0, [*context, 1, 3], [-1, -1, -1, 10, 12]),  # the context's end was a node one call ago
        ForwardCall(0, [*context, 1, 3], [-1, -1, -1, 10, 12], [4], [-1], [13], [0]),  # what hung below it is kept
    ]
    for call in again:
        check(of, [call], engine.compute([call]))
    assert engine.counted.calls == calls and engine.counted.computed == 7
    check(of, calls := [ForwardCall(0, [*context, 1, 3, 9], [-1, -1, -1, 10, 12, -1])], engine.compute(calls))
    assert engine.counted.computed == 8


def test_only_what_a_wanted_row_hangs_on_is_computed(of: Any, engine: Any) -> None:
    tree = ([1, 2, 3, 4], [-1, 0, 0, -1], [0, 1, 2, 3])
    for rows, cells in (([], 1), ([1], 2), ([3], 1), ([2], 1)):
        calls = [ForwardCall(0, [5], (), *tree, rows)] if rows else [ForwardCall(0, [5], rows=[])]
        before = engine.counted.computed
        outputs = engine.compute(calls)
        assert engine.counted.computed - before == cells
        if rows:
            check(of, calls, outputs)


def test_one_forward_for_a_ragged_batch(of: Any, engine: Any) -> None:
    calls = [
        ForwardCall("chain", [1, 2, 3], (), [4, 5, 6], [-1, 0, 1], [0, 1, 2], [-1, 0, 1, 2]),
        ForwardCall("tree", [3, 4], (), [4, 5, 6, 7, 8], [-1, -1, 0, 1, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ForwardCall("one", [9]),
    ]
    check(of, calls, engine.compute(calls))
    assert engine.counted.calls == 1
    assert engine.counted.computed == 6 + 7 + 1 and engine.counted.padding == 3 * 7 - 14


def test_a_long_prompt_goes_in_chunks_and_not_padded_onto_the_others(of: Any, engine: Any) -> None:
    engine.chunk = 32
    short = [ForwardCall(n, [n, n + 1]) for n in range(6)]
    engine.compute(short)
    before = engine.counted.padding
    calls = [ForwardCall(n, [n, n + 1, 7]) for n in range(6)] + [ForwardCall("long", list(range(60)) + [1] * 10)]
    check(of, calls, engine.compute(calls))
    assert engine.counted.padding - before < 64
    assert engine.counted.calls <= 1 + 4


def test_tensors_as_tokens_and_two_asks_of_one_sequence(of: Any, engine: Any) -> None:
    tokens = torch.tensor([4, 5, 6])
    calls = [
        ForwardCall(0, [1, 2], (), tokens, [-1, 0, -1], [0, 1, 2], [0, 1, 2]),
        ForwardCall(0, [1, 2], (), tokens, [-1, 0, -1], [0, 1, 2], [2, -1]),
        ForwardCall(0, [1, 2], (), [4, 9], [-1, 0], [-1, -1], [1]),  # nobody's cells
    ]
    check(of, calls, engine.compute(calls))
    assert engine.counted.computed == 5 + 2


def test_rows_stay_when_a_later_ask_of_the_sequence_moves_the_cache(of: Any, engine: Any) -> None:
    """The second ask accepts a node and drops its siblings, so that the cache's rows move: those of the first are no views."""
    context = [1, 2, 3]
    calls = [
        ForwardCall(0, context, (-1,) * 3, [5, 6, 7], [-1, 0, -1], [1, 2, 3], [0, 1, 2]),
        ForwardCall(0, [*context, 7], (*(-1,) * 3, 3), [9], [-1], [4], [-1, 0]),
    ]
    check(of, calls, engine.compute(calls))
    grown = [*context, 7, 9]
    kept = engine.compute(calls := [ForwardCall(0, grown, (*(-1,) * 3, 3, 4), [8, 9], [-1, 0], [5, 6], [0, 1])])
    engine.compute([ForwardCall(0, [*grown, 8], (*(-1,) * 3, 3, 4, 5), [1], [-1], [7], [-1, 0])])
    check(of, calls, kept)


def test_a_context_that_did_not_grow_is_noticed(of: Any, engine: Any) -> None:
    for context in ([1, 2, 3, 4], [1, 2, 9, 4], [1, 2], [5], [5, 6, 7]):
        check(
            of,
            calls := [ForwardCall(0, context, (), [3], [-1], [len(context) * 100 + context[-1]], [-1, 0])],
            engine.compute(calls),
        )


def test_sequences_leave_holes_that_are_closed(of: Any, engine: Any) -> None:
    calls = [ForwardCall(n, [n + 1, 4, 2]) for n in range(5)]
    engine.compute(calls)
    engine.close(0)
    engine.close(2)
    engine.close("never seen")
    calls = [ForwardCall(n, [n + 1, 4, 2, 8], (), [1, 2], [-1, -1], [0, 1], [-1, 0, 1]) for n in (4, 1)]  # 3 stays away
    check(of, calls, engine.compute(calls))
    calls = [ForwardCall(n, [n + 1, 4, 2, 8, 6]) for n in (4, 3, 1)]
    before = engine.counted.computed
    check(of, calls, engine.compute(calls))
    assert engine.counted.computed - before == 4


def test_what_a_sequence_drafted_moves_with_it_into_a_hole(of: Any, engine: Any) -> None:
    """Also where a sequence that came late has the lowest place: nothing is moved onto rows that are still to be moved."""
    tree: tuple[list[int], list[int], list[int]] = ([1, 2, 3, 4], [-1, 0, 0, 2], [0, 1, 2, 3])
    calls = [ForwardCall(n, [n + 1] * (n + 3), (), *tree, [0, 1, 2, 3]) for n in range(5)]
    check(of, calls, engine.compute(calls))
    engine.close(0)
    late = ForwardCall("late", [7, 8, 9, 9], (), *tree, [0, 1, 2, 3])
    check(of, [late], engine.compute([late]))
    engine.close(1)
    left, before = [*calls[2:], late], engine.counted.computed
    further = [replace(c, tokens=[*tree[0], 5], parents=[*tree[1], 1], uids=[*tree[2], 4], rows=[0, 1, 2, 3, 4]) for c in left]
    check(of, further, engine.compute(further))
    assert engine.counted.computed - before == len(left)


def test_of_a_saved_sequence_what_is_restored_is_cached_and_no_more(of: Any, engine: Any) -> None:
    """Also where the new text goes on as the saved one did, past what was restored."""
    text = [5, 6, 7, 1, 2, 9, 4, 3]
    engine.compute([ForwardCall("old", text)])
    rows = copied(engine, "old")
    engine.close("old")
    assert rows is not None and put_back(engine, "new", rows, 5)
    before = engine.counted.computed
    check(of, calls := [ForwardCall("new", text[:7]), ForwardCall("new", [*text, 8])], engine.compute(calls))
    assert engine.counted.computed - before == 4
    assert not put_back(engine, "new", rows, 5), "it has begun"


def test_drafts_that_no_call_names_any_more_are_dropped(of: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more of them than `TAIL` are cached: the rows of those that are named again move together, and stay right."""
    monkeypatch.setattr(causal, "TAIL", 6)
    context, kept = [5, 6, 7], ([1, 3, 4], [-1, 0, 1], [0, 2, 3])
    calls = [ForwardCall(0, context, (), [1, 2, 3, 4], [-1, 0, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3])]
    check(of, calls, engine.compute(calls))
    for n in range(1, 5):
        tokens, parents, uids = [*kept[0], n, n + 1, n], [*kept[1], 2, 1, -1], [*kept[2], 10 * n, 10 * n + 1, 10 * n + 2]
        calls = [ForwardCall(0, context, (), tokens, parents, uids, [-1, 0, 1, 2, 3, 4, 5])]
        check(of, calls, engine.compute(calls))
        assert len(engine._slots[0].uids) <= 6 + 3
    assert engine.counted.computed == 7 + 4 * 3 and engine.counted.moved > 0


def test_rows_past_the_vocabulary_are_cut(of: Any) -> None:
    engine = engine_of(from_module(of, name="small", vocab=Vocab("some", 50)))
    (output,) = engine.compute([ForwardCall(0, [1, 2])])
    assert output.shape == (1, 50)
    (error,) = engine.compute([ForwardCall(0, [1, 55])])
    assert "token 55" in str(error)


def test_half_precision(of: Any) -> None:
    small = module("qwen3").to(torch.bfloat16)
    engine = engine_of(from_module(small, name="half"))
    calls = [ForwardCall(0, [1, 2, 3], (), [4, 5], [-1, -1], [0, 1], [0, 1]), ForwardCall(1, [8])]
    for call, output in zip(calls, engine.compute(calls), strict=True):
        want = logits(small, call.paths()).float()
        assert output.dtype == torch.float32 and (output - want).abs().max() < 0.05 * want.abs().max()
