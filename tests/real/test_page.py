"""The section of docs/your-model.md about SmolLM2 is run as it is printed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from lib.repository import ROOT
from test_docs import blocks_of, run_console, run_script

PAGE = "docs/your-model.md"
BEFORE, SECTION = (ROOT / PAGE).read_text(encoding="utf-8").split("\n## SmolLM2, a real chat model\n")
BLOCKS = [block for block in blocks_of(PAGE, (ROOT / PAGE).read_text(encoding="utf-8")) if block.line > BEFORE.count("\n")]


def test_commands(smollm2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [replace(b, marks=(*b.marks, "output")) for b in BLOCKS if b.language == "console"]
    assert len(shown) == 3
    faults = [fault for block in shown for fault in run_console(block, tmp_path, capsys)]
    assert not faults, "\n".join(faults)


def test_python(smollm2: Path, tmp_path: Path) -> None:
    run_script(PAGE, [b for b in BLOCKS if b.language == "python"], tmp_path)


def test_sizes(smollm2: Path) -> None:
    """The sizes that the page names are those of the table, and of what is kept."""
    from decgraph.zoo.fetched import FETCHABLE

    model = FETCHABLE["smollm2"]
    named = [int(number) for number in re.findall(r"\((\d+) MB\)", SECTION)]
    assert named == [round(model.wheel_bytes / 1e6), round(model.kept_bytes / 1e6)]
    assert sum(file.stat().st_size for file in smollm2.iterdir()) == pytest.approx(model.kept_bytes, rel=0.01)
