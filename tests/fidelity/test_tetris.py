"""TETRIS's authors' selection, recorded: of four sequences that step together, how many drafts of each are verified."""

from __future__ import annotations

from typing import Any

import pytest
from fidelity.entry import GOLDEN, recording

import decgraph
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.trace import Accepted, Committed, Drafted, Pruned

MODELS = GOLDEN / "ar/models"


def steps(result: Result) -> list[tuple[int, int]]:
    """How many drafts each decoding step verified and accepted."""
    out, kept, accepted = [], 0, 0
    for event in result.events:
        kept += isinstance(event, Drafted) - (event.dropped if isinstance(event, Pruned) else 0)
        accepted += isinstance(event, Accepted)
        if isinstance(event, Committed):
            out.append((kept, accepted))
            kept = accepted = 0
    return out


@pytest.mark.parametrize("case", recording("more/tetris")["cases"], ids=lambda c: c["id"])
@pytest.mark.parametrize("backend", ["torch", "reference", "triton"])
def test_the_drafts_of_a_batch_are_verified_as_recorded(case: dict[str, Any], backend: str) -> None:
    models = {name: str(MODELS / name) for name in ("target", "drafter")}
    session = decgraph.load("tetris").session(models, backend=backend, gamma=case["gamma"], capacity=case["capacity"])
    requests = [Request(prompt=tuple(p), limit=60, temperature=0, request_id=n) for n, p in enumerate(case["prompts"])]
    got = session.generate(requests, batch=len(requests), keep_events=True)
    assert all(r.error is None for r in got), [str(r.error) for r in got]
    rows = [steps(r) for r in got]
    for n, step in enumerate(case["steps"]):
        assert [row[n] for row in rows] == list(zip(step["verified"], step["accepted"], strict=True)), n
    for request, result, text in zip(requests, got, case["texts"], strict=True):
        assert [*request.prompt, *result.tokens][: len(text)] == text
