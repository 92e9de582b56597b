"""Exported files at SGLang's interfaces: logit processors in batches that come and go, and what wrong requests get."""

from __future__ import annotations

import inspect
import random
import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from lib.engines import published_seams
from lib.engines.sglang_engine import BLOCK, MASK, LogitsEngine, Req, loaded, stand_in
from lib.lazily import transformers

import decgraph
from decgraph.backends.seams.file import exported

VOCAB = 97


@pytest.fixture(autouse=True)
def sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)


@cache
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, **sizes
    )
    return transformers.LlamaForCausalLM(config).eval()


@cache
@torch.no_grad()
def after(text: tuple[int, ...]) -> torch.Tensor:
    return model()(torch.tensor([text])).logits[0, -1]


def row(text: list[int]) -> torch.Tensor:
    return after(tuple(text))


def processor(name: str, lanes: int = 64) -> Any:
    """The class of an exported file, which holds so many requests."""
    file = exported("sglang", decgraph.load(name).module, {}, key="logits")
    text = file.text.replace("LANES, CAPACITY = 64, 32768", f"LANES, CAPACITY = {lanes}, 200")
    assert text != file.text
    return loaded(text, file.name)[file.class_name]


def asked(i: int, name: str, rng: random.Random) -> Req:
    own = {"tau": [5.0, 2.0][i % 2]} if name == "mirostat" else {}
    shaping = {} if name == "mirostat" else [{"temperature": 0.8}, {"top_k": 1}, {"top_k": 20}, {"top_p": 0.9}][i % 4]
    prompt = [rng.randrange(VOCAB) for _ in range(rng.randrange(2, 9))]
    return Req(str(i), prompt, {"sampling_seed": 50 + i, "custom_params": own, **shaping}, length=rng.randrange(5, 12))


def run(name: str, r: Req) -> list[int]:
    """The tokens of decgraph's own run of a request."""
    p = r.sampling_params
    fields: dict[str, Any] = {"temperature": p.temperature, "seed": p.sampling_seed}
    if p.top_k == 1:
        fields["temperature"] = 0
    elif p.top_k < VOCAB:
        fields["top_k"] = p.top_k
    if p.top_p < 1:
        fields["top_p"] = p.top_p
    params = {k: v for k, v in p.custom_params.items() if k != "__req__"}
    made = decgraph.run(
        name, models={"target": model()}, prompt=r.origin_input_ids, max_tokens=r.length, eos=(), params=params, **fields
    )
    return list(made.tokens)


@pytest.mark.quick(("mirostat", "overlap"))
@pytest.mark.parametrize("overlap", [False, True], ids=["known", "overlap"])
@pytest.mark.parametrize("name", ["mirostat", "top_n_sigma"])
def test_tokens_are_those_of_a_run(name: str, overlap: bool) -> None:
    """Prompts in parts, requests that are retracted, outputs that are known a step late, an instance a batch."""
    rng = random.Random(5)
    reqs = [asked(i, name, rng) for i in range(9)]
    engine = LogitsEngine(processor(name, lanes=12), row, overlap=overlap)
    engine.serve(reqs, rng)
    assert engine.parts > 5 and engine.retracted > 2
    for r in reqs:
        assert r.to_finish is None and r.output_ids == run(name, r)


def test_lanes_are_given_away() -> None:
    """More requests than lanes, one after the other; ids that come again with another prompt."""
    rng = random.Random(7)
    made, reqs = processor("mirostat", lanes=2), [asked(i, "mirostat", rng) for i in range(6)]
    again = asked(0, "mirostat", rng)
    again.length = reqs[0].length = 1
    for r in (reqs[0], again, *reqs[1:]):
        LogitsEngine(made, row, overlap=False).serve([r], random.Random(0))
        assert r.to_finish is None and r.output_ids == run("mirostat", r)
    assert len(made.lanes) == 2


