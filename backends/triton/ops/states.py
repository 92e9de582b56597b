"""States of a program: buffers that are written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Vec
from decgraph.backends.triton.vectors import alike, beside, count_of, fitted, live_of


@step("state.read")
def read(s: Any, op: Any) -> Any:
    """The value of a state."""
    name = op.attrs["state"]
    if name not in s.states:
        raise NotSteppable(f"the state `{name}`", op)
    return copied(s.states[name])


def copied(value: Any) -> Any:
    """A value that stays as it is when its buffer is written."""
    if isinstance(value, Vec):
        return Vec(value.data.clone(), value.live.clone())
    return value.clone() if isinstance(value, Tensor) else value


@step("state.write")
def write(s: Any, op: Any, value: Any) -> None:
    """Set a state, in place, in the lanes that are here."""
    name = op.attrs["state"]
    if name not in s.states or not (isinstance(s.states[name], Tensor | Vec)):
        if s.states.get(name) is value:
            return
        raise NotSteppable(f"the state `{name}` is no number or vector", op)
    dims = op.operands[0].type.dims
    s.states[name] = written(s, s.states[name], value, s.active(), dims[0].bound if dims else None, f"the state `{name}`")


def written(s: Any, old: Any, new: Any, here: Tensor, bound: int | None, what: str) -> Any:
    """A buffer with a new value in the lanes of `here` bool[B], in place where it has the room: else a larger one, which only
    the first iterations need. One that has grown twice grows to the most that it can have."""
    value, have, live = s.lanes(new), s.tensor(old), live_of(new)
    first, second = alike([value, have])
    same = live is None and isinstance(old, Tensor) and old.shape == value.shape
    if not same and (value.ndim < 2 or have.ndim != value.ndim):
        raise NotSteppable(f"{what} changes its shape", s.place)
    if same:
        made = torch.where(beside(here, have), first, second)
        if made.dtype != old.dtype:
            return made.clone()
        old.copy_(made)
        return old
    size, most = int(have.shape[1]), min(n for n in (bound, 2 * s.frame.capacity) if n is not None)
    if min(count_of(new), most) > size:
        s.growths[what] += 1
        size = most if s.growths[what] > 2 else min(count_of(new), most)
    x = s.packed(Vec(first, s.lives(new) if live is not None else s.lanes(np.ones(value.shape[1], dtype=bool))))
    s.flag(x.live[:, size:].any(1))
    data = torch.where(beside(here, have), fitted(x.data, size), fitted(s.lanes(second), size))
    there = torch.where(here[:, None], fitted(x.live, size), fitted(s.lives(old), size))
    if isinstance(old, Vec) and old.data.shape == data.shape and old.data.dtype == data.dtype:
        old.data.copy_(data)
        old.live.copy_(there)
        return old
    return Vec(data.clone(), there.clone())
