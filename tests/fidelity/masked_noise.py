"""Canvases with recorded noise: LLaDA's and Dream's own samplers, sampled; and LLaDA's guidance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from fidelity.canvases import MASK, compared, run
from fidelity.entry import GOLDEN, Case, Entry, Outcome
from fidelity.recorded_noise import Recorded
from safetensors.numpy import load_file

VOCAB = 128


@cache
def tensors(name: str) -> Mapping[str, Any]:
    """A file of recorded integers."""
    return load_file(GOLDEN / f"dllm2/{name}.safetensors")


def uniform(k: Any) -> Any:
    """The recorded integers as the numbers they stand for."""
    return (np.asarray(k, dtype=np.float64) + 0.5) / 65536


UNREAD = 0.5
"""What is read where nothing was recorded: a draw whose answer is certain, or whose token is not used."""


def llada(case: Case, backend: str) -> Outcome:
    """A row after the other. Tokens' noise stands at the cell; the order of a random choice is that of the cells' numbers, the
    largest first, and it is among the block's masked cells."""
    p = case["parameters"]
    length, block, start = p["gen_length"], p["block_length"], len(case["prompt"][0])
    scale = p.get("cfg_scale", 0)

    def of_row(row: int) -> Any:
        def source(key: Recorded, n: int) -> Any:
            first = start + key.counters[0] * block
            if n == VOCAB:
                if "gumbel_noise" not in case:
                    return np.full(n, UNREAD)
                return uniform(tensors("llada_noise_gumbel")[case["gumbel_noise"]][key.call, row, first + key.lane[0]])
            places = [i for i in range(first, first + block) if key.cells[i] == MASK]
            assert n == len(places)
            return uniform([case["noise_k"][key.call][row][i] for i in places])

        return source

    runs = [
        run(
            "llada_guided" if scale else "llada",
            "llama_bidir",
            prompt,
            length,
            backend,
            shaping={"temperature": p.get("temperature", 0)},
            noise=of_row(row),
            block=block,
            steps=p["steps"],
            random=p.get("remasking") == "random",
            **({"scale": scale} if scale else {}),
        )
        for row, prompt in enumerate(case["prompt"])
    ]
    if scale:  # the recorded call has a second row, with masks in the prompt's place; ours is a call of its own
        assert all(a.cells == b.cells for r in runs for a, b in zip(r.calls[::2], r.calls[1::2], strict=True))
        runs = [replace(r, calls=r.calls[::2]) for r in runs]
    return compared(case, runs, width=2 if scale else 1)


PROGRAM = {"origin": "dream_origin", "entropy": "dream", "maskgit_plus": "dream_confidence", "topk_margin": "dream_margin"}


def dream(case: Case, backend: str) -> Outcome:
    """Noise is recorded for masked cells only, in their order; of `origin` the tokens' for those that are decided."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    read = tensors("dream_noise")
    origin, each = p["alg"] == "origin", 2 if p["temperature"] else 1  # without temperature no tokens are drawn

    def row(name: str, cells: list[int], cell: int) -> Any:
        """The recorded numbers of one of some cells."""
        return uniform(read[f"{case['id']}.{name}"][cells.index(cell)]) if cell in cells else UNREAD

    def source(key: Recorded, n: int) -> Any:
        masked = [i for i, t in enumerate(key.cells) if t == MASK]
        cell = len(prompt) + key.lane[0]
        if not origin:
            return np.broadcast_to(row(str(key.call), masked, cell), n)
        if n == 1:
            return np.broadcast_to(row(str(each * key.call), masked, cell), n)
        decided = sorted(i for _, i, _ in case["calls"][key.call]["decided"])
        return np.broadcast_to(row(str(2 * key.call + 1), decided, cell), n)

    shaping = {k: p[k] for k in ("temperature", "top_p", "top_k") if k in p}
    params = {k: p[k] for k in ("steps", "eps") if k in p}
    return compared(
        case,
        [
            run(
                PROGRAM[p["alg"]],
                "qwen2_bidir_shift",
                prompt,
                p["gen_length"],
                backend,
                shaping=shaping,
                noise=source,
                **params,
            )
        ],
    )


ALG_TEMP = "a choice by chance among the surest cells (dream/model/generation_utils.py:486) is in no program of stdlib"

ENTRIES = [
    Entry("dllm/llada_cfg", "llada_guided", llada, "masked", triton=1, note="a call's second row is a call of its own here"),
    Entry("dllm2/llada_noise", "llada", llada, "masked", note="draws read the recorded noise"),
    Entry(
        "dllm2/dream_noise",
        "dream, dream_origin, dream_confidence",
        dream,
        "masked",
        leaves_out={"entropy_alg_temp": ALG_TEMP},
        note="draws read the recorded noise",
    ),
]
