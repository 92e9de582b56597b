"""Recordings: the same run as without one, and what they add to its events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from lib.stdlib.recorded_runs import Pieces, open_tables, recorded

import decgraph
from decgraph.models import request_for
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.recording import Recording
from decgraph.runtime.trace import Accepted, Committed, Drafted, Emitted, Event, ModelCall, Pruned, Rejected, Unmasked

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
    plain = session.run(request_for(session, "ab", max_tokens=10, temperature=1.0))
    result, recording = recorded(open_tables(name, backend), max_tokens=10)
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
    assert line(recording, "speculative", Drafted) == {"grow x"}
    assert line(recording, "speculative", ModelCall) == {"x ~ drafter(t.leaves)", "verify t by rejection against target(t)"}
    commits = [s.iteration for s in recording.events if isinstance(s.event, Committed)]
    assert commits == list(range(len(commits))) and len(commits) > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_probabilities_are_those_that_the_rule_compares(backend: str) -> None:
    """`rejection` accepts where p >= q, whatever its coin says."""
    _, recording = recorded(open_tables("speculative", backend), max_tokens=60)
    tests = [s for s in recording.events if isinstance(s.event, Accepted | Rejected)]
    assert any(isinstance(s.event, Rejected) for s in tests) and any(isinstance(s.event, Accepted) for s in tests)
    for s in tests:
        assert s.p is not None and s.q is not None and 0 <= s.p <= 1 and 0 < s.q <= 1
        if isinstance(s.event, Rejected):
            assert s.p < s.q
    assert all(s.p is not None and 0 < s.p <= 1 for s in recording.events if isinstance(s.event, Emitted))


def test_two_backends_record_the_same_probabilities() -> None:
    ours, theirs = (recorded(open_tables("sequoia", backend), max_tokens=10)[1] for backend in BACKENDS)
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
    _, recording = recorded(open_tables("llada", backend, length=6, block=3, steps=6), max_tokens=6)
    cells = [s for s in recording.events if isinstance(s.event, Unmasked)]
    assert len(cells) == 6
    assert {s.canvas for s in cells} == {(2, 6)}
    assert all(s.line for s in recording.events if isinstance(s.event, ModelCall))


def test_a_recorder_hears_one_run_after_the_other() -> None:
    from decgraph.runtime.recording import Recorder

    session, recorder = open_tables("autoregressive"), Recorder()
    for limit in (3, 5):
        session.run(request_for(session, "ab", max_tokens=limit), listener=recorder)
        commits = [s for s in recorder.recording().events if isinstance(s.event, Committed)]
        assert len(commits) == limit


CHAIN = """
algorithm chain(target: causal, drafter: causal, gamma: int in 1..8 = 3):
    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                grow x
        verify t by rejection against target(t)
        if t.size > 2:
            commit t.accepted
        else:
            commit t.accepted
