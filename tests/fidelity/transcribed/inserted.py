"""Blocks whose tokens are deleted and inserted, and blocks of sub-blocks: SGLang's decoders of LLaDA 2.2 and Fast-dLLM v2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity import canvases
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared

from lab.recordings.sglang import blocks_of


def joint_threshold_indel(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("block", "tau", "edit", "rounds", "delete", "split")}
    done = canvases.run("joint_threshold_indel", blocks_of(case), case["prompt"], case["limit"], backend, **params)
    return {"output": done.output, "asked": [c.cells for c in done.calls]}


def fast_dllm_v2(case: Mapping[str, Any], backend: str) -> Columns:
    """Without `hold`, the whole block is computed in every call."""
    params, model = {name: case[name] for name in ("block", "small", "tau")}, blocks_of(case, whole=False)
    done = canvases.run("fast_dllm_v2", model, case["prompt"], case["limit"], backend, hold=False, **params)
    return {"output": done.output, "canvases": [c.cells for c in done.calls if len(c.computed) == case["block"]]}


ENTRIES = [
    recorded("joint_threshold_indel", joint_threshold_indel, kind="masked"),
    recorded("fast_dllm_v2", fast_dllm_v2, "sglang_hierarchy", kind="masked"),
]
COMPARED: list[Compared] = []
