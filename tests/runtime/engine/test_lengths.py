"""Rotary positions that depend on the length of a text, against transformers' own `generate`: equal to it, or refused by name
before a token is wrong; whatever the drafts that reach past the boundary and the neighbours in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models.hf_modules import logits

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_live import from_module

BOUNDARY = 32
SIZES = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            "original_max_position_embeddings": BOUNDARY, "rope_theta": 10000.0}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": BOUNDARY, "rope_theta": 10000.0}


def phi(seed: int = 1) -> Any:
    """A Phi-3, of which `generate` computes the cache again where a text passes the boundary."""
    torch.manual_seed(seed)
    config = transformers.Phi3Config(**SIZES, original_max_position_embeddings=BOUNDARY, rope_parameters=dict(LONGROPE))
    return transformers.Phi3ForCausalLM(config).eval()


def llama(rope: dict[str, Any], **more: Any) -> Any:
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **more}, rope_parameters=dict(rope))).eval()


def prompt(length: int, seed: int = 3) -> torch.Tensor:
    """A prompt that repeats itself, so that drafts are often right."""
    torch.manual_seed(seed)
    return torch.randint(3, 61, (1, 7)).repeat(1, 1 + length // 7)[:, :length]


def theirs(model: Any, ids: torch.Tensor, new: int) -> list[int]:
    out = model.generate(input_ids=ids, do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=0)
    return list(out[0, ids.shape[1] :].tolist())


def ours(model: Any, ids: torch.Tensor, new: int, name: str, **more: Any) -> list[int]:
    generate = decgraph.hf(name, **more)
    out = model.generate(
        input_ids=ids, do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=0, custom_generate=generate
    )
    return list(out[0, ids.shape[1] :].tolist())


@pytest.mark.budget(12)
@pytest.mark.parametrize("length", [5, 31, 32, 33, 50])
@pytest.mark.parametrize("name", ["autoregressive", "prompt_lookup", "speculative"])
@pytest.mark.quick(("31", "prompt_lookup"), ("50", "speculative"), ("5", "autoregressive"))
def test_phi_is_generate_on_both_sides_and_across_the_boundary(name: str, length: int) -> None:
    model, ids = phi(), prompt(length)
    more = {"drafter": phi(2)} if name == "speculative" else {}
    assert ours(model, ids, 40, name, **more) == theirs(phi(), ids, 40)


def test_rows_of_both_sides_come_in_the_order_in_which_they_are_asked_for() -> None:
    """A tree whose branches end on both sides of the boundary, and rows of it in another order than its own."""
    model, context = phi(), prompt(BOUNDARY - 1)[0].tolist()
    engine = engine_of(from_module(model, name="phi"))
    tree: tuple[list[int], list[int], list[int]] = ([5, 6, 7, 8, 9], [-1, 0, -1, 1, 2], [0, 1, 2, 3, 4])
    calls = [ForwardCall(n, context, (), *tree, rows) for n, rows in enumerate(([0, 1, 2, 3, 4], [3, -1, 1, 2, 0]))]
    for call, rows in zip(calls, engine.compute(calls), strict=True):
        assert isinstance(rows, torch.Tensor)
        alone = torch.cat([logits(model, [path]) for path in call.paths()])
        assert torch.allclose(rows, alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_neighbours_in_a_batch_change_nothing(backend: str, tmp_path: Path) -> None:
    phi().save_pretrained(tmp_path)
    session = decgraph.load("prompt_lookup").session(target=tmp_path, backend=backend)
    prompts = [prompt(n, seed=n) for n in (5, 28, 32, 45)]
    found = session.generate([p[0].tolist() for p in prompts], batch=4, max_tokens=14, eos=())
    assert [r.error for r in found] == [None] * 4
    assert [list(r.tokens) for r in found] == [theirs(phi(), p, 14) for p in prompts]


def test_a_long_call_of_the_module_itself_changes_nothing() -> None:
    model, ids = phi(), prompt(12)
    expected = theirs(phi(), ids, 16)
    assert ours(model, ids, 16, "autoregressive") == expected
    theirs(model, prompt(60), 3)
    assert ours(model, ids, 16, "prompt_lookup") == expected


def test_what_reads_states_is_refused_by_name(tmp_path: Path) -> None:
    phi().save_pretrained(tmp_path)
    with pytest.raises(DecError, match="longrope"):
        decgraph.load("draft_and_verify").session(target=tmp_path).run(decgraph.Request((1, 5, 9), max_tokens=4))


KINDS = {
    "longrope": lambda: llama(LONGROPE),
    "dynamic": lambda: llama(DYNAMIC, max_position_embeddings=BOUNDARY),
}


@pytest.mark.parametrize("name", ["autoregressive", "prompt_lookup"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_are_generate_up_to_the_boundary_and_refused_past_it(kind: str, name: str, tmp_path: Path) -> None:
    model, ids = KINDS[kind](), prompt(20)
    new = BOUNDARY - 20 + 1  # the last token is read by nobody
    assert ours(model, ids, new, name) == theirs(KINDS[kind](), ids, new)
    for length in (20, 40):
        with pytest.raises(DecError, match=kind):
            ours(model, prompt(length), new + 1, name)
    model.save_pretrained(tmp_path)
    session = decgraph.load(name).session(target=tmp_path)
    result = session.run(decgraph.Request(tuple(ids[0].tolist()), max_tokens=30, temperature=0))
    assert result.error is not None and kind in str(result.error)
    assert list(result.tokens) == theirs(KINDS[kind](), ids, 30)[: len(result.tokens)]


def test_yarn_does_not_depend_on_the_length() -> None:
    ids = prompt(20)
    assert ours(llama(YARN), ids, 40, "prompt_lookup") == theirs(llama(YARN), ids, 40)


def test_longrope_with_the_same_factors_has_no_boundary() -> None:
    same = {**LONGROPE, "long_factor": LONGROPE["short_factor"]}
    ids = prompt(20)
    assert ours(llama(same), ids, 40, "prompt_lookup") == theirs(llama(same), ids, 40)
