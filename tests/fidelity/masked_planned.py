"""Masked decoders whose schedule is planned, and whose scores are weighed: MaskGIT, PC-Sampler, EOSER and ASS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome, recording
from fidelity.masked_blocks import LLADA, replay
from fidelity.masked_noise import tensors, uniform
from fidelity.recorded_noise import Recorded


def maskgit(case: Case, backend: str) -> Outcome:
    """Of every iteration the tokens' noise is recorded and then the choice's, for every cell; greedy cases draw no tokens."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    greedy = p.get("greedy", False)
    sites: list[Any] = []

    def source(key: Recorded, n: int) -> Any:
        if key.site not in sites:
            sites.append(key.site)
        cell, choice = len(prompt) + key.lane[0], greedy or sites.index(key.site) == 1
        at = key.call if greedy else 2 * key.call + choice
        return np.broadcast_to(uniform(tensors("maskgit_noise")[f"{case['id']}.{at}"][0, cell]), n)

    kind = p.get("mask_scheduling_method", "cosine")
    done = run(
        "maskgit",
        "llama_bidir",
        prompt,
        p["gen_length"],
        backend,
        shaping={"temperature": 0 if greedy else 1},
        noise=source,
        steps=p["num_iter"],
        heat=p["choice_temperature"],
        power={"cosine": 0, "uniform": 1}.get(kind) or float(kind.removeprefix("pow") if kind.startswith("pow") else 0),
    )
    return compared(case, [done])


def frequencies(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """How often a token occurs anywhere, as a function."""
    often = recording("dllm/pc_sampler")["background_frequency"]
    return {"externs": {"frequency": lambda token: often[token]}}


def ends(p: Mapping[str, Any]) -> Mapping[str, Any]:
    """The end of a text, which ASS alone does not discount."""
    return {"eos": p["eos_id"], "least": p.get("eos_min_gamma", 1.0), "most": p.get("eos_max_gamma", 1.0)}


EOSER = {"block_length": "block", "steps": "steps", "block_num": "groups"}

ENTRIES = [
    Entry("dllm2/maskgit", "maskgit", maskgit, "masked", note="draws read the recorded noise"),
    Entry(
        "dllm/pc_sampler",
        "pc_sampler",
        replay("pc_sampler", "llama_bidir", LLADA | {"lambd": "lam", "alpha": "alpha"}, also=frequencies),
        "masked",
        note="the recorded frequencies are handed over as a function",
    ),
    *(
        Entry(
            f"dllm/{file}",
            program,
            replay(program, "llama_bidir", EOSER, also=ends),
            "masked",
            note="the canvas is compared, also behind the end of the text",
        )
        for file, program in (("eoser", "eoser"), ("ass", "eoser_ass"), ("eoser_ass", "eoser_ass"))
    ),
]
