"""Masked decoders that stdlib does not have and the language says: their programs are in programs/. It reads shifted scores."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fidelity.canvases import compared, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_blocks import Replay

import decgraph


def replay(name: str, cache: str | None) -> Replay:
    """A program on the recorded Dream, under one of its caches."""

    def go(case: Case, backend: str) -> Outcome:
        p = case["parameters"]
        named = {"block_length": "block", "steps": "steps", "threshold": "tau"}
        known = decgraph.load(name).module.entry.params
        params = {ours: p[theirs] for theirs, ours in named.items() if theirs in p and ours in [k.name for k in known]}
        if name == "fast_dllm_dream":
            params["entropies"] = p["alg"] == "entropy"
        (row,) = case["prompt"]
        done = run(name, "qwen2_bidir_shift", row, p["gen_length"], backend, cache=cache, **params)
        return compared(case, [done])

    return go


def written(file: str, name: str, cache: str | None = None, leaves_out: Mapping[str, str] = MappingProxyType({})) -> Entry:
    said = name + (f", cache {cache}" if cache else "")
    return Entry(file, said, replay(name, cache), "masked", triton=1, leaves_out=leaves_out)


ENTRIES = [
    *(written(f"dllm/fast_dllm_dream_{kind}", "fast_dllm_dream", kind) for kind in ("dual", "prefix")),
    written("dllm/fast_dllm_dream_none", "fast_dllm_dream_quota"),
]
