"""What a program derives from a model that cannot give it is refused when its session is made, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models import hf_models

import decgraph
from decgraph.errors import DecError

PROGRAM = """algorithm early(target: causal, depth: int in 1..99 = 1):
    refines autoregressive(target) in distribution
    {before}
    while not done:
        draft t:
            x ~ {small}(t.leaves)
            grow x
        verify t by rejection against target(t)
        commit t.accepted
"""


def program(small: str, before: str = "") -> decgraph.Algorithm:
    return decgraph.parse(PROGRAM.format(small=small, before=before))


def xglm() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": hf_models.V, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4}
    return transformers.XGLMForCausalLM(transformers.XGLMConfig(**sizes, max_position_embeddings=64)).eval()


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(
    ("small", "before"),
    [
        ("target.exit(depth)", ""),
        ("target.quantized(4)", ""),
        ("small", "model small = target.head(target.upto(depth))"),
    ],
)
def test_a_model_whose_layers_are_not_reached_is_refused_with_the_reason(small: str, before: str, backend: str) -> None:
    module = xglm()
    with pytest.raises(
        DecError, match="runs as a whole: XGLMModel is not supported: its layers do not use the attention"
    ) as found:
        program(small, before).session(target=module, backend=backend)
    assert "prompt_lookup" in found.value.hint
    if backend == "torch":  # the other door
        door = decgraph.hf(program(small, before), backend=backend)
        with pytest.raises(DecError, match="its layers do not use the attention"):
            module.generate(hf_models.PROMPT, custom_generate=door, max_new_tokens=2)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(
    ("small", "before", "legal"),
    [
        ("target.exit(depth)", "", 3),
        ("small", "model small = target.head(target.upto(depth))", 2),
    ],
)
def test_a_layer_that_the_model_lacks_is_refused_before_a_run(small: str, before: str, legal: int, backend: str) -> None:
    module = hf_models.llama(1, layers=3)
    session = program(small, before).session(target=module, depth=legal, backend=backend)
    assert session.run(decgraph.models.request_for(session, (1, 5), max_tokens=2, eos=())).error is None
    with pytest.raises(DecError, match="has 3 layers") as found:
        program(small, before).session(target=module, depth=legal + 1, backend=backend)
    assert f"1..{legal}" in found.value.hint
    with pytest.raises(DecError, match="has 3 layers"):
        program(small.replace("depth", "7"), before.replace("depth", "7")).session(target=module, backend=backend)


def test_what_stands_under_an_if_is_left_to_the_run() -> None:
    text = """algorithm maybe(target: causal, deep: int in 0..1 = 0):
    while not done:
        draft t:
            if deep > 0:
                x ~ target.exit(9)(t.leaves)
                grow x
            else:
                y ~ target.exit(1)(t.leaves)
                grow y
        verify t by rejection against target(t)
        commit t.accepted
"""
    session = decgraph.parse(text).session(target=hf_models.llama(1), backend="torch")
    request = decgraph.models.request_for(session, (1, 5), max_tokens=3, eos=())
    assert session.run(request).error is None


def test_a_head_on_a_model_whose_layers_are_not_reached() -> None:
    from decgraph import zoo

    with pytest.raises(DecError, match="reads states and needs the layers of .*: its layers do not use the attention"):
        decgraph.load("eagle2").session({"target": xglm(), "head": zoo.path("eagle")})
