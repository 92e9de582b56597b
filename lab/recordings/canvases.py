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

from decgraph.runtime.models.interface import MASK, Visibility
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


def canvas(size: int, seed: int, visibility: Visibility = "full") -> TableModel:
    """A masked table without equal weights: a row depends on its position and on every cell that its call sees."""
    made = TableModel(size, seed, kind="masked", visibility=visibility, vocab="t", name="model")
    rows = untied(size, seed, sharp=2.0)._table
    made._table = lambda key, name: rows(repr(key), name)  # type: ignore[assignment, arg-type]
    return made


class MaskedLM:
    """The authors' model, by a table. Logits are float32, the logarithms of its probabilities; the mask's id is the table's
    size.

    shift: the row of a cell predicts the next one. axis: of the slots in a cache, 2 as in Llama or 1 as in Dream. canvases: of
    each call the canvas that the code had decided by then, -1 where masked; computed: the positions of its rows.
    """

    def __init__(self, table: TableModel, length: int, shift: bool = False, axis: int = 2) -> None:
        self.table, self.length, self.shift, self.axis = table, length, shift, axis
        self.device, self.config = torch.device("cpu"), SimpleNamespace(vocab_size=table.vocab.size, num_hidden_layers=1)
        self.canvases, self.computed = list[list[int]](), list[list[int]]()

    def eval(self) -> MaskedLM:
        """As of a module."""
        return self

    def __call__(
        self,
        x: torch.Tensor,
        *_: Any,
        past_key_values: Any = None,
        use_cache: bool = False,
        replace_position: Any = None,
        **__: Any,
    ) -> Any:
        """x: int64[1, n], behind the cached slots or, with replace_position bool[1, length], in the place of these."""
        held = None if past_key_values is None else past_key_values[0][0].reshape(-1, 2)
        slots = [] if held is None else [tuple(map(int, s)) for s in held.tolist()]
        at = list(range(len(slots), len(slots) + x.shape[1]))
        if replace_position is not None:
            at = torch.nonzero(replace_position[0]).flatten().tolist()
        seen = {position: token for token, position in slots} | dict(zip(at, x[0].tolist(), strict=True))
        kept = torch.tensor([[float(seen[i]), float(i)] for i in sorted(seen)])
        kept = kept[None] if self.axis == 1 else kept[None, None]
        return SimpleNamespace(logits=self.answered(seen, at), past_key_values=[(kept, kept)])

    def answered(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """float32[1, n, V] for these positions; a call that computes them, and sees these cells, is noted."""
        known = [*self.canvases[-1]] if self.canvases else [-1] * self.length
        for position in at:
            known[position] = -1 if seen[position] == self.table.vocab.size else seen[position]
        self.canvases.append(known)
        self.computed.append([*at])
        return self.rows(seen, at)

    def rows(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """float32[1, n, V] for these positions, of a call that sees these cells and no others."""
        cells = tuple(
            MASK if seen.get(i, self.table.vocab.size) == self.table.vocab.size else seen[i] for i in range(self.length)
        )
        given = self.table.memory(cells, at=sorted(seen)) if len(seen) < self.length else None
        found = self.table.eval_canvas(cells, [min(i + self.shift, self.length - 1) for i in at], given)
        return torch.tensor([[[float(w) for w in s.weights or ()] for s in found]], dtype=torch.float64).log().float()


def uniforms(seed: int, call: int, position: int, n: int) -> np.ndarray:
    """float64[n]: what the race of a cell's tokens reads after a call."""
    return np.random.default_rng((seed, call, position, n)).uniform(1e-9, 1 - 1e-9, n)


def computed(model: MaskedLM, n: int) -> Sequence[int]:
    """The cells of a draw of n rows: those that the last call computed, or the masked ones of them."""
    at = model.computed[-1]
    return at if n == len(at) else [i for i in at if model.canvases[-1][i] < 0]


@contextmanager
def races(model: MaskedLM, seed: int, cells: Callable[[MaskedLM, int], Sequence[int]] = computed) -> Iterator[None]:
    """What the authors' code draws is won by the races of cells: torch.rand_like of a call's rows, and torch.multinomial of one
    token a row, which Categorical calls. cells: of which cells the rows of a draw are."""

    def read(rows: int, size: int) -> np.ndarray:
        at = cells(model, rows)
        assert len(at) == rows, f"{rows} rows are drawn, of {len(at)} cells"
        return np.stack([uniforms(seed, len(model.computed) - 1, i, size) for i in at])

    def like(x: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.from_numpy(read(*x.shape[-2:])).reshape(x.shape)

    def multinomial(p: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
        assert num_samples == 1 and p.dim() == 2
        with np.errstate(divide="ignore"):
            times = -np.log(read(*p.shape)) / p.detach().double().numpy()
        return torch.from_numpy(times.argmin(1))[:, None]

    with mock.patch.object(torch, "rand_like", like), mock.patch.object(torch, "multinomial", multinomial):
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
