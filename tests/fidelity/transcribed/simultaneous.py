"""Texts whose source is still being read: wait-k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared
from fidelity.watched import run

from lab.recordings.tables import untied


def wait_k(case: Mapping[str, Any], backend: str) -> Columns:
    """With the minimum length that theirs has."""
    models, params = {"target": untied(case["size"], case["seed"], window=None)}, {n: case[n] for n in ("source", "k", "eos")}
    done = run(
        "wait_k", case["prompt"], models, backend, max_tokens=case["limit"], settings={"min_length": 1}, **params
    )  # fmt: skip
    return {"tokens": done.tokens[1:], "read": [row for c in done.calls for row in c.rows]}


ENTRIES = [recorded("wait_k", wait_k)]
COMPARED: list[Compared] = []
