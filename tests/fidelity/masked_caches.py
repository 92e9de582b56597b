"""Keys and values as values: kept where they are not exact (dKV-Cache) and where block-causal models make them so (D2F)."""

from __future__ import annotations

from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_blocks import LLADA, replay
from fidelity.masked_models import model


def d2f(case: Case, backend: str) -> Outcome:
    """Its output is the whole canvas, also behind an end of the text; blocks that were never appended are not part of it."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    done = run(
        "d2f",
        model("llama_bidir", ("prompt+block", p["block_size"])),
        prompt,
        p["gen_length"],
        backend,
        eos=p["eos_id"],
        block=p["block_size"],
        add=p["block_add_threshold"],
        ready=p["decoded_token_threshold"],
        tau=p["skip_threshold"],
    )
    done.output = done.output[: len(case["output"][0])]
    return compared(case, [done])


def fast_v2(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    length = len(case["output"][0]) - len(prompt)
    done = run(
        "fast_dllm_v2",
        model("qwen2_bidir_shift", ("block", p["block_size"])),
        prompt,
        length,
        backend,
        eos=p["stop_token"],
        block=p["block_size"],
        small=p["small_block_size"],
        tau=p["threshold"],
        hold=p["use_block_cache"],
    )
    return compared(case, [done])


FIRST = (
    "the call that stores a block also computes the next block's first cell, which it predicts; upstream reads it without "
    "(FastDLLM_inferencing/Fast_dLLM_v2_7B/modeling.py:712)"
)
TAIL = {("*", column): FIRST for column in ("cells computed", "tokens evaluated")}
POOLED = (
    "max-pooling makes scores equal, and which of equals torch.topk keeps is its own; here the first are kept "
    "(opencompass/models/sparse_dllm/modeling_llada.py:571)"
)
GRID = (
    "upstream's calls mask by a grid of 32 whatever the blocks are: with blocks of 12 position 31 does not see 32 to 35 "
    "(FastDLLM_inferencing/Fast_dLLM_v2_7B/modeling.py:747)"
)

ENTRIES = [
    Entry(
        "dllm/dkv_cache_decode",
        "dkv_cache",
        replay("dkv_cache", "llama_bidir", LLADA | {"cache_reloading_step": "reload"}),
        "masked",
    ),
    Entry(
        "dllm/sparse_dllm",
        "sparse_dllm",
        replay("sparse_dllm", "llama_bidir", LLADA | {"kernel_size": "kernel", "keep_ratio": "keep"}),
        "masked",
        differs={("k3r03", column): POOLED for column in ("output", "decided")},
    ),
    Entry("dllm/d2f", "d2f", d2f, "masked", note="the canvas is compared, also behind the end of the text"),
    Entry(
        "dllm/fast_dllm_v2_nocache",
        "fast_dllm_v2",
        fast_v2,
        "masked",
        differs=TAIL | {("b12s3", column): GRID for column in ("output", "forwards", "decided")},
    ),
    Entry("dllm/fast_dllm_v2_blockcache", "fast_dllm_v2", fast_v2, "masked", differs=TAIL),
]
