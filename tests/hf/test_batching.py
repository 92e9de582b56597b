"""Programs inside transformers' continuous batching: the tokens of `decgraph.run`, in batches that come and go."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from lib.models.hf_models import llama

import decgraph
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.hf import batching

PROMPTS = [[5, 9, 11, 7, 3, 8, 2 + 20], [4, 8], [6, 6, 30, 31, 12], [40, 41, 42], [9], [3, 30, 17, 18, 19, 20]]


def manager(model: Any, **config: Any) -> Any:
    generation = transformers.GenerationConfig(do_sample=False, max_new_tokens=12, eos_token_id=-1)
    sizes = {"page_size": 4, "num_blocks": 64, "use_async_batching": False, "max_requests_per_batch": 3, **config}
    return model.init_continuous_batching(generation, transformers.ContinuousBatchingConfig(**sizes))


def outputs(it: Any, requests: list[dict[str, Any]]) -> dict[str, Any]:
    it.start()
    try:
        for n, request in enumerate(requests):
            it.add_request(**request, request_id=str(n))
        found: dict[str, Any] = {}
        while len(found) < len(requests):
            result = it.get_result(timeout=60)
            assert result is not None, it.background_thread_status.fatal_error
            found[result.request_id] = result
        return found
    finally:
        it.stop(block=True)


def check(name: str, model: Any, requests: list[dict[str, Any]], found: dict[str, Any], open: tuple[str, ...] = ()) -> None:
    fixed = {"max_tokens": 12, "eos": frozenset(), "temperature": 1}
    for n, request in enumerate(requests):
        asked = {key: value for key, value in request.items() if key not in (*open, "input_ids", "number")}
        asked = {**fixed, **asked, "request_id": request["number"]}
        run = decgraph.run(name, request["input_ids"], model, params={o: request[o] for o in open}, **asked)
        assert found[str(n)].error is None
        assert found[str(n)].generated_tokens == list(run.tokens)


PROGRAMS = ("autoregressive", "bregman_topk", "dynamic_temperature", "frustratingly_simple", "mirostat_v1", "momentum",
            "repetition_aware", "top_n_sigma", "windowed_penalties", "xtc")  # fmt: skip


@pytest.mark.quick("mirostat")
@pytest.mark.parametrize(
    "name, open",
    [
        ("mirostat", ("tau",)),
        ("typical", ("mass",)),
        *((name, ()) for name in PROGRAMS),
    ],
)
def test_tokens_are_those_of_a_run(name: str, open: tuple[str, ...]) -> None:
    """Three at a time of six requests, with parameters of their own; prompts are computed in parts."""
    model = llama(1)
    it = manager(model, max_batch_tokens=8)
    batching.put(it, name, lanes=3, capacity=64, open=open)
    requests = [
        {"input_ids": ids, "seed": 3, "number": n, **dict.fromkeys(open, 0.5 + n / 10)} for n, ids in enumerate(PROMPTS)
    ]
    check(name, model, requests, outputs(it, requests), open)


@pytest.mark.slow
def test_requests_that_are_preempted_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few pages for three texts, states of requests that had to wait are still theirs."""
    from transformers.generation.continuous_batching.offloading_manager import OffloadingManager

    preempted, offload = [], OffloadingManager.offload_requests
    monkeypatch.setattr(OffloadingManager, "offload_requests", lambda *a, **k: preempted.append(1) or offload(*a, **k))
    model = llama(1)
    it = manager(model, num_blocks=10)
    batching.put(it, "mirostat", lanes=6, capacity=64)
    requests = [{"input_ids": ids, "seed": 4, "number": n} for n, ids in enumerate(PROMPTS)]
    found = outputs(it, requests)
    assert preempted
    check("mirostat", model, requests, found)


@pytest.mark.slow
def test_settings_of_a_request() -> None:
    model = llama(1)
    it = manager(model)
    batching.put(it, "autoregressive", lanes=6, capacity=64)
    shapes = [{"temperature": 0.0}, {"temperature": 0.6}, {"top_k": 4}, {"top_p": 0.5}, {"min_p": 0.3}]
    requests = [
        {"input_ids": ids, "seed": 5, "number": n, **shape} for n, (ids, shape) in enumerate(zip(PROMPTS, shapes, strict=False))
    ]
    check("autoregressive", model, requests, outputs(it, requests))


