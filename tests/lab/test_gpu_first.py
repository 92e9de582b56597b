"""lab/gpu/first.py on the CPU: every step runs, compares something, and the file says what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lib.repository import ROOT

STEPS = [
    "machine", "doors", "trees", "compiled", "attention", "pages", "speculative", "fast_dllm", "cold", "rows", "kernels",
    "tables",
]  # fmt: skip
TIMES, UNMEASURED = ("attention", "rows"), ("machine", "doors", "cold", "kernels", "tables")
"""Those that compare nothing, and those that time nothing, or what has no floor."""


def first(where: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "lab/gpu/first.py"), *more, "--out", str(where / "first.json")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, cwd=where, capture_output=True, text=True, timeout=900)


@pytest.mark.nightly
def test_every_step_on_a_cpu(tmp_path: Path) -> None:
    ran = first(tmp_path, "--device", "cpu", "--sizes", "tiny")
    made = json.loads((tmp_path / "first.json").read_text(encoding="utf-8"))
    assert ran.returncode == 0 and made["wrong"] == [], ran.stdout + ran.stderr
    assert list(dict.fromkeys(name.split(":")[0] for name in made["items"])) == STEPS
    for step in STEPS:
        rows = [row for name, row in made["items"].items() if name.startswith(step)]
        assert rows and all(row["says"] for row in rows), step
        assert step in TIMES or any(row.get("right") is True for row in rows), f"{step} compares something"
        assert step in UNMEASURED or all("floor" in row["says"] for row in rows), f"{step} says its floors"


@pytest.mark.slow
@pytest.mark.budget(14)
def test_some_steps_and_no_time_for_the_others(tmp_path: Path) -> None:
    ran = first(tmp_path, "--device", "cpu", "--sizes", "tiny", "--only", "machine,fast_dllm", "--seconds", "0")
    items = json.loads((tmp_path / "first.json").read_text(encoding="utf-8"))["items"]
    assert ran.returncode == 0 and {name.split(":")[0] for name in items} == {"machine", "fast_dllm"}, ran.stdout + ran.stderr
    assert items["fast_dllm: dual cache"]["says"] == "left out, no time"


@pytest.mark.slow
@pytest.mark.budget(14)
def test_lanes_outlast_what_is_timed() -> None:
    """As many rounds as on a device: a lane that had ended would be timed doing nothing (found in the figures of one)."""
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
from lab.gpu import lab, steps
made = steps.timed(lab.Lab(torch.device("cpu"), lab.SIZES["tiny"]), steps.DRAFTS, rounds=7)
print(made["right"], made["eager"]["tokens_per_step"] > 1)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == ["True", "True"], ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.budget(14)
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    assert "--device cpu --sizes tiny" in first(tmp_path).stderr
    unknown = first(tmp_path, "--device", "cpu", "--only", "doors,speed")
    assert unknown.returncode == 2 and "no step is called speed" in unknown.stderr


@pytest.mark.slow
@pytest.mark.budget(14)
def test_another_process_goes_on(tmp_path: Path) -> None:
    """An item that ends its process or never ends costs that item."""
    script = tmp_path / "items.py"
    script.write_text(
        f"""
import json, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from lab.gpu.first import tell
for name in ("a: well", "a: dies", "a: hangs", "b: well"):
    if name not in json.loads(sys.argv[-1]):
        tell(begins=name)
        if name == "a: dies":
            os._exit(3)
        time.sleep(60 if name == "a: hangs" else 0)
        tell(row={{"right": True, "says": "well"}})
"""
    )
    ends = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lab.gpu.first import supervised; from pathlib import Path; "
    ends += f"print(supervised([sys.executable, {str(script)!r}], Path('out.json'), {{}}, {{'a': 3, 'b': 3}}))"
    ran = subprocess.run([sys.executable, "-c", ends], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.stdout.endswith("['a: dies', 'a: hangs']\n"), ran.stdout + ran.stderr
    items = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["items"]
    assert [row["says"] for row in items.values()] == [
        "well", "FAILED: its process ended", "FAILED: longer than 3 s", "well",
    ]  # fmt: skip
