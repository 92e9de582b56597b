"""What the values of a canvas program are on the device, for B sequences in lockstep. Axis 0 of a tensor is the sequence.

A vector whose length data decides (`compact(x, mask)` and what follows from it) is a vector of static length with marks of
which elements are there: every op over it gives what it would give for the elements that are, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

Ids = np.ndarray


@dataclass(frozen=True)
class Num:
    """One number (or token, or truth value) of each sequence. data: [B]. most: the greatest it can be, where it counts
    something: sizes follow from it."""

    data: Tensor
    most: int | None = None
    on_device = True


@dataclass(frozen=True)
class Live:
    """A vector of each sequence. data: [B, N, ...], or NumPy [N, ...] where it is the same for all. live: bool[B, N], which
    elements are there (None: all). packed: those that are stand first."""

    data: Any
    live: Tensor | None = None
    packed: bool = False
    on_device = True

    @property
    def size(self) -> int:
        """N: how many there are at most."""
        return int(self.data.shape[0] if isinstance(self.data, np.ndarray) else self.data.shape[1])


@dataclass(frozen=True)
class DeviceCanvas:
    """tokens: int64[B, n], -1 where masked; the canvas stands behind each sequence's own prompt. decided: int64[B], how many
    cells were decided on the way here, those masked again among them."""

    tokens: Tensor
    decided: Tensor
    on_device = True

    def __len__(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def masked(self) -> Tensor:
        """bool[B, n]"""
        return self.tokens < 0


@dataclass(frozen=True)
class DeviceCanvasMemory:
    """What a model's caches hold. held: bool[n], of the canvas, the same for all; prompt: whether the prompts' cells are;
    serial: which writing of the caches this is of: an older one was overwritten."""

    model: str
    held: Ids
    prompt: bool
    serial: int
    on_device = False

    def restrict(self, positions: Any, kind: str) -> DeviceCanvasMemory:
        """With the canvas positions kept ("only") or dropped ("without")."""
        mask = np.zeros(len(self.held), dtype=bool)
        mask[np.ravel(np.asarray(positions, dtype=np.int64))] = True
        return replace(self, held=self.held & (mask if kind == "only" else ~mask))


@dataclass(frozen=True)
class CanvasNoise:
    """Which noise: a site with its loop counters (numbers, or Nums), or the stream `output`, at the rows' own positions or at
    an index (a number or a Num)."""

    kind: str
    site: str
    counters: tuple[Any, ...] = ()
    index: Any = None
    on_device = True


@dataclass(frozen=True)
class CanvasDist:
    """Distributions: rows `ids` (NumPy int64[N]; int64[] for a single one) of `rows` by one face. at: the positions that axis
    0 is of, where it is a part (NumPy int64[N])."""

    rows: Any
    ids: Ids
    face: str = "shaped"
    live: Tensor | None = None
    at: Ids | None = None
    on_device = True

    @property
    def size(self) -> int:
        return len(self.ids) if self.ids.ndim else 1

    def pick(self, where: Ids, live: Tensor | None = None, at: Ids | None = None) -> CanvasDist:
        """Elements along axis 0, by their places; `at`: the positions that they are."""
        return replace(self, ids=self.ids[where], live=live, at=at)


class CanvasDraws:
    """One draw of each distribution, made when something looks (a program that draws everywhere and reads a block pays for
    the block). lane: which draw of its site each is, NumPy int64[N] or a tensor [B, N]. tokens: int64[B, N], where they are
    known already. point: certain drafts."""

    on_device = True

    def __init__(
        self,
        dist: CanvasDist | None = None,
        key: CanvasNoise | None = None,
        lane: Any = None,
        *,
        tokens: Tensor | None = None,
        live: Tensor | None = None,
        at: Ids | None = None,
        point: bool = False,
    ) -> None:
        self.dist, self.key, self.lane, self.tokens = dist, key, lane, tokens
        self.live, self.at, self.point = live, at, point

    def pick(self, where: Ids, live: Tensor | None = None, at: Ids | None = None) -> CanvasDraws:
        """Elements by their places; `at`: the positions that they are."""
        lane = self.lane
        if lane is not None:
            lane = lane[where] if isinstance(lane, np.ndarray) else lane[:, where]
        return CanvasDraws(
            None if self.dist is None else self.dist.pick(where, live, at),
            self.key,
            lane,
            tokens=None if self.tokens is None else picked(self.tokens, where),
            live=live,
            at=at,
            point=self.point,
        )

    def alive(self, live: Tensor | None) -> CanvasDraws:
        """The same draws, fewer of them there."""
        out = CanvasDraws(
            None if self.dist is None else replace(self.dist, live=live),
            self.key,
            self.lane,
            tokens=self.tokens,
            live=live,
            at=self.at,
            point=self.point,
        )
        return out


@dataclass(frozen=True)
class Edit:
    """Decide the cell at `position` with `token`: Nums."""

    position: Any
    token: Any
    on_device = True


def picked(a: Tensor, where: Ids) -> Tensor:
    """a[:, where] for places that the host knows: a view where they follow each other."""
    n = len(where)
    if n and bool((np.diff(where) == 1).all()):
        return a[:, int(where[0]) : int(where[0]) + n]
    return a.index_select(1, constant(where, a.device))


_CONSTANTS: dict[Any, Tensor] = {}


def constant(value: Any, device: torch.device) -> Tensor:
    """What the host knows as a tensor on a device, made once and never given up: a captured graph may not copy from the host,
    and reads it at its place. Whole numbers are int64, others float64."""
    a = np.asarray(value)
    if a.dtype != bool:
        a = a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)
    key = (a.tobytes(), a.shape, a.dtype.str, device)
    if key not in _CONSTANTS:
        _CONSTANTS[key] = torch.from_numpy(a.copy()).to(device)
    return _CONSTANTS[key]


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Elements that are there in both."""
    return b if a is None else a if b is None or a is b else a & b


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a value, in order. Raises TypeError for one that no loop can carry."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Num):
        return [value.data]
    if isinstance(value, DeviceCanvas):
        return [value.tokens, value.decided]
    if isinstance(value, Live):
        return [t for t in (value.data, value.live) if isinstance(t, Tensor)]
    if isinstance(value, Edit):
        return [*leaves(value.position), *leaves(value.token)]
    if isinstance(value, list | tuple):
        return [t for v in value for t in leaves(v)]
    if getattr(value, "on_device", False):
        raise TypeError(f"a {type(value).__name__} cannot be carried around a loop")
    return []


