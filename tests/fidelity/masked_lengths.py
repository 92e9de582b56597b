"""Masked decoders that say from a call how far it goes: APD's prefixes, what
Learn2PD's filter says; and Saber, which goes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import compared, run
from fidelity.entry import GOLDEN, Case, Entry, Outcome
from fidelity.masked_blocks import replay
from fidelity.models import causal
from safetensors.numpy import load_file


def learn2pd(case: Case, backend: str, program: str = "learn2pd") -> Outcome:
    """The recorded filter, two layers of a perceptron on the block's confidences, is handed over as a function. program: the
    plain one, or the one that also predicts the end of the text."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    weights = load_file(GOLDEN / "dllm2/models/learn2pd_filter/model.safetensors")
    size = p["block_length"]

    def final(cell: int, sure: Any) -> float:
        x = np.asarray(sure, dtype=np.float32)
        for layer in ("layer1", "layer2"):
            name = f"block{size}.{layer}"
            x = weights[f"{name}.weight"] @ (x if layer == "layer1" else np.maximum(x, 0)) + weights[f"{name}.bias"]
        return float(1 / (1 + np.exp(-x[int(cell)])))

    done = run(
        program,
        "llama_bidir",
        prompt,
        p["gen_length"],
        backend,
        externs={"final": final},
        block=size,
        steps=p["steps"],
        tau=p["accept_thres"],
        **({} if program == "learn2pd" else {"ends": [126]}),
    )
    (output,) = case["output"]
    last = done.calls[-1].cells  # what a predicted end cuts off is left as it was
    done.output += last[len(done.output) :]
    return compared(dict(case, output=[[*output, *last[len(output) :]]]), [done])


def learn2pd_eot(case: Case, backend: str) -> Outcome:
    return learn2pd(case, backend, "learn2pd_eot")


NEAR = (
    "the 14th call decides, of two cells with entropies 1.546 and 1.550, the second; the public loop takes the first "
    "(model.py:548)"
)


def rules(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """R2-dLLM's rules. One that the case has not is off: no clusters, or no cell that stays the same for so long."""
    rest = {
        "spatial": "spatial_threshold",
        "size": "confidence_cluster_size",
        "calm": "temporal_steps",
        "temporal": "temporal_threshold",
    }
    off = {"spatial": 1, "size": 3, "calm": 1000, "temporal": 1}
    return {"clusters": "token_cluster" in p, **{ours: p.get(theirs, off[ours]) for ours, theirs in rest.items()}}


def autoregressive(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """APD's second model, and how far it looks."""
    return {"others": {"verifier": causal("dllm/models/qwen2_ar")}, "look": p["max_lookahead"] or p["gen_length"]}


SLOW_FAST = {
    "block_length": "block",
    "k_exploration_steps": "explore",
    "cycle_len_confidence_threshold": "far",
    "cycle_length_stability_window": "window",
    "cycle_length_stability_std_dev_threshold": "calm",
    "high_confidence_threshold": "tau",
}
CCD = {"steps": "steps", "expand_ratio": "expand", "seek_mode": "seek"}
FILTER = "the recorded filter is handed over as a function"

ENTRIES = [
    Entry(
        "dllm/ccd",
        "coherent_contextual",
        replay("coherent_contextual", "qwen2_bidir_shift", CCD, also=lambda p: {"entropies": p["alg"] == "entropy"}),
        "masked",
        differs={("noseek_u2", column): NEAR for column in ("output", "decided")},
    ),
    Entry("dllm2/slow_fast", "slow_fast", replay("slow_fast", "llama_bidir", SLOW_FAST), "masked"),
    Entry(
        "dllm/r2_dllm",
        "r2_dllm",
        replay("r2_dllm", "llama_bidir", {"block_length": "block", "threshold": "tau"}, also=rules),
        "masked",
    ),
    Entry("dllm2/learn2pd", "learn2pd", learn2pd, "masked", note=FILTER),
    Entry("dllm2/learn2pd_eot", "learn2pd_eot", learn2pd_eot, "masked", note=FILTER),
    Entry("dllm2/saber", "saber", replay("saber", "llama_bidir", {"block_length": "block", "n": "n"}), "masked"),
    Entry(
        "dllm/apd",
        "apd",
        replay("apd", "qwen2_bidir_shift", {"apd_mixture_weight": "r"}, also=autoregressive),
        "masked",
    ),
]
