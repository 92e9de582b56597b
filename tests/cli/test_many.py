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
    assert main(["run", "speculative", "--prompts", prompts, "--max-tokens", "7", "--batch", "2"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith("tokens, limit")] == [f"{n}. 7 tokens, limit" for n in (1, 2, 3)]
    assert "3 prompts, 21 tokens" in out


def test_what_each_commits_is_what_it_commits_alone(tables: None, prompts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "speculative", "--prompts", prompts, "--max-tokens", "9", "--json"]) == 0
    together = json.loads(capsys.readouterr().out)["results"]
    for text, result in zip(("ab", "ba", "cab"), together, strict=True):
        assert main(["run", "speculative", "--prompt", text, "--max-tokens", "9", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == result["tokens"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--prompt", "a"], "--prompts goes with no other prompt"),
        (["--events", "t.json"], "--prompts goes with no other prompt and no --events"),
    ],
)
def test_what_does_not_go_together(
    more: list[str], words: str, tables: None, prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "speculative", "--prompts", prompts, *more]) == 2
    assert words in capsys.readouterr().err


def test_json_lines_are_read_as_such(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt, a text, and token ids commit what the same texts do; the heading of each is what a person reads."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "ab", "kind": "x"}\n"ba"\n{"ids": [2, 0, 1]}\n', encoding="utf-8")
    plain = tmp_path / "p.txt"
    plain.write_text("ab\nba\ncab\n", encoding="utf-8")
    made = []
    for path in (file, plain):
        assert main(["run", "speculative", "--prompts", str(path), "--max-tokens", "9", "--json"]) == 0
        made.append([r["tokens"] for r in json.loads(capsys.readouterr().out)["results"]])
    assert made[0] == made[1]
    assert main(["run", "speculative", "--prompts", str(file), "--max-tokens", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line: lines[at + 1] for at, line in enumerate(lines) if line.endswith("tokens, limit")}
    for number, prompt in enumerate(("ab", "ba", "2 0 1"), 1):
        assert shown[f"{number}. 9 tokens, limit"].startswith(prompt)


def test_messages_of_json_lines_go_through_the_chat_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompts that reach the session; without a template the run is refused."""
    file = tmp_path / "p.jsonl"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    file.write_text(json.dumps({"messages": messages}) + '\n{"prompt": "d"}\n', encoding="utf-8")
    asked: list[object] = []

    def generate(self: object, prompts: list[object], **_: object) -> list[object]:
        asked.extend(prompts)
        return []

    with monkeypatch.context() as patch:
        patch.setattr("decgraph.runtime.session.Session.generate", generate)
        assert main(["run", "autoregressive", "--prompts", str(file)]) == 0
        assert main(["run", "autoregressive", "--prompts", str(file), "--chat", "--system", "s"]) == 0
    capsys.readouterr()
    system = {"role": "system", "content": "s"}
    assert asked == [messages, "d", [system, *messages], [system, {"role": "user", "content": "d"}]]
    assert main(["run", "autoregressive", "--prompts", str(file)]) == 2
    assert "this model has no chat template" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "words"), [
    ("ab", "p.jsonl:2 is not JSON"),
    (f'{{"ids": [{"9" * 5000}]}}', "p.jsonl:2 has a number that is too long"),
    ('{"text": "ab"}', "p.jsonl:2 has neither a prompt nor messages"),
    ('{"ids": [0, 4]}', "vocabulary"),
])  # fmt: skip
@pytest.mark.parametrize("verb", ["run", "tune"])
def test_a_line_that_is_no_prompt_is_named(
    verb: str, line: str, words: str, tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'"ab"\n{line}\n', encoding="utf-8")
    more = ["--out", str(tmp_path / "profile.toml")] if verb == "tune" else []
    assert main([verb, "speculative", "--prompts", str(file), *more]) == 2
    err = capsys.readouterr().err
    assert words in err and ("p.jsonl:2" in err or verb == "tune")


def test_files_that_have_none(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    assert main(["run", "autoregressive", "--prompts", str(empty)]) == 2
    assert "has no prompts" in capsys.readouterr().err
    assert main(["run", "autoregressive", "--prompts", str(tmp_path / "none.txt")]) == 2
    assert "cannot read" in capsys.readouterr().err