def test_a_draw_that_was_lost_is_drawn_again() -> None:
    """Steps that overlap lose the token in flight when a request is preempted: the place says so, and the draw is undone."""
    from types import SimpleNamespace

    from decgraph.backends.seams.rows import Rows
    from decgraph.backends.seams.seam import carried

    plain_end = SimpleNamespace(eos_token_id=-1)
    scheduler = SimpleNamespace(request_is_cancelled=lambda name: False)
    gone = SimpleNamespace(generation_config=plain_end, batch_processor=SimpleNamespace(scheduler=scheduler))
    rows = Rows(carried(decgraph.load("mirostat").module), {}, lanes=3, capacity=32, vocab=61)
    drawing = batching.Drawing(gone, rows, 2)
    state = SimpleNamespace(request_id="a", initial_tokens=[5, 9], logit_processor_kwargs={"seed": 1}, position_offset=2)
    torch.manual_seed(0)
    scores, tokens = torch.randn(1, 61) * 3, []
    for place in (0, 1, 1, 2, 2, 3):
        state.position_offset = 2 + place
        lanes = drawing.prepare_tensor_args([SimpleNamespace(state=state)])
        tokens.append(int(drawing(scores + place, lanes).argmax()))
    assert tokens[1] == tokens[2] and tokens[3] == tokens[4]
    plain = batching.Drawing(gone, Rows(carried(decgraph.load("mirostat").module), {}, lanes=3, capacity=32, vocab=61), 2)
    for place, expected in enumerate([tokens[0], tokens[2], tokens[4], tokens[5]]):
        state.position_offset = 2 + place
        lanes = plain.prepare_tensor_args([SimpleNamespace(state=state)])
        assert int(plain(scores + place, lanes).argmax()) == expected


def test_refusals() -> None:
    model = llama(1)
    with pytest.raises(DecError, match="settings that shape draws"):
        drawn = transformers.GenerationConfig(do_sample=True, temperature=0.5, max_new_tokens=4, eos_token_id=-1)
        batching.put(model.init_continuous_batching(drawn), "mirostat", lanes=2, capacity=32)
    with pytest.raises(DecError, match="its steps would be recorded"):
        it = manager(model)
        it.continuous_batching_config.use_cuda_graph = True  # given before, it would be turned off on a CPU
        batching.put(it, "mirostat", lanes=2, capacity=32)
    with pytest.raises(NotSteppable):
        batching.put(manager(model), "speculative", lanes=2, capacity=32)


def test_a_request_that_is_refused_fails_alone() -> None:
    it = manager(llama(1))
    batching.put(it, "mirostat", lanes=2, capacity=32, open=("tau",))
    wrong: list[dict[str, Any]] = [{"top_k": 3}, {"tau": -1.0}, {"gamma": 3}, {}]
    found = outputs(it, [{"input_ids": [5, 6], **given} for given in wrong])
    for n, said in enumerate(("top_k would change nothing", "tau", "gamma")):
        assert said in found[str(n)].error, found[str(n)].error
    assert found["3"].error is None and len(found["3"].generated_tokens) == 12


def test_two_samples_of_a_prompt_are_two() -> None:
    """Nobody says a seed or a number: the requests are numbered as they come."""
    model = llama(1)
    it = manager(model)
    batching.put(it, "autoregressive", lanes=3, capacity=64)
    found = outputs(it, [{"input_ids": [4, 8]} for _ in range(3)])
    texts = [found[str(n)].generated_tokens for n in range(3)]
    runs = [decgraph.run("autoregressive", [4, 8], model, max_tokens=12, eos=(), temperature=1, request_id=n) for n in range(3)]
    assert sorted(texts) == sorted(list(run.tokens) for run in runs) and len({*map(tuple, texts)}) == 3


def test_an_error_of_one_request_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """One whose prompt does not fit, beside one that does."""
    model, end = llama(1), 60
    generation = transformers.GenerationConfig(do_sample=False, max_new_tokens=8, eos_token_id=end)
    config = transformers.ContinuousBatchingConfig(
        page_size=4, num_blocks=64, use_async_batching=False, max_requests_per_batch=3
    )
    it = model.init_continuous_batching(generation, config)
    batching.put(it, "mirostat", lanes=3, capacity=16)
    found = outputs(it, [{"input_ids": [5] * 20, "seed": 1}, {"input_ids": [4, 8], "seed": 1, "number": 1}])
    assert found["0"].generated_tokens == [end] and "the request 0: error: a text of 20 tokens" in caplog.text
    run = decgraph.run("mirostat", [4, 8], model, max_tokens=8, eos=(end,), temperature=1, seed=1, request_id=1)
    assert found["1"].generated_tokens[: len(run.tokens)] == list(run.tokens) and found["1"].error is None
