"""Masked decoders whose schedule is planned, and whose scores are weighed: MaskGIT, PC-Sampler, EOSER and ASS."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome, recording
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


def pc_sampler(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    (prompt,) = case["prompt"]
    often = recording("dllm/pc_sampler")["background_frequency"]
    done = run(
        "pc_sampler",
        "llama_bidir",
        prompt,
        p["gen_length"],
        backend,
        externs={"frequency": lambda token: often[token]},
        block=p["block_length"],
        steps=p["steps"],
        lam=p["lambd"],
        alpha=p["alpha"],
    )
    return compared(case, [done])


def eoser(case: Case, backend: str) -> Outcome:
    """All three files: LLaDA's schedule where there are blocks of a length, else ascending steps; ASS discounts nothing."""
    p = case["parameters"]
    (prompt,) = case["prompt"]
    program = "eoser" if "block_length" in p else "eoser_ass"
    named = {
        "block_length": "block",
        "steps": "steps",
        "block_num": "groups",
        "eos_min_gamma": "least",
        "eos_max_gamma": "most",
    }
    params = {"least": 1.0, "most": 1.0} | {ours: p[theirs] for theirs, ours in named.items() if theirs in p}
    return compared(case, [run(program, "llama_bidir", prompt, p["gen_length"], backend, eos=p["eos_id"], **params)])


ENTRIES = [
    Entry("dllm2/maskgit", "maskgit", maskgit, "masked", note="draws read the recorded noise"),
    Entry("dllm/pc_sampler", "pc_sampler", pc_sampler, "masked", note="the recorded frequencies are handed over as a function"),
    *(
        Entry(f"dllm/{file}", program, eoser, "masked", note="the canvas is compared, also behind the end of the text")
        for file, program in (("eoser", "eoser"), ("ass", "eoser_ass"), ("eoser_ass", "eoser_ass"))
    ),
]
