"""The output matrix of a model: from last states to logits, by a packed copy of it where that pays (packs.py).

A tied matrix is the embedding too, which reads single rows of it, so it stays as the module has it. Its packed copy serves
several rows, and one row where that is the fastest on this processor; else one row reads the module's, or a copy that lies the
other way (one_row.py). At 49,152 x 576 with AVX-512 one row takes 2.9 ms of the packed copy and 7.0 of the module's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.forwards import note_output
from decgraph.runtime.models.one_row import Way, fastest
from decgraph.runtime.models.packs import packable, room, size, streamed
from decgraph.runtime.models.reordering import reordered

Head = Callable[[Tensor], Tensor]


def output_of(matrix: Any, base: nn.Module) -> Head:  # Any: a module
    """What the output matrix of a model with this base module makes of states [n, width]: logits [n, V]. One for all
    engines of the matrix. A module that is more than a matrix (quantised, hooked, of a class of its own) is itself."""
    if type(matrix) is not nn.Linear or not packable(matrix.weight) or _hooked(matrix):
        head: Head = matrix
        return head

    def make() -> _Output:
        return _Output(matrix, streamed([matrix.weight, *base.parameters()]))

    made: _Output = memo_of(matrix).once("output", make)
    note_output(base, made)
    return made


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)


class _Output:
    """A linear module by copies of its matrix. streamed: whether one row reads it from memory in every step. A copy is made
    when it is first read, and again when the module has other weights."""

    def __init__(self, matrix: nn.Linear, streamed: bool) -> None:
        self.matrix, self.streamed = matrix, streamed
        self._allowed: dict[Way, bool] = {}
        self._weights: tuple[int, ...] = ()
        self._copies: dict[Way, Tensor | None] = {}
        self.bytes = 0  # of the copies
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, states: Tensor) -> Tensor:
        if states.dim() != 2:  # [*, n, width], as a module is called
            return self(states.reshape(-1, states.shape[-1])).view(*states.shape[:-1], -1)
        weight, bias = self.matrix.weight, self.matrix.bias
        way = self._way(weight, len(states)) if states.dtype == weight.dtype else "rows"
        copied = self._copy(way, weight) if way != "rows" else None
        if copied is None:
            logits: Tensor = self.matrix(states)
        elif way == "packed":
            logits = self._product(states, copied, bias, "none", [], "")
        else:
            logits = torch.mm(states, copied) if bias is None else torch.addmm(bias, states, copied)
        return logits

    def _way(self, weight: Tensor, rows: int) -> Way:
        if rows > 1 or weight.dtype != torch.float32:
            return "packed"
        return fastest(weight, copied=True) if self.streamed else "rows"

    def _copy(self, way: Way, weight: Tensor) -> Tensor | None:
        if way not in self._allowed:
            self._allowed[way] = room(size([weight]))
        if not self._allowed[way] or weight.is_inference():
            return None
        now = (id(weight), weight.data_ptr(), weight._version)
        if now != self._weights:
            self._copies, self._weights, self.bytes = {}, now, 0  # the old ones go before new ones are made
        if way not in self._copies:
            made = None
            if packable(weight):
                made = reordered(weight) if way == "packed" else weight.detach().t().contiguous()
            self._copies[way] = made
            self.bytes += 0 if made is None else size([weight])
        return self._copies[way]
