"""The command ends its process without freeing everything: nothing that it said or that was asked for at exit is lost."""

from __future__ import annotations

import subprocess
import sys

from lib.waiting import SECONDS

_PROGRAM = """
import atexit, sys, threading, time
import torch
from decgraph.cli import main
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
class Freed:
    def __del__(self): print("freed")
kept = Freed()
sys.argv = ["decgraph", *sys.argv[1:]]
sys.exit(main.main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
    )


def test_what_was_said_arrives_and_exit_functions_run() -> None:
    done = run("--version")
    assert done.returncode == 0
    *said, last = done.stdout.splitlines()  # the thread may be first, where the machine is slow
    assert last == "at exit" and len(said) == 2 and "thread" in said
    assert any(line.startswith("decgraph ") for line in said)
    assert done.stderr == ""


def test_the_exit_code_is_the_command_s() -> None:
    done = run("no-such-verb")
    assert done.returncode == 2
    assert done.stdout.splitlines() == ["thread", "at exit"]
    assert "no-such-verb" in done.stderr
