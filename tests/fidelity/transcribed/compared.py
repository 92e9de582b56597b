"""What a transcription is: the authors' loop written anew in plain Python, and the runs of ours that must agree with it.

A transcription knows nothing of decgraph but the numbers of a table model: `after(model, text)` is the distribution of the
token that follows a text. It returns columns, as an entry of a recording does: the tokens, and what was drafted, accepted or
decided in every call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fidelity.given_noise import given
from fidelity.watched import Call, Watched, run

Columns = dict[str, Any]
Text = tuple[int, ...]


@dataclass(frozen=True)
class Compared:
    """A program and a transcription of its authors' code.

    program: of stdlib. source: repository, commit, and the file and function that were transcribed. authors, ours: from a case
    to columns (authors), and from a case and a backend (ours). cases: by name, what both get. note: how their parameters map,
    and what of their code was left out.
    """

    program: str
    source: str
    authors: Callable[[Mapping[str, Any]], Columns]
    ours: Callable[[Mapping[str, Any], str], Columns]
    cases: Mapping[str, Mapping[str, Any]]
    note: str = ""
    backends: tuple[str, ...] = field(default=("reference", "torch"))


def after(model: Any, text: Sequence[int]) -> np.ndarray:
    """float64[V]: the probabilities of the token after a text."""
    return np.asarray([float(p) for p in model.eval([tuple(text)])[0].weights], dtype=np.float64)


def best(p: np.ndarray, k: int) -> list[int]:
    """The k likeliest tokens, the first of equals first."""
    return [int(t) for t in np.argsort(-p, kind="stable")[:k]]


def verified(target: Any, text: Sequence[int], drafted: Sequence[Text]) -> tuple[Text, int]:
    """The greedy walk down a tree of drafted paths: the accepted path with the target's own token behind it, and how many were
    accepted."""
    path: Text = ()
    while True:
        token = int(np.argmax(after(target, (*text, *path))))
        if (*path, token) not in drafted:
            return (*path, token), len(path)
        path = (*path, token)


def tokens(done: Watched, case: Mapping[str, Any]) -> Columns:
    """What ours writes."""
    return {"tokens": done.tokens}


def by_call(done: Watched, case: Mapping[str, Any] | None = None) -> Columns:
    """What ours writes, and what each call drafts and accepts."""
    calls = done.calls
    return {"tokens": done.tokens, "drafted": [sorted(c.drafted) for c in calls], "accepted": [c.accepted for c in calls]}


def by_chain(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The columns of lab.recordings.tables.chains; `replayed` goes beyond the limit, so that it cuts no chain."""
    tokens = done.tokens[: len(case["prompt"]) + case["limit"]]
    calls = [c for c in done.calls if c.past < len(tokens)]
    chains = [max(c.drafted, key=len, default=()) for c in calls]
    accepted = [min(c.accepted, len(tokens) - c.past) for c in calls]
    return {"tokens": tokens, "chains": chains, "accepted": accepted}


def ended(where: str, *cases: str, column: str = "drafted") -> dict[tuple[str, str], str]:
    """What differs in cases with an end token. where: the line that drafts."""
    return {(case, column): f"theirs drafts also behind an end token that was drafted ({where})" for case in cases}


def until(done: Watched, eos: Sequence[int]) -> list[Call]:
    """The calls, of which the last accepts nothing behind an end token, which is never text."""
    *calls, last = done.calls
    accepted = min(last.accepted, len(done.tokens) - last.past) if done.tokens[-1] in eos else last.accepted
    return [*calls, replace(last, accepted=accepted)]


def unhurried(
    program: str, *names: str, models: Callable[[Mapping[str, Any]], Mapping[str, Any]], last: int = 0, **more: Any
) -> Callable[[Mapping[str, Any], str], Columns]:
    """Ours on a case of lab/recordings, of which the run goes on behind the limit, so that the limit cuts no drafts; then its
    text up to the limit, by call. last: how many tokens behind the limit their loop makes calls."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        end = len(case["prompt"]) + case["limit"]
        params = {name: case[name] for name in (*names, "eos", *(n for n in ("temperature",) if n in case))}
        settings = {"seed": case["seed"]}
        done = run(
            program, case["prompt"], models(case), backend, max_tokens=case["limit"] + 64, settings=settings, **params, **more
        )
        calls = [c for c in until(done, case["eos"]) if c.past < end + last]
        return by_call(replace(done, tokens=done.tokens[:end], calls=calls))

    return ours


def replayed(
    program: str,
    *names: str,
    models: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    columns: Callable[[Watched, Mapping[str, Any]], Columns],
    using: Sequence[str] | None = None,
    beyond: int = 0,
    **more: Any,
) -> Callable[[Mapping[str, Any], str], Columns]:
    """Ours: a program on a case, with the case's ends, temperature and noise if it has them, as columns. names: parameters that
    the case has; using: which of the models; beyond: how many tokens more than the case's limit."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in (*names, *(n for n in ("eos", "temperature") if n in case))}
        bound = {name: model for name, model in models(case).items() if using is None or name in using}
        with given(case["seed"]) if "seed" in case else nullcontext():
            done = run(program, case["prompt"], bound, backend, max_tokens=case["limit"] + beyond, **params, **more)
        return columns(done, case)

    return ours


@cache
def comparisons() -> tuple[Compared, ...]:
    """All of them, by file."""
    found: list[Compared] = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("compared", "__init__"):
            found += getattr(importlib.import_module(f"fidelity.transcribed.{path.stem}"), "COMPARED", [])
    return tuple(found)
