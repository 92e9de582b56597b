"""One forward of the reference over fresh positions, on top of cached rows: what it attends to, and what it computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


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
