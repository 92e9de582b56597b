"""How far something long is: lines where there is no terminal, and what a signal leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lib.waiting import SECONDS, started, until

from decgraph.runtime import progress

Capture = pytest.CaptureFixture[str]


def test_a_line_says_how_much_is_left() -> None:
    assert progress.line("tune:", "step 40", 1, 3, 20) == "tune: step 40, 33% after 20 s, about 40 s left"
    assert progress.line("map:", "", 90, 100, 900) == "map, 90% after 15 min, about 2 min left"
    assert progress.line("check x:", "worlds", 0, 0, 7) == "check x: worlds, 7 s so far"
    assert progress.line("tune:", "reading", 0.001, 60, 1) == "tune: reading, 1 s so far"  # too little to tell by


def test_lines_come_while_nobody_tells_anything(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.01)
    seen: list[str] = []

    def lines() -> int:
        seen.extend(capsys.readouterr().err.splitlines())
        return len(seen)

    with progress.shown("tune: text") as told:
        told("12 tokens", 1, 2)
        until("three lines are there", lambda: lines() >= 3)
    assert all("tune: text: 12 tokens, 50%" in line for line in seen[1:])
    with progress.shown("tune", quiet=True) as told:
        told("x", 1, 2)
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_sigterm_is_as_ctrl_c() -> None:
    """A check says that it was interrupted, with what it knows, and ends with the code of an interruption."""
    words = [sys.executable, "-m", "decgraph", "check", "online_sd", "--models", "100000"]  # not derived: minutes
    with started(words, stderr=subprocess.STDOUT) as check:
        spent = lambda: int(Path(f"/proc/{check.pid}/stat").read_text().rpartition(")")[2].split()[11])
        until("it has computed for a second", lambda: spent() > 100)
        check.send_signal(signal.SIGTERM)
        said, _ = check.communicate(timeout=SECONDS)
    assert check.returncode == 130 and "interrupted" in said and "Traceback" not in said


@pytest.mark.parametrize("where", ["parse_args", "invoke"])
def test_an_interruption_has_its_word_and_code_wherever_it_comes(where: str, tmp_path: Path) -> None:
    """While options are read, where typer ends without a word, and inside an `exec` of text, after which a plain exit of
    `python -m` ends the process by SIGINT."""
    code = f"""
import sys
from decgraph.cli import application, main
def interrupted(*_: object) -> None:
    exec("raise KeyboardInterrupt")
application.TyperCommand.{where} = interrupted
sys.argv = ["decgraph", "list"]
sys.exit(main.main())
"""
    (tmp_path / "interrupted_command.py").write_text(code, encoding="utf-8")
    words = [sys.executable, "-m", "interrupted_command"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
