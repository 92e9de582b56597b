"""The kernels of this folder at the sizes that real models launch, to be compiled for devices that are not there."""

from __future__ import annotations

from typing import Any

from decgraph.backends.triton.attention.attend import MERGE_WARPS
from decgraph.backends.triton.attention.move import ELEMENTS
from decgraph.backends.triton.attention.sizes import default, merged_rows, power, tile_rows
from decgraph.backends.triton.attention.tree import WORDS, tree_warps
from decgraph.backends.triton.cubin import ARCHES, Spec

FOLDER = "decgraph.backends.triton.attention"
POINTERS = {
    "cached": "*i32",
    "bits": "*i32",
    "positions": "*i64",
    "tail_positions": "*i64",
    "offset": "*i32",
    "hidden": "*u8",
    "row_blocks": "*i32",
    "slot_blocks": "*i32",
    "logs": "*fp32",
    "parts": "*fp32",
    "stats": "*fp32",
}
COUNTS = ("batch", "heads", "tiles", "cells", "extra", "words", "capacity", "tail_width")
STRIDES = ("q_batch", "q_cell", "q_head", "k_batch", "k_head", "k_slot", "v_batch", "v_head", "v_slot")
PLAIN = {"TAIL": True, "WINDOW": 0, "SHIFTED": False, "HIDDEN": False, "CAUSAL": False, "CAP": False, "LOGS": False}
MODELS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "8b": (4, 128, {}),
    "1b": (4, 64, {}),
    "gemma": (2, 256, {"WINDOW": 4096, "CAP": True}),
    "80": (1, 80, {}),
}
"""Query heads of a key/value head, head size and flags."""
FORMS: dict[str, dict[str, Any]] = {
    "": {},
    " canvas": {"TAIL": False, "WINDOW": 0, "HIDDEN": True, "CAUSAL": True},
    " prefix": {"TAIL": False, "LOGS": True},
    " joined": {"SHIFTED": True, "LOGS": True},
}
CELLS = (1, 8, 16, 64)
"""64 cells and more make tiles of one size. Forms other than the plain one are compiled for the smallest and the largest."""


def attend_spec(
    name: str, cells: int, group: int, size: int, flags: dict[str, Any], arch: int, dtype: str = "bf16", batch: int = 1
) -> Spec:
    """attend_runs for so many cells, with the default sizes of an architecture."""
    itemsize, pad = 4 if dtype == "fp32" else 2, max(power(size), 16)
    rows = tile_rows(cells * group, pad, itemsize, arch)
    c = default(rows, pad, itemsize, 132, arch)
    constexprs = {
        "BATCH": power(batch),
        "GROUP": group,
        "ROWS": rows,
        "BLOCK": c.block,
        "DK": size,
        "DV": size,
        "DK_PAD": pad,
        "DV_PAD": pad,
        **PLAIN,
        **flags,
    }
    out = "fp32" if constexprs["LOGS"] else dtype
    signature = {
        **POINTERS,
        **dict.fromkeys(("q", "keys", "values"), f"*{dtype}"),
        "out": f"*{out}",
        **dict.fromkeys((*COUNTS, *STRIDES), "i32"),
        "scale": "fp32",
        "cap": "fp32",
    }
    return Spec(
        name,
        "attend_runs",
        signature,
        constexprs,
        module=f"{FOLDER}.runs",
        warps=c.warps,
        stages=c.stages,
        aligned=("capacity", *STRIDES),
        arches=(arch,),
    )


def merge_spec(name: str, group: int, size: int, rows: int, splits: int, join: bool) -> Spec:
    """merge_runs for a tile of `rows` rows in that many parts."""
    pad = max(power(size), 16)
    constexprs = {
        "BATCH": 1,
        "GROUP": group,
        "ROWS": rows,
        "BLOCK": 64,
        "WINDOW": 0,
        "DV": size,
        "DV_PAD": pad,
        "SPLITS": splits,
        "SOME": merged_rows(rows, splits, pad),
        "JOIN": join,
        "LOGS": not join,
    }
    signature = {
        "cached": "*i32",
        "out": "*bf16",
        **dict.fromkeys(("parts", "stats", "done", "done_logs", "other", "other_logs", "logs"), "*fp32"),
        **dict.fromkeys(("batch", "heads", "tiles", "cells", "extra", "runs"), "i32"),
    }
    return Spec(name, "merge_runs", signature, constexprs, module=f"{FOLDER}.runs", warps=MERGE_WARPS)


def move_spec(name: str, paths: int, width: int) -> Spec:
    """move_cells for that many accepted cells of caches of bfloat16."""
    lanes = power(paths)
    signature = {
        "table": "*i64",
        "cached": "*i32",
        "source": "*i64",
        "count": "*i32",
        "paths": "i32",
        **dict.fromkeys(("heads", "capacity", "width", "batch_stride", "head_stride", "slot_stride"), "i32"),
    }
    constexprs = {"K": lanes, "PART": min(power(width), max(ELEMENTS // lanes, 16)), "ELEMENT": "int16", "ALIGNED": True}
    return Spec(
        name,
        "move_cells",
        signature,
        constexprs,
        module=f"{FOLDER}.move",
        aligned=("width", "batch_stride", "head_stride", "slot_stride"),
    )


def tree_specs() -> list[Spec]:
    """Bits of trees of up to 512 nodes, and of chains."""
    out = []
    for nodes in (8, 64, 512):
        words = -(-nodes // 32) + 1
        signature = {
            "parent": "*i64",
            "uncached": "*i32",
            "bits": "*i32",
            "jumps": "*i32",
            **dict.fromkeys(("nodes", "words", "offset"), "i32"),
        }
        constexprs = {"N": nodes, "W": min(power(words), WORDS), "UNCACHED": True}
        out.append(
            Spec(f"ancestors {nodes}", "ancestor_bits", signature, constexprs, module=f"{FOLDER}.tree", warps=tree_warps(nodes))
        )
    signature = {"count": "*i32", "bits": "*i32", "cells": "i32", "words": "i32"}
    return [*out, Spec("chains 16", "chain_bits", signature, {"T": 16, "W": 4}, module=f"{FOLDER}.tree")]


def specs() -> list[Spec]:
    """Every kernel that is launched for the models above."""
    out = tree_specs()
    for paths, width in ((8, 128), (64, 128), (16, 4096)):
        out.append(move_spec(f"move {paths} x {width}", paths, width))
    for model, (group, size, flags) in MODELS.items():
        for arch in ARCHES:
            for cells in CELLS:
                for form, more in FORMS.items():
                    if not form or cells in (CELLS[0], CELLS[-1]):
                        out.append(attend_spec(f"attend {model} T={cells}{form}", cells, group, size, {**flags, **more}, arch))
            out.append(attend_spec(f"attend {model} T=64 fp32", 64, group, size, flags, arch, "fp32"))
            out.append(attend_spec(f"attend {model} T=1 B=64", 1, group, size, flags, arch, batch=64))
        for splits in (2, 8, 32 if size <= 128 else 16):
            for join in (False, True):
                out.append(merge_spec(f"merge {model} {splits}{' join' if join else ''}", group, size, 16, splits, join))
    return out
