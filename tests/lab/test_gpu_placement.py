"""What lab/gpu/run.py does on a GPU, on tensors that say they lie on one: nothing is left on the wrong device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from far import Elsewhere, Far, Launched, away

from decgraph import stdlib
from decgraph.hf.generate import custom_generate
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.make import decoder_of, of_module
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.request import Request
from lab.gpu import lab, tokens
from lab.gpu.forwards import inputs
from lab.gpu.sides import masked_session

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of a GPU beside its arithmetic."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (1 << 30, 1 << 30))


def module(family: str) -> Any:
    return tokens.module(family, CPU).requires_grad_(False)


def head() -> Any:
    from decgraph.zoo.modeling import EagleConfig, EagleHead

    torch.manual_seed(12)
    return EagleHead(EagleConfig(**{**tokens.SPECIAL, **tokens.SMALL, "num_hidden_layers": 1})).eval().requires_grad_(False)


def test_devices_that_meet_are_noticed() -> None:
    with Elsewhere():
        far = torch.ones(3).to("cuda")
        assert isinstance(far, Far) and far.device.type == "cuda" and not isinstance(far.cpu(), Far)
        assert isinstance(torch.zeros(2, device="cuda"), Far) and (far + 1).tolist() == [2, 2, 2]
        for mixing in (lambda: far + torch.ones(3), lambda: torch.cat([far, torch.ones(1)]), lambda: torch.ones(3)[far > 0]):
            with pytest.raises(RuntimeError, match="meet"):
                mixing()


@pytest.mark.quick(first=2)
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "speculative"),
        ("gemma3", "speculative"),
        ("llama", "sequoia"),
        ("gpt2", "prompt_lookup"),
        ("llama", "eagle2"),
        ("llama", "token_recycling"),
    ],
)
def test_causal_models(family: str, name: str) -> None:
    given = tokens.asked(CPU)
    plain = module(family).generate(**given)
    with Elsewhere():
        parts: dict[str, Any] = {
            "speculative": {"gamma": 3},
            "sequoia": {"shape": tokens.SHAPE},
            "prompt_lookup": {"k": 4},
            "eagle2": {"depth": 3, "k": 3, "budget": 8},
            "token_recycling": {},
        }[name]
        if name in ("speculative", "sequoia"):
            parts["drafter"] = away(tokens.noisy(module(family)))
        if name == "eagle2":
            parts["head"] = away(head())
        there = {key: value.to("cuda") if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        got = away(module(family)).generate(**there, custom_generate=custom_generate(name, **parts))
        assert got.tolist() == plain.tolist()


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("name", ["speculative_jacobi", "speculative", "recursive_sd"])
def test_drawn_tokens(name: str) -> None:
    """The CPU's, with a warper and a processor; distributions that no model gave among those that one did."""
    given = {**tokens.asked(CPU), "do_sample": True, "top_p": 0.9, "repetition_penalty": 1.2, "max_new_tokens": 10}

    def made(place: Any) -> list[list[int]]:
        parts = {} if name == "speculative_jacobi" else {"drafter": place(tokens.noisy(module("llama")))}
        torch.manual_seed(3)
        there = {key: place(value) if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        out = place(module("llama")).generate(**there, custom_generate=custom_generate(name, **parts))
        got: list[list[int]] = out.tolist()
        return got

    plain = made(lambda x: x)
    with Elsewhere():
        assert made(lambda x: away(x) if isinstance(x, torch.nn.Module) else x.to("cuda")) == plain


@pytest.mark.parametrize("name", ["fast_dllm", "fast_dllm_prefix", "fast_dllm_uncached"])
def test_masked_models(name: str) -> None:
    sizes = {**lab.SIZES["tiny"].masked, "initializer_range": 0.2}
    request = Request((5, 9, 11, 40), limit=16, temperature=1, seed=3)
    near, far = (lab.masked(sizes, CPU, torch.float32) for _ in range(2))
    plain = masked_session(name, near, length=16, block=8, tau=0.3).run(request)
    with Elsewhere():
        got = masked_session(name, away(far), length=16, block=8, tau=0.3).run(request)
    assert got.error is None and got.tokens == plain.tokens


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_decoders(family: str) -> None:
    """Found equal to the module there, and of the same states as near."""
    near = of_module(module(family).base_model)
    asked = inputs(module(family).config, 3, 20, CPU, torch.float32)
    states = near(*asked)
    with Elsewhere():
        moved = away(module(family)).base_model
        made = decoder_of(moved, ModuleDecoder(moved, family).plain)
        assert made is not None, memo_of(moved).get("forward")
        ids, at, write, keys, values, masks = asked
        masks = {kind: mask.to("cuda") for kind, mask in masks.items()}
        caches = [[k.to("cuda") for k in group] for group in (keys, values)]
        got = made(ids.to("cuda"), at.to("cuda"), write.to("cuda"), *caches, masks)
        assert torch.allclose(got.cpu(), states, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n, marks=[pytest.mark.slow if k % 12 == 0 or n in ("dyspec", "staged_speculative") else pytest.mark.nightly]
        )
        for k, n in enumerate(stdlib.names())
    ],
)
def test_kernels_are_handed_tensors_of_the_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every algorithm on table models, whose rows the host computes: as where kernels are compiled, which cannot read those."""
    from decgraph.backends.triton import placement
    from decgraph.backends.triton.step import canvas_run, program

    for module, function, answer in (
        (placement, "interpreted", False),
        (program, "captures", False),
        (canvas_run, "captures", False),
        (torch.cuda, "is_available", True),
    ):
        monkeypatch.setattr(module, function, lambda *_, answer=answer: answer)
    with Elsewhere(), Launched(near=False):
        assert tokens.compared_tables(None, (name, "triton")) == []
