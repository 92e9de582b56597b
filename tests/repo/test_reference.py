"""docs/reference/ops.md is what the op table and the backends say, and the tables of docs/checking.md are what is derived."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from lib.repository import ROOT

from decgraph.backends.registry import BACKENDS
from decgraph.backends.torch import lowering
from decgraph.backends.triton import evaluate
from decgraph.backends.triton.machine import TritonMachine
from decgraph.ir.table import TABLE

SCRIPT = ROOT / "docs" / "reference" / "ops.py"
CLAIMS = ROOT / "docs" / "reference" / "claims.py"


@pytest.fixture(scope="module")
def reference() -> Any:
    """The script's names, as its main program sees them."""
    return runpy.run_path(str(SCRIPT))


def test_the_page_is_up_to_date(reference: Any) -> None:
    text = reference["PAGE"].read_text(encoding="utf-8")
    assert text == reference["page"](), "run: python docs/reference/ops.py"


def test_every_op_has_a_line_for_the_backends(reference: Any) -> None:
    text = reference["page"]()
    for name, row in TABLE.items():
        assert f"### `{name}`" in text
        (line,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", text, re.M)
        assert line.count("|") == 3 + len(BACKENDS)  # a column for the op, for each backend, and for the exact checker
        assert (row.unavailable in line) if row.unavailable else "–" not in line


def test_what_the_page_says_is_what_the_backends_say() -> None:
    for name, row in TABLE.items():
        torch, triton = lowering.supports(name), TritonMachine.supports(name)
        assert (torch is None) == (name not in lowering.HOSTED and not row.unavailable)
        assert (triton is None) >= (name in evaluate.STEP)
        if row.unavailable:
            assert torch == triton == row.unavailable


def test_the_script_writes_and_checks(tmp_path: Path, reference: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main = reference["main"]
    was, main.__globals__["PAGE"] = main.__globals__["PAGE"], tmp_path / "ops.md"
    try:
        assert main(["--check"]) == 1
        assert main([]) == 0 and main(["--check"]) == 0
        assert "out of date" in capsys.readouterr().out.splitlines()[0]
        assert main(["--help"]) == 2 and "usage" in capsys.readouterr().out
    finally:
        main.__globals__["PAGE"] = was


@pytest.mark.budget(40)
def test_the_tables_of_claims_are_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims = runpy.run_path(str(CLAIMS))
    main, text = claims["main"], claims["PAGE"].read_text(encoding="utf-8")
    assert text == claims["page"](), "run: python docs/reference/claims.py"
    counts = [
        line.split("|")[2:4]
        for line in text.splitlines()
        if re.match(r"\| `(refines|keeps|ensures|at most)[^|]*\| \d+ \| \d+ \|", line)
    ]
    assert len(counts) >= 6
    (total,) = re.findall(r"^\| all \| (\d+) \| (\d+) \|$", text, re.M)
    assert [sum(int(row[n]) for row in counts) for n in (0, 1)] == [int(n) for n in total]
    main.__globals__["PAGE"] = tmp_path / "checking.md"
    (tmp_path / "checking.md").write_text(text.replace("| all |", "| old |"), encoding="utf-8")
    main.__globals__["tables"] = lambda: text.partition(claims["BEGIN"])[2].partition(claims["END"])[0]
    assert main(["--check"]) == 1
    assert main([]) == 0 and main(["--check"]) == 0 and (tmp_path / "checking.md").read_text(encoding="utf-8") == text
    assert main(["--help"]) == 2
    assert "out of date" in capsys.readouterr().out.splitlines()[0]
