"""SmolLM2 is captured whole, and its captured forward is about as exact as its own, in 32 and in 16 bits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from decgraph.runtime.models.capture.make import capture

# How much larger than the module's own error the captured forward's may be. In 16 bits it rounds less often.
MOST = {torch.float32: 3.0, torch.bfloat16: 1.25, torch.float16: 1.25}


@pytest.mark.parametrize("dtype", MOST)
def test_errors_against_float64(dtype: torch.dtype, smollm2: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=dtype).eval().requires_grad_(False)
    own, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    said: list[str] = []
    step = capture(model, notice=said.append)
    assert step is not None and not step.program.dropped and not said
    text = "Explain to a child, in a few sentences, why the sky is blue in the day and red in the evening."
    ids = tokenizer(text, return_tensors="pt").input_ids
    count = ids.shape[1]
    keys = [torch.zeros(1, h, count + 5, d, dtype=dtype) for h, d, _ in step.program.caches]
    values = [torch.zeros(1, h, count + 5, d, dtype=dtype) for h, _, d in step.program.caches]
    at, mask = torch.arange(count)[None], torch.zeros(1, 1, count, count + 5, dtype=torch.bool)
    mask[0, 0, :, :count] = torch.ones(count, count).tril()
    with torch.no_grad():
        mine = model.lm_head(step(ids, at, at, keys, values, {"full_attention": mask}).clone())[0].double()
        theirs, exact = own(ids).logits[0].double(), wide(ids).logits[0]
    mine_off, own_off = (((x - exact).norm(dim=-1) / exact.norm(dim=-1)).mean() for x in (mine, theirs))
    assert mine_off <= MOST[dtype] * own_off, (mine_off, own_off)
