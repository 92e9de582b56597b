"""`decgraph trace`: the files it writes, the terminal, JSON, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lib.stdlib.recorded_runs import REVOKING

from decgraph.cli import output, trace
from decgraph.cli.main import main


def test_every_file_at_once(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, chrome, plot = tmp_path / "t.html", tmp_path / "t.json", tmp_path / "t.png"
    words = ["-p", "ab", "-n", "12", "-t", "1", "--gamma", "2", "-o", str(page), "--chrome", str(chrome), "--plot", str(plot)]
    assert main(["trace", "speculative", *words, "--against", "autoregressive"]) == 0
    said = capsys.readouterr().out
    assert said.count("wrote ") == 3 and "autoregressive: 12 tokens in 12 steps" in said
    text = page.read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
    assert '"gamma":"2"' in text
    assert {e["args"]["name"] for e in json.loads(chrome.read_text())["traceEvents"] if e["name"] == "process_name"} == {
        "speculative",
        "autoregressive",
    }
    assert plot.read_bytes()[:4] == b"\x89PNG"


def test_a_tree_and_acceptance_at_the_terminal(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "speculative", "-p", "ab", "-n", "24", "-t", "1"]) == 0
    said = capsys.readouterr().out
    assert "accepted by depth" in said and "✓ " in said and "+ " in said and "q 0." in said
    assert "+ residual" in said and "own token" not in said
    assert main(["trace", "prompt_lookup", "-p", "ab", "-n", "24", "-t", "1"]) == 0
    said = capsys.readouterr().out
    assert "residual" not in said and "own token" in said
    assert main(["trace", "speculative", "-p", "ab", "-n", "24", "-t", "1", "--step", "2"]) == 0
    assert "\nstep 2: " in capsys.readouterr().out
    assert main(["trace", "speculative", "-p", "ab", "-n", "4", "--step", "99"]) == 2
    assert "--step 99: there is no such step" in capsys.readouterr().err


def test_a_search_at_the_terminal_is_as_it_was_in_the_step(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (2, 4):
        assert main(["trace", "beam", "-p", "ab", "-n", "4", "--k", "2", "--step", str(step)]) == 0
        said = capsys.readouterr().out
        assert said.count("logprob ") == 4 * step and ("● " in said) == (step == 4)


def test_a_canvas_at_the_terminal(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "remdm_loop", "-p", "ab", "-n", "8", "--length", "8", "--rounds", "3"]) == 0
    rows = [line[5:] for line in capsys.readouterr().out.splitlines() if line[:4].strip().isdigit()]
    filled = [sum(c in "░▒▓█" for c in row) for row in rows]
    assert filled[0] == 1 and filled[-1] == 8


def test_a_revocation_is_seen_at_the_terminal(tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "revoking.dec"
    file.write_text(REVOKING)
    assert main(["trace", str(file), "-p", "ab", "-n", "4"]) == 0
    said = capsys.readouterr().out
    rows = [line[5:] for line in said.splitlines() if line[:4].strip().isdigit()]
    assert ["×" in row for row in rows] == [True] * 3 + [False] * 4 and "× masked again" in said
    assert re.search(r"^position \d: 1-3 '.+' ×", said, re.M)


def test_json_is_what_the_page_shows(tables: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "speculative", "-p", "ab", "-n", "12", "-t", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["run", "speculative", "-p", "ab", "-n", "12", "-t", "1", "--json"]) == 0
    assert found["tokens"] == json.loads(capsys.readouterr().out)["tokens"]
    assert sum(step["n"] for step in found["steps"]) == 12
    assert {span[0] for span in found["spans"]} == {"target", "drafter"}


@pytest.mark.parametrize("end", ["limit", "interrupt"])
def test_a_live_page_grows_and_then_rests(
    tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """It says of itself that the run goes on, which makes a browser read it again, until the run ends or is interrupted."""
    page, seen = tmp_path / "t.html", []
    data = lambda text: json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["runs"][0]
    written = output.write

    def write(path: Path, text: str) -> None:
        written(path, text)
        seen.append(data(text))
        if end == "interrupt" and len(seen) == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "write", write)
    monkeypatch.setattr(trace, "PAUSE", 0.0)
    code = main(["trace", "speculative", "-p", "ab", "-n", "9", "-t", "1", "-o", str(page), "--live"])
    assert code == (0 if end == "limit" else 130)
    last = data(page.read_text(encoding="utf-8"))
    assert last == seen[-1] and not last["live"] and all(one["live"] for one in seen[:-1])
    lengths = [len(one["tokens"]) for one in seen]
    assert lengths == sorted(lengths) and len(set(lengths)) > 1
    assert last["reason"] == ("limit" if end == "limit" else "interrupted")
    assert [file.name for file in tmp_path.iterdir()] == ["t.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plot", "x.txt"], "cannot draw x.txt"),
        (["--gama", "2"], "--gamma"),
        (["--set", "gama=2"], "no parameter `gama`"),
        (["-o", "/no/such/folder/x.html"], "cannot write"),
        (["--system", "x"], "--system goes with --chat"),
        (["--live"], "--live goes with a page"),
        (["-o", "x.pdf"], "--plot x.pdf draws it"),
    ],
)
def test_what_it_refuses(tables: None, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["trace", "speculative", "-p", "ab", *words]) == 2
    assert said in capsys.readouterr().err
