"""Drafts that a text and the target's own calls give: TR-Jacobi."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, replayed
from fidelity.transcribed.eagle_trees import cases, columns, target

only_target = partial(replayed, models=lambda case: {"target": target(case)}, columns=columns, beyond=16)


def tr_jacobi(case: Mapping[str, Any]) -> Columns:
    """Paths in the template's order, the copied chain first; the first of the longest accepted ones tells the candidates: the
    target's likeliest tokens after its rejected nodes and, where it is shorter than the longest path, after the root."""
    model, k, copy = target(case), case["k"], case["copy"]
    template = [tuple(p) for p in json.loads(case["shape"])]
    fill = [case["prompt"][i % len(case["prompt"])] for i in range(max(k, copy))]
    leaves = [t for t in template if not any(other[:-1] == t for other in template)]
    text, drafted, accepted = list(case["prompt"]), [], []
    rows: list[list[int]] = []
    copied: list[int] = []
    while len(text) < len(case["prompt"]) + case["limit"]:
        chain = tuple([*copied, *fill][:copy])
        level = [rows[d] if d < len(rows) else fill[:k] for d in range(copy)]
        paths = [chain, *(tuple(level[d][rank] for d, rank in enumerate(leaf)) for leaf in leaves)]
        drafted.append(sorted({path[: i + 1] for path in paths for i in range(len(path))}))

        def kept(path: Text, text: list[int] = text) -> int:
            n = 0
            while n < len(path) and path[n] == best(after(model, (*text, *path[:n])), 1)[0]:
                n += 1
            return n

        chosen = max(paths, key=kept)  # the first of equals
        n = kept(chosen)
        tail = [chosen[: i + 1] for i in range(n, len(chosen))]
        tail += [()] * (copy - len(chosen))
        rows = [best(after(model, (*text, *path)), k) for path in tail]
        text += [*chosen[:n], best(after(model, (*text, *chosen[:n])), 1)[0]]
        accepted.append(n)
        windows = [text[i : i + 3] for i in range(len(text) - 5)]  # none of them reaches into the last three tokens
        same = [int(np.cumprod([a == b for a, b in zip(w[::-1], text[:-4:-1], strict=True)]).sum()) for w in windows]
        start = int(np.argmax(same)) + 3
        copied = text[start : start + copy]
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def regular(*widths: int) -> str:
    """A template of paths of ranks, level by level."""
    level: list[list[int]] = [[]]
    out: list[list[int]] = []
    for width in widths:
        level = [[*path, rank] for path in level for rank in range(width)]
        out += level
    return json.dumps(out)


COMPARED = [
    Compared(
        "tr_jacobi",
        "wyxstriker/MakeSomeNoiseInference 253af851, model/noise_forward.py, noise_forward",
        tr_jacobi,
        only_target("tr_jacobi", "shape", "k", "copy"),
        cases(
            {"shape": regular(3, 2), "k": 3, "copy": 3, "limit": 24, "size": 5, "prompt": (0, 1, 2, 0, 3, 1, 4)},
            {
                "shape": "[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]",
                "k": 4,
                "copy": 5,
                "limit": 24,
                "size": 6,
                "prompt": (5, 1, 2, 0, 3, 4),
            },
        ),
        "the tokens that fill what is not known are the prompt's in turn, theirs random ones of the text; a template level by "
        "level (of the published one, 63 nodes, one node's first path is another); the root never continues a path",
    ),
]
