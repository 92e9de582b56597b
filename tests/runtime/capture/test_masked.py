"""Masked models: a captured forward of a whole canvas, of some positions over held keys and values, of embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForMaskedLM

from decgraph.runtime.models.capture.make import capture

SHIPPED = Path(__file__).resolve().parents[3] / "zoo" / "models" / "masked"
TINY = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
}


def model(name: str) -> Any:
    if name == "shipped":
        made = AutoModelForMaskedLM.from_pretrained(SHIPPED, dtype=torch.float32)
    else:
        torch.manual_seed(3)
        config = AutoConfig.for_model(name, **TINY, **({"num_key_value_heads": 2} if name == "eurobert" else {}))
        made = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    return made.eval().requires_grad_(False)


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5 * float(theirs.abs().max()))


def own(made: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = made.base_model(input_ids=ids).last_hidden_state
    return out


@pytest.mark.parametrize("name", ["shipped", "eurobert", "modernbert"])
def test_canvases(name: str) -> None:
    made, reasons = model(name), list[str]()
    size = made.config.vocab_size
    ids = torch.randint(size, (2, 12))
    theirs = own(made, ids)
    step = capture(made, notice=reasons.append)
    assert step is not None, reasons
    heads = getattr(made.config, "num_key_value_heads", 4)
    shape = (2, heads, 12, made.config.hidden_size // made.config.num_attention_heads)
    keys, values = ([torch.full(shape, float("nan")) for _ in range(step.layers)] for _ in range(2))
    at = torch.arange(12).expand(2, -1).contiguous()
    distance = (at[0][:, None] - at[0]).abs()
    window = next((w for w in step.windows if w is not None), 99)
    masks = {
        "full_attention": torch.ones(2, 1, 12, 12, dtype=torch.bool),
        "sliding_attention": (distance < window).expand(2, 1, -1, -1),
    }
    close(step(ids, at, at, keys, values, masks), theirs)
    # Some positions again, over what is held of the others: the same ids give the same states ...
    some = torch.tensor([[3, 7, 8], [0, 1, 11]])
    seen = {kind: torch.stack([m[:, some[b]] for b, m in enumerate(mask)]) for kind, mask in masks.items()}
    mine = step(ids.gather(1, some), some, some, keys, values, seen)
    close(mine, theirs.gather(1, some[:, :, None].expand(-1, -1, theirs.shape[-1])))
    # ... and other ids other ones, in the cells that changed and, while the rest is stale, only there.
    ids[0, 7] = (ids[0, 7] + 1) % size
    assert float((step(ids.gather(1, some), some, some, keys, values, seen) - mine)[0].abs().max()) > 1e-3


def test_embeddings_in_place_of_ids() -> None:
    made = model("shipped")
    step = capture(made)
    assert step is not None
    ids = torch.randint(made.config.vocab_size, (1, 9))
    shape = (1, 4, 9, 64)
    caches = [[torch.zeros(shape) for _ in range(step.layers)] for _ in range(2)]
    at = torch.arange(9)[None]
    mixed = 0.5 * made.base_model.embed_tokens(ids) + 0.5 * made.base_model.embed_tokens(ids + 1)
    with torch.no_grad():
        theirs = made.base_model(inputs_embeds=mixed).last_hidden_state
    close(step.since(0)(mixed, at, at, *caches, {"full_attention": None}), theirs)
