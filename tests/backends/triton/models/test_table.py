"""Table models on the device score every cell as their engine does, to the last bit."""

from __future__ import annotations

import random

import pytest
import torch
from lockstep import Lane, Lockstep, Path
from torch import Tensor
from unread import nothing_read

from decgraph.backends.triton.step.causal import device_model
from decgraph.backends.triton.step.table import TableOnDevice
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.table import TableModel


def plain(model: TableModel, paths: list[Path], part: str = "logits") -> Tensor:
    """What the torch backend gets for these paths."""
    answers = engine_of(model).compute([ForwardCall(n, path, part=part) for n, path in enumerate(paths)])  # type: ignore[arg-type]
    assert all(isinstance(answer, Tensor) for answer in answers), answers
    return torch.stack(answers)


def poison(made: TableOnDevice) -> object:
    def begun(held: list[int]) -> None:
        for lane, count in enumerate(held):
            made._tokens[lane, count:] = -77
            made._index[lane, count:] = -77
        made._cells.tail_positions.fill_(-77)

    return begun


@pytest.mark.parametrize("window", [0, 1, 2, 3])
@pytest.mark.parametrize("zeros", [False, True])
def test_scores_equal_the_engines_bit_for_bit(window: int, zeros: bool) -> None:
    model = TableModel(4, 11, window=window, zeros=zeros, heads=2)
    made = device_model(model, 3, 90, 40, device="cpu")
    assert isinstance(made, TableOnDevice) and made.exact
    seen: list[int] = []

    def check(paths: list[Path], scores: Tensor) -> None:
        want = plain(model, paths)[:, 0]
        assert scores.dtype == torch.float64 and torch.equal(scores, want), paths
        seen.append(len(paths))

    rng = random.Random(3)

    def heads(lanes: list[Lane], cells: int) -> None:
        reach = [lane.held + min(cells, len(lane.committed) - lane.held) for lane in lanes]
        slots = torch.tensor([rng.randrange(n) for n in reach])  # moved ones among them
        with nothing_read():
            got = made.heads(slots)
        paths = [tuple(lane.committed[: int(slot) + 1]) for lane, slot in zip(lanes, slots)]
        assert torch.equal(got, plain(model, paths, "heads"))

    run = Lockstep(made, 4, window, check, poison(made), heads)  # type: ignore[arg-type]
    run.run([1, 2, 7], steps=14, nodes=9)
    assert sum(seen) > 60 and 0 in run.moved and max(run.moved) > 2


def test_trees_wider_than_a_word() -> None:
    model = TableModel(3, 5, window=2)
    made = TableOnDevice(model, 2, 200, 70)

    def check(paths: list[Path], scores: Tensor) -> None:
        assert torch.equal(scores, plain(model, paths)[:, 0])

    run = Lockstep(made, 3, 1, check, poison(made))  # type: ignore[arg-type]
    run.run([4, 1], steps=3, nodes=60)


def test_a_given_table_with_short_contexts_of_their_own() -> None:
    rows = {(): [1, 1], 0: [1, 3], 1: [3, 1], (0, 0): [0, 1], (0, 1): [1, 0], (1, 0): [1, 7], (1, 1): [7, 1]}
    model = TableModel(2, table=rows, window=2)
    made = TableOnDevice(model, 1, 12, 4)
    made.begin([[1]])
    bits = torch.tensor([[[1], [3], [5]]], dtype=torch.int32)
    got = made.forward(
        torch.tensor([[1, 0, 1]]), torch.tensor([[0, 1, 1]]), 0, torch.tensor([0], dtype=torch.int32), bits, None
    )
    want = torch.tensor([[6.0, 2.0], [1.0, 7.0], [7.0, 1.0]], dtype=torch.float64) / 8
    assert torch.allclose(got[0].exp(), want, rtol=1e-12)
    assert not model.entries(), "what a device looks up is not what a run asked for"


def test_a_path_with_a_hole_scores_nan() -> None:
    made = TableOnDevice(TableModel(3, 5, window=2), 1, 20, 4)
    made.begin([[1, 2]])
    held = torch.tensor([1], dtype=torch.int32)
    bits = torch.tensor([[[1], [2]]], dtype=torch.int32)  # the second cell does not see the first, its parent
    got = made.forward(torch.tensor([[2, 0]]), torch.tensor([[1, 2]]), 0, held, bits, None)
    assert torch.isfinite(got[0, 0]).all() and torch.isnan(got[0, 1]).all()


def test_refusals() -> None:
    for model, why in (
        (TableModel(3, 5), "whole paths"),
        (TableModel(300, 5, window=3), "too many rows"),
        (TableModel(3, 5, kind="masked"), "masked"),
        (TableModel(2, table={0: [1, 1]}, window=1), "no entry for 1"),
        (FreeModel(3), "FreeModel"),
    ):
        with pytest.raises(DecError, match=why):
            device_model(model, 1, 20, 4)
    made = TableOnDevice(TableModel(3, 5, window=1), 1, 20, 4)
    for prompt, why in (([], "at least one"), ([1] * 17, "more than the 20 slots"), ([1, 3], "not in the vocabulary")):
        with pytest.raises(DecError, match=why):
            made.begin([prompt])
    with pytest.raises(DecError, match="2 prompts for a batch of 1"):
        made.begin([[1], [2]])
    with pytest.raises(DecError, match="no heads"):
        made.heads(torch.tensor([0]))
    with pytest.raises(DecError, match="tail"):
        TableOnDevice(TableModel(3, 5, window=1), 1, 20, 20)
    made.begin([[1]])
    with pytest.raises(DecError, match="of a tail of 4"):
        cells = torch.zeros((1, 2), dtype=torch.int64)
        made.forward(cells, cells, 3, torch.zeros(1, dtype=torch.int32), torch.zeros((1, 2, 1), dtype=torch.int32), None)
