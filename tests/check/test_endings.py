"""A run that ends in an error, or never, where the specification goes on is a counterexample: the verdict, world and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph
from decgraph.cli.main import main

HEAD = """algorithm ending(target: causal, k: int in 0..4 = 2):
    refines autoregressive(target) in {mode}
    state seen: token[<= 3] per sequence = []

    while not done:
        x ~ target(ctx) as output
"""
WRONG = {  # what comes before the commit, and words of the counterexample
    "a state that is full": ("seen = seen ++ [x]", "ends with an error", ":7:"),
    "an index out of range": ("n = [1, 2][ctx.length]", "ends with an error", "no element"),
    "a crash on one token": ("n = prompt[0]\nif x == 0:\n    n = prompt[len(prompt)]", "ends with an error", "no element"),
    "a dead loop": ("n = 0\nwhile n < 3:\n    n += where(x == 0, 0, 1)", "does not end", "leaves everything as it was"),
    "a step that commits nothing": ("n = 0\nwhile n < 1:\n    n += where(ctx.length == 3, 0, 1)", "does not end", "leaves"),
}


def text(body: str, mode: str = "tokens") -> str:
    """A program with these lines before its commit."""
    lines = "\n".join(" " * 8 + line for line in body.splitlines())
    return f"{HEAD.format(mode=mode)}{lines}\n        commit x\n"


@pytest.mark.parametrize("mode", ["tokens", "distribution"])
@pytest.mark.parametrize("name", WRONG)
def test_endings_are_counterexamples(name: str, mode: str) -> None:
    body, how, said = WRONG[name]
    report = decgraph.check(text(body, mode), models=6)
    assert report.verdict == "refuted" and not report.faults and not report.proofs[0].derived
    assert report.counterexample is not None and report.counterexample.kind == "error"
    shown = report.counterexample.render()
    assert f"ending {how} where autoregressive goes on" in shown and said in shown and "<text>:" in shown


def test_a_draft_that_fails_is_none() -> None:
    body = "draft t:\n    grow point([1, 2][ctx.length])\nverify t by match against target(t)\ncommit t.accepted"
    made = text(body).replace("        x ~ target(ctx) as output\n", "").replace("        commit x\n", "")
    assert decgraph.check(made).verdict == "proved"


def test_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ending.dec"
    file.write_text(text(WRONG["a state that is full"][0]), encoding="utf-8")
    assert main(["check", str(file), "--models", "6"]) == 1
    assert "ends with an error where autoregressive goes on" in capsys.readouterr().out
