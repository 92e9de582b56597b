"""Decoders that write a text's parts out of order: self-infilling, parallel branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared
from fidelity.watched import run

from lab.recordings.parts import marked
from lab.recordings.tables import untied


def self_infilling(case: Mapping[str, Any], backend: str) -> Columns:
    """With the end and the marks that the last four tokens are there."""
    end, *marks = range(case["size"] - 4, case["size"])
    params = {name: case[name] for name in ("tau", "opening", "length", "again", "temperature")}
    params |= dict(zip(("prefix", "suffix", "middle"), ((m,) for m in marks), strict=True))
    models = {"target": marked(case["size"], case["seed"])}
    with given(case["seed"]):
        return {"tokens": run("self_infilling", case["prompt"], models, backend, max_tokens=64, eos=(end,), **params).tokens}


def parallel_branches(case: Mapping[str, Any], backend: str) -> Columns:
    """As many tokens behind the branches as theirs."""
    names, models = (
        ("fork", "colon", "join", "dots", "line", "reach"),
        {"target": untied(case["size"], case["seed"], window=None)},
    )
    params = {name: case[name] for name in (*names, "temperature")}
    with given(case["seed"]):
        done = run("parallel_branches", case["prompt"], models, backend, max_tokens=300, **params)
    begun = [i for i, c in enumerate(done.committed) if c[:2] == (*case["line"], case["fork"])]
    written = sum(map(len, done.committed[: begun[-1] + 1])) + case["rest"]
    return {"tokens": done.tokens[: len(case["prompt"]) + written]}


ENTRIES = [recorded("self_infilling", self_infilling), recorded("parallel_branches", parallel_branches)]
COMPARED: list[Compared] = []
