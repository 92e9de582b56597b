"""`decgraph bench`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]
SHORT = ("--quick", "--max-new", "6", "--repeat", "1", "--batch", "0")


def test_rows_and_a_result_file(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    assert main(["bench", "speculative", *SHORT, "--set", "gamma=2", "--json", str(out)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("measuring ")  # also where nobody sits at a terminal: the table comes at the end
    heading, *printed = said.out.splitlines()
    assert heading.split("\t")[:2] == ["algorithm", "models"]
    assert [line.split("\t")[:4] for line in printed[:2]] == [
        ["speculative", "shipped", "assisted", mode] for mode in ("greedy", "sampled")
    ]
    assert "1 threads" in printed[-1] and "float32" in printed[-1]
    made = json.loads(out.read_text())
    assert set(made) == {"machine", "settings", "weights", "rows"}
    greedy, sampled = made["rows"]
    assert greedy["params"] == {"gamma": 2} and greedy["tokens_equal"]["different"] == 0
    assert made["weights"]["shipped"]["target"] > made["weights"]["shipped"]["drafter"]
    assert made["machine"]["threads"] == 1


@pytest.mark.quick(but=("cannot write",))
@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing"], "no algorithm called 'nothing'"),
    (["speculative", "--baseline", "nothing"], "no baseline 'nothing'"),
    (["autoregressive", "--size", "random-1T"], "no size 'random-1T'"),
    (["speculative", "--set", "gamma=99"], "must be in 1..32"),
    (["fast_dllm", "--baseline", "speculative"], "the same kind of model"),
    (["autoregressive", "--json", "/nowhere/at/all.json"], "cannot write"),
])  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["bench", *arguments, *SHORT]) == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
