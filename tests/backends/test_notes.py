"""Notes: figures of a program, the same on every backend, of each sequence its own; and what they leave as it was."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from decgraph.backends.registry import machine
from decgraph.check.report import check_module
from decgraph.check.worlds import models_for
from decgraph.cli.main import main
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Figure, Noted, Stats

WATCHED = """rule watched(p: dist, children: draws):
    for x in children:
        note ratio = p[x] / x.law[x]
        if bernoulli(p[x] / x.law[x]):
            accept x
        else:
            p = normalize(relu(p - x.law))
    y ~ p
    emit y

"""
PROGRAM = """algorithm tells(target: causal, drafter: causal, gamma: int in 1..4 = 3):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                NOTE note doubt = max(entropy(q.raw))
                grow x
        verify t by RULE against target(t)
        NOTE note many = len(t.accepted)
        NOTE note chance = count(sample(target(ctx), 2) == 1)
        if len(t.accepted) > 2:
            NOTE note long = len(t.accepted) > 3
            NOTE note last = t.accepted.token[0]
            gone = 1
        commit t.accepted
"""
REQUESTS = [Request(prompt=(0, 1, 2), max_tokens=9, seed=seed, request_id=seed) for seed in range(3)]


def program(*, notes: bool = True) -> str:
    lines = PROGRAM.splitlines(keepends=True)
    text = "".join(line.replace("NOTE ", "") for line in lines if notes or "NOTE " not in line)
    return WATCHED + text.replace("RULE", "watched") if notes else text.replace("RULE", "rejection")


def session(backend: str, text: str) -> Session:
    module = load_text(text, "tells.dec")
    if backend != "reference":
        module, _ = optimise(module)
    return Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend))


def figures(result: Result) -> dict[str, tuple[object, ...]]:
    assert result.error is None
    told = result.stats.notes.items()
    return {n: (f.token, *(pytest.approx(float(x)) for x in (f.count, f.last, f.total, f.low, f.high))) for n, f in told}


@pytest.fixture(scope="module")
def told() -> list[Result]:
    return session("reference", program()).generate(REQUESTS, keep_events=True)


def test_a_note_is_what_the_events_say(told: list[Result]) -> None:
    for result in told:
        heard = [e for e in result.events if isinstance(e, Noted)]
        assert Stats.of(result.events).notes == result.stats.notes and {e.name for e in heard} <= set(result.stats.notes)
        for name, figure in result.stats.notes.items():
            values = [e.value for e in heard if e.name == name]
            assert (figure.count, figure.last) == (len(values), values[-1]) and figure.token == (name == "last")
            assert figure.mean == pytest.approx(sum(values) / len(values))
            assert (figure.low, figure.high) == (min(values), max(values))
        assert result.stats.notes["many"].total >= len(result.tokens)
        assert result.stats.notes["doubt"].count == result.stats.draft_calls


@pytest.mark.parametrize("backend", ("torch", "triton"))
@pytest.mark.parametrize("batch", (1, 3))
def test_backends_and_batches_note_the_same(backend: str, batch: int, told: list[Result]) -> None:
    for expected, result in zip(told, session(backend, program()).generate(REQUESTS, batch=batch), strict=True):
        assert result.tokens == expected.tokens and figures(result) == figures(expected)


@pytest.mark.parametrize("batch", (1, 3))
def test_notes_leave_graph_mode_on(batch: int) -> None:
    text = (
        program()
        .replace("note doubt = max(entropy(q.raw))", "y = 1")
        .replace("count(sample(target(ctx), 2) == 1)", "1 / len(t.accepted)")
        .replace("by watched", "by rejection")
        .replace("gone = 1", "note room = room")
    )
    pairs = [session(backend, text).generate(REQUESTS, batch=batch) for backend in ("reference", "triton")]
    for expected, result in zip(*pairs, strict=True):
        assert result.tokens == expected.tokens and figures(result) == figures(expected) and result.mode == "graph mode"


@pytest.mark.parametrize("backend", ("reference", "torch"))
def test_nothing_is_committed_otherwise_with_notes(backend: str, told: list[Result]) -> None:
    """Nor drawn otherwise: a note that draws has noise of its own."""
    watched = WATCHED.replace("        note ratio = p[x] / x.law[x]\n", "")
    plain = session(backend, watched + program(notes=False).replace("by rejection", "by watched")).generate(REQUESTS)
    assert [(r.tokens, r.stats.tested, r.stats.accepted) for r in plain] == [
        (r.tokens, r.stats.tested, r.stats.accepted) for r in told
    ]
    assert not plain[0].stats.notes


def test_a_check_says_the_same_with_notes() -> None:
    assert check_module(load_text(program()), models=2).verdict == "proved"
    wrong = "algorithm a(target: causal):\n    refines autoregressive(target) in tokens\n    while not done:\n"
    wrong += "        x ~ target(ctx) as output\n        note seen = ctx.last(1)[1]\n        commit x\n"
    assert check_module(load_text(wrong), models=2).verdict == "refuted"


def test_a_program_that_another_one_runs_notes_nothing() -> None:
    text = """algorithm inner(target: causal):
    while not done:
        x ~ target(ctx)
        note seen = 1
        commit x

algorithm outer(target: causal):
    while not done:
        xs = run inner(target) until done at most 2
        note whole = len(xs)
        commit xs
"""
    for backend in ("reference", "torch"):
        (result,) = session(backend, text).generate(REQUESTS[:1])
        assert list(result.stats.notes) == ["whole"] and result.stats.notes["whole"].last == 2


def test_records_have_no_number_that_json_lacks() -> None:
    figure = Figure(2, float("inf"), float("nan"), 0.0, float("inf"))
    assert json.loads(json.dumps(figure.to_json(), allow_nan=False)) == {
        "last": None,
        "mean": None,
        "min": 0,
        "max": None,
        "count": 2,
    }


def test_records_and_answers_have_notes(told: list[Result]) -> None:
    from decgraph.scale.decoder import _record
    from decgraph.serve.answers import told as fields_of

    times = dict.fromkeys(("first", "last", "received", "arrived", "started", "sent", "opened"), 0.0)
    job = SimpleNamespace(request=REQUESTS[0], **times)
    answer: Any = SimpleNamespace(result=told[0], job=job, generation=SimpleNamespace(algorithm="tells"))
    for record in (_record("a", told[0]), fields_of(answer)):
        assert json.loads(json.dumps(record, allow_nan=False))["notes"]["many"]["count"] == told[0].stats.notes["many"].count


def test_a_trace_has_a_line_for_each_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tells.dec"
    path.write_text(program(), encoding="utf-8")
    given = [str(path), "--prompt", "import os", "--max-tokens", "8", "--backend", "reference"]
    assert main(["trace", *given]) == 0
    shown = capsys.readouterr().out
    assert "notes by step" in shown and "many " in shown
    assert main(["run", *given, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["stats"]["notes"]["many"].keys() == {"last", "mean", "min", "max", "count"}
