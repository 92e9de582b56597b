"""The kernels that masked programs launch, as they are for a real model: 256 cells in blocks of 32, a vocabulary of 126464."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.step import canvas_choices, canvas_vectors, canvases
from decgraph.backends.triton.step.canvas_decide import decision
from decgraph.backends.triton.step.canvas_kernels import heard
from decgraph.backends.triton.step.canvas_rows import Shaper, Stream
from decgraph.backends.triton.step.canvas_step import CanvasEvaluator
from decgraph.backends.triton.step.canvas_values import DeviceCanvas, DeviceCanvasMemory
from decgraph.ir.values import Function, Module
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

SIZE, LENGTH, BLOCK = 126_464, 256, 32
_FEW = 5  # tokens of the model that is traced: the kernels of small vectors do not see the vocabulary
assert canvases and canvas_vectors and canvas_choices  # they register what ops do


class _Enough(Exception):
    """Enough decoding steps were traced."""


class _Chance:
    """A model for tracing with random scores, which ends the trace after some calls."""

    name, vocab_size, mask, ragged = "chance", _FEW, 0, False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __init__(self, calls: int) -> None:
        self.left, self.serial = calls, 0

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Nothing depends on a prompt."""

    def nothing(self) -> DeviceCanvasMemory:
        """See `CanvasModel`."""
        return DeviceCanvasMemory(self.name, np.zeros(LENGTH, dtype=bool), False, 0)

    def call(self, canvas: DeviceCanvas, at: Any, given: Any, keep: bool, active: Tensor | None) -> tuple[Any, Any]:
        """See `CanvasModel`."""
        self.left -= 1
        if self.left < 0:
            raise _Enough
        size = LENGTH if at is None else len(at)
        memory = DeviceCanvasMemory(self.name, np.ones(LENGTH, dtype=bool), True, 0) if keep else None
        return _Scores(torch.randn(len(canvas.tokens), size, _FEW, device=self.device)), memory


class _Scores:
    size = _FEW

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def logits(self, ids: np.ndarray) -> Tensor:
        """See `canvas_model.Scores`."""
        return self.rows[:, torch.from_numpy(ids).to(self.rows.device)]


def traced(function: Function, params: dict[str, Any], request: Request, *, calls: int = 2, batch: int = 2) -> Iterator[Spec]:
    """The kernels of small vectors that the first decoding steps of a program launch."""
    model = _Chance(calls)
    shaper = Shaper(request, _FEW, model.device, kernels=True)
    shaper.kernels = False  # what goes over the vocabulary is compiled at its real size, below
    name = next(p.name for p in function.params if p.value.type.elem == "model")
    e = CanvasEvaluator(
        function,
        {name: model},
        batch,
        LENGTH,
        shaper,
        Stream(batch, model.device),
        torch.zeros(batch, dtype=torch.int64, device=model.device),
    )
    e.fields = {"greedy": request.greedy, "canvas_room": LENGTH, "vocab_size": _FEW, "mask": 0}
    e.start()
    values = [
        model
        if p.value.type.elem == "model"
        else float(params[p.name])
        if p.value.type.elem in ("real", "prob")
        else params[p.name]
        for p in function.params
    ]
    e.env.update(zip((p.value for p in function.params), values, strict=True))
    with heard() as kernels:
        try:
            for op in function.body.ops:
                e.op(op)
        except _Enough:
            pass
    seen = set()
    for kernel in kernels:
        if kernel.text not in seen:
            seen.add(kernel.text)
            yield kernel.spec(f"canvas.{function.name}.{len(seen)}")


def known(function: Function) -> dict[str, Any]:
    """The parameters that say how large a masked program's canvas is, at the size that is compiled for. Raises DecError."""
    sizes = {"length": LENGTH, "block": BLOCK, "steps": LENGTH}
    return check_params(function, {p.name: sizes[p.name] for p in function.params if p.name in sizes})


def specs_of(module: Module) -> list[Spec]:
    """The kernels of small vectors of a masked program, optimised with the parameters `known`."""
    entry = module.entry
    return list(traced(entry, known(entry), Request(prompt=(1,), limit=LENGTH, temperature=1)))


def specs() -> list[Spec]:
    """Those that decide cells from a real model's scores."""
    out: list[Spec] = []
    for temperature, banned, biased in ((0.0, False, False), (0.7, False, False), (1.0, True, True)):
        made = decision(SIZE, False, temperature, banned, biased)
        for rows in (BLOCK, LENGTH):
            out += made.specs(rows, torch.float32)
    return out
