"""Heads with one value after every token: the same on both backends, from a module, from a folder, and in a proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.models import request_for
from decgraph.runtime.models.reading import AnyReading, Confidence
from decgraph.runtime.models.table import TableModel

STOPS = """algorithm stops(target: causal, drafter: causal, judge: head(target) -> {gives}, gamma: int in 1..8 = 3):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
                break if any({stop})
        verify t by {rule} against target(t)
        commit t.accepted
"""


def program(folder: Path, gives: str, stop: str, rule: str = "rejection") -> Path:
    path = folder / "stops.dec"
    path.write_text(STOPS.format(gives=gives, stop=stop, rule=rule), encoding="utf-8")
    return path


def ran(path: Path, backend: str, **models: Any) -> tuple[Any, list[str]]:
    session = decgraph.load(path).session(backend=backend, models=models)
    result = session.run(request_for(session, prompt="def mean(values):", max_tokens=10, seed=3))
    assert result.error is None, result.error
    return result.tokens, [type(e).__name__ + getattr(e, "model", "") for e in result.events]


OTHERS = [
    ("prob", 2, "judge(t.leaves) < 0.5"),
    ("float", 1, "judge(t.leaves) < 0"),
    ("int", 3, "judge(t.leaves) == 1"),
    ("bool", 1, "judge(t.leaves)"),
]


@pytest.mark.parametrize(
    "gives, outputs, stop",
    [("prob", 1, "judge(t.leaves) < 0.5"), *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)],
)
def test_a_module_and_its_folder_on_both_backends(gives: str, outputs: int, stop: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(256, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "decgraph_head", "sizes": [256, 8, outputs]}))
    save_file({f"layers.{k}": v.contiguous() for k, v in module.state_dict().items()}, folder / "model.safetensors")
    path = program(tmp_path, gives, stop)
    found = [ran(path, b, judge=j) for b in ("reference", "torch") for j in (module, folder)]
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0][1] != ran(path, "torch")[1], "the stand-in would stop elsewhere"


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(DecError, match="belongs to another target"):
        ran(program(tmp_path, "prob", "judge(t.leaves) < 0.5"), "torch", judge=torch.nn.Linear(64, 1))


def test_the_stand_in_says_what_the_target_does() -> None:
    target = TableModel(4, 1)
    (row,) = target.eval([(0, 1)])
    assert row.weights is not None
    assert Confidence(target, "prob").read([(0, 1)]) == [float(max(row.weights))]


def test_a_proof_holds_for_every_head(tmp_path: Path) -> None:
    report = decgraph.check(program(tmp_path, "prob", "judge(t.leaves) < 0.5"), models=1)
    assert report.verdict == "proved", str(report)


def test_keeping_what_a_head_likes_is_refuted(tmp_path: Path) -> None:
    """The rule of judge decoding, under a claim that it does not have."""
    text = decgraph.stdlib.text("judge_decoding").replace(
        "    while not done", "    refines autoregressive(target) in tokens\n\n    while not done"
    )
    path = tmp_path / "judge_decoding.dec"
    path.write_text(text, encoding="utf-8")
    report = decgraph.check(path, models=2)
    assert report.verdict == "refuted" and "judge" in str(report.counterexample.render())


@pytest.mark.parametrize(
    "wrong, said",
    [("head -> prob", "names the model"), ("head(target) -> text", "head(target) -> prob"), ("head(target)", "-> prob")],
)
def test_declarations(wrong: str, said: str) -> None:
    text = STOPS.format(gives="prob", stop="judge(t.leaves) < 0.5", rule="rejection").replace("head(target) -> prob", wrong)
    with pytest.raises(DecError) as error:
        load_text(text)
    assert said in str(error.value.render() if hasattr(error.value, "render") else error.value) + str(error.value.hint)


def test_any_reading_is_a_function_of_the_text() -> None:
    a, b = (AnyReading(TableModel(4, 1), "prob", 5) for _ in range(2))
    paths = [(0,), (0, 1), (1, 0), (2, 3, 1)]
    assert a.read(paths) == b.read(list(reversed(paths)))[::-1]
    assert len(set(a.read([(i, j) for i in range(4) for j in range(4)]))) > 2
