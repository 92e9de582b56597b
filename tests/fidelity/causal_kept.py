"""The entries of decoders that keep, read or round a part of the keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.watched import run

from lab.recordings.kept import loaded


def text(program: str, case: Mapping[str, Any], backend: str, kind: str = "", **params: Any) -> dict[str, Any]:
    """What is written greedily."""
    models = {"target": loaded(case["seed"], kind)}
    return {"tokens": run(program, case["prompt"], models, backend, max_tokens=case["limit"], **params).tokens}


def kv_evict(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    params = {"heavy": case["heavy"], "recent": case["recent"], "prefill": len(case["prompt"])}
    return text("kv_evict", case, backend, window=1, **params)


def kv_sparse_read(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    return text("kv_sparse_read", case, backend, "own", heavy=case["heavy"])


def sparse_prefill(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    sizes = {name: case[name] for name in ("segment", "block", "budget", "dense")}
    return text("sparse_prefill", case, backend, "even", **sizes)


def kv_quantized(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    return text("kv_quantized", case, backend, bits=16, bits_v=case["bits_v"], residual=case["residual"])


def overfill(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    return text("overfill", case, backend, "deep", pruned=case["pruned"])


def parallel_context(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The program shares four tokens where nothing else is said."""
    assert case["shared"] == 4
    return text("parallel_context", case, backend, "still", length=case["length"], question=case["question"])


ENTRIES = [
    recorded("kv_evict", kv_evict),
    recorded("kv_sparse_read", kv_sparse_read),
    recorded("sparse_prefill", sparse_prefill),
    recorded("kv_quantized", kv_quantized),
    recorded("overfill", overfill),
    recorded("parallel_context", parallel_context),
]
