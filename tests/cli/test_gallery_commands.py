"""The command at the end of a program's page in the gallery runs as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from decgraph import stdlib
from decgraph.cli.main import main

PAGES = Path(__file__).parents[2] / "docs" / "gallery"
WITHOUT = {
    "self_contrast_moe": "no expert(3)",  # no shipped model is a mixture of experts
    "specdec_pp": "it belongs to another target",  # nor is a head of the drafter shipped
    "iterative_elimination": "past the context length",  # a model that answers says its end before 1,024 tokens
}


@pytest.mark.slow
@pytest.mark.parametrize("name", stdlib.names())
def test_it_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^`decgraph (run [^`]*)`", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.M)
    assert found is not None
    code = main([*shlex.split(found[1]), "--max-tokens", "4"])
    error = capsys.readouterr().err
    assert WITHOUT[name] in error if name in WITHOUT else code == 0, error
