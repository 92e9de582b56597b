"""Block diffusion of engines on tables, as lab/recordings/blocks.py recorded it."""

from __future__ import annotations

from typing import Any

from fidelity.canvases import MASK, run
from fidelity.entry import Case, Columns, recorded
from fidelity.recorded_noise import Recorded

from lab.recordings.canvases import canvas, uniforms
from lab.recordings.tables import untied


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
    recorded("fast_diffuser", fast_diffuser, kind="masked"),
    recorded("pangu_block", pangu_block, kind="masked"),
]
