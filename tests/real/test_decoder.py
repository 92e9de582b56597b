"""SmolLM2 runs by the decoder, which is about as exact as its own module, in 32 and in 16 bits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import decoder_module, make

# How much larger than the module's own error the decoder's may be.
MOST = {torch.float32: 3.0, torch.bfloat16: 1.25, torch.float16: 1.25}


@pytest.mark.parametrize("dtype", MOST)
def test_errors_against_float64(dtype: torch.dtype, smollm2: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=dtype).eval().requires_grad_(False)
    own, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    decoder = make.decoder_of(model.base_model, decoder_module.ModuleDecoder(model.base_model, "SmolLM2").plain)
    assert decoder is not None
    text = "Explain to a child, in a few sentences, why the sky is blue in the day and red in the evening."
    ids = tokenizer(text, return_tensors="pt").input_ids
    count = ids.shape[1]
    at, mask = torch.arange(count)[None], torch.zeros(1, 1, count, count + 5, dtype=torch.bool)
    mask[0, 0, :, :count] = torch.ones(count, count).tril()
    with torch.no_grad():
        mine = model.lm_head(decoder(ids, at, at, *make.caches(decoder, 1, count + 5), {"full_attention": mask}).clone())[
            0
        ].double()
        theirs, exact = own(ids).logits[0].double(), wide(ids).logits[0]
    mine_off, own_off = (((x - exact).norm(dim=-1) / exact.norm(dim=-1)).mean() for x in (mine, theirs))
    assert mine_off <= MOST[dtype] * own_off, (mine_off, own_off)
