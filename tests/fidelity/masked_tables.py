"""Masked programs on tables, as lab/recordings/canvases.py recorded their authors' code."""

from __future__ import annotations

from typing import Any

from fidelity.canvases import MASK, run
from fidelity.entry import Case, Columns, Entry, recorded
from fidelity.recorded_noise import Recorded

from lab.recordings.canvases import canvas, uniforms
from lab.recordings.tables import untied


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


def fast_diffuser(case: Case, backend: str) -> Columns:
    """Blocks lie on a grid, so the canvas of a call ends where its block does."""
    begin, block = len(case["prompt"]), case["block"]

    def races(key: Recorded, n: int) -> Any:
        return uniforms(case["seed"], key.call, max(begin, len(key.cells) - block) + key.lane[0], n)

    drawn = {"noise": races, "shaping": {"temperature": case["temperature"]}} if case["temperature"] else {}
    table, length = canvas(case["size"], case["seed"]), case["blocks"] * block + begin // block * block - begin
    found = run("fast_diffuser", table, case["prompt"], length, backend, block=block, tau=case["tau"], **drawn)
    canvases = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": found.output, "canvases": canvases}


def pangu_block(case: Case, backend: str) -> Columns:
    """Both ways of reading the model; its calls are those about masks. A recorded text ends at its end token."""
    table, other = canvas(case["size"], case["seed"]), untied(case["size"], case["seed"], window=None)
    params = {name: case[name] for name in ("block", "small", "tau", "entropies")}
    length, ends = case["blocks"] * case["block"], {"eos": case["eos"]} if case["eos"] else {}
    found = run("pangu_block", table, case["prompt"], length, backend, others={"target": other}, **ends, **params)
    calls = [[-1 if cell == MASK else cell for cell in call.cells] for call in found.calls]
    return {"output": [*case["prompt"], *found.result.tokens], "canvases": [cells for cells in calls if -1 in cells]}


ENTRIES = [
    filled("fast_dllm_plusplus", "margin"),
    recorded("fast_diffuser", fast_diffuser, kind="masked"),
    recorded("pangu_block", pangu_block, kind="masked"),
]
