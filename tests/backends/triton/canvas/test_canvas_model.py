"""A masked model on the device against the model itself: whole canvases, and parts of them on what is held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from canvas_programs import V, hf_model, machines, parameters

from decgraph.backends.triton.rows.functions import argmax, confidence, draw_logits
from decgraph.backends.triton.step.canvas_decide import decide
from decgraph.backends.triton.step.canvas_model import HFCanvas
from decgraph.backends.triton.step.canvas_rows import Stream, hashed
from decgraph.backends.triton.step.canvas_run import run_canvases
from decgraph.backends.triton.step.canvas_table import TableCanvas
from decgraph.backends.triton.step.canvas_values import CanvasNoise, DeviceCanvas, Num
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.keys import int32_words, site_word, words_for
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.noise import Key, exponentials, output_key
from decgraph.runtime.request import Request

PROMPTS = [(1, 2, 3, 4), (5, 6)]
FIRST = [[5, -1, 3, -1, 4, 4, -1, 2], [-1] * 8]
THEN = [[5, -1, 3, 9, 4, 4, 7, 2], [-1, 3, -1, 4, -1, -1, -1, -1]]
WAYS: dict[str, dict[str, bool]] = {"decoder": {}, "template": {"kernels": True}, "module": {}}


def canvas(cells: list[list[int]]) -> DeviceCanvas:
    return DeviceCanvas(torch.tensor(cells), torch.zeros(len(cells), dtype=torch.int64))


def cells(b: int, tokens: list[list[int]]) -> tuple[Any, ...]:
    return (*PROMPTS[b], *(MASK if t < 0 else t for t in tokens[b]))


SLOW = pytest.mark.nightly  # the interpreter has a program for every head of every cell


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((kind, way) for kind in ("eurobert", "llama", "blocks", "modernbert") for way in ("decoder", "module")),
        ("modernbert", "template"),
        *(pytest.param(kind, "template", marks=SLOW) for kind in ("eurobert", "llama", "blocks")),
    ],
)
def test_scores_are_the_models(kind: str, way: str) -> None:
    """A whole canvas, then three cells that see the prompt and four others, one being evicted; the second sequence may not
    write its caches, and a call after that sees there what it saw before."""
    model = hf_model(kind, unmodified=way == "module")
    m = HFCanvas(engine_of(model), 2, 4, 8, **WAYS[way])
    assert (m.step is None) == (way == "module")
    m.begin(PROMPTS)
    scores, memory = m.call(canvas(FIRST), np.arange(8), m.nothing(), True, None)
    some = np.array([1, 6])
    for b in range(2):
        base = len(PROMPTS[b])
        want = model.eval_canvas(cells(b, FIRST), [base + int(i) for i in some])
        close(scores.logits(some)[b], want)
    assert memory is not None
    held = memory.restrict(np.array([0, 1, 5, 7]), "only")
    fresh, kept = np.array([2, 3, 4]), (0, 1, 5, 7)
    scores, after = m.call(canvas(THEN), fresh, held, True, torch.tensor([True, False]))
    given = [
        model.memory(cells(b, FIRST)).only([*range(len(PROMPTS[b])), *(len(PROMPTS[b]) + i for i in kept)]) for b in range(2)
    ]
    at = [len(PROMPTS[0]) + int(i) for i in fresh]
    close(scores.logits(np.arange(3))[0], model.eval_canvas(cells(0, THEN), at, given[0]))
    assert after is not None
    scores, _ = m.call(canvas(THEN), fresh[:1], after, True, None)
    latest = [given[0].join(model.memory(cells(0, THEN), at, given[0])), model.memory(cells(1, FIRST))]
    for b in range(2):
        base = len(PROMPTS[b])
        seen = latest[b].only([*range(base), *(base + i for i in (0, 1, 3, 4, 5, 7))])
        close(scores.logits(np.arange(1))[b], model.eval_canvas(cells(b, THEN), [base + 2], seen))


def test_a_table_sees_held_cells_as_they_were() -> None:
    model = TableModel(3, 2, kind="masked", name="table")
    m = TableCanvas(model, 1, 3, torch.device("cpu"))
    m.begin([(1, 2)])
    first, then = [[-1, 0, -1]], [[2, -1, 1]]
    _, memory = m.call(canvas(first), np.arange(3), m.nothing(), True, None)
    assert memory is not None
    scores, _ = m.call(canvas(then), np.array([1]), memory.restrict([1], "without"), False, None)

    def seen(tokens: list[int]) -> tuple[Any, ...]:
        return (1, 2, *(MASK if t < 0 else t for t in tokens))

    held = model.memory(seen(first[0])).only([0, 1, 2, 4])
    want = model.eval_canvas(seen(then[0]), [3], held)[0].to_float().logits
    assert scores.logits(np.arange(1))[0, 0].tolist() == list(want)
    with pytest.raises(NotCapturable, match="every cell"):
        m.call(canvas(then), np.array([1]), memory.restrict([0, 1], "without"), False, None)


def close(have: torch.Tensor, want: Any) -> None:
    for row, s in zip(have, want, strict=True):
        theirs = torch.from_numpy(s.to_float().logits)
        assert torch.equal(torch.isinf(row), torch.isinf(theirs))
        finite = torch.isfinite(theirs)
        assert (row.double() - theirs)[finite].abs().max() < 1e-4


def test_key_words_are_the_streams() -> None:
    """Sites with counters that the host knows and that it does not, and the stream `output`, are runtime/noise.py's; and
    hashing in torch is what E's kernel does."""
    stream = Stream(2, torch.device("cpu"))
    requests, seeds = (5, 2**40 + 3), (7, 2**35 + 1)
    stream.request.copy_(torch.from_numpy(np.stack([int32_words(r) for r in requests])))
    stream.seeds.copy_(torch.tensor([[s & 0xFFFFFFFF, s >> 32] for s in seeds]))
    base, turn = torch.tensor([3, 9]), Num(torch.tensor([4, 6]))
    lane = torch.tensor([[0, 1, 2], [5, 3, 1]])
    words = stream.words(CanvasNoise("race", "a.2", (1, turn)), lane)
    out = stream.words(CanvasNoise("output", "output"), np.arange(2), np.array([0, 4]), base)
    index = stream.words(CanvasNoise("output", "output", (), turn), np.arange(2), np.array([0, 4]), base)
    times, more, last = (stream.exponentials(w, V) for w in (words, out, index))
    for b in range(2):
        for n in range(3):
            key = Key(seeds[b], requests[b], "a.2", (1, int(turn.data[b])), (int(lane[b, n]),))
            np.testing.assert_allclose(times[b, n], exponentials(key, V), rtol=1e-14)
        for n, cell in enumerate((0, 4)):
            at = output_key(seeds[b], requests[b], int(base[b]) + cell)
            np.testing.assert_allclose(more[b, n], exponentials(at, V), rtol=1e-14)
            at = output_key(seeds[b], requests[b], int(turn.data[b]), (cell,))
            np.testing.assert_allclose(last[b, n], exponentials(at, V), rtol=1e-14)
    counters = torch.tensor([[[1, 4]], [[1, 6]]])
    theirs = words_for(
        torch.full((2, 3, 3), -77, dtype=torch.int32),
        stream.request,
        torch.tensor([site_word("a.2")]),
        stream.none,
        counters,
        lane[..., None],
    )
    assert torch.equal(theirs, words)
    assert hashed(torch.zeros(1, 0, dtype=torch.int64)).tolist() == [0]


