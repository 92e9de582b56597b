"""Masked tables as what the authors' code calls: a masked language model with a cache of keys and values, whose slots are
tokens and their positions; and decoders that fill a canvas block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


def canvas(size: int, seed: int) -> TableModel:
    """A masked table without equal weights: a row depends on its position and on every cell that its call sees."""
    made = TableModel(size, seed, kind="masked", vocab="t", name="model")
    rows = untied(size, seed, sharp=2.0)._table
    made._table = lambda key, name: rows(repr(key), name)  # type: ignore[assignment]
    return made


class MaskedLM:
    """The authors' model, by a table. Logits are float32, the logarithms of its probabilities; the mask's id is the table's
    size.

    canvases: of each call the canvas that the code had decided by then, -1 where masked; computed: the positions of its rows.
    """

    def __init__(self, table: TableModel, length: int) -> None:
        self.table, self.length, self.device = table, length, torch.device("cpu")
        self.canvases, self.computed = list[list[int]](), list[list[int]]()

    def __call__(
        self, x: torch.Tensor, past_key_values: Any = None, use_cache: bool = False, replace_position: Any = None, **_: Any
    ) -> Any:
        """x: int64[1, n], behind the cached slots or, with replace_position bool[1, length], in the place of these."""
        slots = [] if past_key_values is None else [tuple(map(int, s)) for s in past_key_values[0][0][0, 0].tolist()]
        at = list(range(len(slots), len(slots) + x.shape[1]))
        if replace_position is not None:
            at = torch.nonzero(replace_position[0]).flatten().tolist()
        seen = {position: token for token, position in slots} | dict(zip(at, x[0].tolist(), strict=True))
        rows = self.rows(seen, at)
        known = [*self.canvases[-1]] if self.canvases else [-1] * self.length
        for position in at:
            known[position] = -1 if seen[position] == self.table.vocab.size else seen[position]
        self.canvases.append(known)
        self.computed.append(at)
        held = torch.tensor([[[[float(seen[i]), float(i)] for i in sorted(seen)]]])
        return SimpleNamespace(logits=rows, past_key_values=[(held, held)])

    def rows(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """float32[1, n, V] for these positions, of a call that sees these cells and no others."""
        cells = tuple(
            MASK if seen.get(i, self.table.vocab.size) == self.table.vocab.size else seen[i] for i in range(self.length)
        )
        given = self.table.memory(cells, at=sorted(seen)) if len(seen) < self.length else None
        found = self.table.eval_canvas(cells, list(at), given)
        return torch.tensor([[[float(w) for w in s.weights or ()] for s in found]], dtype=torch.float64).log().float()


def uniforms(seed: int, call: int, position: int, n: int) -> np.ndarray:
    """float64[n]: what the race of a cell's tokens reads after a call."""
    return np.random.default_rng((seed, call, position, n)).uniform(1e-9, 1 - 1e-9, n)


@contextmanager
def races(model: MaskedLM, seed: int) -> Iterator[None]:
    """torch.rand_like of a call's rows: the races of its cells."""

    def like(x: torch.Tensor, **_: Any) -> torch.Tensor:
        call = len(model.computed) - 1
        found = [uniforms(seed, call, i, x.shape[-1]) for i in model.computed[-1]]
        return torch.from_numpy(np.stack(found))[None]

    with mock.patch.object(torch, "rand_like", like):
        yield


def filled(case: Case, decode: Callable[..., torch.Tensor], **settings: Any) -> dict[str, Any]:
    """What `decode` makes of a prompt: the canvas at the end; by call the canvas before it and the positions it computes."""
    model = MaskedLM(canvas(case["size"], case["seed"]), len(case["prompt"]) + case["length"])
    with races(model, case["seed"]):
        out = decode(
            model, torch.tensor([case["prompt"]]), gen_length=case["length"], block_length=case["block"],
            temperature=case["temperature"], mask_id=case["size"], **settings,
        )  # fmt: skip
    return {"output": out[0].tolist(), "canvases": model.canvases, "computed": model.computed}


def fast_dllm_plusplus(upstream: Upstream, case: Case) -> dict[str, Any]:
    decode = upstream.module("v1/llada/generate.py", absent=("transformers", "model")).generate_with_dual_cache
    return filled(case, lambda *a, **k: decode(*a, **k)[0], steps=case["length"], frechet_margin=case["margin"])


BLOCKS = "seed size length block temperature"
RECORDINGS = [
    Recording(
        "fast_dllm_plusplus",
        "Ringo-Star/FastdLLM_plusplus",
        "29fd03401acced3cc3ba89d7f2e2e371058d1b54",
        "v1/llada/generate.py, generate_with_dual_cache and get_transfer_index_frechet_profile",
        fast_dllm_plusplus,
        tabled(
            "{seed} {block} {margin} {temperature}",
            f"{BLOCKS} margin",
            (
                (1, 6, 12, 6, 0.0, 0.25),
                (2, 4, 16, 8, 0.0, 0.0),
                (3, 4, 16, 16, 0.0, 0.02),
                (4, 3, 16, 8, 0.0, -0.5),
                (5, 6, 12, 6, 1.0, 0.02),
                (6, 4, 16, 8, 0.7, -0.5),
                (7, 3, 16, 16, 1.3, -1.0),
            ),
            prompt=(1, 2),
        ),
        "greedy, sampled",
        "margin: frechet_margin; remasking low_confidence; as many steps as cells, so that no block is left open",
    ),
]
