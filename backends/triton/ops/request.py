"""The request, the context, commits and states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.numbers import live_of, packed, tokens_of
from decgraph.backends.triton.ops.trees import is_end, last_token, node_tokens
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Draws, Nodes, Path, Tree, Vec


@step("context")
def context(s: Any, op: Any) -> Context:
    """The committed text, or that without its last token."""
    return Context(s.length.clone(), bool(op.attrs.get("parent")))


@joins(Context)
def join_contexts(s: Any, lanes: Tensor, a: Context, b: Context) -> Context:
    """One of two beginnings of the text. lanes: bool[B]."""
    if a.parent != b.parent:
        raise NotSteppable("one of two beginnings of the text", s.place)
    return Context(torch.where(lanes, a.length, b.length), a.parent)


@step("ctx.get")
def ctx_get(s: Any, op: Any, ctx: Context, *n: Any) -> Any:
    """A field of the context."""
    length = ctx.length - int(ctx.parent)
    field = op.attrs["field"]
    if field == "length":
        return length
    if field == "token":
        return s.tokens.gather(1, (length - 1).clamp(min=0)[:, None])[:, 0]
    if not n:
        return tokens_of(s, ctx)
    most = int(n[0]) if isinstance(n[0], int | float | np.integer) else int(op.attrs.get("bound") or s.frame.capacity)
    want = s.lanes(n[0]).long().clamp(min=0)
    want = torch.minimum(want, length)
    at = (length - want)[:, None] + s.steps(max(0, most))
    live = s.steps(max(0, most)) < want[:, None]
    return Vec(s.tokens.gather(1, at.clamp(0, s.frame.capacity)), live)


@step("request")
def request(s: Any, op: Any) -> Any:
    """A field of the request."""
    field = op.attrs["field"]
    if field in ("limit", "room"):
        s.sizes[op.result] = s.frame.capacity
    if field == "greedy":
        return s.settings.temperature == 0
    if field == "limit":
        return s.limit.clone()
    if field == "room":
        return s.limit - (s.length - s.base)
    if field == "prompt":
        return Vec(s.tokens, s.steps(int(s.tokens.shape[1])) < s.base[:, None])
    if field == "mask":
        return s.mask_token
    ends = torch.where(s.ends >= 0, s.ends, 2**62).amin(1)
    there = ends < 2**62
    if field == "eos":
        s.flag(~there)
    return torch.where(there, ends, -1 if field == "eos_or_none" else 0)


@step("done")
def done(s: Any, op: Any) -> Tensor:
    """Whether the request has ended."""
    out: Tensor = s.done.clone()
    return out


def offered(s: Any, x: Any, tree: Any, op: Any) -> tuple[Tensor, Tensor | int]:
    """Tokens int64[B, N] to commit, and how many of them count."""
    if isinstance(x, list):
        x = x[0] if len(x) == 1 else None
    x = packed(s, tokens_of(s, x)) if not isinstance(x, Path | type(None)) else x
    if isinstance(x, Path):
        return x.tokens, x.length
    if isinstance(tree, Tree):
        nodes = x if isinstance(x, Nodes) else Nodes(s.lanes(x).reshape(s.frame.batch, -1), None)
        path = node_tokens(s, tree, nodes)[:, 0]
        return path, (path >= 0).sum(1)
    if isinstance(x, Draws | Vec | Tensor | np.ndarray | int):
        t = s.lanes(x).long()
        t = t[:, None] if t.ndim == 1 else t.flatten(1)
        live = live_of(x)
        if isinstance(x, Draws):
            s.flag(t < 0 if live is None or not x.shape else (t < 0) & live)
        return t, int(t.shape[1]) if live is None or live.shape != t.shape else live.sum(1)
    raise NotSteppable("a commit of something else than tokens, draws or an accepted path", op)


@step("commit")
def commit(s: Any, op: Any, x: Any, tree: Any = None) -> None:
    """Append tokens, and stop exactly where runtime/stop.py does."""
    from decgraph.backends.triton.ops import canvases

    if canvases.is_canvas(x):
        tokens, count = canvases.decided_tokens(s, x)
    else:
        tokens, count = offered(s, x, tree, op)
    path = x if isinstance(x, Path) else None
    before = s.length.clone()
    kept = append(s, tokens, count)
    s.committed_now += int(tokens.shape[1])
    if path is not None and (path.tree is None or path.nodes is None or path.tree.epoch != s.epoch):
        path = None
    s.epoch += 1
    for cache in s.caches.values():
        cache.committed(before, kept, int(tokens.shape[1]), path)


def append(s: Any, tokens: Tensor, count: Any) -> Tensor:
    """Commit the first count of tokens int64[B, N] in the lanes that are here; int64[B], how many were."""
    n, here = int(tokens.shape[1]), s.active()
    place = s.steps(n)
    there = (place < (count[:, None] if isinstance(count, Tensor) else count)) & here[:, None]
    ends = is_end(s, tokens) & there
    before = (ends.long().cumsum(1) - ends.long()) == 0
    room = s.limit - (s.length - s.base)
    keep = there & before & (place < room[:, None])
    kept = keep.sum(1)
    spare = s.frame.capacity
    where = torch.where(keep, s.length[:, None] + place, spare).clamp(max=spare)
    s.settings.advance(tokens, s.length, kept)
    s.tokens.scatter_(1, where, tokens)
    s.length.add_(kept)
    over = (ends & keep).any(1) | (s.length - s.base >= s.limit)
    s.done.logical_or_(over & here)
    for reader in s.readers:
        reader.read(tokens, kept)
    return kept


@step("ended")
def ended(s: Any, op: Any, x: Any, tree: Any = None) -> Any:
    """Whether the text ends on the way to nodes, or along tokens."""
    from decgraph.backends.triton.ops import canvases

    room = s.limit - (s.length - s.base)
    if isinstance(tree, Tree):
        nodes = x if isinstance(x, Nodes | np.ndarray) else s.lanes(x)
        if isinstance(nodes, Tensor):
            nodes = Nodes(nodes if nodes.ndim > 1 else nodes[:, None], None)
        path = node_tokens(s, tree, nodes if isinstance(nodes, Nodes) else np.ravel(nodes))
        flat = is_end(s, path.flatten(1)).reshape(path.shape) & (path >= 0)
        out = flat.any(-1) | ((path >= 0).sum(-1) >= room[:, None])
        live = live_of(x)
        if not op.result.type.dims:
            return out[:, 0]
        return out if live is None else Vec(out, live)
    tokens, count = canvases.decided_tokens(s, x) if canvases.is_canvas(x) else offered(s, x, None, op)
    there = s.steps(int(tokens.shape[1])) < (count[:, None] if isinstance(count, Tensor) else count)
    return s.done | (is_end(s, tokens) & there).any(1) | (there.sum(1) >= room)


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


@step("return")
def returned(s: Any, op: Any, *values: Any) -> None:
    """The results of a search, best first: nodes of a tree, or texts."""
    values_, tree = list(values), None
    if op.attrs.get("has_tree"):
        tree = values_.pop()
    here = s.active() | s.done if s.mask is None else s.mask
    for v in values_:
        if isinstance(tree, Tree) and not isinstance(v, Path | list):
            nodes = v if isinstance(v, Nodes) else Nodes(s.lanes(v).reshape(s.frame.batch, -1), None, live_of(v))
            s.results.append((node_tokens(s, tree, nodes), nodes.live, here))
        elif isinstance(v, list):
            for x in v:
                t, n = offered(s, x, None, op)
                s.results.append((torch.where(s.steps(int(t.shape[1])) < s.lanes(n)[:, None], t, -1)[:, None], None, here))
        else:
            t, n = offered(s, v, None, op)
            s.results.append((torch.where(s.steps(int(t.shape[1])) < s.lanes(n)[:, None], t, -1)[:, None], None, here))


__all__ = ["last_token"]
