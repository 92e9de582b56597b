"""Blocks that are called until they stay as they are: the Jacobi decoding of CLLMs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after
from fidelity.watched import Watched, run

from decgraph.runtime.models.table import TableModel

SIZE = 12


def target(case: Mapping[str, Any]) -> TableModel:
    return TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")


def watched(case: Mapping[str, Any], backend: str) -> Watched:
    models = {"target": target(case)}
    return run("consistency_llm", case["prompt"], models, backend, max_tokens=case["limit"], length=case["length"])


def columns(done: Watched) -> list[tuple[int, Text]]:
    """By call, the text that it stands on and the guesses behind that."""
    return [(c.past, max(c.drafted, key=len, default=())) for c in done.calls]


def consistency_llm(case: Mapping[str, Any]) -> Columns:
    """A block is an exact token and guesses, which are drawn from the text in ours and taken from there; every call moves its
    answers one place to the right, until nothing changes."""
    drawn = {}
    for past, chain in columns(watched(case, "reference")):
        drawn.setdefault(past, chain)
    model, text, end = target(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    calls: list[tuple[int, Text]] = [(len(text), ())]
    token = int(np.argmax(after(model, text)))
    while len(text) + 1 < end:
        guesses = list(drawn[len(text) + 1])
        assert set(guesses) <= {*text, token} and len(guesses) == min(case["length"] - 1, end - len(text) - 2)
        while True:
            calls.append((len(text) + 1, tuple(guesses)))
            said = [int(np.argmax(after(model, (*text, token, *guesses[:i])))) for i in range(len(guesses) + 1)]
            if said[:-1] == guesses:
                break
            guesses = said[:-1]
        text += [token, *guesses]
        token = said[-1]
    return {"tokens": (*text, token)[:end], "calls": calls}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    done = watched(case, backend)
    return {"tokens": done.tokens, "calls": columns(done)}


COMPARED = [
    Compared(
        "consistency_llm",
        "hao-ai-lab/Consistency_LLM 22775363, cllm/cllm_llama_modeling.py, jacobi_forward_profiling; eval/gsm8k/speedup.py",
        consistency_llm,
        ours,
        {
            f"seed{s}": {"seed": s, "prompt": (1, 2, 3, s), "limit": n, "length": k}
            for s, n, k in ((1, 16, 5), (2, 14, 4), (3, 20, 16))
        },
        "the guesses, tokens drawn from the text, are ours in both; a last block is as long as the limit leaves it",
    )
]
