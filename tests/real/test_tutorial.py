"""The end of docs/tutorial.md on the fetched model: the newcomer's own algorithm writes what the model itself would write,
alone and behind a server."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS, started
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
    mine = decgraph.run("mine.dec", talk, {"target": "smollm2", "head": "smollm2_eagle"}, max_tokens=16, temperature=0)
    plain = decgraph.run("autoregressive", talk, {"target": "smollm2"}, max_tokens=16, temperature=0)
    assert mine.error is None and mine.tokens == plain.tokens
    assert mine.stats.tokens_per_call > 1.2


@pytest.mark.budget(20)
def test_the_tutorial_ends_behind_a_server(smollm2: Path, tmp_path: Path) -> None:
    """As it is printed, but for the port."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    write_files("docs/tutorial.md", 10**9, tmp_path)
    (command,) = re.findall(r"^\$ decgraph (serve .*) --port 8000$", page, re.M)
    (asked, answer) = re.search(r"an empty line ends\.\n(Repeat.*)\n(.*)\n```", page).groups()  # type: ignore[union-attr]
    serve = [sys.executable, "-m", "decgraph", *shlex.split(command), "--port", "0"]
    with started(serve, cwd=tmp_path, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        said = re.fullmatch(r"serving smollm2, smollm2:mine at (http://\S+) .*\n", server.stdout.readline())
        assert said is not None
        client = (tmp_path / "chat.py").read_text(encoding="utf-8")
        assert client.count("http://127.0.0.1:8000/v1") == 1
        (tmp_path / "chat.py").write_text(client.replace("http://127.0.0.1:8000/v1", said[1]), encoding="utf-8")
        words = [sys.executable, "chat.py"]
        done = subprocess.run(
            words, cwd=tmp_path, input=f"{asked}\n\n", capture_output=True, text=True, timeout=SECONDS, check=False
        )
        server.send_signal(signal.SIGINT)
        assert server.wait(SECONDS) == 0
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [answer]
