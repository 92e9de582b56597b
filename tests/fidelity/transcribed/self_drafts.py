"""Drafts of the target itself on keys and values of less precision, of fewer places, or by fewer layers: QuantSpec, MagicDec,
KNN-SSD. Their scripts are greedy. The last token of a prompt here is the one that their prefill writes.

QuantSpec and MagicDec run on free models, whose every state is a hash of what it was computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from fidelity import models
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, verified
from fidelity.watched import run

from decgraph.runtime.models.free import FreeModel

SIZE = 11
Draft = Callable[[Text, int], Sequence[int]]


def free(case: Mapping[str, Any]) -> Any:
    return FreeModel(case["seed"], case.get("size", SIZE), 3)


def likeliest(model: Any, text: Text, memory: Any) -> int:
    """The greedy token of a call on a memory, the first of equals."""
    (row,) = model.eval([text], memory)
    return int(np.argmax([float(w) for w in row.weights]))


def chains(case: Mapping[str, Any], draft: Draft, target: Any = None) -> Columns:
    """A loop of drafts, at most so many as still fit, of which the target keeps what it would have written."""
    target = target or free(case)
    text, drafted, accepted, end = tuple(case["prompt"]), [], [], len(case["prompt"]) + case["limit"]
    while len(text) < end:
        chain = draft(text, min(case["gamma"], end - len(text) - 1))
        paths = [tuple(chain[: i + 1]) for i in range(len(chain))]
        kept, n = verified(target, text, paths)
        text += kept
        if paths:
            drafted.append(sorted(paths))
            accepted.append(n)
    return {"tokens": text, "drafted": drafted, "accepted": accepted}


def ours(program: str, *names: str, target: Callable[[Mapping[str, Any]], Any] = free) -> Any:
    """A program with its parameters, call by call."""

    def replay(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        done = run(program, case["prompt"], {"target": target(case)}, backend, max_tokens=case["limit"], **params)
        calls = [c for c in done.calls if c.drafted]  # the target's own drafting calls have none
        return {"tokens": done.tokens, "drafted": [sorted(c.drafted) for c in calls], "accepted": [c.accepted for c in calls]}

    return replay


def quantspec(case: Mapping[str, Any]) -> Columns:
    """The number of rounded places is fixed when the prompt is read: what a group does not fill stays as it is, with R places
    behind it at least, and a prompt of 2 R is not rounded at all."""
    model, bits, keep = free(case), case["bits"], case["recent"]
    small, known = model.derive("quantized", bits), len(case["prompt"]) - 1
    rounded = known - keep - known % case["group"] if known > 2 * keep else 0

    def draft(text: Text, n: int) -> list[int]:
        exact = model.memory(text[:-1])
        read = exact.only(range(rounded)).quantized(bits).join(exact.only(range(rounded, len(text) - 1)))
        out: list[int] = []
        while len(out) < n:
            out.append(likeliest(small, (*text, *out), read))
        return out

    return chains(case, draft)


def magicdec(case: Mapping[str, Any]) -> Columns:
    """The drafter's own cache: the prompt is read chunk by chunk, and of what came before a chunk sinks and the last ones stay,
    as many as fit into the budget together with the chunk; later tokens are added."""
    model, sinks, recent, chunk = free(case), case["sinks"], case["recent"], case["chunk"]
    read, known, start = None, len(case["prompt"]) - 1, 0
    while start < known:
        stop = min(start + chunk, known)
        if read is not None:
            read = read.only([i for i in range(start) if i < sinks or i >= stop - recent])
        read = model.memory(tuple(case["prompt"][:stop]), memory=read)
        start = stop

    def draft(text: Text, n: int) -> list[int]:
        nonlocal read
        read = model.memory(text[:-1], memory=read)
        out: list[int] = []
        while len(out) < n:
            out.append(likeliest(model, (*text, *out), read))
        return out

    return chains(case, draft)


ENTRIES = [
    recorded(
        "knn_ssd",
        ours("knn_ssd", "stored", "attention", "mlp", "gamma", "eta", "eos", target=lambda case: models.causal("target")),
        note="the sets of its nearest stored prompt decide what it drafts",
    )
]
COMPARED = [
    Compared(
        "quantspec",
        "rishabh-16/QuantSpec b2c3747c, tests/quantspec_benchmark.py, Engine/backend_quantspec.py, encode, and "
        "Engine/model_quantspec.py, KVCache.prefill_update and Attention.draft_forward",
        quantspec,
        ours("quantspec", "bits", "recent", "group", "gamma"),
        {
            f"seed{s} {n} {recent} {group}": {
                "seed": s, "size": 3, "prompt": tuple((s * i * i + i) % 3 for i in range(n)), "limit": 12, "bits": bits,
                "recent": recent, "group": group, "gamma": gamma,
            }
            for s, n, recent, group, bits, gamma in (
                (1, 14, 4, 4, 4, 5), (2, 13, 4, 2, 4, 3), (3, 9, 4, 4, 4, 5), (4, 12, 3, 1, 8, 2),
            )
        },
        "the target verifies exactly, there on 8 bits; all its matrices are rounded for drafts, there the MLPs'",
    ),
    Compared(
        "magicdec",
        "Infini-AI-Lab/MagicDec 09cd671c, tests/StreamingLLM/selfspec_benchmark.py, Engine/StreamingLLM/backend.py, "
        "draft_encode, and model.py, KVCache.prefill_draft",
        magicdec,
        ours("magicdec", "sinks", "recent", "gamma", "chunk"),
        {
            f"seed{s} {n} {sinks} {recent} {chunk}": {
                "seed": s, "size": 3, "prompt": tuple((s * i * i + i) % 3 for i in range(n)), "limit": 12, "sinks": sinks,
                "recent": recent, "chunk": chunk, "gamma": gamma,
            }
            for s, n, sinks, recent, chunk, gamma in ((1, 14, 2, 6, 4, 3), (2, 20, 1, 5, 5, 4), (3, 9, 2, 20, 4, 3))
        },
        "keys keep their places in the text",
    ),
]  # fmt: skip
