"""Samplers: the distribution from which each token is drawn, after texts that they drew themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lab.recordings import Case, Recording, tabled
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


SHARED = {"prompt": (1, 2, 3, 1, 2), "limit": 24}
COLUMNS = "seed size sharp temperature"
LLAMA = "ggml-org/llama.cpp", "0ad4a86"
RELEASE = "release v0.5.0, as npm's @node-llama-cpp/linux-x64 3.22.1 has it"
RECORDINGS = [
    Recording(
        "adaptive_p",
        *LLAMA,
        "src/llama-sampler.cpp, llama_sampler_adaptive_p_apply and _accept",
        adaptive_p,
        tabled(
            "{seed} {aim} {decay} {temperature} {top_k}",
            f"{COLUMNS} aim decay top_k",
            (
                (1, 8, 1.0, 1.0, 0.5, 0.9, 0),
                (2, 16, 2.0, 1.0, 0.55, 0.9, 0),
                (3, 16, 1.0, 0.7, 0.3, 0.5, 0),
                (4, 24, 1.5, 1.5, 0.8, 0.99, 6),
                (5, 12, 1.0, 1.0, 0.0, 0.0, 0),
                (6, 12, 3.0, 1.0, 1.0, 0.8, 5),
                (7, 16, 1.0, 0.0, 0.5, 0.9, 0),
            ),
            **SHARED,
        ),
        "greedy, sampled",
        f"aim, decay: target, decay; after top-k and temperature; {RELEASE}",
    ),
    Recording(
        "dry",
        *LLAMA,
        "src/llama-sampler.cpp, llama_sampler_dry_apply",
        dry,
        tabled(
            "{seed} {multiplier} {base} {allowed} {breakers} {temperature}",
            f"{COLUMNS} multiplier base allowed breakers",
            (
                (1, 4, 1.0, 1.0, 0.8, 1.75, 2, ()),
                (2, 4, 1.0, 0.7, 0.8, 1.75, 2, (0,)),
                (3, 6, 2.0, 1.0, 0.4, 1.1, 1, ()),
                (4, 5, 1.5, 1.5, 1.5, 1.3, 3, (1, 4)),
                (5, 4, 1.0, 1.0, 0.5, 1.0, 2, ()),
                (6, 4, 3.0, 0.0, 0.8, 1.75, 2, ()),
                (7, 4, 3.0, 0.0, 0.8, 1.75, 1, (2,)),
                (8, 5, 4.0, 0.0, 3.0, 2.0, 4, ()),
            ),
            **{**SHARED, "limit": 40},
        ),
        "greedy, sampled",
        "multiplier, base, allowed: dry_multiplier, dry_base, dry_allowed_length; dry_penalty_last_n reaches over the whole "
        f"text; breakers of one token each; {RELEASE}",
    ),
    Recording(
        "p_less",
        "CreateTao/p-less",
        "6177bb2d00631df0563ddb5e77a9153b174eddf5",
        "p_less_samplers.py, p_less_decode and p_less_norm_decode",
        p_less,
        tabled(
            "{seed} {norm} {temperature}",
            f"{COLUMNS} norm",
            (
                (1, 8, 1.0, 1.0, False),
                (2, 8, 1.0, 1.0, True),
                (3, 16, 2.0, 0.7, False),
                (4, 16, 0.5, 2.0, True),
                (5, 24, 1.0, 1.5, False),
                (6, 24, 1.5, 0.5, True),
            ),
            **SHARED,
        ),
        "sampled",
        "a copy of the authors' repository (ryttry/p-less-sampling), which is not stored",
    ),
    Recording(
        "top_h",
        "ErfanBaghaei/Top-H-Decoding",
        "e3cc917d541d23d2592e3cc2d271d98e18fafbf2",
        "logit_processor.py, TopH_LogitsProcessor",
        top_h,
        tabled(
            "{seed} {alpha} {n} {temperature}",
            f"{COLUMNS} alpha n",
            (
                (1, 8, 1.0, 1.0, 0.4, 100),
                (2, 16, 1.0, 0.7, 0.4, 100),
                (3, 24, 2.0, 2.0, 0.5, 10),
                (4, 24, 0.5, 1.5, 0.2, 100),
                (5, 32, 1.0, 1.0, 0.9, 20),
                (6, 16, 1.0, 0.0, 0.4, 100),
            ),
            **SHARED,
        ),
        "greedy, sampled",
        "n: top_n; its temperature is the request's, as in its scripts",
    ),
    Recording(
        "min_k",
        "vllm-project/vllm",
        "pull-48142",
        "vllm/v1/sample/logits_processor/builtin.py, MinKLogitsProcessor.apply",
        min_k,
        tabled(
            "{seed} {tau} {temperature}",
            f"{COLUMNS} tau",
            (
                (1, 8, 1.0, 1.0, 3.0),
                (2, 16, 0.2, 1.0, 3.0),
                (3, 16, 0.3, 1.0, 8.0),
                (4, 24, 2.0, 0.7, 0.0),
                (5, 24, 1.0, 2.0, 0.0),
                (6, 16, 1.0, 0.0, 3.0),
            ),
            **SHARED,
        ),
        "greedy, sampled",
        "an open pull request of vLLM's; the authors' repository (YecanLee/Mink) is not stored; where a temperature is set, "
        "tau is 0, since there its range is of logits over the temperature and here, as in the paper, of the logits"
        "; its file was laid out by hand from a stored copy",
    ),
]
