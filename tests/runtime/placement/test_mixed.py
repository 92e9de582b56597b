"""Mixed precision is refused where it is met, and what is refused can be had another way."""

from __future__ import annotations

from typing import Any

import accelerate  # type: ignore[import-untyped]
import pytest
import torch
from lib.models.hf_models import PROMPT, llama

import decgraph
from decgraph.errors import DecError

KEPT: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}


def test_autocast_is_refused_at_every_door_and_leaves_no_trace() -> None:
    module = llama(1)
    plain = module.generate(PROMPT, **KEPT).tolist()
    made, door = decgraph.load("autoregressive").session(target=module), decgraph.hf("autoregressive")
    run = {"max_tokens": 8, "eos": ()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (
            lambda: module.generate(PROMPT, custom_generate=door, **KEPT),
            lambda: decgraph.run("autoregressive", PROMPT[0].tolist(), {"target": module}, **run),  # type: ignore[arg-type]
            lambda: made.run(decgraph.Request(tuple(PROMPT[0].tolist()), max_tokens=8)),
        ):
            with pytest.raises(DecError, match="torch.autocast"):
                call()
        with torch.autocast("cpu", enabled=False):
            assert module.generate(PROMPT, custom_generate=door, **KEPT).tolist() == plain
    assert module.generate(PROMPT, custom_generate=door, **KEPT).tolist() == plain


def test_a_module_that_accelerate_prepared_is_unwrapped_by_its_owner() -> None:
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    module = llama(1)
    plain = module.generate(PROMPT, **KEPT).tolist()
    prepared = accelerator.prepare(module)
    with pytest.raises(DecError, match="mixed precision") as caught:
        prepared.generate(PROMPT, custom_generate=decgraph.hf("autoregressive"), **KEPT)
    assert "unwrap_model" in str(caught.value)
    bare = accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)
    assert bare.generate(PROMPT, custom_generate=decgraph.hf("autoregressive"), **KEPT).tolist() == plain
