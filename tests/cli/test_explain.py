"""`explain --cost`: as text and as JSON, with parameters that are known, and what is refused; words of the language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from decgraph import stdlib
from decgraph.cli import output, words
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_text(capsys: Capture) -> None:
    assert main(["explain", "speculative", "--cost"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("speculative: the model calls of one decoding step (an iteration of `while not done`)\n")
    assert "\nline 10  drafter(t.leaves)\n  model     drafter, gamma x a step, at most 32\n" in out
    assert "  why       verifies t by rejection (line 12)\n" in out
    assert out.endswith("parameters\n  gamma 4 -> 2: drafter (line 10) 4 -> 2 calls\n")


def test_json_and_known_parameters(capsys: Capture) -> None:
    assert main(["explain", "speculative", "--cost", "--set", "gamma=6", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert [(c["line"], c["times"], c["most"]) for c in got["calls"]] == [(10, "6", 6), (12, "1", 1)]
    assert got["savings"][0]["before"] == 6 and got["savings"][0]["after"] == 3


def test_calls_of_a_policy_are_shown_with_their_clause_at_the_line_of_the_call(capsys: Capture) -> None:
    assert main(["explain", "fast_dllm", "--cost", "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    own, clauses = ([c for c in calls if c["file"].endswith(file)] for file in ("/fast_dllm.dec", "/policies.dec"))
    assert {c["expression"] for c in own} == {"cache model by dual", "model(c, at = b)"}
    assert {(c["expression"], c["line"]) for c in clauses} == {("on enter b: recompute all", own[-1]["line"])}
    assert {c["when"] for c in calls} == {"a run"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["speculative", "--set", "gamma=2"], "--set is for --cost"),
        (["speculative", "--cost", "--set", "gama=2"], "did you mean gamma"),
        (["speculative", "--cost", "--set", "gamma=99"], "must be in 1..32"),
        (["nosuch", "--cost"], "no algorithm called"),
        (["entropy", "sure"], "explain takes one word"),
        (["entrpy"], "did you mean entropy"),
        (["x.law"], "try: decgraph explain law"),
        (["tau"], "functions, statements, values"),
    ],
)
def test_refusals(arguments: list[str], word: str, capsys: Capture) -> None:
    assert main(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert word in err and out == ""


@pytest.mark.parametrize(
    ("name", "kind", "said", "user"),
    [
        ("entropy", "a function", "entropy(p: Dist) -> Value", "dream"),
        ("match", "a rule of stdlib/rules.dec", "rule match(p: dist, children: draws):", "clasp"),
        ("commit", "a statement", "commit tokens", "autoregressive"),
        ("surest", "a function of stdlib/helpers.dec", "def surest(q: dist", "static_masked"),
        ("path", "of index", "index.path(ctx, at_least = m", "dry"),
        ("room", "a value", "how many tokens may still be committed", "beam"),
        ("lru", "a type", "lru[", "lookahead"),
    ],
)
def test_words(name: str, kind: str, said: str, user: str, capsys: Capture) -> None:
    assert main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{name}\n") and kind in out and said in out
    assert main(["explain", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert user in found["used_by"] and name in found["example"][0], found
    file, line = found["example"][1].split(":")
    assert found["example"][0] in (Path(stdlib.__file__).parent / Path(file).name).read_text().splitlines()[int(line) - 1]


def test_every_word_that_the_editors_know_is_explained() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_uses", lambda *_: [])
        assert [name for name in sorted(words.known()) if words.word(name) is None] == []


@pytest.mark.parametrize("arguments", [["explain", "speculative", "--cost"], ["compile", "lookahead", "--emit", "cost"]])
def test_costs_are_wrapped_below_their_column(arguments: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal alone; in a pipe a line is a line."""
    assert main(arguments) == 0
    whole = capsys.readouterr().out
    assert max(map(len, whole.splitlines())) > 80
    monkeypatch.setattr(output, "console", lambda: Console(width=80, force_terminal=True, highlight=False, soft_wrap=True))
    assert main(arguments) == 0
    folded = capsys.readouterr().out
    assert "".join(folded.split()) == "".join(whole.split())
    rows = [row for row in folded.splitlines()[1:] if row.startswith(" ")]
    assert max(map(len, rows)) <= 80 and "\n            " in folded
