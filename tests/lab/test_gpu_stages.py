"""The stages of lab/gpu/run.py that decode by backend triton, on the CPU in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lab.gpu import canvases, decoding, steps, tokens, tuning
from lab.gpu.lab import SIZES, Lab
from lab.gpu.report import Row
from lab.gpu.stages import STAGES

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def lab() -> Lab:
    made = Lab(CPU, replace(SIZES["tiny"], limit=4, short=2, prompt=12, canvas=4, block=2))
    made.weights()
    return made


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("name", [case.name for case in steps.CASES])
def test_steps(lab: Lab, name: str) -> None:
    row: Row = dict(steps.stage(lab))[name]()
    assert row["right"] and row["ms"]["median"] > 0 and not row["lost"]
    assert row["tokens_per_step"] == 1 if name == "autoregressive" else row["tokens_per_step"] >= 1
    drafts = 4 if name == "draft 4 and verify" else 0
    made, cells = lab.weights(), lab.sizes.prompt + int(row["tokens_per_step"])
    assert row["floor_ms"] == pytest.approx(lab.floor(made.target, cells) + drafts * lab.floor(made.drafter, cells))


def test_every_case_of_a_step_has_a_program(lab: Lab) -> None:
    """Programs are made, not run: a tree of 64 nodes takes the interpreter long."""
    whole = Lab(CPU, replace(lab.sizes, name="not so tiny"))
    whole._weights = lab.weights()
    for case in steps.CASES:
        program, requests = steps.prepared(whole, case)
        assert program.needs.tails["target"] >= case.cells and len(requests) == 1
        assert ("drafter" in program.needs.tails) == bool(case.drafts)


def test_decoding(lab: Lab) -> None:
    items = dict(decoding.stage(lab))
    row = items["speculative against assisted"]()
    assert row["backend"] == "triton" and row["same_tokens_first"] == 4 and row["wanted"] == 4
    assert row["reached"] == (row["ratio"]["median"] >= 4)
    assert "on a GPU only" in items["autoregressive against static"]()["says"]


def test_generate_with_a_static_cache_is_a_baseline(lab: Lab) -> None:
    row = decoding.compared(lab, "autoregressive", "static")
    assert row["against"] == "static" and row["same_tokens_first"] == 4


@pytest.mark.slow
def test_the_masked_iteration(lab: Lab) -> None:
    row = dict(canvases.on_device(Lab(CPU, lab.sizes)))["an iteration"]()
    assert row["same_tokens_first"] == 4 and row["calls"]["triton"] == row["calls"]["torch"] == 4
    assert set(row["ms_per_iteration"]) == {"triton", "torch"}


def test_tokens_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.backends.triton.machine import TritonMachine

    row = tokens.tables(Lab(CPU, SIZES["tiny"]), "triton", ["speculative"])
    assert row["right"], row["wrong"]
    assert row["says"] == "1 algorithms, 0 of 2 runs differ from the reference"
    right = TritonMachine.committed_tokens
    monkeypatch.setattr(TritonMachine, "committed_tokens", lambda self: right(self)[:-1])
    assert len(tokens.tables(Lab(CPU, SIZES["tiny"]), "triton", ["autoregressive"])["wrong"]) == 2


@pytest.mark.parametrize("family", list(tuning.SECONDS))
def test_tuning(lab: Lab, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.backends.triton import tuned

    monkeypatch.setenv("DECGRAPH_CACHE", "/nowhere")
    known = dict(tuned._known())
    row = tuning.chosen(lab, family, 60)
    assert row["launches"] and "left_out" not in row
    for launch in row["launches"]:
        assert launch["tried"] and launch["best_ms"] == min(t["ms"] for t in launch["tried"])
        assert any(launch["usual"] == {k: v for k, v in t.items() if k != "ms"} for t in launch["tried"])
    assert dict(tuned._known()) == known, "an interpreter's times are forgotten"


def test_what_matters_first_comes_first() -> None:
    names = list(STAGES)
    assert names[:2] == ["facts", "kernels"] and names.index("tuning") < names.index("timings") < names.index("steps")
    assert names[-1] == "compiled"
