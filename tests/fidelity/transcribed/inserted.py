"""Blocks whose tokens are deleted and inserted: LLaDA 2.2's decoder in SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity import canvases
from fidelity.masked_models import MASK as SHOWN
from fidelity.transcribed.compared import Columns, Compared

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel

SIZE, HOLE = 6, -1


def model(case: Mapping[str, Any]) -> TableModel:
    return TableModel(SIZE, case["seed"], kind="masked", vocab="t", name="model")


def rows(case: Mapping[str, Any], text: list[int], cells: list[int]) -> np.ndarray:
    whole = (*text, *[MASK if c == HOLE else c for c in cells])
    said = model(case).eval_canvas(whole, list(range(len(text), len(whole))))
    return np.array([[float(w) for w in row.weights] for row in said])


def edited(cells: list[int], before: list[int], first: list[bool], delete: int, split: int) -> tuple[list[int], list[bool]]:
    """A deleted cell is gone, a split one is a mask and what was there; the block keeps its length, with masks at its end."""
    out: list[tuple[int, bool]] = []
    for c, b, f in zip(cells, before, first, strict=True):
        if c == split:
            out += [(HOLE, False), (b, f)]
        elif c != delete:
            out.append((c, f))
    out = (out + [(HOLE, False)] * len(cells))[: len(cells)]
    return [c for c, _ in out], [f for _, f in out]


def block_of(case: Mapping[str, Any], text: list[int], n: int, seen: list[tuple[int, ...]]) -> list[int]:
    """One block, from masks on; every canvas that was asked goes into `seen`."""
    cells, first = [HOLE] * n, [True] * n
    past: list[tuple[int, ...]] = []
    written: dict[int, set[int]] = {}
    full = 0
    while True:
        seen.append((*text, *(SHOWN if c == HOLE else c for c in cells)))
        p = rows(case, text, cells)
        x, sure = p.argmax(1), p.max(1)
        open_ = np.array([c == HOLE for c in cells])
        old = int((open_ & first).sum())
        need = 1 + int(open_.sum()) - old
        if old == 0:
            put = open_.copy()
            full += 1
        else:
            put = open_ & (sure > case["tau"])
            if put.sum() < need:
                put = np.zeros(n, dtype=bool)
                put[np.argsort(-np.where(open_, sure, -np.inf), kind="stable")[: min(need, int(open_.sum()))]] = True
        last = full > case["rounds"]
        if last:
            bare = p.copy()
            bare[:, [case["delete"], case["split"]]] = 0
            x = bare.argmax(1)
        change = put | (~open_ & (x != cells) & (sure > case["edit"]))
        if not change.any():
            return cells
        if tuple(cells) in past and not last:
            moving = [i for i in range(n) if change[i] and x[i] != cells[i]]
            if moving:
                i = min(moving, key=lambda i: sure[i])
                row = p[i].copy()
                row[list(written.get(i, ()))] = 0
                x[i] = row.argmax()
        past.append(tuple(cells))
        before = list(cells)
        for i in np.flatnonzero(change):
            written.setdefault(int(i), set()).add(int(x[i]))
            cells[i] = int(x[i])
        cells, first = edited(cells, before, first, case["delete"], case["split"])
        if last:
            return cells


def indel(case: Mapping[str, Any]) -> Columns:
    """Blocks one after the other; the first ends where the prompt's last block does."""
    text, seen = list(case["prompt"]), []
    while len(text) < len(case["prompt"]) + case["limit"]:
        text += block_of(case, text, case["block"] - len(text) % case["block"], seen)
    return {"output": tuple(text[: len(case["prompt"]) + case["limit"]]), "asked": seen}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("block", "tau", "edit", "rounds", "delete", "split")}
    done = canvases.run("joint_threshold_indel", model(case), case["prompt"], case["limit"], backend, **params)
    return {"output": done.output, "asked": [c.cells for c in done.calls]}


CASE = {"prompt": (1, 2, 3), "limit": 9, "block": 6, "tau": 0.31, "edit": 0.26, "rounds": 4, "delete": 4, "split": 5}

COMPARED = [
    Compared(
        "joint_threshold_indel",
        "sgl-project/sglang, python/sglang/srt/dllm/algorithm/joint_threshold_indel.py, on a branch",
        indel,
        ours,
        {
            f"seed{s}": {**CASE, "seed": s, **more}
            for s, more in ((1, {}), (6, {"edit": 0.01}), (3, {"rounds": 16}), (4, {"tau": 0.61}))
        },
        "a first block holds none of the prompt's tokens; of equally sure masks SGLang takes any",
    )
]
