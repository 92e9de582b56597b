"""States of a program: buffers that are written in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.numbers import live_of, packed
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Vec


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
    value = s.lanes(new) if not isinstance(new, Vec) else new.data
    live = live_of(new)
    if isinstance(old, Tensor) and live is None and old.shape == value.shape:
        kind = torch.promote_types(old.dtype, value.dtype)
        if kind == old.dtype:
            old.copy_(torch.where(here.reshape(-1, *([1] * (old.ndim - 1))), value.to(kind), old))
            return old
        return torch.where(here.reshape(-1, *([1] * (old.ndim - 1))), value.to(kind), old.to(kind)).clone()
    if value.ndim < 2 or s.tensor(old).ndim != value.ndim:
        raise NotSteppable(f"{what} changes its shape", s.place)
    x = packed(
        s, Vec(value, torch.ones(value.shape[:2], dtype=torch.bool, device=value.device) if live is None else s.lanes(live))
    )
    most = min(n for n in (bound, 2 * s.frame.capacity) if n is not None)
    have = s.tensor(old)
    size = max(int(have.shape[1]), int(x.data.shape[1]))
    if min(size, most) > int(have.shape[1]):
        s.growths[what] += 1
        size = most if s.growths[what] > 2 else min(size, most)
    else:
        size = int(have.shape[1])
    old_live = live_of(old)
    old_live = torch.ones(have.shape[:2], dtype=torch.bool, device=have.device) if old_live is None else old_live
    s.flag(x.live[:, size:].any(1))
    kind = torch.promote_types(have.dtype, x.data.dtype)

    def sized(a: Tensor) -> Tensor:
        more = size - int(a.shape[1])
        return a[:, :size] if more <= 0 else torch.cat([a, a.new_zeros((a.shape[0], more, *a.shape[2:]))], 1)

    data = torch.where(here.reshape(-1, *([1] * (value.ndim - 1))), sized(x.data.to(kind)), sized(s.lanes(have).to(kind)))
    there = torch.where(here[:, None], sized(x.live), sized(s.lanes(old_live)))
    if isinstance(old, Vec) and old.data.shape == data.shape and old.data.dtype == kind:
        old.data.copy_(data)
        old.live.copy_(there)
        return old
    return Vec(data.clone(), there.clone())
