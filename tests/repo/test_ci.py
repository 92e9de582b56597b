"""Continuous integration: the workflow in the open runs what .ci/run runs, and both run targets that the Makefile has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tree import ROOT
from waiting import SECONDS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def targets_of_run() -> list[str]:
    """The targets that .ci/run makes."""
    found = re.search(r"^for target in ([a-z ]+); do$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)
    assert found, ".ci/run makes its targets in one loop"
    return found[1].split()


def test_the_targets_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets_of_run() == ["test", "proof", "site", "slow"]
    assert set(targets_of_run()) <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.M))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_the_workflow_runs_ci_run_and_nothing_else(file: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    ((job, made),) = workflow["jobs"].items()
    assert job.split("-") == targets_of_run()
    checkout, python, run = made["steps"]
    assert run == {"run": ".ci/run"}
    assert all(re.fullmatch(r"actions/(checkout|setup-python)@v\d+", step["uses"]) for step in (checkout, python))
    assert python["with"]["python-version"] == "3.11"
    assert (
        made["timeout-minutes"] <= 360 and workflow["concurrency"]["group"] and workflow["permissions"] == {"contents": "read"}
    )


def test_there_is_a_workflow() -> None:
    assert WORKFLOWS


def requirements(mode: str) -> list[str]:
    words = [sys.executable, str(ROOT / ".ci" / "requirements.py"), mode]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.splitlines()


def test_the_demo_needs_the_models_without_triton() -> None:
    """`.ci/setup` gives each to pip as a word."""
    made = requirements("demo")
    assert [re.split("[>=<]", line)[0] for line in made] == ["torch", "transformers", "tokenizers", "safetensors"]
    assert not any(" " in line for line in made)


def test_constraints_of_the_oldest_versions() -> None:
    """Every package that a user may install, at its lower bound; a requirement without one is an error."""
    made = dict(line.split("==") for line in requirements("oldest"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"torch", "transformers", "triton", "numpy", "fastapi", "ray"} <= set(made) and "pytest" not in made
    assert all(re.search(rf'"{name}(\[[^]]*\])?>={re.escape(version)}[,;"]', project) for name, version in made.items())
    namespace: dict[str, Any] = {"__file__": str(ROOT / ".ci" / "requirements.py"), "__name__": "requirements"}
    exec((ROOT / ".ci" / "requirements.py").read_text(encoding="utf-8"), namespace)
    with pytest.raises(ValueError, match="'numpy<3' has no lower bound"):
        namespace["oldest"]('[project]\ndependencies = ["numpy<3"]\noptional-dependencies = {}\n')


def test_the_setup_refuses_a_mode_that_it_does_not_have() -> None:
    done = subprocess.run([str(ROOT / ".ci" / "setup"), "demon"], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 2 and "no mode demon: demo, dev or oldest" in done.stderr