@pytest.mark.parametrize("size", [3, 61])
def test_a_decision_is_its_parts(size: int) -> None:
    """One look at the scores gives what drawing and looking up give; bans are for both, bias is for the draw alone."""
    torch.manual_seed(1)
    logits = torch.randn(4, size) * 2
    words = torch.randint(-(2**31), 2**31 - 1, (4, 3), dtype=torch.int32)
    seeds = torch.randint(0, 2**32, (4, 2))
    bans, bias = torch.zeros(size), torch.zeros(size)
    bans[1], bias[2] = -torch.inf, 1.5
    for temperature in (0.0, 0.7):
        token, prob, most = decide(logits, temperature, (words, seeds) if temperature else None, bans, bias)
        both = bans + bias
        want = draw_logits(logits, words, seeds, temperature=temperature, bias=both) if temperature else argmax(logits, both)
        assert torch.equal(token, want)
        torch.testing.assert_close(prob, confidence(logits, token, bias=bans))
        assert torch.equal(most, (logits + bans).amax(-1))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("fast_dllm", {}),
        pytest.param("fast_dllm_uncached", {"temperature": 0, "bans": {21}}, marks=SLOW),
        pytest.param("llada", {"temperature": 0.7, "bias": {4: 2.0}}, marks=SLOW),
    ],
)
def test_generated_kernels_decide_the_same(name: str, more: dict[str, Any]) -> None:
    """float32 on both sides: no decision here is near a tie."""
    params = parameters(name, length=4, block=2, tau=0.2, steps=3)
    asked = [Request(**{"prompt": p, "limit": 20, "seed": 7, "request_id": i, **more}) for i, p in enumerate(((1,), (5, 6)))]
    want, have = (machines(name, hf_model(), params, asked) for _ in range(2))
    for m in want:
        m.run()
    assert all(r.why is None for r in run_canvases(have, kernels=True))
    assert [m.committed_tokens() for m in have] == [m.committed_tokens() for m in want]
