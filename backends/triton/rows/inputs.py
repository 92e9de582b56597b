"""The tensors of rows of distributions that kernels read.

A row is read in place: the model's own logits where they are not constrained, in the model's own dtype; probabilities only
where the program computed them, or where top-k, top-p and min-p need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch import shaping
from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.rows import Ids, Rows, TorchDist, TorchVectors, ids_on
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.triton.rows import functions
from decgraph.runtime.noise import Key


def constraint_free(rows: Rows) -> bool:
    """Whether every token is allowed at every row."""
    r = rows.request
    short = bool(r.eos) and r.min_length > 0
    return not (r.bans or r.allow is not None or short or rows.allow is not None)


def logits_of(rows: Rows) -> Tensor:
    """The logits [N, V] under the constraints; the model's own tensor where there are none."""
    return rows.scores if constraint_free(rows) else rows.constrained()


def shaped_logits(rows: Rows) -> Tensor:
    """The logits after processors, penalties and bias, each row by its own path."""
    return rows.adjusted() if rows.request.penalised or rows.request.processors else logits_of(rows)


def truncates(rows: Rows) -> bool:
    """Whether the request truncates rows (top-k, top-p, min-p), for which probabilities are needed."""
    r = rows.request
    return r.top_k is not None and r.top_k < rows.size or r.top_p is not None and r.top_p < 1 or r.min_p is not None


def points_of(rows: Rows, face: str) -> Ids | None:
    """The one token with mass in each row, int64[N], where a view is one-hot by construction; see Rows.points."""
    if isinstance(rows, TorchVectors) or face != "shaped" or not rows.request.greedy:
        return rows.points(face)
    if rows._points is None:
        rows._points = fetched(functions.argmax(shaped_logits(rows)))
    return rows._points


def table_of(rows: Rows, face: str) -> Tensor:
    """Probabilities [N, V] of a view (or for "logits" the constrained scores), computed once."""
    if isinstance(rows, TorchVectors) or face == "logits":
        return rows.face(face)
    cached = rows._faces
    if face not in cached:
        if face == "raw":
            cached[face] = functions.softmax(logits_of(rows))
        else:
            points = points_of(rows, face)
            r = rows.request
            cached[face] = (
                shaping.onehot(points, rows.size, shaping.working(rows.scores[:0]))
                if points is not None
                else functions.shaped(
                    shaped_logits(rows),
                    temperature=float(r.temperature),
                    top_k=r.top_k,
                    top_p=None if r.top_p is None else float(r.top_p),
                    min_p=None if r.min_p is None else float(r.min_p),
                )
            )
    return cached[face]


def law_of(m: Any, x: TorchDraws) -> TorchDist:
    """The law of each draw; of draws without replacement a kernel computes all but the first."""
    size = m.vocab_size
    if x.point or x.rows is None or x.row is None or x.rank is None or not x.rank.any():
        return x.law(m.request, size)
    assert x.group is not None and x.members is not None
    table = table_of(x.rows, x.face)
    x.rows.require_mass(x.row, x.face)
    flat = x.row.reshape(-1)
    members = ids_on(x.members[x.group.reshape(-1)], table.device)
    left = functions.without(table[ids_on(flat, table.device)], members, ids_on(x.rank.reshape(-1), table.device))
    index = np.arange(x.tokens.size).reshape(x.tokens.shape)
    return TorchDist(TorchVectors(left, m.request, like=x.rows, index=flat), index)


def picked(table: Tensor, index: Ids) -> tuple[Tensor, Tensor | None]:
    """Rows `index` int64[R] of a table: a slice where they are consecutive, else the table and the places."""
    n = len(index)
    if n and bool((index == np.arange(index[0], index[0] + n)).all()):
        return table[int(index[0]) : int(index[0]) + n], None
    return table, ids_on(index, table.device)


def noise_of(keys: Sequence[Key], device: Any) -> tuple[Tensor, Tensor]:
    """Keys as kernels read them: words int32[R, 3] and seeds int64[R, 2]."""
    words = np.array([k.words() for k in keys], dtype=np.uint32).reshape(-1, 3).view(np.int32)
    seeds = np.array([(k.seed & 0xFFFFFFFF, k.seed >> 32) for k in keys], dtype=np.int64).reshape(-1, 2)
    return torch.from_numpy(words).to(device), torch.from_numpy(seeds).to(device)
