"""What another algorithm decodes is a chain of drafts; a model of another vocabulary is refused where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from decgraph.backends.registry import machine
from decgraph.check import check_algorithm
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

TEXT = """algorithm inner(target: causal):
    while not done:
        x ~ target(ctx)
        commit x

algorithm outer(target: causal, drafter: causal):
    refines autoregressive(target) in {mode}

    while not done:
        draft t:
            grow chain(run inner(drafter) from ctx until path.length >= 2 at most 3)
        verify t by {rule} against target(t)
        commit t.accepted
"""
WAYS = [("match", "tokens"), ("rejection", "distribution")]


@pytest.mark.parametrize(
    ("rule", "mode"),
    [
        pytest.param("match", "tokens", marks=pytest.mark.nightly),  # over a minute
        pytest.param("rejection", "distribution", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_drafted_and_proved(rule: str, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "outer.dec"
    path.write_text(TEXT.format(rule=rule, mode=mode), encoding="utf-8")
    report = check_algorithm(path, models=6)
    assert report.verdict == "proved", report.notes


@pytest.mark.parametrize(("rule", "mode"), WAYS)
def test_backends_agree_and_drafts_are_accepted(rule: str, mode: str) -> None:
    found = []
    for backend in ("reference", "torch"):
        module = load_text(TEXT.format(rule=rule, mode=mode))
        if backend != "reference":
            module = optimise(module)[0]
        session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend))
        results = [session.run(Request(prompt=(0, 1), max_tokens=8, seed=s)) for s in range(4)]
        assert not any(r.error for r in results)
        found.append([(r.tokens, r.stats.drafted, r.stats.accepted) for r in results])
    assert found[0] == found[1]
    assert any(sum(accepted) for _, _, accepted in found[0])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("chain(target(ctx))", "E260"),
        ("chain([1, 2])", None),
        ("chain(0.5)", "E260"),
        ("chain(yes)", "E260"),
        ("chain([[0], [1, 2]])", "E260"),
    ],
)
def test_chain_takes_tokens(what: str, code: str | None) -> None:
    text = (
        f"algorithm a(target: causal):\n    while not done:\n        draft t:\n            grow {what}\n"
        "        verify t by match against target(t)\n        commit t.accepted\n"
    )
    if code is None:
        load_text(text)
        return
    with pytest.raises(DecError) as caught:
        load_text(text)
    assert caught.value.codes == (code,) and "chain takes" in str(caught.value)
