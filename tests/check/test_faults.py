"""An error of decgraph itself inside a check is said as one: in the report, in its verdict, and by the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.backends.exact.run import ExactMachine
from decgraph.check.faults import internal
from decgraph.cli import output
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


PLAIN = """
algorithm plain(target: causal):
    keeps support of target
    while not done:
        x ~ target(ctx)
        commit x
"""


def broken(error: Exception, after: int = 0) -> Callable[..., Any]:
    """A commit that raises from the `after`-th on."""
    calls = iter(range(10**9))
    sound = ExactMachine.commit

    def commit(self: Any, *args: Any) -> Any:
        if next(calls) >= after:
            raise error
        return sound(self, *args)

    return commit


@pytest.mark.parametrize("error", [TypeError("unsupported operand"), KeyError("q"), AssertionError()])
@pytest.mark.parametrize("after", [0, 40])
def test_an_error_of_ours_is_no_undecided_world(monkeypatch: pytest.MonkeyPatch, error: Exception, after: int) -> None:
    monkeypatch.setattr(ExactMachine, "commit", broken(error, after))
    report = decgraph.parse(PLAIN).check(models=1, seconds=60)
    assert report.verdict == "undecided"
    assert type(error).__name__ in report.faults[0] and ".py:" in report.faults[0]
    assert report.reasons[0].startswith("a fault of decgraph itself") and report.to_json()["faults"] == report.faults


def test_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "plain.dec"
    path.write_text(PLAIN)
    monkeypatch.setattr(ExactMachine, "commit", broken(TypeError("unsupported operand")))
    assert main(["check", str(path), "--models", "1"]) == output.INTERNAL_ERROR
    assert "a fault of decgraph itself" in capsys.readouterr().out


def test_an_error_of_the_program_is_none_of_ours() -> None:
    text = """
algorithm late(target: causal):
    keeps support of target
    while not done:
        x = [0, 1][ctx.length:]
        y ~ target(ctx)
        commit y if x[0] == 0 else y
"""
    report = decgraph.parse(text).check(models=1, seconds=30)
    assert report.verdict == "undecided" and not report.faults and report.notes


def test_an_error_of_the_callers_function_is_none_of_ours() -> None:
    def judge(*args: Any) -> Any:
        raise TypeError("the caller's own")

    try:
        judge()
    except TypeError as error:
        assert internal(error, {"judge": judge}) == ""
        assert "the caller's own" in internal(error)


def test_a_fault_outside_of_a_world_is_its_programs_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --all` ended at the first: a probe of the program met an assertion, and 258 others were not decided."""
    from decgraph.check import report

    def failing(*_: Any, **__: Any) -> None:
        raise AssertionError("only plain numbers are folded")

    monkeypatch.setattr(report, "probed", failing)
    found = decgraph.parse(PLAIN).check(models=1, derive=False)
    assert (
        found.verdict == "undecided" and "only plain numbers are folded" in found.faults[0] and "report.py" in found.faults[0]
    )
    assert found.reasons[0].startswith("a fault of decgraph itself")


def test_a_fault_before_any_world_is_its_programs_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.check import algorithm

    whole = algorithm.check_module

    def failing(module: Any, **options: Any) -> Any:
        return [][0] if module.entry.name == "eagle2" else whole(module, **options)

    monkeypatch.setattr(algorithm, "check_module", failing)
    first, second = algorithm.check_all(["eagle2", "speculative"], models=1)
    assert (first.name, first.verdict, second.verdict) == ("eagle2", "undecided", "proved")
    assert first.reasons == first.faults and "IndexError" in first.faults[0]
    assert first.to_json()["verdict"] == "undecided"


FOLDED = """
algorithm folded(target: causal):
    refines autoregressive(target) in tokens
    while not done:
        p = target(ctx)
        y = exp(0 - p.raw[0])
        across batch:
            total = sum(y)
            least = min(y)
        x ~ p as output
        if total > least + 7:
            x ~ p as output
        commit x
"""


def test_numbers_that_are_no_fractions_are_folded_over_a_batch() -> None:
    report = decgraph.parse(FOLDED).check(models=4, derive=False)
    assert report.verdict in ("holds", "undecided") and not report.faults and report.models > 2, report.reasons
