"""`export vllm` and `export sglang`: the file that is written, what is refused, and `--json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("engine", "made_for"), [("vllm", "vLLM 0.33.0"), ("sglang", "SGLang 0.5.23")])
def test_a_file_is_written(
    engine: str, made_for: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", engine, "prompt_lookup", "--set", "k=6"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"wrote prompt_lookup_{engine}.py: PromptLookupProposer, drafts of at most 6 tokens, made for {made_for}"
    )
    text = (tmp_path / f"prompt_lookup_{engine}.py").read_text(encoding="utf-8")
    assert f"written by `decgraph export {engine}`" in text and "(Yang et al., 2023)" in text
    assert not re.search(r"@[A-Z_]+@", text), "every blank of the template is filled in"
    compile(text, "exported", "exec")
    assert main(["export", engine, "prompt_lookup"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["export", engine, "prompt_lookup", "--force", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert (got["file"], got["class"]) == (f"prompt_lookup_{engine}.py", "PromptLookupProposer")
    assert made_for in got["made_for"]


def test_refusals_say_why_with_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "vllm", "speculative"]) == 1
    err = capsys.readouterr().err
    assert "speculative cannot be exported for vLLM" in err
    assert "stdlib/speculative.dec: it drafts with a model, `drafter`" in err
    assert "stdlib/speculative.dec:12: its verification by rejection is its own" in err
    assert not list(tmp_path.iterdir())
    assert main(["export", "vllm", "prompt_lookup", "--set", "k=99"]) == 1
    assert "must be in 1..64" in capsys.readouterr().err
    assert main(["export", "vllm", "prompt_lookup", "--out", "/nowhere/x.py"]) == 1
    assert "cannot write" in capsys.readouterr().err
