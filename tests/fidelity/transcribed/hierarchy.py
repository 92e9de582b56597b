"""Blocks of sub-blocks: SGLang's serving of Fast-dLLM v2, which computes the whole block in every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity import canvases
from fidelity.masked_models import MASK as SHOWN
from fidelity.transcribed.compared import Columns, Compared

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel

SIZE = 6


def model(case: Mapping[str, Any]) -> TableModel:
    """Every cell sees its own block and those before it."""
    return TableModel(SIZE, case["seed"], kind="masked", visibility=("block", case["block"]), vocab="t", name="model")


def rows(case: Mapping[str, Any], cells: list[Any], at: range) -> np.ndarray:
    said = model(case).eval_canvas(tuple(cells), list(at))
    return np.array([[float(w) for w in row.weights or ()] for row in said])


def sglang(case: Mapping[str, Any]) -> Columns:
    """Sub-block by sub-block what is surer than the threshold, or else the surest. When a block is full, another call says the
    next block's first token."""
    text, end, block = list(case["prompt"]), len(case["prompt"]) + case["length"], case["block"]
    seen: list[tuple[int, ...]] = []
    inherited = None
    for begin in range(0, end, block):
        text += [MASK] * (begin + block - len(text))
        if text[begin] == MASK and inherited is not None:
            text[begin] = inherited
        for first in range(begin, begin + block, case["small"]):
            part = range(first, min(first + case["small"], begin + block))
            while any(text[i] == MASK for i in part):
                seen.append(tuple(SHOWN if c == MASK else c for c in text))
                p = rows(case, text, range(begin, begin + block))[first - begin : part.stop - begin]
                sure = np.where([text[i] == MASK for i in part], p.max(1), -np.inf)
                put = sure > case["tau"]
                if not put.any():
                    put[sure.argmax()] = True
                for i in np.flatnonzero(put):
                    text[first + i] = int(p[i].argmax())
        if begin + block < end:
            inherited = int(rows(case, [*text[: begin + block], MASK], range(begin + block, begin + block + 1))[0].argmax())
    return {"output": tuple(text), "canvases": seen}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("block", "small", "tau")}
    done = canvases.run("fast_dllm_v2", model(case), case["prompt"], case["length"], backend, hold=False, **params)
    return {"output": done.output, "canvases": [c.cells for c in done.calls if len(c.computed) == case["block"]]}


COMPARED = [
    Compared(
        "fast_dllm_v2",
        "sgl-project/sglang 0146dbcd, python/sglang/srt/dllm/algorithm/hierarchy_block.py, HierarchyBlock.run",
        sglang,
        ours,
        {
            f"seed{s} {b} in {n}": {"seed": s, "prompt": prompt, "length": length, "block": b, "small": n, "tau": tau}
            for s, prompt, length, b, n, tau in (
                (1, (1, 2, 3), 9, 6, 3, 0.3),
                (2, (1, 2, 3, 4), 8, 4, 2, 0.9),
                (3, (5,), 11, 4, 4, 0.25),
                (4, (1, 2, 0, 3, 5), 7, 6, 2, 0.28),
            )
        },
        "with hold = no; the call of a last full block, whose answer nobody reads, is left out",
    )
]
