"""Masked decoders that decide several cells a call: thresholds, budgets, planned places, credits and stability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import Entry
from fidelity.masked_blocks import replay

BLOCK = {"block_length": "block"}
NO_STOP = "upstream makes no call once a block holds the end of the text; ours decides the canvas (llada/generate.py, generate)"


def levels(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which levels dilated decoding has. Raises AssertionError for a recording that masks cells again."""
    assert p["remasking"] == "none", "cells that are masked again stay masked in the text"
    return {"binary": p["scheduler"] == "binary"}


ENTRIES = [
    *(
        Entry(
            f"dllm/dparallel_{kind}",
            f"dparallel, cache {kind}",
            replay("dparallel", "llama_bidir", BLOCK | {"threshold": "tau"}, kind),
            "masked",
            triton=1,
        )
        for kind in ("none", "prefix", "dual")
    ),
    Entry(
        "dllm/dparallel_dream",
        "dparallel",
        replay("dparallel", "qwen2_bidir_shift", BLOCK | {"threshold": "tau"}),
        "masked",
        triton=1,
        note="upstream compares with < on this model",
    ),
    Entry(
        "dllm/localleap",
        "local_leap",
        replay("local_leap", "llama_bidir", BLOCK | {"threshold": "tau", "relaxed_threshold": "relaxed", "radius": "radius"}),
        "masked",
        leaves_out={"early_stop": NO_STOP},
    ),
    Entry("dllm/eb_sampler", "eb_sampler", replay("eb_sampler", "llama_bidir", {"gamma": "gamma"}), "masked"),
    Entry(
        "dllm2/dilated",
        "dilated",
        replay("dilated", "llama_bidir", BLOCK | {"base": "base", "base_skip": "skip"}, also=levels),
        "masked",
        leaves_out={
            "dilated_cfg": "its second row masks all that is decided, which no program asks for "
            "(generate.py, generate_scheduled)"
        },
    ),
    Entry(
        "dllm/creditdecoding",
        "credit_decoding",
        replay(
            "credit_decoding",
            "llama_bidir",
            BLOCK | {"threshold": "tau", "credit_alpha": "alpha", "boost_gamma": "gamma", "decay_beta": "beta"},
        ),
        "masked",
        leaves_out={
            "batch2": "its rows wait for one another at the end of a block, and are computed meanwhile "
            "(python/dinfer/decoding/parallel_strategy.py:383)"
        },
    ),
    Entry(
        "dllm/klass",
        "klass",
        replay("klass", "llama_bidir", BLOCK | {"threshold": "tau", "kl_threshold": "epsilon", "num_transfer_tokens": "few"}),
        "masked",
    ),
    Entry(
        "dllm/dinfer_hierarchy",
        "dinfer_hierarchy",
        replay("dinfer_hierarchy", "llama_bidir", BLOCK | {"threshold": "tau", "low_threshold": "low"}),
        "masked",
    ),
    Entry(
        "dllm2/remdm_loop",
        "remdm_loop",
        replay("remdm_loop", "llama_bidir", {"unmask_k": "k", "init_unmask_ratio": "start", "loop_steps": "rounds"}),
        "masked",
    ),
]
