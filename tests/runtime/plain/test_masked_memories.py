"""Masked models on memories, and the dual cache: what a plain transformer computes, position by position.

Every call of a masked model computes some positions, which see each other and what the memory holds of the others. A memory
that was cut is one with those rows gone; rows that are held are used as they are, however the canvas has changed since.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from plain_transformer import Plain, Rows, of_module

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models.engine.masked_ask import CanvasAsk
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.hf_net import ATTENTION, Net
from decgraph.runtime.models.interface import MASK, Visibility, Vocab
from decgraph.runtime.request import Request

V, MASK_ID, CONTEXT = 23, 22, 48


def module(seed: int) -> Any:
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.3}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": MASK_ID}
    return transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**sizes, **ids, attn_implementation=ATTENTION)).eval()


def masked(seed: int, visibility: Visibility = "full") -> tuple[HFMasked, Plain]:
    of = module(seed)
    made = HFMasked(Net(of), name="eurobert", vocab=Vocab("test", V), context=CONTEXT, family=f"eurobert {seed}", mask=MASK_ID,
                    visibility=visibility)  # fmt: skip
    return made, of_module(of)


def everybody(visibility: Visibility) -> Any:
    if visibility == "full":
        return lambda i, j: True
    block = visibility[1]
    return lambda i, j: j < (i // int(block) + 1) * int(block)


def close(got: Any, want: Any) -> None:
    got, want = np.delete(np.asarray(got, dtype=np.float64)[:V], MASK_ID), np.delete(want, MASK_ID)
    assert np.allclose(got, want, atol=2e-4, rtol=1e-3), np.abs(got - want).max()


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
    first = CanvasAsk("s", torch.tensor(tokens()), None, None, None, range(length), True)
    answer = engine.answer([first])[0]
    kept = answer.memory
    for i, row in enumerate(answer.logits):
        close(row, plain.read(held.last[i]))
    for _ in range(6):
        for i in rng.sample(range(length), 2):
            cells[i] = rng.randrange(V - 1)
        fresh = sorted(rng.sample(range(length), rng.randint(1, length - 1)))
        dropped = sorted({*fresh, *rng.sample(range(length), rng.randint(0, 3))})
        rest = [i for i in range(length) if i not in dropped]
        held, memory, kept = held.only(rest), memory.without(dropped), kept.without(dropped)
        rows = plain.run(tokens(), fresh, held, sees=sees)
        ask = CanvasAsk("s", torch.tensor(tokens()), None, fresh, kept, fresh, True)
        answer = engine.answer([ask])[0]
        for n, i in enumerate(fresh):
            close(answer.logits[n], plain.read(rows.last[i]))
        for score, i in zip(model.eval_canvas(tuple(cells), fresh, memory), fresh, strict=True):
            close(score.to_float().logits, plain.read(rows.last[i]))
        memory, kept, held = model.memory(tuple(cells), fresh, memory), answer.memory, rows.over(held)
        assert memory.positions == frozenset(kept.positions.tolist()) == frozenset(i for _, i in held.kv)


def probabilities(logits: Any) -> Any:
    weights = np.exp(logits - np.delete(logits, MASK_ID).max())
    weights[MASK_ID] = 0
    return weights / weights.sum()


def dual(plain: Plain, prompt: tuple[int, ...], length: int, block: int, tau: float) -> tuple[tuple[int, ...], list[int]]:
    """Fast-dLLM with the dual cache: the first call in a block computes everything, later ones the block on what is left of
    that. Decides what is sure, at least the surest (of equals the first). The tokens, and how many positions each call has."""
    base = len(prompt)
    cells: list[int] = [*prompt, *[MASK_ID] * length]
    calls: list[int] = []
    for start in range(base, base + length, block):
        here = list(range(start, min(start + block, base + length)))
        held: Rows | None = None
        while any(cells[i] == MASK_ID for i in here):
            fresh = range(len(cells)) if held is None else here
            rows = plain.run(cells, fresh, None if held is None else held.only(set(range(len(cells))) - set(here)),
                             sees=lambda i, j: True)  # fmt: skip
            held = held or rows
            calls.append(len(fresh))
            open_ = [i for i in here if cells[i] == MASK_ID]
            laws = {i: probabilities(plain.read(rows.last[i])) for i in open_}
            surest = max(open_, key=lambda i: laws[i].max())
            for i in open_:
                if laws[i].max() >= tau or i == surest:
                    cells[i] = int(laws[i].argmax())
    return tuple(cells[base:]), calls


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("block, tau", [(4, 0.3), (5, 0.6), (3, 0.9)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_dual_cache(seed: int, block: int, tau: float, backend: str) -> None:
    model, plain = masked(seed)
    prompt, length = (5, 9, 2, 17, 3), 12
    program = decgraph.load("fast_dllm")
    session = program.session({"model": model}, plan=Plan(backend=backend), length=length, block=block, tau=tau)
    result = session.run(Request(prompt, limit=length, eos=frozenset(), temperature=0))
    assert result.error is None
    tokens, calls = dual(plain, prompt, length, block, tau)
    assert result.tokens == tokens and result.stats.calls["eurobert"] == len(calls)
