"""Masked device models: whole canvases of several lengths, and blocks of cells over what their slots hold."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lib.devices.without_sync import nothing_read
from lib.models.masked_models import MASK_ID, V, masked
from torch import Tensor

from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.models.interface import Seen
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.table_models import Style, StyledModel
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel

LENGTH, LANES = 6, (1, 4, 2)  # cells of a canvas; the prompts


def canvases(size: int, mask: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [
        [rng.randrange(size - 1) for _ in range(n)] + [rng.choice((mask, rng.randrange(size - 1))) for _ in range(LENGTH)]
        for n in LANES
    ]


def cells(made: Any, row: list[int]) -> tuple[Any, ...]:
    return tuple(MASK if t == made.mask else t for t in row)


def whole(made: Any, rows: list[list[int]]) -> Tensor:
    """The last states of the canvases' cells after a call that computes everything."""
    most, spare = max(map(len, rows)), made.capacity - 1
    at = torch.arange(most)
    lengths = torch.tensor([[len(row)] for row in rows])
    tokens = torch.tensor([row + [0] * (most - len(row)) for row in rows])
    slots = torch.where(at < lengths, at, spare)
    with nothing_read():
        states = made.forward(tokens, at[None], slots, Seen(lengths.expand(-1, most)))
        first = (lengths - LENGTH + torch.arange(LENGTH))[..., None].expand(-1, -1, states.shape[2])
        return states.gather(1, first)


def block(made: Any, rows: list[list[int]], first: int, count: int) -> Tensor:
    """The last states of `count` cells from the canvas cell `first` on, over what the slots hold."""
    lengths = torch.tensor([[len(row)] for row in rows])
    at = lengths - LENGTH + torch.arange(first, first + count)
    tokens = torch.tensor([[row[i] for i in places] for row, places in zip(rows, at.tolist(), strict=True)])
    with nothing_read():
        return made.forward(tokens, at, at, Seen(lengths.expand(-1, count)))


def compare(made: Any, model: Any, rows: list[list[int]]) -> None:
    """The whole canvases; then a block of other tokens, twice; then another one, which sees them as they were left."""
    close: dict[str, Any] = {"atol": 0, "rtol": 0} if made.exact else {"atol": 3e-4, "rtol": 1e-4}
    own = [model.after(len(row) - LENGTH) for row in rows]
    memories: list[Any] = []
    for start, count in ((0, LENGTH), (0, 2), (0, 2), (3, 3)):
        for row in rows:
            row[len(row) - LENGTH + start] = (row[len(row) - LENGTH + start] + 1) % (model.vocab.size - 1)
        got = made.read(block(made, rows, start, count) if memories else whole(made, rows)).double()
        given = [(range(len(row) - LENGTH + start, len(row) - LENGTH + start + count), *memories[n : n + 1])
                 for n, row in enumerate(rows)]  # fmt: skip
        canvas = [cells(made, row) for row in rows]
        for n in range(len(rows)):
            want = stacked(own[n].eval_canvas(canvas[n], *given[n]), model.vocab.size)
            assert torch.allclose(got[n], want, **close), (start, n)
        memories = [own[n].memory(canvas[n], *(given[n] if memories else ())) for n in range(len(rows))]


def filled(made: Any, rows: list[list[int]]) -> Any:
    for lane, row in enumerate(rows):
        made.prompts[lane] = len(row) - LENGTH
    return made


@pytest.mark.parametrize("visibility", ["full", "causal", ("block", 2), ("prompt+block", 2)], ids=str)
@pytest.mark.parametrize("shift", [False, True])
def test_loaded_models(visibility: Any, shift: bool) -> None:
    model, _ = masked(3, visibility)
    model.shift = shift
    rows = canvases(V, MASK_ID, 5)
    made = filled(step_model(model, Pages(3, 20)), rows)
    assert made.kind == "masked" and made.mask == MASK_ID and not made.exact
    compare(made, model, rows)
    assert bool((made.read(whole(made, rows))[..., MASK_ID] == float("-inf")).all())


TABLES = [
    TableModel(4, 3, kind="masked"),
    *(TableModel(4, 3, kind="masked", visibility=of) for of in (("block", 2), ("prompt+block", 2), ("window", 2))),
    StyledModel(3, 5, Style(sort="mixed"), kind="masked"),
]


@pytest.mark.parametrize("model", TABLES, ids=lambda m: f"{m.name}-{m.visibility}")
def test_tables(model: Any) -> None:
    rows = canvases(model.vocab.size, model.vocab.size, 5)
    made = filled(step_model(model, Pages(3, 20)), rows)
    assert made.kind == "masked" and made.mask == model.vocab.size
    compare(made, model, rows)


def test_a_prompt_may_be_computed_alone() -> None:
    """Its keys and values are then those of the prompt, which sees nothing of the canvas."""
    model, _ = masked(3)
    rows = canvases(V, MASK_ID, 6)
    made = filled(step_model(model, Pages(3, 20)), rows)
    at, ends = torch.arange(max(LANES)), torch.tensor(LANES)[:, None]
    tokens = torch.tensor([row[: len(at)] for row in rows])
    made.forward(tokens, at[None], torch.where(at < ends, at, 19), Seen(ends.expand(tokens.shape)))
    got = made.read(block(made, rows, 0, LENGTH)).double()
    for n, row in enumerate(rows):
        at = range(len(row) - LENGTH, len(row))
        want = stacked(model.eval_canvas(tuple(row), at, model.memory(tuple(row[: at.start]))), V)
        assert torch.allclose(got[n], want, atol=3e-4, rtol=1e-4)


def test_refusals() -> None:
    with pytest.raises(NotSteppable, match="is called as a whole"):
        step_model(FreeModel(3, visibility="full"), Pages(1, 20))
