"""A captured forward gives what the unmodified module gives, alone, in ragged batches, over trees and windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decgraph.runtime.models.capture.make import capture

ARCHITECTURES = ["llama", "qwen2", "qwen3", "mistral", "gpt2", "gpt_neox", "opt", "phi3", "gemma3_text"]
SHIPPED = Path(__file__).resolve().parents[3] / "zoo" / "models"


def close(mine: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max().clamp_min(1)))


def taken(model: Any) -> Any:
    reasons: list[str] = []
    step = capture(model, notice=reasons.append)
    assert step is not None, reasons
    return step


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_one_sequence_in_chunks(
    name: str, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model = random_model(name)
    ids = torch.randint(97, (20,)).tolist()
    theirs = own(model, ids)
    held = caches(taken(model), model, 1, 33)
    rows = torch.randperm(33)[:20]  # a cell's row need not be its position
    start = 0
    for cells in (5, 1, 1, 8, 2, 3):
        now = torch.arange(start, start + cells)
        sees = torch.zeros(1, cells, 33, dtype=torch.bool)
        for t, position in enumerate(now.tolist()):
            sees[0, t, rows[: position + 1]] = True
        got = held.run(torch.tensor([ids])[:, now], now[None], rows[now][None], sees)
        close(got[0], theirs[now])
        start += cells
    assert start == len(ids)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_ragged_batches(
    name: str, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model = random_model(name)
    paths = [torch.randint(97, (n,)).tolist() for n in (16, 11, 14)]
    theirs = [own(model, path) for path in paths]
    held = caches(taken(model), model, 3, 24)
    done = [0, 0, 0]
    for takes in ((4, 4, 4), (1, 1, 1), (6, 6, 6), (1, 1, 1)):  # sequence 1 ends early: its last cell is padding, seeing itself
        cells = takes[0]
        ids, positions = torch.zeros(3, cells, dtype=torch.long), torch.zeros(3, cells, dtype=torch.long)
        write, sees = torch.zeros(3, cells, dtype=torch.long), torch.zeros(3, cells, 24, dtype=torch.bool)
        real = [[t for t in range(cells) if done[b] + t < len(paths[b])] for b in range(3)]
        for b in range(3):
            for t in range(cells):
                at = done[b] + t
                ids[b, t] = paths[b][at] if t in real[b] else 0
                positions[b, t] = at
                write[b, t] = at if t in real[b] else 23 - t
                sees[b, t, : at + 1] = t in real[b]
                sees[b, t, write[b, t]] = True
        got = held.run(ids, positions, write, sees)
        for b in range(3):
            if real[b]:
                close(got[b, real[b]], theirs[b][[done[b] + t for t in real[b]]])
            done[b] += cells


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_tree_below_a_context(
    name: str, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model = random_model(name)
    context = torch.randint(97, (7,)).tolist()
    tokens, parents = [3, 5, 8, 13, 21, 34], [-1, -1, 0, 0, 1, 3]
    held = caches(taken(model), model, 1, 13)
    n = len(context)
    sees = torch.zeros(1, n, 13, dtype=torch.bool)
    sees[0, :, :n] = torch.ones(n, n).tril().bool()
    held.run(torch.tensor([context]), torch.arange(n)[None], torch.arange(n)[None], sees)
    chains: list[list[int]] = []
    for i, parent in enumerate(parents):
        chains.append([*(chains[parent] if parent >= 0 else []), i])
    sees = torch.zeros(1, 6, 13, dtype=torch.bool)
    sees[0, :, :n] = True
    for i, chain in enumerate(chains):
        sees[0, i, [n + j for j in chain]] = True
    depths = torch.tensor([[n + len(chain) - 1 for chain in chains]])
    got = held.run(torch.tensor([tokens]), depths, n + torch.arange(6)[None], sees)
    for i, chain in enumerate(chains):
        close(got[0, i], own(model, [*context, *(tokens[j] for j in chain)])[-1])


@pytest.mark.parametrize("name", ["target", "drafter"])
@pytest.mark.parametrize(("batch", "cells"), [(1, 1), (1, 6), (1, 64), (8, 1), (8, 5)])
def test_shipped_models(
    name: str, batch: int, cells: int, shipped: Callable[[str], Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model, step = shipped(name)
    paths = torch.randint(2000, (batch, 9 + cells))
    rows = 9 + cells
    held = caches(step, model, batch, rows)
    below = torch.ones(rows, rows).tril().bool()
    for now in (torch.arange(9), torch.arange(9, rows)):
        many = now.expand(batch, -1)
        got = held.run(paths[:, now], many, many.contiguous(), below[now].expand(batch, -1, -1))
    for b in range(batch):
        close(got[b], own(model, paths[b].tolist())[9:], 2e-5)


@pytest.fixture(scope="module")
def shipped() -> Callable[[str], Any]:
    from transformers import AutoModelForCausalLM

    held: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in held:
            model = AutoModelForCausalLM.from_pretrained(SHIPPED / name, dtype=torch.float32).eval().requires_grad_(False)
            held[name] = model, taken(model)
        return held[name]

    return load


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3_text", "gpt2"])
def test_sixteen_bits(
    name: str, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model = random_model(name, torch.bfloat16)
    ids = torch.randint(97, (9,)).tolist()
    held = caches(taken(model), model, 1, 9)
    got = held.run(torch.tensor([ids]), torch.arange(9)[None], torch.arange(9)[None], torch.ones(9, 9).tril().bool()[None])
    assert got.dtype == torch.bfloat16
    close(got[0].float(), own(model, ids).float(), 6e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_on_a_gpu(name: str, dtype: torch.dtype, random_model: Callable[..., Any]) -> None:
    taken(random_model(name, dtype).cuda())  # compares with the module there


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_no_mask_where_nothing_is_hidden(name: str, random_model: Callable[..., Any], caches: Callable[..., Any]) -> None:
    model = random_model(name)
    step = taken(model)
    one, two = caches(step, model, 2, 5), caches(step, model, 2, 5)
    two.keys, two.values = [k.clone() for k in one.keys], [v.clone() for v in one.values]
    ids, write = torch.randint(97, (2, 3)), torch.tensor([[0, 1, 2], [4, 3, 2]])
    every = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    near = every.clone()
    near[:, :, 0, 3] = False
    for sliding in (every, near):
        shown = {"full_attention": None, "sliding_attention": None if sliding is every else near}
        mine = step(ids, write, write, two.keys, two.values, shown)
        theirs = step(ids, write, write, one.keys, one.values, {"full_attention": every, "sliding_attention": sliding})
        close(mine, theirs)


def test_a_row_that_sees_nothing_is_finite(random_model: Callable[..., Any], caches: Callable[..., Any]) -> None:
    model = random_model("llama")
    held = caches(taken(model), model, 2, 6)
    sees = torch.zeros(2, 2, 6, dtype=torch.bool)
    sees[0, :, 0] = True
    ids = torch.ones(2, 2, dtype=torch.long)
    got = held.run(ids, torch.zeros_like(ids), torch.tensor([[0, 1], [0, 1]]), sees)
    assert bool(torch.isfinite(got).all()) and all(bool(torch.isfinite(k).all()) for k in held.keys)
