"""docs/reference/ops.md is what the op table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from decgraph.ir import reference
from decgraph.ir.table import TABLE


def test_the_page_is_up_to_date() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert text == reference.page(), "run: python -m decgraph.ir.reference"
    assert all(f"### `{name}`" in text for name in TABLE)


def test_the_script_writes_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGE", tmp_path / "docs" / "ops.md")
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0 and reference.main(["--check"]) == 0
    assert "out of date" in capsys.readouterr().out.splitlines()[0]
    assert reference.main(["--help"]) == 2 and "usage" in capsys.readouterr().out
