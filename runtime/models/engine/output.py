"""The output matrix of a model: from last states to logits, by a packed copy of it where that pays (packs.py).

A tied matrix is the embedding too, which reads single rows of it, so it stays as the module has it. Its packed copy serves
one row as well as many: at 49,152 x 576 one row takes 2.9 ms of it and 7.0 of the module's, five rows 3.4 and 11.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.forwards import note_output
from decgraph.runtime.models.packs import for_one_row, packable, reordered, room, size
from decgraph.runtime.models.shadow import borrows

Head = Callable[[Tensor], Tensor]


def output_of(matrix: Any, base: nn.Module) -> Head:  # Any: a module
    """What the output matrix of a model with this base module makes of states [n, width]: logits [n, V]. One for all
    engines of the matrix. A module that is more than a matrix (quantised, hooked, of a class of its own) is itself."""
    if type(matrix) is not nn.Linear or not packable(matrix.weight) or _hooked(matrix):
        head: Head = matrix
        return head

    def make() -> _Output:
        return _Output(matrix, borrows(base) or for_one_row([matrix.weight, *base.parameters()]))

    made: _Output = memo_of(matrix).once("output", make)
    note_output(base, made)
    return made


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)


class _Output:
    """A linear module by a packed copy of its matrix. single: for one row too. The copy is made when it is first read, and
    again when the module has other weights."""

    def __init__(self, matrix: nn.Linear, single: bool) -> None:
        self.matrix, self.single = matrix, single
        self._allowed: bool | None = None
        self._weights: tuple[int, ...] = ()
        self._packed: Tensor | None = None
        self.bytes = 0  # of the copy
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, states: Tensor) -> Tensor:
        weight, bias = self.matrix.weight, self.matrix.bias
        if states.dtype == weight.dtype and (self.single or len(states) > 1):
            packed = self._copy(weight)
            if packed is not None:
                logits: Tensor = self._product(states, packed, bias, "none", [], "")
                return logits
        logits = self.matrix(states)
        return logits

    def _copy(self, weight: Tensor) -> Tensor | None:
        if self._allowed is None:
            self._allowed = room(size([weight]))
        if not self._allowed or weight.is_inference():
            return None
        now = (id(weight), weight.data_ptr(), weight._version)
        if now != self._weights:
            self._packed, self._weights = None, now  # the old one goes before the new one is made
            self._packed = reordered(weight) if packable(weight) else None
            self.bytes = 0 if self._packed is None else size([weight])
        return self._packed
