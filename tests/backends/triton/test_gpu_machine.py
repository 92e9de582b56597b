"""Tests on a machine with a GPU: they run as everywhere else, and those that need a device run when they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from quick import FOLDER

KERNELS = ("backends/triton/kernels/test_kernel_rows.py", "backends/triton/test_program.py::test_streams_tell_every_token_once")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "PYTEST_ADDOPTS")}
    command = [sys.executable, "-m", "pytest", "-p", "lib.devices.gpu_plugin", "-p", "no:cacheprovider", "-q", *args]
    env["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent)])
    return subprocess.run(command, cwd=FOLDER.parent, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_kernels_are_interpreted() -> None:
    done = run(*(str(FOLDER / name) for name in KERNELS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_needs_a_device_runs_when_it_is_asked_for_and_fails_without() -> None:
    marked = str(FOLDER / "runtime/models/test_sharing.py")
    assert "no tests collected" in run("--collect-only", "-k", "on_a_gpu", marked).stdout
    asked = run("-m", "gpu", "-x", marked).stdout
    assert "1 failed" in asked and ("CUDA" in asked or "NVIDIA" in asked)
