"""`decgraph repl`: texts and commands from standard input, answers on standard output."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


def talked(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(["repl", *arguments])


def test_texts_are_decoded_as_run_decodes_them(tables: None, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    alone = []
    for gamma in ("4", "2"):
        assert main(["run", "speculative", "-p", "ab", "-n", "6", "-q", "-t", "1", "--seed", "3", "--gamma", gamma]) == 0
        alone.append(capsys.readouterr().out)
    said = "/seed 3\nab\n/set gamma=2\nab\n\n/show\n"
    assert talked(monkeypatch, said, "speculative", "-n", "6", "-t", "1") == 0
    out, err = capsys.readouterr()
    assert out == "".join(alone)
    assert "gamma=2" in err and "seed=3" in err and err.count("tokens/s") == 2


def test_models_stay_and_what_is_wrong_changes_nothing(
    tables: None, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    page = tmp_path / "t.html"
    said = f"/set gamma=99\n/nosuch\n/trace {page}\nab\n/trace {page}\n/algorithm autoregressive\nab\n/quit\nab\n"
    assert talked(monkeypatch, said, "speculative", "-n", "4", "-q") == 1  # a script sees that something was refused
    out, err = capsys.readouterr()
    assert "must be in 1..32" in err and "there is no command /nosuch" in err and "nothing to trace yet" in err
    assert out.count("\n") == 2 and "autoregressive on" in err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_model_that_another_algorithm_takes_is_in_no_algorithm_s_way(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Models given by name stay for the algorithms that take them, and more can be given."""
    words = (
        "algorithm autoregressive",
        "model",
        "model drafter=nosuch",
        "algorithm eagle2",
        "model head=eagle",
        "model head=eagle",
    )
    said = "".join(f"/{word}\n" for word in words) + "ab\n"
    assert talked(monkeypatch, said, "speculative", "-m", "target=target", "-m", "drafter=drafter", "-n", "2", "-q") == 1
    out, err = capsys.readouterr()
    assert "autoregressive on target" in err and "which model?" in err and "takes no model" not in err
    assert err.count("eagle2 on target, eagle") == 3 and out.count("\n") >= 1


def test_what_there_is_not(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talked(monkeypatch, "", "nosuch") == 2
    assert talked(monkeypatch, "", "speculative", "--system", "x") == 2
    assert "--system goes with --chat" in capsys.readouterr().err
