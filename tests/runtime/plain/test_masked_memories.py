"""Masked models on memories: what a plain transformer computes, position by position.

Every call of a masked model computes some positions, which see each other and what the memory holds of the others. A memory
that was cut is one with those rows gone; rows that are held are used as they are, however the canvas has changed since.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lib.models.masked_models import MASK_ID, V, close, everybody, masked

from decgraph.runtime.models.engine.canvas_call import CanvasCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import MASK, Visibility


@pytest.mark.parametrize("visibility", ["full", ("block", 4)])
@pytest.mark.parametrize("seed", range(4))
def test_calls_on_memories_that_were_cut(seed: int, visibility: Visibility) -> None:
    """A canvas that changes, a memory that is made, cut, made anew at some positions, and read."""
    model, plain = masked(seed, visibility)
    engine, sees, rng = engine_of(model), everybody(visibility), random.Random(seed)
    length = rng.randint(8, 20)
    cells: list[Any] = [rng.choice([MASK, rng.randrange(V - 1)]) for _ in range(length)]

    def tokens() -> list[int]:
        return [MASK_ID if c is MASK else c for c in cells]

    held, memory = plain.run(tokens(), range(length), sees=sees), model.memory(tuple(cells))
    first = CanvasCall("s", torch.tensor(tokens()), None, None, None, range(length), True)
    output = engine.compute([first])[0]
    kept = output.memory
    for i, row in enumerate(output.logits):
        close(row, plain.read(held.last[i]))
    for _ in range(6):
        for i in rng.sample(range(length), 2):
            cells[i] = rng.randrange(V - 1)
        fresh = sorted(rng.sample(range(length), rng.randint(1, length - 1)))
        dropped = sorted({*fresh, *rng.sample(range(length), rng.randint(0, 3))})
        rest = [i for i in range(length) if i not in dropped]
        held, memory, kept = held.only(rest), memory.without(dropped), kept.without(dropped)
        rows = plain.run(tokens(), fresh, held, sees=sees)
        call = CanvasCall("s", torch.tensor(tokens()), None, fresh, kept, fresh, True)
        output = engine.compute([call])[0]
        for n, i in enumerate(fresh):
            close(output.logits[n], plain.read(rows.last[i]))
        for score, i in zip(model.eval_canvas(tuple(cells), fresh, memory), fresh, strict=True):
            close(score.to_float().logits, plain.read(rows.last[i]))
        memory, kept, held = model.memory(tuple(cells), fresh, memory), output.memory, rows.over(held)
        assert memory.positions == frozenset(kept.positions.tolist()) == frozenset(i for _, i in held.kv)
