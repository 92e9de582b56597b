"""Samplers: the distribution from which each token is drawn, after texts that they drew themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream

Law = Callable[[list[int], np.ndarray], np.ndarray]
"""From a text and float32[V] logits to float64[V]: what the next token is drawn from."""


def walked(
    case: Case,
    law: Law,
    accept: Callable[[int], None] = lambda token: None,
    choose: Callable[[], int] | None = None,
) -> dict[str, Any]:
    """A text, and where it is drawn for each of its tokens the probabilities of those that could have come. choose: the token
    that the authors' code drew itself; else it is drawn here."""
    model, text = TableLM(untied(case["size"], case["seed"], window=None, sharp=case["sharp"])), [*case["prompt"]]
    draws, laws = np.random.default_rng(case["seed"]), []
    for _ in range(case["limit"]):
        p = law(text, model.row(text).numpy())
        laws.append({int(v): float(p[v]) for v in np.flatnonzero(p)})
        if choose is not None:
            text.append(choose())
        else:
            text.append(int(draws.choice(len(p), p=p / p.sum()) if case["temperature"] else p.argmax()))
        accept(text[-1])
    return {"tokens": text[len(case["prompt"]) :], **({"probabilities": laws} if case["temperature"] else {})}


def shares(logits: Any) -> np.ndarray:
    """float64[V]: the distribution of logits."""
    return np.asarray(torch.as_tensor(logits, dtype=torch.float64).softmax(-1))


def warmth(case: Case) -> float:
    """The temperature by which logits are divided: 1 where the likeliest token is taken."""
    return case["temperature"] or 1.0


class Entry(ctypes.Structure):
    """llama_token_data."""

    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class Entries(ctypes.Structure):
    """llama_token_data_array."""

    _fields_ = [
        ("data", ctypes.POINTER(Entry)),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    ]


class Vectors(ctypes.Structure):
    """A std::vector of std::vectors of int32: begin, end, end of storage."""

    _fields_ = [("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("last", ctypes.c_void_p)]


class LlamaCpp:
    """The samplers of libllama, in a chain."""

    def __init__(self, upstream: Upstream) -> None:
        found = next(p for p in sorted(upstream.folder.iterdir()) if p.name.startswith("libllama.") and ".so" in p.name)
        self.library, self.chain, self.held, self.drawn = ctypes.CDLL(str(found)), list[int](), list[Any](), -1
        self.library.llama_sampler_apply.argtypes = [ctypes.c_void_p, ctypes.POINTER(Entries)]
        self.library.llama_sampler_accept.argtypes = [ctypes.c_void_p, ctypes.c_int32]

    def add(self, name: str, *values: float | int | Any) -> None:
        """A sampler with its parameters."""
        made = getattr(self.library, name)
        kinds = {float: ctypes.c_float, int: ctypes.c_int32}
        made.restype, made.argtypes = ctypes.c_void_p, [kinds.get(type(v), ctypes.c_void_p) for v in values]
        self.chain.append(made(*values))

    def vectors(self, rows: Sequence[Sequence[int]]) -> int:
        """The address of vectors with these numbers."""

        def vector(start: Any, n: int) -> Vectors:
            at = ctypes.addressof(start)
            return Vectors(at, at + n, at + n)

        numbers = [(ctypes.c_int32 * len(r))(*r) for r in rows]
        inner = (Vectors * len(rows))(*[vector(n, ctypes.sizeof(n)) for n in numbers])
        outer = vector(inner, ctypes.sizeof(inner) if rows else 0)
        self.held += [numbers, inner, outer]
        return ctypes.addressof(outer)

    def law(self, text: list[int], logits: np.ndarray) -> np.ndarray:
        """What the chain leaves of logits; see `Law`."""
        rows = (Entry * len(logits))(*[Entry(i, float(x), 0.0) for i, x in enumerate(logits)])
        entries = Entries(rows, len(logits), -1, False)
        for sampler in self.chain:
            self.library.llama_sampler_apply(sampler, ctypes.byref(entries))
        self.drawn, out = entries.data[max(0, entries.selected)].id, np.full(len(logits), -np.inf)
        for i in range(entries.size):
            out[entries.data[i].id] = entries.data[i].logit
        return shares(out)

    def accept(self, token: int) -> None:
        """A token of the text."""
        for sampler in self.chain:
            self.library.llama_sampler_accept(sampler, token)


def dry(upstream: Upstream, case: Case) -> dict[str, Any]:
    llama = LlamaCpp(upstream)
    breakers = llama.vectors([(b,) for b in case["breakers"]])
    values = (float(case["multiplier"]), float(case["base"]), case["allowed"], 4096)
    llama.add("_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE", *values, ctypes.c_void_p(breakers))
    llama.add("llama_sampler_init_temp", warmth(case))
    for token in case["prompt"]:
        llama.accept(token)
    return walked(case, llama.law, llama.accept)


def adaptive_p(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its mean counts only tokens that it drew itself."""
    llama = LlamaCpp(upstream)
    if case["top_k"]:
        llama.add("llama_sampler_init_top_k", case["top_k"])
    llama.add("llama_sampler_init_temp", float(case["temperature"]))
    llama.add("llama_sampler_init_adaptive_p", float(case["aim"]), float(case["decay"]), case["seed"])
    return walked(case, llama.law, llama.accept, lambda: llama.drawn)


def p_less(upstream: Upstream, case: Case) -> dict[str, Any]:
    decode = upstream.module("p_less_samplers.py").__dict__["p_less_norm_decode" if case["norm"] else "p_less_decode"]

    def law(text: list[int], logits: np.ndarray) -> np.ndarray:
        probs = torch.tensor(logits / warmth(case)).softmax(-1)[None]
        decode(probs)  # leaves in it what it draws from
        return np.asarray(probs[0], dtype=np.float64)

    return walked(case, law)


def top_h(upstream: Upstream, case: Case) -> dict[str, Any]:
    made = upstream.module("logit_processor.py").TopH_LogitsProcessor
    keep = made(top_n=min(case["n"], case["size"]), temperature=warmth(case), alpha=case["alpha"])
    return walked(case, lambda text, logits: shares(keep(None, torch.tensor(logits)[None])[0] / warmth(case)))


def min_k(upstream: Upstream, case: Case) -> dict[str, Any]:
    kept = upstream.names("builtin.py", "MinKLogitsProcessor", LogitsProcessor=object, torch=torch)["MinKLogitsProcessor"]()
    kept.min_k_count, kept.tau = 1, torch.tensor([[float(case["tau"])]])
    return walked(case, lambda text, logits: shares(kept.apply(torch.tensor(logits / warmth(case))[None])[0]))


RECORDINGS = {
    "adaptive_p": adaptive_p,
    "dry": dry,
    "p_less": p_less,
    "top_h": top_h,
    "min_k": min_k,
}
