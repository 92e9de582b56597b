"""How the shipped models were made: the tokenizer, tasks whose answers can be checked, and text that is held out."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from decgraph import DecError, zoo
from lab.shipped import cards, data, tasks


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return data.load_tokenizer(zoo.path("tokenizer"))


def test_the_card_is_what_the_figures_say() -> None:
    assert cards.text() == (cards.MODELS / "README.md").read_text("utf-8"), "python -m lab shipped.evaluate --write"


def test_the_tokenizer_gives_every_byte_back(tokenizer: Any) -> None:
    rng = random.Random(0)
    texts = [
        "",
        " ",
        "\n\n   x",
        "\t\r\n",
        "naïve 漢字 \U0001f600",
        "x = 1_000\n",
        Path(__file__).read_text(),
    ]
    texts += ["".join(chr(rng.randrange(1, 0x3000)) for _ in range(50)) for _ in range(50)]
    for text in texts:
        assert tokenizer.decode(data.encode(tokenizer, text)) == text
    assert all(len(tokenizer.decode([i]).strip()) <= 1 for i in data.encode(tokenizer, "1234567890"))
    assert tokenizer.vocab_size == data.VOCAB_SIZE


@pytest.mark.slow
def test_the_masked_model_answers_held_out_tasks(tokenizer: Any) -> None:
    import torch

    from lab.shipped import evaluate

    model = evaluate.load("masked")
    with torch.no_grad():
        figures = evaluate.measure_masked(model, tokenizer, per_kind=2)
    # Every kind is measured by shipped/evaluate.py; here, a few tasks show that layout and weights belong together.
    assert figures["tasks_right"] > 0.6


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_tasks_know_their_answers(kind: str, tokenizer: Any) -> None:
    for seed in range(200):
        task = tasks.make(kind, seed)
        assert task == tasks.make(kind, seed)
        assert task.check(task.answer)
        assert task.check(f" {task.answer}\n")
        assert not task.check(task.answer + "0")
        assert solve(task.prompt) == task.answer
        answer = data.encode(tokenizer, f" {task.answer}")
        assert data.encode(tokenizer, task.prompt) + answer == data.encode(tokenizer, f"{task.prompt} {task.answer}")
        assert len(answer) < data.CANVAS


def solve(prompt: str) -> str:
    """The answer, worked out from the prompt alone."""
    kind, rest = prompt.removesuffix(" =").split(" ", 1)
    if kind in ("add", "sub"):
        a, b = map(int, rest.split())
        return str(a + b if kind == "add" else a - b)
    if kind == "get":
        key, record = rest.split(" ", 1)
        return str(json.loads(record)[key])
    if kind == "json":
        pairs = (pair.split("=") for pair in rest.split())
        return json.dumps({key: int(value) if value.isdigit() else value for key, value in pairs})
    return {"copy": rest, "reverse": rest[::-1], "sort": "".join(sorted(rest))}[kind]


def test_no_held_out_task_is_trained_on() -> None:
    trained = {task.prompt for task in islice(tasks.stream(1), 3000)}
    held = {task.prompt for task in islice(tasks.stream(1, held=True), 300)}
    assert len(held) > 200
    assert not trained & held


def test_library_files_are_split_whole() -> None:
    files = data.library_files()
    held = [file for file in files if data.held_out(file)]
    assert 0.02 < len(held) / len(files) < 0.15
    assert not any("test" in file.parts or "site-packages" in file.parts for file in files)


def test_windows_of_a_text() -> None:
    """As many as are asked for, none too: the pool of a short run may want no tasks."""
    import torch

    from lab.shipped import loop, target

    tokens = torch.arange(40, dtype=torch.int32)
    found = target.windows(tokens, 5, 7, loop.rng(1, 0))
    assert found.dtype == torch.int64 and found.shape == (5, 7)
    assert torch.equal(found, found[:, :1] + torch.arange(7)) and int(found.max()) < 40
    assert target.windows(tokens, 0, 7, loop.rng(1, 0)).shape == (0, 7)


def test_an_optimiser_goes_on_where_it_was() -> None:
    """Matrices step along orthogonal directions of the scheduled length, vectors by Adam; what is restored steps the same."""
    import copy

    import torch

    from lab.shipped.optim import Optimizer

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.LayerNorm(8))
    kept = list[tuple[torch.nn.Module, Optimizer]]([(model, Optimizer(model, weight_decay=0.0))])
    inputs = torch.randn(4, 5, 12)
    for step, x in enumerate(inputs):
        if step == 2:
            again = copy.deepcopy(model)
            kept.append((again, Optimizer(again, weight_decay=0.0)))
            kept[1][1].restore(copy.deepcopy(kept[0][1].state()))
        before = model[0].weight.detach().clone()
        for of, optimizer in kept:
            of(x).square().sum().backward() if step % 2 else of(x).sin().sum().backward()
            optimizer.step(0.5)
        lengths = torch.linalg.svdvals(model[0].weight.detach() - before) / (0.5 * 0.02)
        assert lengths.max() < 1.3 and lengths.median() > 0.5 and model[0].weight.grad is None
    (one, first), (other, second) = kept
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(first.average[name], second.average[name]) for name in first.average)


def test_a_resumed_run_equals_an_uninterrupted_one_and_ctrl_c_exports(tmp_path: Path) -> None:
    import torch

    from lab.shipped import loop

    def run(work: str, *, stop: int | None = None, resume: bool = False) -> tuple[loop.TrainingOutcome, Any]:
        torch.manual_seed(3)
        model, exported = torch.nn.Linear(6, 4), list[dict[str, torch.Tensor]]()

        def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
            if step == stop:
                os.kill(os.getpid(), signal.SIGINT)
            yield model(torch.randn(5, 6, generator=loop.rng(1, step))).square().mean()

        budget = loop.Budget(work=tmp_path / work, steps=6, resume=resume)
        outcome = loop.fit(model, loss_of, lambda weights, _: exported.append(weights), name="x", budget=budget)
        return outcome, exported[-1]

    whole, weights = run("whole")
    stopped, _ = run("parts", stop=2)
    assert (stopped.steps, stopped.finished) == (3, False)
    resumed, again = run("parts", resume=True)
    assert whole.finished and resumed.finished and (whole.steps, whole.loss) == (resumed.steps, resumed.loss)
    assert all(torch.equal(value, again[name]) for name, value in weights.items())


def test_changed_rows_are_noticed(tmp_path: Path) -> None:
    import torch

    from lab.shipped.store import Rows, RowStore

    store = RowStore(tmp_path, {"seed": 1})
    store.add(Rows(torch.arange(6).view(2, 3), torch.ones(2, 3, 4, dtype=torch.bfloat16)))
    again = RowStore(tmp_path, {"seed": 1})
    assert len(again) == 2 and torch.equal(again.rows().ids, torch.arange(6).view(2, 3))
    part = tmp_path / "part-0000.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DecError, match="is not the file that was written"):
        again.rows()
    with pytest.raises(DecError, match="made from something else"):
        RowStore(tmp_path, {"seed": 2})


@pytest.mark.nightly
@pytest.mark.parametrize("name", ("drafter", "medusa", "eagle", "exit"))
def test_drafter_and_heads_are_trained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped formats come out; a second run takes the pool as it is. A few files of the library are text enough."""
    from transformers import AutoModel, AutoModelForCausalLM

    from decgraph.zoo import modeling
    from lab.shipped import heads, loop

    assert modeling.__name__  # registers the heads
    files, lines = data.library_files()[:12], data.task_lines(40, 0)
    monkeypatch.setattr(data, "library_files", lambda: files)
    monkeypatch.setattr(data, "task_lines", lambda count, seed: lines)

    def train(steps: int) -> loop.TrainingOutcome:
        budget = loop.Budget(work=tmp_path / "work", steps=steps)
        return heads.train(name, tmp_path / name, zoo.path("target"), budget, written=2, plain=2)

    first = train(1)
    parts = sorted((tmp_path / "work").rglob("part-*"))
    stamps = [part.stat().st_mtime_ns for part in parts]
    again = train(3)
    assert [part.stat().st_mtime_ns for part in parts] == stamps and parts
    assert again.steps == 3 and again.loss < first.loss
    loader = AutoModelForCausalLM if name == "drafter" else AutoModel
    shapes = [{n: p.shape for n, p in loader.from_pretrained(f).named_parameters()} for f in (tmp_path / name, zoo.path(name))]
    assert shapes[0] == shapes[1]
