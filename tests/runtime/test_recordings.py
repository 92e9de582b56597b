"""Recordings: the same run as without one, and what they add to its events."""

from __future__ import annotations

import pytest
from traced import open_tables, recorded

import decgraph
from decgraph.models import request_for
from decgraph.runtime.recording import Recording
from decgraph.runtime.trace import Accepted, Committed, Drafted, Emitted, Event, ModelCall, Rejected, Unmasked

FAMILIES = ["autoregressive", "speculative", "sequoia", "lookahead", "beam", "llada", "staged_speculative"]
BACKENDS = ["reference", "torch"]


def line(recording: Recording, name: str, kind: type[Event]) -> set[str]:
    """The program's lines that made events of a kind."""
    text = decgraph.load(name).text.splitlines()
    return {text[s.line - 1].strip() for s in recording.events if isinstance(s.event, kind)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_recorded_run_is_the_same_run(name: str, backend: str) -> None:
    session = open_tables(name, backend)
    plain = session.run(request_for(session, "ab", limit=10, temperature=1.0))
    result, recording = recorded(open_tables(name, backend), limit=10)
    assert result.tokens == plain.tokens
    assert [s.event for s in recording.events] == plain.events
    assert result.stats == plain.stats


@pytest.mark.parametrize("backend", BACKENDS)
def test_events_have_seconds_lines_and_iterations(backend: str) -> None:
    _, recording = recorded(open_tables("speculative", backend))
    seconds = [s.seconds for s in recording.events]
    assert seconds == sorted(seconds) and seconds[0] >= 0 and seconds[-1] <= recording.seconds
    assert line(recording, "speculative", Committed) == {"commit t.accepted"}
    assert line(recording, "speculative", Accepted) == {"verify t by rejection against target(t)"}
    assert line(recording, "speculative", Drafted) <= {"grow x", "x ~ drafter(t.leaves)", "repeat gamma:"}
    assert all("target" in s or "drafter" in s or s == "repeat gamma:" for s in line(recording, "speculative", ModelCall))
    commits = [s.iteration for s in recording.events if isinstance(s.event, Committed)]
    assert commits == list(range(len(commits))) and len(commits) > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_probabilities_are_those_that_the_rule_compares(backend: str) -> None:
    """`rejection` accepts where p >= q, whatever its coin says."""
    _, recording = recorded(open_tables("speculative", backend), limit=60)
    tests = [s for s in recording.events if isinstance(s.event, Accepted | Rejected)]
    assert any(isinstance(s.event, Rejected) for s in tests) and any(isinstance(s.event, Accepted) for s in tests)
    for s in tests:
        assert s.p is not None and s.q is not None and 0 <= s.p <= 1 and 0 < s.q <= 1
        if isinstance(s.event, Rejected):
            assert s.p < s.q
    assert all(s.p is not None and 0 < s.p <= 1 for s in recording.events if isinstance(s.event, Emitted))


def test_two_backends_record_the_same_probabilities() -> None:
    ours, theirs = (recorded(open_tables("sequoia", backend), limit=10)[1] for backend in BACKENDS)
    found = [
        [(s.event, s.p, s.q) for s in r.events if isinstance(s.event, Accepted | Rejected | Emitted)] for r in (ours, theirs)
    ]
    assert [e for e, _, _ in found[0]] == [e for e, _, _ in found[1]]
    for (_, p, q), (_, p2, q2) in zip(*found, strict=True):
        assert p == pytest.approx(p2, abs=1e-6) and (q is None) == (q2 is None)
        assert q is None or q == pytest.approx(q2, abs=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["speculative", "llada", "staged_speculative"])
def test_model_calls_have_a_start_and_an_end(name: str, backend: str) -> None:
    result, recording = recorded(open_tables(name, backend))
    assert {s.model for s in recording.spans} == set(result.stats.calls)
    ends = 0.0
    for span in recording.spans:
        assert span.start >= ends - 1e-6 and span.seconds >= 0
        ends = span.start + span.seconds
    assert ends <= recording.seconds
    if name == "speculative":  # a draft loop is one span of several calls
        assert sum(s.calls for s in recording.spans) == sum(result.stats.calls.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_cells_say_where_their_canvas_begins(backend: str) -> None:
    _, recording = recorded(open_tables("llada", backend, length=6, block=3, steps=6), limit=6)
    cells = [s for s in recording.events if isinstance(s.event, Unmasked)]
    assert len(cells) == 6
    assert {s.canvas for s in cells} == {(2, 6)}
    assert all(s.line for s in recording.events if isinstance(s.event, ModelCall))


def test_a_recorder_hears_one_run_after_the_other() -> None:
    from decgraph.runtime.recording import Recorder

    session, recorder = open_tables("autoregressive"), Recorder()
    for limit in (3, 5):
        session.run(request_for(session, "ab", limit=limit), listener=recorder)
        commits = [s for s in recorder.recording().events if isinstance(s.event, Committed)]
        assert len(commits) == limit
