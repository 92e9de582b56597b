"""docs/your-model.md as it is written, on the fetched model: every command, and that the table is of what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_docs import run_slow_blocks


@pytest.mark.nightly
def test_the_page_runs_as_written(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_slow_blocks("docs/your-model.md", tmp_path, capsys)
    made = json.loads((tmp_path / "results.json").read_text())
    (run,) = made["runs"]
    assert run["failed"] == {} and run["prompts"]["chat"] and set(run["prompts"]["kinds"]) == {"chat", "edit"}
    assert run["digests"]["target"]["model.safetensors"]
    for row in run["rows"]:
        if row["side"] == "decgraph":
            equal = row["tokens_equal"]
            assert equal["different"] == 0 and equal["same"] + equal["near_ties"] == row["prompts"], row["algorithm"]
    lookups = {row["kind"]: row["tokens_per_call"] for row in run["rows"] if row["algorithm"] == "prompt_lookup"}
    assert lookups["edit"] > 1.3 * lookups["chat"] >= 1.3  # the answer stands in the prompt of the one, not of the other
    table = (tmp_path / "table.tex").read_text()
    assert table.count("\\begin{tabular}") == 2 and "early\\_exit:gamma=1" in table
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"ratios.png", "acceptance.svg", "tokens_per_call.png"}
