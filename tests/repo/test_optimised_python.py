"""decgraph under `python -OO` and `-O`, which leave out docstrings and `assert` statements: the same words, the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import decgraph
from decgraph.cli.verbs import verbs

ROOT = Path(__file__).parents[2]
LOADED = "import decgraph; print(*decgraph.load('speculative').module.functions)"


def said(*words: str) -> str:
    """What a command prints; it must end well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    ended = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("-c", LOADED),
        ("-m", "decgraph", "list"),
        ("-m", "decgraph", "explain", "speculative"),
        ("-m", "decgraph", "compile", "eagle2"),
        ("-m", "decgraph", "fmt", "--check", "stdlib/speculative.dec"),
        ("-m", "decgraph", "--help"),
    ],
    ids=lambda words: words[2] if words[0] == "-m" else "load",
)
def test_no_docstring_is_needed(words: tuple[str, ...]) -> None:
    assert said("-OO", *words) == said(*words)


def test_a_verbs_help_says_what_it_does() -> None:
    assert verbs()["run"] in " ".join(said("-OO", "-m", "decgraph", "run", "--help").split())


def test_a_claim_is_decided() -> None:
    assert "speculative" in said("-OO", "-m", "decgraph", "check", "speculative", "--models", "2")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_assert_statements_have_no_effects(backend: str) -> None:
    words = ("-m", "decgraph", "run", "eagle2", "-p", "def main():", "-n", "12", "--backend", backend, "--json")
    expected = decgraph.run("eagle2", "def main():", max_tokens=12).tokens
    assert json.loads(said("-O", *words))["tokens"] == list(expected)


@pytest.mark.slow
def test_transformers_cannot_be_used_without_docstrings_and_the_message_says_so() -> None:
    words = ("-OO", "-m", "decgraph", "run", "autoregressive", "-p", "def main():", "-n", "2")
    ended = subprocess.run(
        [sys.executable, *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0 or (ended.returncode == 2 and "without -OO" in ended.stderr), ended.stderr[-2000:]
