"""`decgraph fmt`: writes what differs, leaves what does not parse, says so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from decgraph.cli.main import main

LOOSE = """algorithm  a( target:causal ):  # one
  while not done:
    x~target(ctx) as output
    commit   x
"""
BROKEN = "algorithm (:\n"


@pytest.fixture
def tidy() -> str:
    from decgraph.dsl.format import format_source

    text = format_source(LOOSE)
    assert text != LOOSE
    return text


def test_writes_and_then_leaves_alone(tmp_path: Path, tidy: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.dec"
    file.write_text(LOOSE)
    assert main(["fmt", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"formatted {file}\n"
    assert file.read_text() == tidy
    assert "# one" in tidy
    assert main(["fmt", "--check", str(file)]) == 0
    assert capsys.readouterr().out == ""


def test_check_and_diff_write_nothing(tmp_path: Path, tidy: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.dec"
    file.write_text(LOOSE)
    assert main(["fmt", "--check", str(file)]) == 1
    assert capsys.readouterr().out == f"would format {file}\n"
    assert main(["fmt", "--diff", str(file)]) == 0
    assert "-    commit   x\n" in capsys.readouterr().out
    assert file.read_text() == LOOSE


def test_what_does_not_parse_stays(tmp_path: Path, tidy: str, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "a.dec", tmp_path / "b.dec"
    good.write_text(LOOSE)
    bad.write_text(BROKEN)
    assert main(["fmt", str(bad), str(good)]) == 2
    assert f"{bad}:1:" in capsys.readouterr().err
    assert (good.read_text(), bad.read_text()) == (tidy, BROKEN)


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "a.dec", tmp_path / "b.dec"
    good.write_text(LOOSE)
    bad.write_text(BROKEN)
    assert main(["fmt", "--json", "--check", str(good), str(bad)]) == 2
    first, second = json.loads(capsys.readouterr().out)["files"]
    assert first == {"file": str(good), "changed": True}
    assert second["error"].startswith("error")


def test_stdin_to_stdout(tidy: str, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(LOOSE))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == tidy


def test_files_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is read-only is reported, and the next one is still formatted."""
    first, second = tmp_path / "a.dec", tmp_path / "b.dec"
    for file in (first, second):
        file.write_text(LOOSE)
    write = Path.write_text

    def refused(path: Path, *given: Any, **more: Any) -> int:
        if path == first:
            raise PermissionError(13, "Permission denied")
        return write(path, *given, **more)

    monkeypatch.setattr(Path, "write_text", refused)
    assert main(["fmt", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert f"cannot write {first}: Permission denied" in told.err and told.out == f"formatted {second}\n"


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "x.dec"
    binary.write_bytes(b"\xff\xfe")
    assert main(["fmt", str(tmp_path / "none.dec"), str(binary)]) == 2
    err = capsys.readouterr().err
    assert "No such file" in err
    assert "not UTF-8" in err
