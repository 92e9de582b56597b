"""No step has more launches than docs/reference/launches.md says, which is committed: whoever needs more writes the page anew,
and the difference is seen."""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.repository import ROOT
from transformers import LlamaConfig, LlamaForCausalLM

from decgraph.backends.triton.state import Step
from decgraph.runtime.models.decoder.folder import FolderSource

SCRIPT = ROOT / "docs" / "reference" / "launches.py"
NAMES = sorted(re.findall(r"^\| `(\w+)` \|", SCRIPT.with_suffix(".md").read_text(encoding="utf-8"), re.MULTILINE))
COUNTED = 36
"""Steps that are on the page at least; those that are not are named there."""
AGAIN = "more than docs/reference/launches.md says; if it has to be: python docs/reference/launches.py"


@cache
def launches() -> dict[str, Any]:
    """What the script defines. It imports transformers."""
    return runpy.run_path(str(SCRIPT))


@cache
def committed() -> dict[str, Any]:
    """The rows of the page."""
    return launches()["read"]()


def grown(name: str) -> list[str]:
    """In what a step has more than is committed."""
    now, then = launches()["row"](name), committed()[name]
    if then.why or now.why:
        return [] if then.why == now.why else [f"there is no graph ({now.why})" if now.why else "there is a graph now"]
    found = [
        f"{what}: {getattr(now, what)}, not {getattr(then, what)}"
        for what in ("launches", "outside", "each", "sorts")
        if getattr(now, what) > getattr(then, what)
    ]
    return found + ([f"the unit is {now.unit}, not {then.unit}"] if now.unit != then.unit else [])


@pytest.mark.budget(60)
@pytest.mark.quick("autoregressive", "fast_dllm")
@pytest.mark.parametrize("name", NAMES)
def test_no_step_has_more_launches_than_are_committed(name: str) -> None:
    assert not grown(name), f"{grown(name)}: {AGAIN}"


def test_every_step_stands_on_the_page() -> None:
    text = launches()["PAGE"].read_text(encoding="utf-8")
    assert text == launches()["page"](committed().values()), "it is written by python docs/reference/launches.py"
    assert sorted(committed()) == NAMES
    assert set(committed()) <= set(launches()["names"]()) and len(committed()) >= COUNTED
    assert all(r.each <= 9 for r in committed().values()), "a layer: norms, products, attention"


def test_a_folder_s_step_has_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matrices are joined when they are read for a device."""
    made = launches()
    LlamaForCausalLM(LlamaConfig(**made["SHAPE"], num_hidden_layers=2)).save_pretrained(tmp_path)
    monkeypatch.setattr(FolderSource, "joined", lambda _, parts: [torch.cat(parts)] if len(parts) > 1 else parts)
    monkeypatch.setitem(made["recorded"].__globals__, "models_of", lambda *_: {"target": str(tmp_path)})
    assert made["row"]("autoregressive") == committed()["autoregressive"]


@pytest.mark.budget(14)
def test_one_launch_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    over: Any = Step.over
    monkeypatch.setattr(Step, "over", lambda self: torch.sort(over(self).long(), stable=True)[0].bool())
    found = grown("autoregressive")
    assert any(said.startswith("launches: ") for said in found) and any(said.startswith("sorts: ") for said in found), found
