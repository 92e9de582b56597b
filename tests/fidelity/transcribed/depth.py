"""Decoders that leave layers out, on free models, whose every state is a hash of what it was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, replayed, tokens
from fidelity.watched import Watched

from decgraph.runtime.models.free import FreeModel

SIZE = 11


def target(case: Mapping[str, Any]) -> FreeModel:
    """A model of so many layers."""
    return FreeModel(case["seed"], SIZE, case["layers"])


def unified_skip(case: Mapping[str, Any]) -> Columns:
    """The prompt by all layers, new tokens by the reserved ones."""
    layers = case["layers"]
    many = max(2, int(layers / case["speedup"]))
    reserved = [0, layers - 1]
    for idx in range(1, layers - 1):
        if idx % int(layers / (many - 1)) == 0 and len(reserved) < many:
            reserved.append(idx)
    whole, text = target(case), list(case["prompt"])
    small = whole.derive("skip", *[frozenset(range(layers)) - set(reserved)] * 2)
    memory = whole.memory(tuple(text))
    text.append(int(np.argmax(after(whole, text))))
    while len(text) < len(case["prompt"]) + case["limit"]:
        row = small.eval([tuple(text)], memory)[0]
        memory = small.memory(tuple(text), memory=memory)
        text.append(int(np.argmax([float(w) for w in row.weights])))
    return {"tokens": tuple(text)}


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


COMPARED = [
    Compared(
        "unified_skip",
        "Adaxry/Unified_Layer_Skipping ad84c1e, codes/run_clm_llms.py and codes/modeling_bloom.py, BloomModel.forward",
        unified_skip,
        replayed("unified_skip", "speedup", models=models, columns=tokens),
        {
            f"seed{s} {layers} layers by {speedup}": {
                "seed": s, "prompt": (1, 2, s), "limit": 8, "layers": layers, "speedup": speedup,
            }
            for s, layers, speedup in ((1, 6, 2.0), (2, 9, 1.5), (3, 10, 3.0), (4, 7, 5.0), (5, 8, 1.0), (7, 11, 2.9))
        },
    ),
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
