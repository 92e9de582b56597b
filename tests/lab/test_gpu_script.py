"""lab/gpu/run.py on the CPU, as a machine with a GPU would run it: nothing of this project installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tree import ROOT
from waiting import SECONDS

from decgraph.bench.weights import damped
from lab.gpu import canvases, run, speed, tokens
from lab.gpu.lab import SIZES, Lab, causal
from lab.gpu.report import Items, Lost, Report

CPU = torch.device("cpu")


@pytest.mark.nightly
def test_from_a_checkout_with_nothing_installed(tmp_path: Path) -> None:
    """With -S Python reads no .pth file, so the editable installation does not exist."""
    out = tmp_path / "deep" / "gpu.json"
    env = {**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"], "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-S",
        str(ROOT / "lab" / "gpu" / "run.py"),
        "--out",
        str(out),
        "--device",
        "cpu",
        "--only",
        "facts,kernels,decoder",
        "--threads",
        "1",
    ]
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    made = json.loads(out.read_text(encoding="utf-8"))
    assert made["wrong"] == [] and made["about"] | {"device": "cpu", "sizes": "tiny"} == made["about"]
    assert list(made["stages"]) == ["facts", "kernels", "decoder"]
    items = {f"{stage}: {name}": item for stage, kept in made["stages"].items() for name, item in kept["items"].items()}
    assert all(item["says"] and "error" not in item for item in items.values())
    assert items["decoder: llama in float32"]["gap"] < 1e-4
    assert [step["cells"] for step in items["decoder: target's step"]["steps"]] == [1, 8, 64]
    assert all(line in ran.stdout for line in ("== facts", "wrong: nothing"))


def test_decoding_and_a_step() -> None:
    lab = Lab(CPU, replace(SIZES["tiny"], limit=6, short=2))
    row = speed.compared(lab, "speculative", "assisted", gamma=3)
    assert row["same_tokens_first"] == 6 and row["tokens_per_call"] > 1 and row["floor_ms_per_call"] > 0
    assert speed.batch(lab, "autoregressive")["same_tokens_first"] == [6, 6, 6]
    step = speed.step(lab, "speculative")
    assert step["forwards"] > 1 and step["waits_of_machine"] == 0 and "Self CPU" in step["profile"]["table"]


@pytest.mark.slow
def test_a_masked_model() -> None:
    found = dict(canvases.stage(Lab(CPU, replace(SIZES["tiny"], canvas=4, block=2))))
    rows = {name: work() for name, work in found.items()}
    assert rows["forwards"]["right"] and rows["forwards"]["gap"] < 1e-4
    assert rows["fast_dllm and uncached"]["calls"]["fast_dllm"] >= 2


def test_an_item_that_fails_is_told_and_the_next_one_runs(tmp_path: Path) -> None:
    def items() -> Items:
        yield "bad", lambda: {"x": 1 // 0}
        yield "differs", lambda: {"right": False, "says": "two of three"}
        yield "good", lambda: {"x": 2, "says": "two"}
        raise RuntimeError("no more of it")

    report = Report(tmp_path / "r.json", 60, {})
    report.run("first", items())
    report.run("second", iter([("late", lambda: {"x": 3})]))
    made: dict[str, Any] = json.loads((tmp_path / "r.json").read_text())
    assert made["stages"]["first"]["items"]["good"]["x"] == 2 and made["stages"]["second"]["items"]["late"]["x"] == 3
    assert "ZeroDivisionError" in made["stages"]["first"]["items"]["bad"]["traceback"]
    assert made["wrong"] == ["first: bad", "first: differs", "first: (stage)"]
    assert "two of three" in report.table() and "no more of it" in report.table()


def test_nothing_begins_when_the_time_is_up(tmp_path: Path) -> None:
    report = Report(tmp_path / "r.json", -1, {})
    report.run("s", iter([("late", lambda: pytest.fail("it ran"))]))
    assert report.data["stages"]["s"]["items"]["late"]["left_out"] == "no time" and not report.wrong


def test_a_process_that_ends_is_gone_on_with(tmp_path: Path) -> None:
    """The second item ends its process as a fault of the device does; nothing is done twice, and what follows is done."""
    path, ran = tmp_path / "r.json", list[str]()

    def items(dies: bool) -> Items:
        yield "first", lambda: {"x": len(ran.append("first") or ran)}
        yield "second", (lambda: 1 // 0) if dies else (lambda: pytest.fail("it ran again"))  # type: ignore[return-value]
        yield "third", lambda: {"x": len(ran.append("third") or ran)}

    report = Report(path, 60, {}, alive=lambda: False)
    with pytest.raises(Lost, match="second"):
        report.run("s", items(True))
    again = Report(path, 60, {}, resumed=True)
    again.run("s", items(False))
    again.finish()
    made = json.loads(path.read_text())
    assert ran == ["first", "third"] and made["wrong"] == ["s: second"] and made["finished"]
    made["running"] = ["s", "fourth"]
    path.write_text(json.dumps(made))
    assert Report(path, 60, {}, resumed=True).wrong == ["s: second", "s: fourth"]


def test_a_run_that_dies_is_finished_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, calls = tmp_path / "r.json", list[list[str]]()

    def process(command: list[str], check: bool) -> Any:
        calls.append(command)
        out.write_text(json.dumps({"finished": len(calls) == 3}))
        return subprocess.CompletedProcess(command, -11 if len(calls) < 3 else 1)

    monkeypatch.setattr(run.subprocess, "run", process)
    assert run.supervised(["--out", str(out), "--sizes", "tiny"]) == 1
    assert ["--resume" in command for command in calls] == [False, True, True] and all("--here" in c for c in calls)
    out.unlink()
    monkeypatch.setattr(run.subprocess, "run", lambda command, check: subprocess.CompletedProcess(command, 2))
    assert run.supervised(["--out", str(out), "--only", "nothing"]) == 2


def test_tokens_that_differ_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The door is made to decode with another model's weights."""
    target, other = tokens.module("llama", CPU), tokens.module("llama", CPU, seed=5)
    given, parts = tokens.asked(CPU), {"prompt_lookup": {"k": 4}}
    assert tokens.compared(target, given, parts)["right"]

    class Fooled:
        config = target.config

        def generate(self, **asked: Any) -> Any:
            return (other if "custom_generate" in asked else target).generate(**asked)

        def __call__(self, **asked: Any) -> Any:
            return target(**asked)

    row = tokens.compared(Fooled(), given, parts)
    assert not row["right"] and row["algorithms"]["prompt_lookup"]["same"] < 3


def test_the_drafter_agrees_after_damping() -> None:
    sizes = dict(SIZES["tiny"].target)
    target = causal(sizes, CPU, torch.float32)
    below = causal({**sizes, "num_hidden_layers": 1}, CPU, torch.float32)
    assert damped(target, below, 1, goal=0.0) < 0.75
    assert damped(target, below, 1) < 0.75, "other weights never agree"
    below.load_state_dict({name: p for name, p in target.state_dict().items() if name in below.state_dict()})
    assert damped(target, below, 1) >= 0.75


def test_a_stage_that_there_is_not_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--out", str(tmp_path / "r.json"), "--only", "facts,cooking"])
    assert "no stage is called cooking" in capsys.readouterr().err
