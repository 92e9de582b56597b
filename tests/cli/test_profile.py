"""`profile`: the shares add up to the run, as text, as JSON and as a trace; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]
RUN = ["profile", "speculative", "--prompt", "abcab", "--max-tokens", "8", "--repeat", "1"]


def test_the_parts_add_up_to_the_run(tables: None, capsys: Capture, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert main([*RUN, "--gamma", "2", "--chrome", str(trace), "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert sum(s["seconds"] for s in got["spent"]) == pytest.approx(got["seconds"], abs=1e-6)
    assert sum(s["cpu"] for s in got["spent"]) == pytest.approx(got["processor_seconds"], abs=1e-6)
    (rest,) = (s for s in got["spent"] if s["kind"] == "outside of the program")
    assert 0 <= rest["seconds"] < got["seconds"]
    assert {s["model"] for s in got["spent"]} == {"", "target", "drafter"}
    assert got["tokens"] == 8 and got["repeats"] == 1 and isinstance(got["overhead"], float)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"forwards target", "forwards drafter", "verification"} <= {e["name"] for e in events}
    seen = got["seconds"] - rest["seconds"]
    assert sum(e["dur"] for e in events) / 1e6 == pytest.approx(seen, abs=1e-6)
    assert {e["args"]["line"] for e in events} >= {"stdlib/speculative.dec:10", "stdlib/speculative.dec:12"}


def test_text_is_the_program_with_its_times(tables: None, capsys: Capture) -> None:
    assert main(RUN) == 0
    out = capsys.readouterr().out
    assert out.startswith("speculative: 8 tokens in ")
    assert "processor time (medians of 1 runs each way, in turns)" in out
    for words in ("forwards of target", "forwards of drafter", "model calls", "verification", "outside of the program"):
        assert f"  {words}\n" in out
    own, rules = out.index("\nstdlib/speculative.dec\n"), out.index("\nstdlib/rules.dec\n")
    assert own < rules, "the program's own lines come first"
    lines = [line for line in out[own:rules].splitlines() if "x ~ drafter(t.leaves)" in line]
    assert len(lines) == 1 and "%" in lines[0]
    assert "rule traverse" not in out, "of other files only lines that took time are shown"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nosuch", "--prompt", "a"], "no algorithm called"),
        (["speculative", "--prompt", "a", "--gama", "3"], "did you mean --gamma?"),
        (["speculative", "--prompt", "a", "--gamma", "99"], "must be in 1..32"),
        (["speculative", "--prompt", ""], "the prompt is empty"),
        (["speculative", "--prompt", "a", "--chrome", "/nowhere/x.json"], "cannot write"),
    ],
)
def test_refusals(arguments: list[str], word: str, tables: None, capsys: Capture) -> None:
    assert main(["profile", *arguments]) == 2
    out, err = capsys.readouterr()
    assert word in err and out == ""
