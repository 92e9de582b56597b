"""The kernels of a step's bookkeeping, for chains and trees of up to 256 nodes."""

from __future__ import annotations

from decgraph.backends.triton.cubin import Spec

MODULE = "decgraph.backends.triton.step.kernels"


def specs() -> list[Spec]:
    """Every kernel that is launched, in the forms that programs launch."""
    out = [_keys(n, iteration, lanes) for n, iteration, lanes in ((0, -1, 1), (1, -1, 0), (2, 0, 1), (3, 0, 2))]
    out += [_cells(lead, span, words) for lead, span, words in ((1, 1, 1), (0, 2, 1), (2, 2, 1), (1, 1, 2), (7, 7, 9))]
    for ends, block in ((1, 1), (1, 8), (4, 16)):
        longs, ints = ("committed", "ends", "tokens"), ("kept", "length", "base", "limit", "count")
        out.append(
            Spec(
                f"commit_tokens {ends} {block}",
                "commit_tokens",
                {
                    **dict.fromkeys(longs, "*i64"),
                    **dict.fromkeys(ints, "*i32"),
                    "done": "*u8",
                    "lost": "*u8",
                    "row_length": "i32",
                    "n": "i32",
                },
                {"ENDS": ends, "BLOCK": block},
                module=MODULE,
                warps=1,
            )
        )
    for span, path, block in ((1, False, 1), (1, True, 8), (2, True, 16), (7, False, 8)):
        out.append(
            Spec(
                f"compact_cache {span} {block}",
                "compact_cache",
                {
                    **dict.fromkeys(("source", "path", "cells"), "*i64"),
                    **dict.fromkeys(("moved", "after", "length", "cached", "kept"), "*i32"),
                    "deepest": "i32",
                    "cells_b": "i32",
                },
                {"MOST_UNCACHED": span, "BACK": 1, "WITH_PATH": path, "BLOCK": block},
                module=MODULE,
                warps=1,
            )
        )
    pointers = ("tokens", "tested", "accepted", "packed", "node_tokens")
    for block in (2, 8, 16):
        out.append(
            Spec(
                f"accepted_path {block}",
                "accepted_path",
                {
                    **dict.fromkeys(pointers, "*i64"),
                    "count": "*i32",
                    "offered": "*i32",
                    "done": "*u8",
                    "lost": "*u8",
                    **dict.fromkeys(("deepest", "head", "depth", "nodes"), "i32"),
                },
                {"BLOCK": block},
                module=MODULE,
                warps=1,
            )
        )
    return out


def _keys(n: int, iteration: int, lanes: int) -> Spec:
    signature = {
        "out": "*i32",
        "request": "*i32",
        "site": "*i64",
        "iteration": "*i32",
        "counters": "*i64",
        "lanes": "*i64",
        **dict.fromkeys(("counter_b", "counter_r", "lane_b", "lane_r", "rows"), "i32"),
    }
    return Spec(
        f"key_words {n} {iteration} {lanes}",
        "key_words",
        signature,
        {"N": n, "ITERATION": iteration, "LANES": lanes, "BLOCK": 64},
        module="decgraph.backends.triton.step.keys",
        warps=1,
    )


def _cells(lead: int, span: int, words: int) -> Spec:
    longs = ("tokens", "positions", "rows", "committed", "node_tokens", "ids", "depth", "wanted")
    signature = {
        **dict.fromkeys(longs, "*i64"),
        **dict.fromkeys(("bits", "length", "cached", "own"), "*i32"),
        **dict.fromkeys(("row_length", "nodes", "ids_b", "depth_b", "own_b", "want", "count"), "i32"),
    }
    return Spec(
        f"new_cells {lead} {words}",
        "new_cells",
        signature,
        {"LEAD": lead, "MOST_UNCACHED": span, "WORDS": words, "BLOCK": 64, "WANT": 64},
        module=MODULE,
        warps=1,
    )