"""
PASSES = {"with passes": None, "as written": Plan(passes=())}


def chain(tmp_path: Path, backend: str, plan: Plan | None) -> tuple[list[str], Recording]:
    file = tmp_path / "chain.dec"
    file.write_text(CHAIN)
    models = {name: TableModel(4, seed=seed, name=name) for seed, name in enumerate(("target", "drafter"), 1)}
    session = decgraph.load(str(file)).session(models, tokenizer=Pieces("abc\n"), backend=backend, plan=plan)
    return ["", *(line.strip() for line in CHAIN.splitlines())], recorded(session)[1]


@pytest.mark.parametrize("plan", PASSES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_draft_loop_has_the_lines_of_its_parts(tmp_path: Path, backend: str, plan: str) -> None:
    """The torch backend computes it as one call; its events and its lines are those of the loop."""
    text, recording = chain(tmp_path, backend, PASSES[plan])
    made = {(type(s.event), text[s.line]) for s in recording.events if s.line}
    assert {line for kind, line in made if kind is Drafted} == {"grow x"}
    assert {line for kind, line in made if kind is ModelCall} == {
        "q = drafter(t.leaves)", "verify t by rejection against target(t)"}  # fmt: skip
    ran = [text[n] for s in recording.events for n in s.ran]
    assert {"repeat gamma:", "x ~ q", "grow x", "if t.size > 2:", "while not done:"} <= set(ran)
    assert "else:" not in ran


@pytest.mark.parametrize("name", ["speculative", "pearl", "eagle2", "dream_origin", "kangaroo"])
def test_lines_and_calls_are_the_same_everywhere(name: str) -> None:
    """Of every event, on both backends, with passes and without; and the spans have the calls of the statistics."""
    found = []
    for backend in BACKENDS:
        for plan in PASSES.values():
            result, recording = recorded(open_tables(name, backend, plan=plan), max_tokens=8)
            found.append([(type(s.event), s.line, s.rule) for s in recording.events])
            spans: Counter[str] = Counter()
            for span in recording.spans:
                spans[span.model] += span.calls
            assert spans == result.stats.calls
    assert found[0] and all(one == found[0] for one in found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_cache_answers_is_no_call(backend: str) -> None:
    """A policy asks for the memory of the canvas that the call before has read; a loop that has ended reads it again."""
    for name, params in {"fast_dllm": {"length": 6, "block": 3}, "remdm_loop": {"length": 6, "rounds": 2}}.items():
        result, recording = recorded(open_tables(name, backend, **params), max_tokens=6)
        heard = [s for s in recording.events if isinstance(s.event, ModelCall)]
        assert sum(span.calls for span in recording.spans) == len(heard) == result.stats.target_calls > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cache_policy_computes_a_block_and_reads_the_rest(backend: str) -> None:
    _, recording = recorded(open_tables("fast_dllm", backend, length=8, block=4, tau=1.0), max_tokens=8)
    calls = [s.event for s in recording.events if isinstance(s.event, ModelCall)]
    assert [call.cells for call in calls] == [10] * 8, "two tokens of the prompt, and the canvas"
    assert [call.cells if call.computed is None else call.computed for call in calls] == [10, 4, 4, 4] * 2


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["speculative", "sequoia", "recursive_sd", "eagle2", "prompt_lookup"])
def test_a_draft_has_one_q(name: str, backend: str, temperature: float) -> None:
    """The event of a draft says what the rule reads: shaped, without earlier siblings; 1 of a draft that was chosen."""
    _, recording = recorded(open_tables(name, backend), max_tokens=10, temperature=temperature)
    drafts: dict[int, Drafted] = {}
    tested = 0
    for s in recording.events:
        match s.event:
            case Drafted():
                drafts[s.event.node] = s.event
                assert s.event.drawn or s.event.prob == 1
                if temperature:  # greedily, siblings without replacement are the likeliest tokens
                    assert s.event.drawn == (name not in ("eagle2", "prompt_lookup"))
            case Pruned():
                drafts = {new: drafts[old] for new, old in enumerate(s.event.kept) if old in drafts}
            case Accepted() | Rejected():
                tested += 1
                assert drafts[s.event.node].token == s.event.token
                assert s.q == pytest.approx(drafts[s.event.node].prob, abs=1e-6)
    assert tested
    assert name != "eagle2" or any(d.score < 0.9 for d in drafts.values())


def test_two_backends_say_the_same_of_drafts() -> None:
    for name in ("speculative", "sequoia", "eagle2", "freedave"):
        ours, theirs = (recorded(open_tables(name, backend), max_tokens=8, temperature=0.7)[1] for backend in BACKENDS)
        found = [[s.event for s in r.events if isinstance(s.event, Drafted)] for r in (ours, theirs)]
        assert len(found[0]) == len(found[1]) > 0
        for a, b in zip(*found, strict=True):
            assert (a.node, a.token, a.source, a.drawn) == (b.node, b.token, b.source, b.drawn)
            assert (a.prob, a.score) == pytest.approx((b.prob, b.score), abs=1e-5)
