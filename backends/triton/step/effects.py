"""Implementations of ir/ops/request.py and of `noise` on the device: the context, commits and the stop test, states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotCapturable, device
from decgraph.backends.triton.step.launch import commit_tokens
from decgraph.backends.triton.step.values import Context, DeviceDraws, DeviceNoise, DevicePath


@device("noise")
def noise(s: Any, op: Any, *counters: Any) -> DeviceNoise:
    """A noise key; nothing is drawn yet."""
    kind = op.attrs["kind"]
    if kind == "output":
        return DeviceNoise(kind, "output", (), counters[0] if counters else None)
    return DeviceNoise(kind, op.attrs["site"], tuple(counters))


@device("context")
def context(s: Any, op: Any) -> Context:
    """The committed context, or that without its last token."""
    return Context(s.length, bool(op.attrs.get("parent")))


@device("ctx.get")
def ctx_get(s: Any, op: Any, ctx: Context, *n: Any) -> Tensor:
    """Length or last token of a context, int[B]."""
    length = (s.length - 1 if ctx.parent else s.length).long()
    if op.attrs["field"] == "length":
        return length
    if op.attrs["field"] == "token":
        return last_token(s, 1 + ctx.parent)
    raise NotCapturable("the context's tokens as a vector", op)


def last_token(s: Any, back: int = 1) -> Tensor:
    """int64[B]: the last committed token, or one before it."""
    out: Tensor = s.tokens.gather(1, (s.length.long() - back).clamp(min=0)[:, None])[:, 0]
    return out


@device("request")
def request(s: Any, op: Any) -> Any:
    """A field of the request."""
    field = op.attrs["field"]
    if field == "greedy":
        return s.frame.shape.greedy
    if field == "limit":
        return s.limit.long()
    if field == "room":
        return (s.limit - (s.length - s.base)).long()
    raise NotCapturable(f"the request's {field}", op)


@device("done")
def done(s: Any, op: Any) -> Tensor:
    """bool[B]: whether the request has ended."""
    out: Tensor = s.done
    return out


@device("commit")
def commit(s: Any, op: Any, x: Any, tree: Any = None) -> None:
    """Append tokens, and stop exactly where runtime/stop.py does."""
    path = x if isinstance(x, DevicePath) else None
    if path is not None:
        tokens, count = path.tokens, path.length
    elif isinstance(x, DeviceDraws | Tensor) and tree is None:
        flat = (x.tokens if isinstance(x, DeviceDraws) else x).long()
        tokens = flat[:, None] if flat.ndim == 1 else flat.flatten(1)
        count = s.constant(np.full(s.frame.batch, int(tokens.shape[1]), dtype=np.int32))
    else:
        raise NotCapturable("a commit of something else than a draw or an accepted path", op)
    if path is not None and (path.tree.base.length is not s.length or s.epoch != path.tree.epoch):
        path = None
    kept = commit_tokens(s.tokens, s.length, s.base, s.limit, s.done, s.lost, s.ends, tokens, count)
    if path is not None:
        s.tally.committed(kept, path.length, s.began)
    s.epoch += 1
    for cache in s.caches.values():
        cache.compact(kept, int(tokens.shape[1]), path)


@device("state.read")
def read(s: Any, op: Any) -> Any:
    """The value of a state."""
    name = op.attrs["state"]
    if name not in s.states:
        raise NotCapturable(f"the state `{name}`", op)
    return s.states[name]


@device("state.write")
def write(s: Any, op: Any, value: Any) -> None:
    """Set a state, in place; sequences that are over keep theirs."""
    name = op.attrs["state"]
    kept = s.states.get(name)
    if not isinstance(kept, Tensor) or not isinstance(value, Tensor) or kept.shape != value.shape:
        raise NotCapturable(f"the state `{name}` changes its shape or type", op)
    over = s.began.view(-1, *([1] * (kept.ndim - 1)))
    kept.copy_(torch.where(over, kept, value.to(kept.dtype)))
