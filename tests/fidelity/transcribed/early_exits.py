"""Drafts of the target's first layers: DEL, which chooses the exit and where to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, by_call
from fidelity.watched import run

from lab.recordings import depth


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    """On a free model, of which the run goes on behind the limit, so that the limit cuts no drafts; an end is no text there."""
    end = len(case["prompt"]) + case["limit"]
    done = run("del", case["prompt"], depth.models(case), backend, max_tokens=case["limit"] + 20, eos=case["eos"])
    calls = [c for c in done.calls if len(case["prompt"]) <= c.past < end]  # the prompt's places are asked before
    tokens = tuple(t for t in done.tokens[:end] if t not in case["eos"])
    return by_call(replace(done, tokens=tokens, calls=calls))


ENTRIES = [recorded("del", ours)]
COMPARED: list[Compared] = []
