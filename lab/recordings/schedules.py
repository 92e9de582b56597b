"""Masked decoders with a schedule of noise for every cell."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


def canvas(size: int, seed: int) -> TableModel:
    """A masked table without equal weights. A row does not depend on the masked cells behind the last decided one, so that a
    model which does not see blocks that have not begun is the same."""
    made = TableModel(size, seed, kind="masked", vocab="t", name="model")
    rows = untied(size, seed)._table

    def entry(key: Any, name: str) -> Any:
        cells, position = key
        last = max((i + 1 for i, c in enumerate(cells) if c is not MASK), default=0)
        return rows((tuple(-1 if c is MASK else c for c in cells[:last]), position), name)

    made._table = entry  # type: ignore[assignment]
    return made


class CanvasLM:
    """The authors' model: from canvases int64[1, T] and their positions to logits float32[1, T, V], by a table. mask: the id of
    a masked cell. shifted: row i is of cell i + 1. cells: the canvas of the last call, behind the prompt, -1 where masked;
    canvases: those of all calls."""

    def __init__(self, table: TableModel, mask: int, prompt: Sequence[int], length: int, shifted: bool = False) -> None:
        self.table, self.mask, self.prompt, self.length, self.shifted = table, mask, tuple(prompt), length, shifted
        self.cells: tuple[int, ...] = ()
        self.canvases = list[tuple[int, ...]]()

    def __call__(self, x: torch.Tensor, positions: torch.Tensor, attn_mask: Any = None) -> torch.Tensor:
        read = [-1 if c == self.mask else c for c in x[0].tolist()]
        assert tuple(read[: len(self.prompt)]) == self.prompt
        cells = (*read, *[-1] * (len(self.prompt) + self.length - len(read)))
        self.cells = cells[len(self.prompt) :]
        self.canvases.append(self.cells)
        at = [i + self.shifted for i in range(len(read) - self.shifted)]
        found = self.table.eval_canvas(tuple(MASK if c < 0 else c for c in cells), at)
        rows = [[*map(float, s.weights or ()), *[0.0] * self.shifted] for s in found]  # nothing for the mask
        rows += [[1.0] * (self.table.vocab.size + 1)] * self.shifted
        return torch.tensor([rows], dtype=torch.float64).log().float()


def uniforms(seed: int, cells: Sequence[int], n: int, *where: int) -> np.ndarray:
    """float64[n]: what is drawn after a call about these cells; where: a cell, for its coin; none, for the races of tokens,
    which all cells share."""
    return np.random.default_rng((seed, n, *(c + 1 for c in cells), *where)).uniform(1e-9, 1 - 1e-9, n)


def handed(model: CanvasLM, seed: int, masked: bool = False) -> Callable[..., torch.Tensor]:
    """torch.rand_like: coins for cells (for the masked ones alone where `masked`), and races of as many rows as asked for."""

    def like(x: torch.Tensor, **_: Any) -> torch.Tensor:
        if x.dtype.is_floating_point and x.dim() == 2:
            race = np.full(x.shape[-1], 0.5)
            race[: model.table.vocab.size] = uniforms(seed, model.cells, model.table.vocab.size)
            return torch.from_numpy(np.tile(race, (len(x), 1)))
        coins = np.array([uniforms(seed, model.cells, 1, i)[0] for i in range(len(model.cells))])
        if masked:
            coins = coins[[c < 0 for c in model.cells]]
            return torch.from_numpy(coins[: x.numel()]).reshape(x.shape)
        prompt = np.full(len(model.prompt), 1.0)
        return torch.from_numpy(np.concatenate((prompt, coins))[: x.shape[-1]])[None]

    return like


def scheduled(upstream: Upstream, case: Case) -> dict[str, Any]:
    """full_diff or semi_diff by the adaptive correction sampler, or semi_diff_shifted by a schedule of the authors'."""
    sampler = upstream.module("hdlm/epsilon_hybrid/sample.py", root=".", absent=("transformers",))
    kind, prompt, mask = case["kind"], case["prompt"], case["size"]
    model = CanvasLM(canvas(case["size"], case["seed"]), mask, prompt, case["length"], shifted=kind not in ("full", "blocks"))
    linspace, shared = torch.linspace, {"prompt": torch.tensor([prompt]), "device": "cpu"}
    length = len(prompt) + case["length"]
    with (
        warnings.catch_warnings(action="ignore"),  # the CPU has no autocast of CUDA's
        mock.patch.object(torch, "linspace", lambda *a, **_: linspace(*a)),
        mock.patch.object(torch, "rand_like", handed(model, case["seed"], model.shifted)),
    ):
        if kind == "full":
            out = sampler.full_diff(
                model, alg="acs", steps=case["steps"], eta=case["eta"], context_length=length, dim=mask, **shared
            )
        elif kind == "blocks":
            out = sampler.semi_diff(
                model, alg="acs", steps=case["steps"], eta=case["eta"], context_length=length, dim=mask,
                block_size=case["block"], **shared,
            )  # fmt: skip
        else:
            made = upstream.module("hdlm/metaschedule.py")
            schedule = getattr(made, f"make_{kind}_annealing")(case["width"], case["steps"] + 1)
            attention = SimpleNamespace(context_type="causal", block_type="full")
            out = sampler.semi_diff_shifted(
                model, schedule, SimpleNamespace(attention=attention), context_length=length, mask_token_id=mask,
                repetition_penalty=1.0, **shared,
            )  # fmt: skip
    seen = [c for i, c in enumerate(model.canvases) if i == 0 or c != model.canvases[i - 1]]
    return {"output": out[0].tolist(), "canvases": seen}


RECORDINGS = {
    "hyperschedule": scheduled,
}
