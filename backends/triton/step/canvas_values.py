"""Values of a canvas program on the device, for B sequences in lockstep. Axis 0 of a tensor is the sequence.

A vector of data-dependent length (`compact(x, mask)` and its results) is a vector of static length with a mask of the elements
that are present: every op over it returns what it would return for those elements, in their order.
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
    """One number (or token, or truth value) of each sequence. data: [B]. most: an upper bound, where it is a
    count: sizes follow from it."""

    data: Tensor
    most: int | None = None
    on_device = True


@dataclass(frozen=True)
class Live:
    """A vector of each sequence. data: [B, N, ...], or NumPy [N, ...] where it is the same for all. live: bool[B, N], which
    elements are present (None: all). packed: whether those come first."""

    data: Any
    live: Tensor | None = None
    packed: bool = False
    on_device = True

    @property
    def size(self) -> int:
        """N: the most elements."""
        return int(self.data.shape[0] if isinstance(self.data, np.ndarray) else self.data.shape[1])


@dataclass(frozen=True)
class DeviceCanvas:
    """tokens: int64[B, n], -1 where masked; the canvas follows each sequence's own prompt. decided: int64[B], how many
    cells were decided so far, those masked again included."""

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
    """The content of a model's caches. cached: bool[n], the cached cells of the canvas, the same for all; prompt: whether the
    prompts are cached; serial: the number of the write that this is of: an older one was overwritten."""

    model: str
    cached: Ids
    prompt: bool
    serial: int
    on_device = False

    def restrict(self, positions: Any, kind: str) -> DeviceCanvasMemory:
        """With the canvas positions kept ("only") or dropped ("without")."""
        mask = np.zeros(len(self.cached), dtype=bool)
        mask[np.ravel(np.asarray(positions, dtype=np.int64))] = True
        return replace(self, cached=self.cached & (mask if kind == "only" else ~mask))


@dataclass(frozen=True)
class CanvasNoise:
    """A noise key: a site with its loop counters (numbers, or Nums), or the stream `output`, at the rows' own positions or at
    an index (a number or a Num)."""

    kind: str
    site: str
    counters: tuple[Any, ...] = ()
    index: Any = None
    on_device = True


@dataclass(frozen=True)
class CanvasDist:
    """Distributions: rows `ids` (NumPy int64[N]; int64[] for a single one) of `rows` in one view. at: the positions of axis 0,
    where it is a part (NumPy int64[N])."""

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
        """Elements along axis 0, by their indices int64[N]; live: bool[B, N]; `at`: their positions int64[N]."""
        return replace(self, ids=self.ids[where], live=live, at=at)


class CanvasDraws:
    """One draw of each distribution, drawn when it is read (a program that draws everywhere and reads a block pays for the
    block). lane: the number of each draw at its site, NumPy int64[N] or a tensor [B, N]. tokens: int64[B, N], where they are
    drawn already. point: whether the laws are one-hot."""

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
        """Elements by their indices int64[N]; live: bool[B, N]; `at`: their positions int64[N]."""
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
        """The same draws, present only where live bool[B, N]."""
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
    """a[:, where] for static indices: a view where they are consecutive."""
    n = len(where)
    if n and bool((np.diff(where) == 1).all()):
        return a[:, int(where[0]) : int(where[0]) + n]
    return a.index_select(1, constant(where, a.device))


_CONSTANTS: dict[Any, Tensor] = {}


def constant(value: Any, device: torch.device) -> Tensor:
    """A static value as a tensor on a device, created once and never freed: a captured graph may not copy from the host, and
    reads it at its address. Whole numbers are int64, others float64."""
    a = np.asarray(value)
    if a.dtype != bool:
        a = a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)
    key = (a.tobytes(), a.shape, a.dtype.str, device)
    if key not in _CONSTANTS:
        _CONSTANTS[key] = torch.from_numpy(a.copy()).to(device)
    return _CONSTANTS[key]


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """bool[B, N]: the elements that are present in both masks (None: all)."""
    return b if a is None else a if b is None or a is b else a & b


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a value, of any shape, in order. Raises TypeError for one that no loop can carry."""
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
    """The same value with other tensors of the same shapes, in the order of `leaves`."""
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
    """The static part of a value: shapes, and everything that is no tensor. Values with equal ones launch equal kernels."""
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
        return ("memory", value.model, value.cached.tobytes(), value.prompt)
    if isinstance(value, np.ndarray):
        return ("array", value.tobytes(), value.shape, value.dtype.str)
    if isinstance(value, list | tuple):
        return (type(value).__name__, *(skeleton(v) for v in value))
    return (type(value).__name__, value)
