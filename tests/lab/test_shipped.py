"""How the shipped models were made: the tokenizer, tasks whose answers can be checked, and text that is held out."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from decgraph import zoo
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

    from decgraph.zoo import loop
    from lab.shipped import target

    tokens = torch.arange(40, dtype=torch.int32)
    found = target.windows(tokens, 5, 7, loop.rng(1, 0))
    assert found.dtype == torch.int64 and found.shape == (5, 7)
    assert torch.equal(found, found[:, :1] + torch.arange(7)) and int(found.max()) < 40
    assert target.windows(tokens, 0, 7, loop.rng(1, 0)).shape == (0, 7)
