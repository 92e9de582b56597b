"""Columns of distributions: one stored at each node of a tree, on the device, stacked only where all are read at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.rows import Ids, Rows, TorchDist, Where
from decgraph.errors import DecError
from decgraph.runtime.request import Request


class StoredRows(Rows):
    """The rows of a column. values: a distribution of shape () for every node, None where nothing was stored."""

    __slots__ = ("values", "column", "vocab")

    def __init__(self, values: list[TorchDist | None], request: Request, vocab: int, column: str) -> None:
        super().__init__(torch.empty(0, vocab), request)
        self.values, self.column, self.vocab = values, column, vocab

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        return self.vocab

    def value(self, i: int, face: str) -> TorchDist:
        """What was stored at node i, in a view. Raises DecError where nothing was."""
        v = self.values[i]
        if v is None:
            raise DecError(f"column {self.column} was not set at this node", hint="set it before it is read")
        return v.seen(face) if v.face == "shaped" else v

    def points(self, face: str) -> Ids | None:
        return None

    def face(self, name: str) -> Tensor:
        """Probabilities [R, V]; zeros where nothing was stored."""
        stored = [None if v is None else self.value(i, name).vector() for i, v in enumerate(self.values)]
        some = next((v for v in stored if v is not None), torch.zeros(self.vocab))
        return torch.stack([torch.zeros_like(some) if v is None else v for v in stored])


class Stored(TorchDist):
    """A column of distributions, one for each node."""

    __slots__ = ()
    rows: StoredRows

    def __init__(self, values: list[TorchDist | None], request: Request, vocab: int, column: str, face: str = "shaped") -> None:
        super().__init__(StoredRows(values, request, vocab, column), np.arange(len(values)), face)

    def seen(self, face: str) -> TorchDist:
        r = self.rows
        return Stored(r.values, r.request, r.vocab, r.column, face)

    def pick(self, where: Where, at: Ids | None = None) -> TorchDist:
        """Of one node what was stored there, as it was; of several nodes rows of the column."""
        if isinstance(where, int | np.integer) or isinstance(where, np.ndarray) and not where.ndim:
            return self.rows.value(int(where), self.face)
        return super().pick(where, at)
