"""`decgraph run --prompts`: a file of prompts, decoded together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph.cli.main import main


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.txt"
    file.write_text("ab\n\nba\ncab\n", encoding="utf-8")
    return str(file)


def test_every_line_is_a_prompt(tables: None, prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "speculative", "--prompts", prompts, "--max-new", "7", "--batch", "2"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith("tokens, limit")] == [f"{n}. 7 tokens, limit" for n in (1, 2, 3)]
    assert "3 prompts, 21 tokens" in out


def test_what_each_commits_is_what_it_commits_alone(tables: None, prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "speculative", "--prompts", prompts, "--max-new", "9", "--json"]) == 0
    together = json.loads(capsys.readouterr().out)["results"]
    for text, result in zip(("ab", "ba", "cab"), together, strict=True):
        assert main(["run", "speculative", "--prompt", text, "--max-new", "9", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == result["tokens"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--prompt", "a"], "--prompts goes with no other prompt"),
        (["--trace", "t.json"], "--prompts goes with no other prompt and no --trace"),
    ],
)
def test_what_does_not_go_together(
    more: list[str], words: str, tables: None, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "speculative", "--prompts", prompts, *more]) == 1
    assert words in capsys.readouterr().err


def test_files_that_have_none(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    assert main(["run", "autoregressive", "--prompts", str(empty)]) == 1
    assert "has no prompts" in capsys.readouterr().err
    assert main(["run", "autoregressive", "--prompts", str(tmp_path / "none.txt")]) == 1
    assert "cannot read" in capsys.readouterr().err
