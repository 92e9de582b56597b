"""The kernels of forwards at the sizes that real models launch."""

from __future__ import annotations

from typing import Any

from decgraph.backends.triton.attention.sizes import power
from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.step.causal_kernels import CELLS_BLOCK

MODULE = "decgraph.backends.triton.step.causal_kernels"
MODELS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "8b": (32, 8, 128, {}),
    "1b": (32, 8, 64, {}),
    "qwen3": (32, 8, 128, {"NORM": True}),
    "gemma3": (8, 4, 256, {"NORM": True}),
    "gpt2": (12, 12, 64, {"ROTARY": False}),
    "80": (32, 32, 80, {}),
}
"""Query heads, key/value heads, head size and flags."""


def specs() -> list[Spec]:
    """Every kernel that is launched for the models above."""
    out = []
    counts = ("cells", "width", "query_at", "key_at", "value_at", "key_batch", "key_head", "key_slot", "value_batch",
              "value_head", "value_slot")  # fmt: skip
    for name, (queries, keys, size, flags) in MODELS.items():
        for dtype in ("bf16", "fp32"):
            pointers = dict.fromkeys(("rows", "cos", "sin", "keys", "values", "queries", "query_norm", "key_norm"), f"*{dtype}")
            signature = {**pointers, "write": "*i64", "eps": "fp32", **dict.fromkeys(counts, "i32")}
            sizes = {"QUERIES": queries, "KEYS": keys, "SIZE": size, "PAD": power(size), "ROTARY": True, "NORM": False, **flags}
            out.append(Spec(f"heads {name} {dtype}", "heads_kernel", signature, sizes, module=MODULE, warps=1,
                            aligned=counts[1:]))  # fmt: skip
    numbers64 = dict.fromkeys(("tokens", "positions", "tokens_out", "positions_out", "write", "tail_positions"), "*i64")
    for block, words in ((1, 1), (CELLS_BLOCK, 2), (CELLS_BLOCK, 16)):
        sizes = dict.fromkeys(("cells", "words", "first", "tail", "spare"), "i32")
        out.append(Spec(f"cells {block}x{words}", "cells_kernel", {**numbers64, "bits": "*i32", "cached": "*i32", **sizes},
                        {"BLOCK": block, "WORDS": words}, module=MODULE, warps=1))  # fmt: skip
    return out
