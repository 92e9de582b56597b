"""The end of docs/tutorial.md on the fetched model: the newcomer's own algorithm writes what the model itself would write."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_docs import run_slow_blocks, write_files

import decgraph


@pytest.mark.budget(20)
def test_the_tutorial_ends_on_a_chat_model(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_slow_blocks("docs/tutorial.md", tmp_path, capsys)
    write_files("docs/tutorial.md", 10**9, tmp_path)
    talk = [{"role": "user", "content": "Repeat this sentence: the cat sat on the mat and the dog sat on the cat"}]
    mine = decgraph.run("mine.dec", talk, {"target": "smollm2", "head": "smollm2_eagle"}, limit=16, temperature=0)
    plain = decgraph.run("autoregressive", talk, {"target": "smollm2"}, limit=16, temperature=0)
    assert mine.error is None and mine.tokens == plain.tokens
    assert mine.stats.tokens_per_call > 1.2
