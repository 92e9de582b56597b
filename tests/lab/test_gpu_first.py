"""lab/gpu/first.py on the CPU: every step runs, checks something, and the file says what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

STEPS = ["machine", "doors", "tables", "kernels", "steps", "capture", "start"]


@pytest.mark.nightly
def test_every_step_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "first.json"
    command = [sys.executable, str(ROOT / "lab/gpu/first.py"), "--device", "cpu", "--sizes", "tiny", "--out", str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    made = json.loads(out.read_text(encoding="utf-8"))
    assert ran.returncode == 0 and made["wrong"] == [] and made["finished"], ran.stdout + ran.stderr
    assert list(made["stages"]) == STEPS
    for step, kept in made["stages"].items():
        rows = kept["items"].values()
        assert all(row["says"] and "error" not in row for row in rows)
        assert step in ("machine",) or any(row.get("right") is True for row in rows), f"{step} compares something"


@pytest.mark.slow
def test_without_a_gpu_it_says_how_to_try_it(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "lab/gpu/first.py"), "--out", str(tmp_path / "first.json")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 2 and "--device cpu --sizes tiny" in ran.stderr
