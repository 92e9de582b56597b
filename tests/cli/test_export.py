"""`export vllm` and `export sglang`: the file that is written, what is refused, and `--json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from decgraph.api import load
from decgraph.cli.main import main

PEAK = """algorithm peak(target: causal):
    while not done:
        commit argmax(target(ctx))

"""
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("engine", "name", "said"),
    [
        ("vllm", "mirostat", "Mirostat, a logits processor, made for vLLM"),
        ("vllm", "prompt_lookup", "PromptLookup, a drafter, drafts of at most 10 tokens, made for vLLM"),
        ("sglang", "prompt_lookup", "PromptLookup, a drafter, drafts of at most 10 tokens, made for SGLang"),
        ("sglang", "mirostat", "Mirostat, a logits processor, made for SGLang"),
        ("sglang", "llada", "Llada, a dLLM algorithm, made for SGLang"),
    ],
)
def test_a_file_is_written_for_the_interface_that_fits(
    engine: str, name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", engine, name]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {name}_{engine}.py: {said}")
    text = (tmp_path / f"{name}_{engine}.py").read_text(encoding="utf-8")
    assert f"by `decgraph export {engine}`" in text
    assert not re.search(r"@[A-Z_]+@", text), "every blank of the template is filled in"
    compile(text, "exported", "exec")


def test_values_are_in_the_file_and_a_file_that_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "vllm", "prompt_lookup", "--set", "k=6"]) == 0
    assert "at most 6 tokens" in capsys.readouterr().out
    text = (tmp_path / "prompt_lookup_vllm.py").read_text(encoding="utf-8")
    assert "'k': 6" in text and '"num_speculative_tokens": 6' in text and "(Yang et al., 2023)" in text
    assert main(["export", "vllm", "prompt_lookup"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["export", "vllm", "mirostat", "--set", "tau=3.5", "--json"]) == 0
    assert "PARAMS = {'tau': 3.5}" in (tmp_path / "mirostat_vllm.py").read_text(encoding="utf-8")
    got = json.loads(capsys.readouterr().out)
    assert (got["file"], got["class"], got["interface"]) == ("mirostat_vllm.py", "Mirostat", "logits")
    assert got["open"] == ["tau", "eta"] and got["most"] is None


def test_refusals_say_why_with_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "vllm", "speculative"]) == 2
    err = capsys.readouterr().err
    assert "speculative cannot be exported for vllm" in err
    assert re.search(r"as logits: .*stdlib/speculative.dec: it calls `target`, `drafter`: the engine computes one model", err)
    text = load("prompt_lookup").text.replace("    refines autoregressive(target) in tokens\n", "")
    (tmp_path / "mine.dec").write_text(text)
    assert main(["export", "vllm", "mine.dec"]) == 2
    line = 1 + next(n for n, line in enumerate(text.splitlines()) if "verify t by" in line)
    assert f"as drafts: mine.dec:{line}: its verification by match is its own" in capsys.readouterr().err
    assert main(["export", "sglang", "prompt_lookup", "--as", "dllm"]) == 2
    assert "as dllm" in (err := capsys.readouterr().err) and "as drafts" not in err
    assert main(["export", "sglang", "prompt_lookup", "--as", "rows"]) == 2
    assert "logits, drafts, dllm" in capsys.readouterr().err
    assert main(["export", "vllm", "prompt_lookup", "--set", "k=99"]) == 2
    assert "must be in 1..64" in capsys.readouterr().err
    assert main(["export", "vllm", "prompt_lookup", "--out", "/nowhere/x.py"]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.dec"]


@pytest.mark.filterwarnings("default")
def test_a_refuted_claim_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    text = load("autoregressive").text.replace("while not done:", "refines peak(target) in distribution\n    while not done:")
    (tmp_path / "mine.dec").write_text(PEAK + text.replace("autoregressive", "mine"))
    assert main(["export", "vllm", "mine.dec"]) == 0
    assert "what mine claims is refuted: decgraph check mine.dec" in capsys.readouterr().err
    assert main(["export", "hf", "autoregressive"]) == 0 and "refuted" not in capsys.readouterr().err
