"""Masked programs on tables, as lab/recordings/canvases.py recorded their authors' code."""

from __future__ import annotations

from typing import Any

from fidelity.canvases import MASK, run
from fidelity.entry import Case, Columns, Entry, recorded
from fidelity.recorded_noise import Recorded

from lab.recordings.canvases import canvas, uniforms


def filled(program: str, *names: str, cache: str | None = None) -> Entry:
    """An entry of a decoder that fills its canvas block by block. names: parameters of the program besides the block."""

    def ours(case: Case, backend: str) -> Columns:
        start = len(case["prompt"])

        def races(key: Recorded, n: int) -> Any:
            return uniforms(case["seed"], key.call, start + key.counters[0] * case["block"] + key.lane[0], n)

        drawn = {"noise": races, "shaping": {"temperature": case["temperature"]}} if case["temperature"] else {}
        params = {name: case[name] for name in ("block", *names)}
        table = canvas(case["size"], case["seed"])
        found = run(program, table, case["prompt"], case["length"], backend, cache=cache, **drawn, **params)
        return {
            "output": found.output,
            "canvases": [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls],
            "computed": [call.computed for call in found.calls],
        }

    return recorded(program, ours, kind="masked")


def guided(case: Case, backend: str) -> Columns:
    """Every second call is that behind masks."""
    start = len(case["prompt"])

    def races(key: Recorded, n: int) -> Any:
        return uniforms(case["seed"], key.call, start + key.counters[0] * case["block"] + key.lane[0], n)

    drawn = {"noise": races, "shaping": {"temperature": case["temperature"]}} if case["temperature"] else {}
    params = {name: case[name] for name in ("block", "steps", "scale")}
    table = canvas(case["size"], case["seed"])
    found = run("llada_guided", table, case["prompt"], case["length"], backend, **drawn, **params)
    asked = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": found.output, "canvases": asked[::2]}


ENTRIES = [
    filled("fast_dllm_plusplus", "margin"),
    filled("fast_dllm_prefix", "tau"),
    filled("fast_dllm_factor", "factor"),
    recorded("llada_guided", guided, kind="masked"),
]
