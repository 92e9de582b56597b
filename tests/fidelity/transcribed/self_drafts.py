"""Drafts of the target itself on keys and values of less precision, of fewer places, or by fewer layers: QuantSpec, MagicDec,
KNN-SSD. Their scripts are greedy. The last token of a prompt here is the one that their prefill writes.

QuantSpec and MagicDec run on free models, whose every state is a hash of what it was computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fidelity import models
from fidelity.transcribed.compared import Columns, Compared, Text, verified
from fidelity.watched import run
from lib.lazily import transformers

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


def words(seed: int) -> Text:
    """A text of the recordings' model."""
    return tuple(int(x) for x in np.random.default_rng(seed).integers(3, 32, 8))


class Told:
    """A model of the recordings, whose rows are its probabilities."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def eval(self, paths: Sequence[Text], memory: Any = None) -> Any:
        rows = [np.asarray(r.logits, dtype=np.float64) for r in self.model.eval(list(paths), memory)]
        return [SimpleNamespace(weights=np.exp(r - r.max()) / np.exp(r - r.max()).sum()) for r in rows]


@cache
def official() -> Any:
    """The same model as transformers has it."""
    return transformers.LlamaForCausalLM.from_pretrained(models.folder("target"))


def described(prompt: Text) -> Any:
    """The mean of a prompt's last hidden states."""
    with torch.no_grad():
        return official()(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1][0].mean(0)


def knn_ssd(case: Mapping[str, Any]) -> Columns:
    """One neighbour by the cosine; the set of its task."""
    here = described(case["prompt"])
    task = int(np.argmax([float(torch.cosine_similarity(here, described(text), dim=0)) for text in case["stored"]]))
    whole = models.causal("target")
    small = Told(whole.derive("skip", set(case["attention"][task]), set(case["mlp"][task])))

    def draft(text: Text, n: int) -> list[int]:
        out: list[int] = []
        while len(out) < n:
            p = small.eval([(*text, *out)], whole.memory(text[:-1]))[0].weights
            out.append(int(p.argmax()))
            if p.max() < case["eta"]:
                break
        return out

    return chains(case, draft, Told(whole))


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
    Compared(
        "knn_ssd",
        "mbsong/KNN-SSD cfa85329, evaluation_llama/inference_knn.py, knn_forward",
        knn_ssd,
        ours(
            "knn_ssd", "stored", "attention", "mlp", "gamma", "eta", target=lambda case: models.causal("target"),
        ),
        {
            f"seed{s} {n} stored {gamma} {eta}": {
                "prompt": words(s), "stored": [words(10 * s + i) for i in range(n)], "limit": 20, "gamma": gamma, "eta": eta,
                "attention": [[1], [2, 3], [], [0, 2]][:n], "mlp": [[3], [], [1, 2], [1]][:n],
            }
            for s, n, gamma, eta in ((1, 2, 12, 0.8), (2, 3, 4, 0.4), (3, 4, 12, 0.2), (4, 4, 6, 0.6), (5, 1, 12, 0.3))
        },
        "the states of the stored prompts are computed, there they are read from a file; every prompt has its own sets",
    ),
]  # fmt: skip
