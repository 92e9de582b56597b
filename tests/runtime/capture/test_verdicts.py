"""Verdicts kept in the cache: a second start does not judge; other weights, passes, code or settings do, and so does an entry
that is broken, that is about another graph, or that may not be read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from decgraph.runtime.models.capture import make, verdicts
from decgraph.runtime.models.capture.judge import Judge
from decgraph.runtime.models.capture.make import PASSES, capture
from decgraph.runtime.models.capture.program import CapturedGraph
from decgraph.runtime.models.capture.step import CapturedForward


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The modules judged so far, by identity of the judge; the cache is empty and the test's own."""
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    monkeypatch.setenv("DECGRAPH_VERDICTS", "1")
    seen: list[object] = []

    class Counted(Judge):
        def __init__(self, *args: Any) -> None:
            seen.append(self)
            super().__init__(*args)

    monkeypatch.setattr(make, "Judge", Counted)
    return seen


def captured(module: Any) -> CapturedForward:
    made = capture(module)
    assert made is not None
    return made


def again(module: Any, random_model: Callable[..., Any], name: str = "llama") -> Any:
    """Another module with the same weights, as another process would load it."""
    made = random_model(name)
    made.load_state_dict(module.state_dict())
    return made


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "verdicts").glob("*"))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_second_start_does_not_judge_and_runs_the_same(
    name: str, random_model: Callable[..., Any], judged: list[object], tmp_path: Path
) -> None:
    module = random_model(name)
    other = again(module, random_model, name)
    first = captured(module)
    assert len(judged) == 1
    second = captured(other)
    assert len(judged) == 1
    assert second.code == first.code
    assert [path.suffix for path in entries(tmp_path)] == [".json"]


def test_changed_weights_are_judged(random_model: Callable[..., Any], judged: list[object]) -> None:
    module = random_model("llama")
    other = again(module, random_model)
    captured(module)
    with torch.no_grad():
        other.model.layers[1].mlp.down_proj.weight[3, 5] += 1e-3
    captured(other)
    assert len(judged) == 2


def test_a_row_that_no_sample_reads_is_judged_too(random_model: Callable[..., Any], judged: list[object]) -> None:
    module = random_model("llama")
    other = again(module, random_model)
    captured(module)
    ids = torch.cat([run.before.ids.flatten() for run in make.Recorded(other).runs])
    row = next(i for i in range(97) if i not in ids)
    with torch.no_grad():
        other.model.embed_tokens.weight[row] *= 1.5
    captured(other)
    assert len(judged) == 2


def test_another_graph_is_judged(
    random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = random_model("llama")
    other = again(module, random_model)
    captured(module)
    real = PASSES["products"]

    def broken(program: CapturedGraph, tied: frozenset[int]) -> None:
        real(program, tied)
        name = next(n for n in program.tensors if program.tensors[n].dim() == 2)
        program.tensors[name] = program.tensors[name] * 1.01

    monkeypatch.setitem(PASSES, "products", broken)
    messages: list[str] = []
    made = capture(other, notice=messages.append)
    assert len(judged) == 2
    assert made is not None
    assert list(made.program.dropped) == ["products"]
    assert "products" in messages[0]


def test_dropped_passes_stay_dropped_and_are_told_again(
    random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(program: CapturedGraph, tied: frozenset[int]) -> None:
        for name, tensor in program.tensors.items():
            program.tensors[name] = tensor * 1.5 if tensor.is_floating_point() else tensor

    monkeypatch.setitem(PASSES, "rotary", wrong)
    module = random_model("llama")
    other = again(module, random_model)
    told: list[str] = []
    first, second = capture(module, notice=told.append), capture(other, notice=told.append)
    assert len(judged) == 1
    assert first is not None and second is not None
    assert dict(second.program.dropped) == dict(first.program.dropped)
    assert list(second.program.dropped) == ["rotary"]
    assert len(told) == 2 and told[0] == told[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"graph": 3, "dropped": {}}',
        '{"graph": "x"}',
        '{"graph": "x", "dropped": {"no such pass": "a"}}',
        '{"graph": "x", "dropped": {"rotary": 3}}',
        "\0\xff",
        "[" * 5000,
    ],
)
def test_a_broken_entry_is_replaced(text: str, random_model: Callable[..., Any], judged: list[object], tmp_path: Path) -> None:
    module = random_model("llama")
    other, third = again(module, random_model), again(module, random_model)
    captured(module)
    (path,) = entries(tmp_path)
    whole = path.read_text()
    path.write_bytes(text.encode("latin-1"))
    captured(other)
    assert len(judged) == 2
    assert json.loads(path.read_text()) == json.loads(whole)
    captured(third)
    assert len(judged) == 2


def test_an_entry_about_another_selection_of_passes_is_not_believed(
    random_model: Callable[..., Any], judged: list[object], tmp_path: Path
) -> None:
    """A changed `dropped` makes another graph than the one that was judged."""
    module = random_model("llama")
    other = again(module, random_model)
    captured(module)
    (path,) = entries(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "dropped": {"products": "so it says"}}))
    made = captured(other)
    assert len(judged) == 2
    assert not made.program.dropped


@pytest.mark.parametrize("what", ["off", "threads", "surroundings", "variable"])
def test_other_circumstances_are_judged(
    what: str, random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = random_model("llama")
    other = again(module, random_model)
    captured(module)
    had = torch.get_num_threads()
    try:
        match what:
            case "off":
                monkeypatch.setenv("DECGRAPH_VERDICTS", "0")
            case "threads":
                torch.set_num_threads(had + 1)
            case "surroundings":
                monkeypatch.setattr(verdicts, "_surroundings", lambda: "other code")
            case "variable":
                monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
        captured(other)
    finally:
        torch.set_num_threads(had)
    assert len(judged) == 2


def test_nothing_is_kept_where_it_is_switched_off_or_cannot_be(
    random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DECGRAPH_VERDICTS", "0")
    captured(random_model("llama"))
    assert not entries(tmp_path)
    monkeypatch.setenv("DECGRAPH_VERDICTS", "1")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "file"))
    captured(random_model("llama"))
    assert len(judged) == 2


def test_what_raised_once_is_judged_again(
    random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as planted:
        planted.setitem(PASSES, "heads", out_of_memory)
        assert "heads" in captured(random_model("llama")).program.dropped
    assert not entries(tmp_path)
    assert not captured(random_model("llama")).program.dropped and len(judged) == 2


def test_the_oldest_entries_go(
    random_model: Callable[..., Any], judged: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verdicts, "MOST", 2)
    kept: list[set[Path]] = []
    for layers in (1, 2, 3):
        captured(random_model("llama", num_hidden_layers=layers))
        kept.append(set(entries(tmp_path)))
        for path in kept[-1]:  # ages that differ though the clock is coarse
            os.utime(path, (path.stat().st_mtime - 10,) * 2)
    assert [len(paths) for paths in kept] == [1, 2, 2]
    assert kept[2] == (kept[1] - kept[0]) | (kept[2] - kept[1])
    assert len(judged) == 3
