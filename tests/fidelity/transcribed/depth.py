"""Decoders that leave layers out, on free models, whose every state is a hash of what it was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, after, replayed
from fidelity.watched import Watched, run

from decgraph.runtime.models.free import FreeModel
from lab.recordings import depth

SIZE = 11


def target(case: Mapping[str, Any]) -> FreeModel:
    """A model of so many layers."""
    return FreeModel(case["seed"], SIZE, case["layers"])


def free(case: Mapping[str, Any]) -> Columns:
    """A token is the shallow module's where its two likeliest tokens are further apart than the threshold, else the whole
    model's, which has caught up with the tokens that left early; deep: the texts after which it was."""
    whole, text, deep = target(case), list(case["prompt"]), []
    shallow = whole.derive("exit", case["exit"])
    while len(text) < len(case["prompt"]) + case["limit"]:
        p = after(shallow, text)
        second, first = np.sort(p)[-2:]
        if first - second <= case["tau"]:
            deep.append(len(text))
            p = after(whole, text)
        text.append(int(np.argmax(p)))
    return {"tokens": tuple(text), "deep": deep}


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"target": target(case)}


def read(done: Watched, case: Mapping[str, Any]) -> Columns:
    """What ours writes, and the texts after which it called the whole model."""
    return {"tokens": done.tokens, "deep": [len(c.rows[0]) for c in done.calls]}


def unified_skip(case: Mapping[str, Any], backend: str) -> Columns:
    """The text, and the layers that a new token goes through."""
    free = depth.models(case)
    done = run(
        "unified_skip", case["prompt"], free, backend, max_tokens=case["limit"], eos=case["eos"], speedup=case["speedup"]
    )
    return {"tokens": done.tokens}


ENTRIES = [recorded("unified_skip", unified_skip)]
COMPARED = [
    Compared(
        "free",
        "raymin0223/fast_robust_early_exit 3e503c5, models/deploying_t5.py, forward, and util/skip_conf.py",
        free,
        replayed("free", "exit", "tau", models=models, columns=read),
        {
            f"seed{s} exit{depth} tau{tau}": {
                "seed": s, "prompt": (1, 2, s), "limit": 12, "layers": 4, "exit": depth, "tau": tau,
            }
            for s, depth, tau in ((1, 2, 0.02), (2, 1, 0.01), (3, 3, 0.05), (4, 2, 0.9))
        },
        "the threshold is the fixed one; the mixture that adapts it, an option there, is left out",
    ),
]  # fmt: skip
