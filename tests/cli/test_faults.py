"""What fails midway at the command line: the text so far, one message, exit code 1, and the other prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph.cli.main import main

PROGRAM = '''
extern sure(p: prob, text) -> bool on host

algorithm careful(target: causal):
    """The likeliest token where a function of the caller is sure."""
    while not done:
        q = target(ctx)
        y = argmax(q.raw)
        x ~ q as output
        commit y if sure(q.raw[y], text_of(ctx)) else x
'''
MINE = """
def sure(p, text):
    if text.startswith("ba") and len(text) >= 5:
        raise KeyError("mine")
    return True
"""


@pytest.fixture
def asked(tables: None, tmp_path: Path) -> list[str]:
    (tmp_path / "careful.dec").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "prompts.txt").write_text("ab\nba\ncab\n", encoding="utf-8")
    return ["run", str(tmp_path / "careful.dec"), "--extern", f"{tmp_path / 'mine.py'}:sure", "--max-tokens", "6"]


def test_one_prompt_shows_what_it_has_and_the_error(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--prompt", "ba", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert len(out.strip()) == 3 and "careful.dec:10:" in err and "request 0" not in err and "KeyError: 'mine'" in err
    assert "Traceback" not in err and "internal error" not in err


def test_json_has_the_tokens_and_the_error(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--prompt", "ba", "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert len(found["tokens"]) == 3 and found["reason"] == "error" and "KeyError" in found["error"]
    assert "Traceback" not in err


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_several_prompts_fail_one_by_one(asked: list[str], backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = str(Path(asked[1]).parent / "prompts.txt")
    assert main([*asked, "--prompts", prompts, "--json", "--backend", backend]) == 1
    found = json.loads(capsys.readouterr().out)["results"]
    assert [r["reason"] for r in found] == ["limit", "error", "limit"] and [len(r["tokens"]) for r in found] == [6, 3, 6]
    assert "request 1" in found[1]["error"]
    assert main([*asked, "--prompts", prompts, "--backend", backend]) == 1
    out, err = capsys.readouterr()
    assert "2. 3 tokens, error" in out and "3. 6 tokens, limit" in out and "Traceback" not in out + err
