"""Texts whose source is still being read: wait-k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.watched import run

from decgraph.runtime.models.table import TableModel


def target(case: Mapping[str, Any]) -> TableModel:
    """A table that reads all of the text."""
    return TableModel(5, case["seed"], vocab="t", name="target")


def wait_k(case: Mapping[str, Any]) -> Columns:
    """At every step the source is cut to the number of the step and k more tokens; greedy."""
    output: list[int] = []
    read = []
    for step in range(case["limit"]):
        visible = case["source"][: step + case["k"]]
        read.append((*visible, *case["prompt"], *output))
        output.append(int(np.argmax(after(target(case), read[-1]))))
    return {"tokens": (*case["prompt"], *output), "read": read}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    models = {"target": target(case)}
    done = run("wait_k", case["prompt"], models, backend, max_tokens=case["limit"], source=list(case["source"]), k=case["k"])
    return {"tokens": done.tokens, "read": [row for c in done.calls for row in c.rows]}


COMPARED = [
    Compared(
        "wait_k",
        "elbayadm/attn2d 98265343, examples/waitk/generators/waitk_sequence_generator.py",
        wait_k,
        ours,
        {
            f"k {k}": {"seed": k, "source": (1, 2, 3, 4, 0, 1, 3, 2)[:n], "prompt": (4, 2), "limit": 9, "k": k}
            for k, n in ((1, 8), (3, 8), (5, 4))
        },
        "a beam of one, as in the README; the source stands before the prompt, in the place of an encoder's",
    )
]
