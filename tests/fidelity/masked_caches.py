"""Keys and values that are kept where they are not exact: dKV-Cache."""

from __future__ import annotations

from fidelity.entry import Entry
from fidelity.masked_blocks import LLADA, replay

ENTRIES = [
    Entry(
        "dllm/dkv_cache_decode",
        "dkv_cache",
        replay("dkv_cache", "llama_bidir", LLADA | {"cache_reloading_step": "reload"}),
        "masked",
    ),
]
