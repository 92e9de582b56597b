"""One forward of the reference over fresh positions, on top of a memory's rows: what it attends to, and what it computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from decgraph.runtime.models.interface import Cell, LayerMemory, Memory

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.states import Works


@dataclass(frozen=True)
class SeenRows:
    """The cached rows of one layer: keys and values [n, heads, dim], positions int64[n], and `visible` bool[fresh, n]."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    visible: Tensor


@dataclass
class Tape:
    """One forward: the rows that it attends to, and its results.

    positions: int64[fresh]. visible: bool[fresh, fresh]. held: cached rows by layer index, or empty. Filled in by the
    forward, by layer index: states [fresh, width] entering the layer, queries, keys and values [fresh, heads, dim].
    attended: float64[n] or None; where it is there, every layer adds how much attention the positions below n got, the mean
    over queries and heads.
    """

    positions: Tensor
    visible: Tensor
    held: dict[int, SeenRows] = field(default_factory=dict)
    states: dict[int, Tensor] = field(default_factory=dict)
    queries: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    attended: Tensor | None = None
    works: Works | None = None  # of recurrent layers (decoder/hybrid.py)

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Softmax attention of queries [fresh, heads, dim] over cached and fresh rows, weights in float32 at least: [fresh,
        heads, dim]. Notes queries, keys and values."""
        self.queries[layer], self.keys[layer], self.values[layer] = query, key, value
        keys, values, positions, visible = key, value, self.positions, self.visible
        if layer in self.held:
            held = self.held[layer]
            keys, values = torch.cat([held.keys, keys]), torch.cat([held.values, values])
            positions, visible = torch.cat([held.positions, positions]), torch.cat([held.visible, visible], dim=1)
        if window is not None:
            visible = visible & ((self.positions[:, None] - positions[None]).abs() < window)
        groups = query.shape[1] // keys.shape[1]
        keys = keys.repeat_interleave(groups, dim=1).permute(1, 2, 0)
        values = values.repeat_interleave(groups, dim=1).transpose(0, 1)
        scores = query.transpose(0, 1) @ keys * (query.shape[-1] ** -0.5 if scale is None else scale)
        if cap is not None:
            scores = torch.tanh(scores / cap) * cap
        scores = scores.masked_fill(~visible, float("-inf")).to(torch.promote_types(query.dtype, torch.float32))
        if sinks is not None:
            column = sinks.to(scores.dtype).view(-1, 1, 1).expand(-1, scores.shape[1], 1)
            weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        if self.attended is not None:
            self.attended.index_add_(0, positions, weights.double().mean(dim=(0, 1)))
        return (weights.to(query.dtype) @ values).transpose(0, 1)


def held_of(memory: Memory, positions: Tensor, fresh: Iterable[int]) -> dict[int, SeenRows]:
    """A memory's rows by layer, for queries at `positions` int64[n], which see what is before them. Positions
    in `fresh` are overridden and left out."""
    out: dict[int, SeenRows] = {}
    dropped = set(fresh)
    for layer, rows in enumerate(memory.layers):
        where = [i for i in sorted(rows.kv) if i not in dropped]
        if where:
            at = torch.tensor(where, device=positions.device)
            out[layer] = SeenRows(
                torch.stack([rows.kv[i][0] for i in where]),
                torch.stack([rows.kv[i][1] for i in where]),
                at,
                at[None] < positions[:, None],
            )
    return out


def memory_of(tape: Tape, last: Tensor, family: str, layers: int, cells: Sequence[Cell], at: Mapping[int, int]) -> Memory:
    """The memory of a forward's rows. last: the last states [fresh, width]; at: the row of each position that is kept."""
    return Memory(
        family,
        len(cells),
        tuple(
            LayerMemory(
                {i: (tape.keys[k][n], tape.values[k][n]) for i, n in at.items()} if k in tape.keys else {},
                {i: tape.states[k][n] for i, n in at.items()} if k in tape.states else {},
            )
            for k in range(layers)
        ),
        {i: last[n] for i, n in at.items()},
        {i: cells[i] for i in at},
    )
