"""Where the captured graph's matrices lie, and how the module goes on sharing them.

A module's linear map holds its matrix as [out, in]. Two things are done to that here, both by giving the parameter
another place in memory and the same values: several matrices of one input are put side by side, and on the CPU, in
float32, a matrix with more outputs than inputs is stored as [in, out], of which the parameter is the transposed view.
The second because a decoding step reads every matrix for few rows, and the CPU's libraries read such a one faster that
way: for one row of 256, a matrix to 1,408 takes 94 us instead of 202, of 512, one to 2,816 402 instead of 601. Matrices
with fewer outputs than inputs are read faster as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def turns(weights: Sequence[Tensor]) -> bool:
    """Whether these matrices [n_i, m] of one input are better stored as [m, sum of n_i]."""
    first = weights[0]
    wide = sum(len(w) for w in weights) > first.shape[1]
    return first.device.type == "cpu" and first.dtype == torch.float32 and wide


def turned(weights: Sequence[Tensor]) -> Tensor:
    """Matrices [n_i, m] as one [m, sum of n_i], which they become views of; stored as `turns` says."""
    wide = turns(weights)
    whole = _side_by_side(weights, wide)
    if whole is None:
        first, total = weights[0], sum(len(w) for w in weights)
        shape = (first.shape[1], total) if wide else (total, first.shape[1])
        made = torch.empty(shape, dtype=first.dtype, device=first.device)
        whole = made.t() if wide else made
        _place(weights, whole)
    return whole.t()


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Tensors [n_i, ...] as one [sum of n_i, ...]; the parts become views of it."""
    whole = _side_by_side(parts)
    if whole is None:
        first = parts[0]
        whole = torch.empty((sum(len(p) for p in parts), *first.shape[1:]), dtype=first.dtype, device=first.device)
        _place(parts, whole)
    return whole


def _place(parts: Sequence[Tensor], whole: Tensor) -> None:
    start = 0
    for part in parts:
        piece = whole[start : start + len(part)]
        piece.copy_(part.detach())
        part.data = piece
        start += len(part)


def _side_by_side(parts: Sequence[Tensor], wide: bool = False) -> Tensor | None:
    """The tensor that these are consecutive rows of, if they are: joined before, or made so. `wide`: by columns."""
    first = parts[0].detach()
    total = sum(len(p) for p in parts)
    if wide:
        if first.stride(0) != 1 or (len(parts) > 1 and first.stride(1) != total):
            return None
    elif not first.is_contiguous():
        return None
    at = first.storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same or part.storage_offset() != at or part.stride() != first.stride() or part.shape[1:] != first.shape[1:]:
            return None
        at += len(part) * part.stride(0)
    return first.as_strided((total, *first.shape[1:]), first.stride(), first.storage_offset())
