"""`decgraph check`: the lines of each verdict, its exit code, what `--require` makes of it, and the page of `--proof`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from decgraph import stdlib
from decgraph.check.exploration import Exploration
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]
GOLDEN = Path(__file__).parent / "speculative.proof.txt"
HOLDS = """algorithm holds(target: causal):
    ensures p[x] > 0

    while not done:
        p = target(ctx)
        x ~ p
        commit x
"""
LATE = """algorithm late(target: causal):
    refines autoregressive(target) in tokens

    while not done:
        x ~ target(ctx) as output
        if ctx.length > 1000000:
            x ~ target(ctx.parent)
        commit x
"""
PREMISE = LATE.replace("x ~ target(ctx) as", "x ~ warp(log(target(ctx).raw), at = ctx) as").replace(
    "        if ctx.length > 1000000:\n            x ~ target(ctx.parent)\n", ""
)
WRONG = HOLDS.replace("ensures p[x] > 0", "refines autoregressive(target) in distribution").replace("x ~ p", "x = argmax(p)")


@pytest.mark.parametrize(
    ("text", "verdict", "codes"),
    [
        ("speculative", "proved", (0, 0, 0)),
        (PREMISE, "proved", (0, 0, 1)),
        (HOLDS, "holds", (0, 0, 1)),
        (LATE, "undecided", (3, 1, 1)),
        (WRONG, "refuted", (1, 1, 1)),
        ("autoregressive", "none", (0, 1, 1)),
    ],
)
def test_exit_codes(text: str, verdict: str, codes: tuple[int, ...], tmp_path: Path, capsys: Capture) -> None:
    """Of a check, of one that requires `holds`, and of one that requires `proved`."""
    name = text
    if "\n" in text:
        (tmp_path / "program.dec").write_text(text, encoding="utf-8")
        name = str(tmp_path / "program.dec")
    for code, least in zip(codes, ([], ["--require", "holds"], ["--require", "proved"]), strict=True):
        assert main(["check", name, "--models", "2", *least]) == code
        assert capsys.readouterr().out.startswith(f"{verdict:<10}")


def test_another_word_is_refused(capsys: Capture) -> None:
    assert main(["check", "speculative", "--require", "tested"]) == 2
    assert "one of proved, holds" in capsys.readouterr().err


def test_what_holds_says_where_and_why_it_is_not_proved(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "holds.dec"
    path.write_text(HOLDS, encoding="utf-8")
    assert main(["check", str(path), "--models", "2"]) == 0
    verdict, bounds, stopped = capsys.readouterr().out.splitlines()[:3]
    assert verdict == "holds     holds: ensures p[x] > 0"
    assert bounds.lstrip().startswith("in ") and "worlds: contexts up to " in bounds and "vocabularies up to " in bounds
    assert stopped.lstrip().startswith("no derivation: line 2: ")


def test_a_whole_page_says_why_speculative_decoding_is_lossless(capsys: Capture) -> None:
    assert main(["check", "speculative", "--proof"]) == 0
    page = capsys.readouterr().out.partition("\n\n")[2]
    assert page == GOLDEN.read_text(encoding="utf-8")
    assert len(page.splitlines()) < 50 and max(map(len, page.splitlines())) <= 118


def test_the_page_shows_where_a_derivation_stops(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "wrong.dec"
    path.write_text(WRONG, encoding="utf-8")
    assert main(["check", str(path), "--proof"]) == 1
    page = capsys.readouterr().out
    line = next(line for line in page.splitlines() if line.startswith("   7          commit x"))
    assert "known" in page.split(line)[1] or "|" in line


def test_json_has_the_derivation(capsys: Capture) -> None:
    assert main(["check", "speculative", "--gamma", "2", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    (claim,) = got["claims"]
    assert (got["verdict"], claim["verdict"], claim["claim"]) == ("proved", "proved", got["claim"])
    assert [step["line"] for step in claim["proof"]] == [12, 13] and set(claim["proof"][0]) == {"line", "text", "rule"}


def test_proved_is_printed_before_anything_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """And once; what a world says against it comes below, with the verdict that it makes."""
    said: list[str] = []

    def compared(*_: Any, **__: Any) -> None:
        said.append(capsys.readouterr().out)

    monkeypatch.setattr(Exploration, "run", compared)
    assert main(["check", "speculative"]) == 0
    rest = capsys.readouterr().out
    assert said[0].startswith("proved    speculative: refines") and "(--proof shows why)\n" in said[0]
    assert rest.lstrip().startswith("compared in 0 worlds") and "proved" not in rest


@pytest.mark.slow
def test_a_check_of_the_whole_shelf_ends_and_nothing_of_it_is_a_fault(capsys: Capture) -> None:
    """It ended in an internal error for weeks, since nothing ran it."""
    assert main(["check", "--all", "--json", "--seconds", "1", "--jobs", "2"]) in (0, 3)
    found = {report["name"]: report for report in json.loads(capsys.readouterr().out)}
    assert list(found) == list(stdlib.names())
    assert [name for name, report in found.items() if report["faults"] or report["verdict"] == "refuted"] == []
    # An error of Python's in a draft would only leave the draft out: everything after it would be compared with nothing.
    assert [note for report in found.values() for note in report["notes"] if re.search(r"\b[A-Z]\w+Error\b", note)] == []
    derived = [name for name, report in found.items() if report["claims"] and all("proof" in c for c in report["claims"])]
    assert len(derived) > 150 and {found[name]["verdict"] for name in derived} == {"proved"}