def rebuilt(value: Any, tensors: Sequence[Tensor] | Callable[[], Tensor]) -> Any:
    """The same value with other tensors, in the order of `leaves`."""
    if not callable(tensors):
        left = iter(tensors)

        def take() -> Tensor:
            return next(left)
    else:
        take = tensors
    if isinstance(value, Tensor):
        return take()
    if isinstance(value, Num):
        return replace(value, data=take())
    if isinstance(value, DeviceCanvas):
        tokens = take()
        return DeviceCanvas(tokens, take())
    if isinstance(value, Live):
        data = take() if isinstance(value.data, Tensor) else value.data
        return replace(value, data=data, live=None if value.live is None else take())
    if isinstance(value, Edit):
        position = rebuilt(value.position, take)
        return Edit(position, rebuilt(value.token, take))
    if isinstance(value, list | tuple):
        return type(value)(rebuilt(v, take) for v in value)
    return value


def skeleton(value: Any) -> Any:
    """What of a value the host knows: shapes, and everything that holds no tensor. Equal ones run through equal code."""
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), value.dtype)
    if isinstance(value, Num):
        return ("num", skeleton(value.data), value.most)
    if isinstance(value, Live):
        return ("live", skeleton(value.data), skeleton(value.live), value.packed)
    if isinstance(value, DeviceCanvas):
        return ("canvas", skeleton(value.tokens))
    if isinstance(value, Edit):
        return ("edit", skeleton(value.position), skeleton(value.token))
    if isinstance(value, DeviceCanvasMemory):
        return ("memory", value.model, value.held.tobytes(), value.prompt)
    if isinstance(value, np.ndarray):
        return ("array", value.tobytes(), value.shape, value.dtype.str)
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(skeleton(v) for v in value))
    return (type(value).__name__, value)
