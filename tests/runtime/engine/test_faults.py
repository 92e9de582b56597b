"""What goes wrong belongs to one request: the others are answered, and the engine can be used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.engines.random_loop import run
from lib.lazily import transformers
from lib.models.hf_modules import logits, module

from decgraph.errors import DecError
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, Output
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_live import from_module


@pytest.fixture
def of() -> Any:
    return module("llama")


@pytest.fixture
def engine(of: Any) -> CausalEngine:
    return engine_of(from_module(of, name="small"))


def right(of: Any, call: ForwardCall, output: Output) -> None:
    assert isinstance(output, torch.Tensor), output
    assert torch.allclose(output, logits(of, call.paths()), atol=1e-4, rtol=1e-4)


def wrong(output: Output, *words: str) -> None:
    assert isinstance(output, DecError)
    for word in words:
        assert word in str(output)


def test_logits_that_are_not_numbers(of: Any, engine: CausalEngine) -> None:
    with torch.no_grad():
        of.model.embed_tokens.weight[7] = float("nan")
        of.lm_head.weight = torch.nn.Parameter(of.lm_head.weight.clone())
        of.lm_head.weight[7] = 0.0
    good, bad = ForwardCall("good", [1, 2, 3]), ForwardCall("bad", [1, 2], (), [4, 7, 5], [-1, 0, 1], [0, 1, 2], [-1, 0, 1, 2])
    outputs = engine.compute([good, bad])
    right(of, good, outputs[0])
    wrong(outputs[1], "'small'", "position 3", "request bad")
    again = [ForwardCall("good", [1, 2, 3, 4]), ForwardCall("bad", [1, 2], (), [4, 5], [-1, 0], [3, 4], [-1, 0, 1])]
    for call, output in zip(again, engine.compute(again), strict=True):
        right(of, call, output)
    # Cells that are not numbers, in a slot that another sequence then gets: nothing of them is left.
    engine.compute([ForwardCall("poison", [1, 7, 7, 7, 7, 7], rows=[])])
    engine.close("poison")
    right(of, call := ForwardCall("next", [3, 1]), engine.compute([call])[0])


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_logits(of: Any, engine: CausalEngine, value: float) -> None:
    head, which = engine.head, torch.zeros(61)
    which[5] = value  # +inf anywhere is an error; a single -inf is not
    engine.head = lambda states: head(states) + which
    (output,) = engine.compute([ForwardCall(0, [1, 2])])
    if value > 0:
        wrong(output, "not numbers")
    else:
        assert isinstance(output, torch.Tensor) and output[0, 5] == value
        engine.head = lambda states: head(states) + value
        wrong(engine.compute([ForwardCall(0, [1, 2])])[0], "not numbers")


def test_a_prompt_longer_than_the_context(of: Any, engine: CausalEngine) -> None:
    calls = [
        ForwardCall("long", [1] * 97),
        ForwardCall("short", [1, 2]),
        ForwardCall("edge", [2] * 96),
        ForwardCall("tree", [2] * 96, (), [1], [-1], [0], [0]),
    ]
    outputs = engine.compute(calls)
    wrong(outputs[0], "97 positions", "'small' (96)", "request long")
    wrong(outputs[3], "97 positions", "request tree")
    right(of, calls[1], outputs[1])
    right(of, calls[2], outputs[2])


def test_asks_that_make_no_sense(engine: CausalEngine) -> None:
    outputs = engine.compute(
        [
            ForwardCall("empty", []),
            ForwardCall("token", [1, 61]),
            ForwardCall("negative", [-1]),
            ForwardCall("named", [99], name="prompt 3"),
        ]
    )
    wrong(outputs[0], "at least one token", "request empty")
    wrong(outputs[1], "token 61", "61 tokens", "request token")
    wrong(outputs[2], "token -1")
    wrong(outputs[3], "prompt 3")


def cell_bytes(engine: CausalEngine) -> int:
    return engine.layout.cell_bytes


def test_a_batch_that_does_not_fit_is_split(of: Any) -> None:
    engine = engine_of(from_module(of, name="small"))
    roomy = engine_of(from_module(of, name="small"))
    engine.store.budget = 2 * 64 * cell_bytes(engine)  # two short sequences, or one long one
    calls = [ForwardCall(n, [n + 1] * (20 + n)) for n in range(5)]
    for _ in range(2):
        for call, output, want in zip(calls, engine.compute(calls), roomy.compute(calls), strict=True):
            right(of, call, output)
            assert isinstance(output, torch.Tensor) and isinstance(want, torch.Tensor)
    assert engine.store.slots * engine.store.rows <= 2 * 64
    assert roomy.counted.computed < engine.counted.computed  # what was given up is computed again
    right(of, call := ForwardCall("long", [3] * 90), engine.compute([call])[0])
    assert engine.store.slots * engine.store.rows <= 2 * 64
    engine.store.budget = 64 * cell_bytes(engine)
    small = engine_of(from_module(of, name="small"))
    small.store.budget = 64 * cell_bytes(small)
    outputs = small.compute([ForwardCall("long", [3] * 70), ForwardCall("short", [3] * 7)])
    wrong(outputs[0], "'small'", "no room", "request long", "budget", "try:")
    right(of, ForwardCall("short", [3] * 7), outputs[1])


def test_random_asks_within_a_tight_budget(of: Any) -> None:
    engine = engine_of(from_module(of, name="small"))
    engine.store.budget = 3 * 64 * cell_bytes(engine)

    def output(calls: list[ForwardCall]) -> None:
        for call, made in zip(calls, engine.compute(calls), strict=True):
            right(of, call, made)
        assert engine.store.slots * engine.store.rows * cell_bytes(engine) <= engine.store.budget

    assert engine.counted.computed <= run(3, 61, 60, 15, output, engine.close, sequences=5)


class Failing:
    """A step that fails as long as `when(B, calls)` says so."""

    def __init__(self, inner: Any, error: Callable[[], BaseException], when: Callable[[int, int], bool]) -> None:
        self.inner, self.error, self.when, self.calls = inner, error, when, 0

    def __call__(self, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        self.calls += 1
        made: torch.Tensor = self.inner(ids, *rest)
        if self.when(len(ids), self.calls):
            raise self.error()
        return made


ALLOCATORS = [
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    lambda: MemoryError(),
    lambda: RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", ALLOCATORS)
def test_out_of_memory_halves_the_batch(of: Any, engine: CausalEngine, error: Callable[[], BaseException]) -> None:
    calls = [ForwardCall(n, [n + 1, 5, 6]) for n in range(7)]
    engine.step = Failing(engine.step, error, lambda size, _: size > 2)
    for call, output in zip(calls, engine.compute(calls), strict=True):
        right(of, call, output)
    assert engine.counted.computed == 21


def test_out_of_memory_at_one_sequence_is_that_ones(of: Any, engine: CausalEngine) -> None:
    inner = engine.step
    engine.step = Failing(inner, ALLOCATORS[0], lambda size, _: True)
    for output in engine.compute([ForwardCall("a", [1, 2]), ForwardCall("b", [3])]):
        wrong(output, "no room", "memory")
    engine.step = inner
    right(of, call := ForwardCall("a", [1, 2, 3]), engine.compute([call])[0])


@pytest.mark.parametrize("at", range(1, 5))
def test_interrupted_at_any_forward(of: Any, engine: CausalEngine, at: int) -> None:
    engine.chunk = 8
    inner = engine.step
    calls = [ForwardCall("a", [1, 2] * 9), ForwardCall("b", [4, 3])]
    grown = [
        ForwardCall("a", [1, 2] * 9, (), [7, 8, 9], [-1, 0, 0], [0, 1, 2], [-1, 1, 2]),
        ForwardCall("b", [4, 3, 7, 5], [-1, -1, 0, -1], (), (), (), [-1]),
    ]
    engine.step = Failing(inner, KeyboardInterrupt, lambda _, calls: calls == at)
    stopped = False
    for batch in (calls, grown, calls, grown):
        try:
            outputs = engine.compute(batch)
        except KeyboardInterrupt:
            stopped = True
            continue
        for call, output in zip(batch, outputs, strict=True):
            right(of, call, output)
    assert stopped


def test_interrupted_while_cells_are_moved(of: Any, engine: CausalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.compute([ForwardCall("a", [1, 2], (), [3, 4, 5, 6], [-1, 0, 0, 2], [0, 1, 2, 3], [1, 3])])
    store = engine.store

    def stopped(slot: int, source: Any, first: int) -> None:
        store._blocks[0][:, slot, :, first] = 99.0
        raise KeyboardInterrupt

    grown = ForwardCall("a", [1, 2, 3, 5, 6], [-1, -1, 0, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(store, "move", stopped)
        with pytest.raises(KeyboardInterrupt):
            engine.compute([grown])
    right(of, grown, engine.compute([grown])[0])


def test_other_errors_are_not_hidden(engine: CausalEngine) -> None:
    engine.step = Failing(engine.step, lambda: RuntimeError("shapes differ"), lambda *_: True)
    with pytest.raises(RuntimeError, match="shapes differ"):
        engine.compute([ForwardCall(0, [1])])


REFUSED = {
    "ALiBi": lambda: transformers.BloomForCausalLM(
        transformers.BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4)
    ),
    "encoder": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=61, d_model=32, d_ff=32, num_layers=1, num_heads=2, d_kv=16)
    ),
    "causal language model": lambda: transformers.BertModel(
        transformers.BertConfig(vocab_size=61, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ),
}


@pytest.mark.parametrize("word", REFUSED)
def test_refused_by_name(word: str) -> None:
    with pytest.raises(DecError, match=word) as caught:
        engine_of(from_module(REFUSED[word](), name="odd"))
    assert "'odd'" in str(caught.value)


def test_a_layer_s_own_word_for_its_window_is_its_attention_s(of: Any) -> None:
    """A caller changes the attribute of a layer; masks come from the config, and the module's scores are what counts."""
    odd = module("gemma3")
    odd.model.layers[0].self_attn.sliding_window = 3
    calls = [ForwardCall(0, list(range(1, 20)))]
    (got,) = engine_of(from_module(odd, name="odd")).compute(calls)
    assert torch.allclose(got, logits(odd, calls[0].paths()), atol=1e-4)


def test_weights_on_two_devices_are_refused(of: Any) -> None:
    of.model.layers[1].to("meta")
    with pytest.raises(DecError, match="'odd' is not supported: its weights lie on cpu and meta"):
        engine_of(from_module(of, name="odd"))


def test_the_module_is_left_as_it_was(of: Any) -> None:
    before = of.config._attn_implementation
    engine = engine_of(from_module(of, name="small"))
    engine.compute([ForwardCall(0, [1, 2])])
    engine.step = Failing(engine.step, KeyboardInterrupt, lambda *_: True)
    with pytest.raises(KeyboardInterrupt):
        engine.compute([ForwardCall(0, [1, 2, 3])])
    assert of.config._attn_implementation == before
    assert not [m for m in of.modules() if m._forward_pre_hooks]
