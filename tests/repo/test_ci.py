"""Continuous integration: the workflows in the open run what .ci/run runs, and both run targets that the Makefile has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lib.repository import ROOT
from lib.waiting import SECONDS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def targets_of_run() -> list[str]:
    """The targets that .ci/run makes, in its order."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    return re.findall(r"(?:\bmake --no-print-directory|^run) ([a-z]+)\b", text, re.M)


def test_the_targets_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets_of_run() == ["proof", "setup", "site", "test", "slow"]
    assert set(targets_of_run()) <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.M))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_says_what_it_promises_and_has_bounds(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    workflow: dict[Any, Any] = yaml.safe_load(text)
    ((job, made),) = workflow["jobs"].items()
    assert text.startswith("# ") and workflow["name"] == job == file.stem
    assert made["timeout-minutes"] <= 360 and workflow["concurrency"]["group"]
    assert workflow["permissions"] == {"contents": "write" if file.stem == "release" else "read"}
    for step in made["steps"]:
        assert "run" in step or re.fullmatch(r"actions/(checkout|setup-python)@v\d+", step["uses"])


def test_the_workflows_run_what_ci_run_runs_and_targets_that_there_are() -> None:
    made = {
        target for file in WORKFLOWS for target in re.findall(r"run: make ([a-z]+)$", file.read_text(encoding="utf-8"), re.M)
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(targets_of_run()) - {"setup"} <= made <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.M))


def test_a_release_needs_its_version_and_its_lines() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert version
    words = [str(ROOT / ".ci" / "release"), "999.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1 and f"the tag says 999.0, pyproject.toml {version[1]}" in done.stderr


def test_a_release_tries_its_wheel_where_nothing_else_is() -> None:
    assert (ROOT / ".ci" / "release").read_text(encoding="utf-8").endswith("\n.ci/wheel dist/*.whl\n")
    for words, said in ((["wheel"], "which wheel"), (["wheel", "gone.whl"], "gone.whl"), (["setup", "wheel"], "which wheel")):
        command = [str(ROOT / ".ci" / words[0]), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert done.returncode == 1 and said in done.stderr


def requirements(mode: str) -> list[str]:
    words = [sys.executable, str(ROOT / ".ci" / "requirements.py"), mode]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.splitlines()


def test_the_demo_needs_the_models_without_triton() -> None:
    """`.ci/setup` gives each to pip as a word."""
    made = requirements("demo")
    assert [re.split("[>=<]", line)[0] for line in made] == [
        *("torch", "transformers", "tokenizers", "safetensors", "llguidance", "outlines_core"),
    ]
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
    assert done.returncode == 2 and "no mode demon: demo, dev, wheel or oldest" in done.stderr
