"""Times that people see: load, first call and decoding apart, and no number that is rounded to nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.cli.clock import brief, timing
from decgraph.cli.main import main
from decgraph.runtime.models.table import TableModel

SAID = re.compile(r"load (\S+) s, first call (\S+) s, decoding (\d+) tokens in (\S+) s: (\S+) tokens/s")
FIRST, EACH = 0.4, 0.02


class Slow(TableModel):
    """A table that takes long at its first call, as a model does that is captured, and a little at each further one."""

    calls = 0

    def eval(self, *asked: Any, **more: Any) -> Any:
        self.wait()
        return super().eval(*asked, **more)

    def eval_canvas(self, *asked: Any, **more: Any) -> Any:
        self.wait()
        return super().eval_canvas(*asked, **more)

    def wait(self) -> None:
        time.sleep(EACH if self.calls else FIRST)
        self.calls += 1


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("listening", [True, False])
@pytest.mark.parametrize(("name", "kind"), [("autoregressive", "causal"), ("speculative", "causal"), ("llada", "masked")])
def test_the_first_call_is_apart_from_decoding(name: str, kind: str, backend: str, listening: bool) -> None:
    algorithm = decgraph.load(name)
    first = next(iter(algorithm.models))
    slow = Slow(5, seed=1, kind=kind, name="slow")
    models: dict[str, Any] = {model: TableModel(5, seed=2, name=model) for model in algorithm.models}
    session = algorithm.session({**models, first: slow}, backend=backend, **({"length": 8} if kind == "masked" else {}))
    heard: list[Any] = []
    asked = decgraph.Request((1, 2), max_tokens=8)
    result = session.run(asked, listener=heard.append if listening else None, keep_events=False)
    assert result.first_call_seconds is not None and result.first_call_seconds >= FIRST
    assert result.seconds == pytest.approx(result.first_call_seconds + result.decoding_seconds)
    calls = result.stats.target_calls
    assert result.decoding_seconds >= (calls - 2) * EACH, "of the further calls all are in it"
    committed = len(result.tokens) - result.decoding_tokens
    assert committed == 0 if kind == "masked" else 1 <= committed <= len(result.tokens) / 2
    assert result.tokens_per_second == pytest.approx(result.decoding_tokens / result.decoding_seconds)
    assert 0 < session.load_seconds == result.load_seconds
    again = session.run(asked, keep_events=False)
    assert again.first_call_seconds is not None and again.first_call_seconds < FIRST


def test_one_call_alone_decodes_nothing() -> None:
    result = (
        decgraph.load("autoregressive").session({"target": TableModel(5, seed=1)}).run(decgraph.Request((1,), max_tokens=1))
    )
    assert (result.first_call_seconds, result.decoding_tokens, result.tokens_per_second) == (result.seconds, 0, None)
    assert "decoding" not in timing(1.0, result.first_call_seconds, result.decoding_tokens, result.decoding_seconds)


def test_a_run_says_its_times(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "speculative", "-p", "ab", "-n", "24", "-t", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("time ")]
    found = SAID.search(line)
    assert found is not None, line
    tokens, seconds, rate = int(found[3]), float(found[4]), float(found[5])
    assert 0 < tokens < 24 and rate == pytest.approx(tokens / seconds, rel=0.06)
    assert main([*words, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["decoding_tokens"] == tokens and got["load_seconds"] > 0
    assert got["seconds"] == pytest.approx(got["first_call_seconds"] + got["decoding_seconds"], abs=1e-3)
    (line,) = [line for line in out.splitlines() if line.startswith("accepted at")]
    tested, accepted = got["stats"]["tested"], got["stats"]["accepted"]
    assert re.findall(r"\((\d+) of (\d+)\)", line) == [(str(a), str(t)) for a, t in zip(accepted, tested, strict=True)]


def test_many_prompts_and_a_file_of_rows(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("ab\nba\ncab\n")
    assert main(["run", "speculative", "--prompts", str(prompts), "-n", "9"]) == 0
    assert SAID.search(capsys.readouterr().out)
    rows = ["map", str(prompts), "-a", "speculative", "-n", "9", "-o"]
    assert main([*rows, str(tmp_path / "a.jsonl")]) == 0
    found = SAID.search(capsys.readouterr().out)
    assert found is not None and 0 < int(found[3]) < 27
    assert main([*rows, str(tmp_path / "b.jsonl"), "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    parts = got["load_seconds"] + got["first_call_seconds"] + got["decoding_seconds"]
    assert got["seconds"] == pytest.approx(parts, abs=1e-2) and got["decoding_tokens"] == int(found[3])


@pytest.mark.budget(10)
def test_the_load_begins_with_the_process() -> None:
    """What is said adds up to what a person waits for: imports and models are in it."""
    command = [sys.executable, "-m", "decgraph", "run", "autoregressive", "-p", "a", "-n", "8", "--json"]
    began = time.perf_counter()
    told_ = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    waited = time.perf_counter() - began
    assert 0.75 * waited - 0.5 <= told_["load_seconds"] + told_["seconds"] <= waited


def test_no_number_is_rounded_to_nothing() -> None:
    assert [brief(x) for x in (312.4, 99.4, 5.0, 1.0, 0.96, 0.22, 0.0031)] == [
        "312",
        "99.4",
        "5.0",
        "1.0",
        "1.0",
        "0.22",
        "0.0031",
    ]
    for exponent in range(-90, 60):
        value = 10 ** (exponent / 10)
        assert float(brief(value)) == pytest.approx(value, rel=0.06), value
    assert timing(4.1, 3.0, 40, 8.0) == "load 4.1 s, first call 3.0 s, decoding 40 tokens in 8.0 s: 5.0 tokens/s"
    assert timing(4.1, None, 40, 8.0).endswith("decoding 40 tokens in 8.0 s, first call included: 5.0 tokens/s")
