"""The kernels of this folder at the sizes that real models launch, to be compiled for devices that are not there."""
from __future__ import annotations

from typing import Any

from decgraph.backends.triton.attention.attend import MERGE_WARPS
from decgraph.backends.triton.attention.sizes import default, power, tile_rows
from decgraph.backends.triton.cubin import Spec

RUNS = "decgraph.backends.triton.attention.runs"
POINTERS = {"held": "*i32", "bits": "*i32", "positions": "*i64", "tail_positions": "*i64", "offset": "*i32", "hidden": "*u8",
            "row_blocks": "*i32", "slot_blocks": "*i32", "logs": "*fp32", "parts": "*fp32", "stats": "*fp32"}
COUNTS = ("batch", "heads", "tiles", "cells", "extra", "words", "capacity", "tail_width")
STRIDES = ("q_batch", "q_cell", "q_head", "k_batch", "k_head", "k_slot", "v_batch", "v_head", "v_slot", "hidden_batch",
           "blocks_batch")
MODELS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "8b": (4, 128, {}),
    "1b": (4, 64, {}),
    "gemma": (2, 256, {"WINDOW": 4096, "CAP": True}),
    "80": (1, 80, {}),
}
"""Query heads of a key/value head, head size and flags."""
FORMS: dict[str, dict[str, Any]] = {
    "": {},
    " canvas": {"TAIL": False, "HIDDEN": True, "CAUSAL": True},
    " prefix": {"TAIL": False, "LOGS": True},
}


def attend_spec(name: str, cells: int, group: int, size: int, flags: dict[str, Any], dtype: str = "bf16") -> Spec:
    """attend_runs for so many cells, with the default sizes."""
    itemsize, pad = 4 if dtype == "fp32" else 2, max(power(size), 16)
    rows = tile_rows(cells * group, pad, itemsize)
    c = default(rows, pad, itemsize, 132)
    constexprs = {"BATCH": 1, "GROUP": group, "ROWS": rows, "BLOCK": c.block, "DK": size, "DV": size, "DK_PAD": pad, "DV_PAD": pad,
                  "TAIL": True, "WINDOW": 0, "SHIFTED": False, "HIDDEN": False, "CAUSAL": False, "CAP": False, "LOGS": False, **flags}
    signature = {**POINTERS, **{n: f"*{dtype}" for n in ("q", "keys", "values", "out")}, **{n: "i32" for n in (*COUNTS, *STRIDES)},
                 "scale": "fp32", "cap": "fp32"}
    return Spec(name, "attend_runs", signature, constexprs, module=RUNS, warps=c.warps, stages=c.stages,
                aligned=("capacity", *STRIDES))


def merge_spec(name: str, group: int, size: int, rows: int, splits: int, join: bool) -> Spec:
    """merge_runs for a tile of `rows` rows in that many parts."""
    pad = max(power(size), 16)
    constexprs = {"BATCH": 1, "GROUP": group, "ROWS": rows, "BLOCK": 64, "WINDOW": 0, "DV": size, "DV_PAD": pad, "SPLITS": splits,
                  "SOME": min(rows, max(4096 // (splits * pad), 1)), "JOIN": join, "LOGS": join}
    signature = {"held": "*i32", **{n: "*fp32" for n in ("parts", "stats", "done", "done_logs", "other", "other_logs", "logs")},
                 "out": "*bf16", **{n: "i32" for n in ("batch", "heads", "tiles", "cells", "extra", "runs")}}
    return Spec(name, "merge_runs", signature, constexprs, module=RUNS, warps=MERGE_WARPS)


def specs() -> list[Spec]:
    """Every kernel that is launched for the models above."""
    out = []
    for model, (group, size, flags) in MODELS.items():
        for cells in (1, 8, 64, 256):
            for form, more in FORMS.items():
                out.append(attend_spec(f"attend {model} T={cells}{form}", cells, group, size, {**flags, **more}))
        out.append(attend_spec(f"attend {model} T=64 fp32", 64, group, size, flags, "fp32"))
        for splits in (2, 8, 32 if size <= 128 else 16):
            for join in (False, True):
                out.append(merge_spec(f"merge {model} {splits}{' join' if join else ''}", group, size, 16, splits, join))
    return out