def drawn(made: Any, **plain: Any) -> tuple[Req, torch.Tensor]:
    r = Req("one", [3, 4, 5], plain, length=1)
    r.kv.kv_committed_len = 3
    return r, made()(torch.zeros(1, VOCAB), [r.sampling_params.custom_params])


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ({"custom_params": {}, "top_k": 20}, "top_k would change nothing"),
        ({"custom_params": {"tau": -1.0}}, "tau"),
        ({"custom_params": {"temperature": 1.0}}, "no parameter `temperature`"),
    ],
)
def test_a_wrong_request_ends_with_a_400(plain: dict[str, Any], why: str) -> None:
    """SGLang has no validation for processors: the request ends at its first token, and the others go on."""
    r, out = drawn(processor("mirostat"), **plain)
    assert int(r.to_finish.status_code) == 400 and why in r.to_finish.message
    assert torch.equal(out, torch.zeros(1, VOCAB))


def test_a_request_without_custom_params_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, out = drawn(processor("mirostat"))
    assert "custom_params" in caplog.text and torch.equal(out, torch.zeros(1, VOCAB))


def test_two_rows_of_a_request_are_refused() -> None:
    made = processor("mirostat")()
    r = Req("one", [3, 4, 5], {"custom_params": {}}, length=2)
    r.kv.kv_committed_len = 3
    made(torch.zeros(2, VOCAB), [r.sampling_params.custom_params] * 2)
    assert "speculation" in r.to_finish.message


def test_an_error_in_a_lane_ends_its_request() -> None:
    """Logits that are no numbers, of one of two requests."""
    made = processor("top_n_sigma")()
    reqs = [Req(str(i), [3, 4, 5], {"custom_params": {}}, length=3) for i in range(2)]
    for r in reqs:
        r.kv.kv_committed_len = 3
    params = [r.sampling_params.custom_params for r in reqs]
    made(torch.stack([torch.full((VOCAB,), torch.nan), row([3, 4, 5])]), params)
    for r in reqs:
        r.kv.kv_committed_len = 4
        r.output_ids.append(1)
    made(torch.stack([row([3, 4, 5, 1])] * 2), params)
    assert int(reqs[0].to_finish.status_code) == 500 and reqs[1].to_finish is None


def signature(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def test_the_methods_are_those_of_the_interfaces() -> None:
    made = processor("mirostat")
    for name, arguments in published_seams.SGLANG_LOGITS_METHODS.items():
        assert signature(getattr(made, name)) == arguments
    file = exported("sglang", decgraph.load("llada").module, {}, key="dllm")
    dllm = loaded(file.text, file.name)[file.class_name]
    for name, arguments in published_seams.SGLANG_DLLM_METHODS.items():
        assert signature(getattr(dllm, name)) == arguments


def test_a_processor_is_named_by_its_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a command, the file prints what requests name it by: its class in its module, not in `__main__`."""
    file = exported("sglang", decgraph.load("mirostat").module, {}, key="logits")
    module = ModuleType(file.name)
    vars(module).update(loaded(file.text, file.name))
    monkeypatch.setitem(sys.modules, file.name, module)
    loaded(file.text, "__main__")
    assert "mirostat_sglang" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ({"repetition_penalty": 1.5}, "penalties"),
        ({"logit_bias": {"3": 1.0}}, "biases"),
        ({"min_new_tokens": 3}, "a least length"),
        ({"custom_params": {"block": 4}}, "no parameter `block`"),
        ({"regex": "a*"}, "grammar"),
    ],
)
def test_a_wrong_dllm_request_is_refused(plain: dict[str, Any], why: str) -> None:
    file = exported("sglang", decgraph.load("llada").module, {}, key="dllm")
    made = loaded(file.text, file.name)[file.class_name]
    made(SimpleNamespace(block_size=BLOCK, mask_id=MASK, algorithm_config={}, first_done_first_out_mode=True))
    assert why in made.validate_request(Req("a", [3], plain))
    assert made.validate_request(Req("a", [3], {"temperature": 0.5})) is None
