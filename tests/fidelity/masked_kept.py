"""Masked decoders whose programs are in programs/: blocks in flight by entropy, block-causal blocks, and delayed caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_blocks import replay
from fidelity.masked_models import MASK, model
from fidelity.masked_noise import tensors, uniform
from fidelity.recorded_noise import Recorded

SHAPING = ("temperature", "top_k", "top_p")


def sdar(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    params: dict[str, Any] = {"block": p["block_length"], "steps": p["denoising_steps"]}
    params |= {"tau": p["confidence_threshold"]} if "confidence_threshold" in p else {}
    params |= {"order": p["remasking_strategy"]} if "remasking_strategy" in p else {}
    length = len(case["output"][0]) - len(prompt)
    ends, sampled = p.get("stopping_criteria_idx"), "noise" in case
    kept = np.cumsum([bool(call.get("commit_kv")) for call in case["calls"]])  # calls that draw nothing, up to each

    def source(key: Recorded, n: int) -> Any:
        return uniform(tensors("block_diffusion_sdar_noise")[case["noise"]][key.call - kept[key.call], key.lane[0]])

    done = run(
        "sdar",
        model("llama_bidir", ("block", p["block_length"])),
        prompt,
        length,
        backend,
        eos=ends[0] if ends else MASK,
        shaping={"temperature": 1} | {k: p[k] for k in SHAPING if k in p} if sampled else None,
        noise=source if sampled else None,
        **params,
    )
    return compared(case, [done])


def dkv_greedy(case: Case, backend: str) -> Outcome:
    """The order is that of the recorded decisions; a block's shuffle reads numbers that lead to it."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    block = p["block_length"]
    order = [i - len(prompt) for call in case["calls"] for _, i, _ in call["decided"]]

    def source(key: Recorded, n: int) -> Any:
        first = key.counters[0] * block
        place = {i: k for k, i in enumerate(order[first : first + block])}
        return [1 - (place[first + i] + 0.5) / n for i in range(n)]

    named = {"block_length": "block", "steps": "steps", "cache_reloading_step": "reload", "window_size": "window"}
    params = {ours: p[theirs] for theirs, ours in named.items()}
    made = run("dkv_greedy", "llama_bidir", prompt, p["gen_length"], backend, noise=source, **params)
    return compared(case, [made])


def ends(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether an end of the text fills what is behind it."""
    return {"eos": 126, "stops": True} if p.get("early_stop") else {}


LISTED = (
    "upstream lists the masks before it fills what is behind the end of the text: one call more decides filled cells alone "
    "(d3llm/d3llm_LLaDA/d3llm_llada_generate_util.py:248)"
)
D3LLM = {"block_size": "block", "threshold": "tau", "block_add_threshold": "add"}
D3LLM |= {"cache_delay_iter": "delay", "refresh_interval": "refresh"}

ENTRIES = [
    Entry(
        "dllm/dkv_cache_dream_prefill",
        "dkv_prefill",
        replay("dkv_prefill", "qwen2_bidir_shift", {"steps": "steps", "alg": "alg"}),
        "masked",
    ),
    Entry("dllm/dkv_cache_greedy", "dkv_greedy", dkv_greedy, "masked", note="the recorded order is the noise"),
    Entry(
        "dllm2/d3llm_multi_block",
        "d3llm",
        replay("d3llm", "llama_bidir", D3LLM, also=ends),
        "masked",
        differs={("early_stop", column): LISTED for column in ("forwards", "decided", "cells computed", "tokens evaluated")},
    ),
    Entry("dllm2/d3llm_multi_block_cache", "d3llm_cache", replay("d3llm_cache", "llama_bidir", D3LLM, also=ends), "masked"),
    Entry("dllm2/block_diffusion_sdar", "sdar", sdar, "masked"),
]
