"""docs/reference/engines.md is what trials say: of a few programs in CI, of all by night."""

from __future__ import annotations

import re
import runpy

import pytest
from lib.repository import ROOT

ENGINES = runpy.run_path(str(ROOT / "docs" / "reference" / "engines.py"))
PAGE = ENGINES["PAGE"].read_text(encoding="utf-8")
CORES = {"a logits processor": "rows", "a drafter": "drafts", "a dLLM algorithm": "blocks"}
FEW = (
    "autoregressive",
    "prompt_lookup",
    "token_recycling",
    "klass",
    "speculative",
    "dola",
    "fast_dllm",
    "rest",
    "kgw_watermark",
)


def listed() -> dict[str, set[str]]:
    """The programs of each core, by the page."""
    found: dict[str, set[str]] = {}
    for engine, kind, names in re.findall(r"^## (\w+), as (.+): \d+\n\n(.*)$", PAGE, re.M):
        core = "trees" if (engine, kind) == ("SGLang", "a drafter") else CORES[kind]
        found[core] = {*re.findall(r"`(\w+)`", names)}
    return found


@pytest.mark.parametrize("name", FEW)
def test_a_program_is_where_the_page_has_it(name: str) -> None:
    tried, fit = ENGINES["tried"](name), listed()
    assert tried.keys() == fit.keys()
    assert {core for core, trial in tried.items() if not trial.misfits} == {
        core for core, names in fit.items() if name in names
    }
    if all(trial.misfits for trial in tried.values()):
        assert f"| `{name}` | {ENGINES['nearest'](name, tried)} |" in PAGE


@pytest.mark.nightly
def test_the_page_is_up_to_date() -> None:
    assert ENGINES["main"](["--check"]) == 0
