"""Masked decoders that say from a call how far it goes: APD's prefixes, what
Learn2PD's filter says; and Saber, which goes back."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity.canvases import compared, run
from fidelity.entry import GOLDEN, Case, Entry, Outcome
from fidelity.masked_blocks import replay
from fidelity.models import causal
from safetensors.numpy import load_file


def apd(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    look = p["max_lookahead"] or p["gen_length"]
    return compared(
        case,
        [
            run(
                "apd",
                "qwen2_bidir_shift",
                prompt,
                p["gen_length"],
                backend,
                others={"verifier": causal("dllm/models/qwen2_ar")},
                look=look,
                r=p["apd_mixture_weight"],
            )
        ],
    )


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


def r2_dllm(case: Case, backend: str) -> Outcome:
    """A rule that the case has not is off: no clusters, or no cell that stays the same for so long."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    done = run(
        "r2_dllm",
        "llama_bidir",
        prompt,
        p["gen_length"],
        backend,
        block=p["block_length"],
        tau=p["threshold"],
        spatial=p.get("spatial_threshold", 1),
        size=p.get("confidence_cluster_size", 3),
        clusters="token_cluster" in p,
        calm=p.get("temporal_steps", 1000),
        temporal=p.get("temporal_threshold", 1),
    )
    return compared(case, [done])


def slow_fast(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    named = {
        "block_length": "block",
        "k_exploration_steps": "explore",
        "cycle_len_confidence_threshold": "far",
        "cycle_length_stability_window": "window",
        "cycle_length_stability_std_dev_threshold": "calm",
        "high_confidence_threshold": "tau",
    }
    params = {ours: p[theirs] for theirs, ours in named.items() if theirs in p}
    return compared(case, [run("slow_fast", "llama_bidir", prompt, p["gen_length"], backend, **params)])


NEAR = (
    "the 14th call decides, of two cells with entropies 1.546 and 1.550, the second; the public loop takes the first "
    "(model.py:548)"
)


def coherent_contextual(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    done = run(
        "coherent_contextual",
        "qwen2_bidir_shift",
        prompt,
        p["gen_length"],
        backend,
        steps=p["steps"],
        expand=p["expand_ratio"],
        seek=p["seek_mode"],
        entropies=p["alg"] == "entropy",
    )
    return compared(case, [done])


FILTER = "the recorded filter is handed over as a function"

ENTRIES = [
    Entry(
        "dllm/ccd",
        "coherent_contextual",
        coherent_contextual,
        "masked",
        differs={("noseek_u2", column): NEAR for column in ("output", "decided")},
    ),
    Entry("dllm2/slow_fast", "slow_fast", slow_fast, "masked"),
    Entry("dllm/r2_dllm", "r2_dllm", r2_dllm, "masked"),
    Entry("dllm2/learn2pd", "learn2pd", learn2pd, "masked", note=FILTER),
    Entry("dllm2/learn2pd_eot", "learn2pd_eot", learn2pd_eot, "masked", note=FILTER),
    Entry("dllm2/saber", "saber", replay("saber", "llama_bidir", {"block_length": "block", "n": "n"}), "masked"),
    Entry(
        "dllm/apd",
        "apd",
        apd,
        "masked",
    ),
]
