"""The request, the context, commits and states."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops import canvases
from decgraph.backends.triton.ops.nodes import is_end
from decgraph.backends.triton.state import Step, bound_of, written
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, Context, Draws, Operand, Path, Tree, Vec
from decgraph.backends.triton.vectors import flat, live_of, put_at
from decgraph.ir.values import Op


@step("context")
def context(s: Step, op: Op) -> Context:
    """The committed text, or that without its last token."""
    return Context(s.length.clone(), bool(op.attrs.get("parent")))


@step("ctx.get")
def ctx_get(s: Step, op: Op, ctx: Context, *n: Operand) -> Operand:
    """A field of the context."""
    length = ctx.length - int(ctx.parent)
    field = op.attrs["field"]
    if field == "length":
        return length
    if field == "token":
        return s.take(s.tokens, (length - 1).clamp(min=0))
    if not n:
        return s.tokens_of(ctx)
    most = max(0, int(n[0] if isinstance(n[0], int | float | np.integer) else op.attrs.get("bound") or s.text_size))
    want = torch.minimum(s.lanes(n[0]).long().clamp(min=0), length)
    at = (length - want)[:, None] + s.steps(most)
    return Vec(s.tokens.gather(1, at.clamp(0, s.frame.capacity)), s.steps(most) < want[:, None])


@step("request")
def request(s: Step, op: Op) -> Operand:
    """A field of the request."""
    field = op.attrs["field"]
    if field in ("limit", "room"):
        s.sizes[op.result] = s.text_size
    if field == "greedy":
        return s.settings.temperature == 0
    if field == "limit":
        return s.limit.clone()
    if field == "room":
        return s.limit - (s.length - s.base)
    if field == "prompt":
        return s.tokens_of(Context(s.base))
    if field == "mask":
        return s.mask_token
    ends = torch.where(s.ends >= 0, s.ends, 2**62).amin(1)
    there = ends < 2**62
    if field == "eos":
        s.flag(~there)
    return torch.where(there, ends, -1 if field == "eos_or_none" else 0)


@step("done")
def done(s: Step, op: Op) -> Tensor:
    """Whether the request has ended."""
    return s.done.clone()


def offered(s: Step, x: Operand, op: Op) -> tuple[Tensor, Tensor | int]:
    """Tokens int64[B, N] to commit, and how many of them count."""
    if isinstance(x, Canvas):
        return canvases.decided_tokens(s, x)
    x = s.packed(s.tokens_of(x)) if not isinstance(x, Path | type(None)) else x
    if isinstance(x, Path):
        return x.tokens, x.length
    if isinstance(x, Draws | Vec | Tensor | np.ndarray | int):
        t, live = flat(s.lanes(x).long()), live_of(x)
        if op.operands[0].type.elem == "int":
            s.no_tokens(t, live if live is not None and live.shape == t.shape else None)
        if isinstance(x, Draws):
            s.flag(t < 0 if live is None or not x.shape else (t < 0) & live)
        return t, int(t.shape[1]) if live is None or live.shape != t.shape else live.sum(1)
    raise NotSteppable("a commit of something else than tokens, draws or an accepted path", op)


@step("commit")
def commit(s: Step, op: Op, x: Operand, tree: Tree | None = None) -> None:
    """Append tokens, and stop exactly where runtime/stop.py does."""
    if tree is not None:
        raise NotSteppable("a commit of nodes that no rule accepted", op)
    tokens, count = offered(s, x, op)
    path = x if isinstance(x, Path) else None
    before = s.length.clone()
    kept = append(s, tokens, count)
    s.committed_now += int(tokens.shape[1])
    if path is not None and path.tree.epoch != s.epoch:
        path = None
    s.epoch += 1
    for cache in s.caches.values():
        cache.committed(before, kept, int(tokens.shape[1]), path)


def append(s: Step, tokens: Tensor, count: Operand) -> Tensor:
    """Commit the first count of tokens int64[B, N] in the lanes that are here; int64[B], how many were."""
    n, here = int(tokens.shape[1]), s.active() & ~s.done
    place = s.steps(n)
    there = (place < s.lanes(count)[:, None]) & here[:, None]
    ends = is_end(s, tokens) & there
    before = (ends.long().cumsum(1) - ends.long()) == 0
    room = s.limit - (s.length - s.base)
    keep = there & before & (place < room[:, None])
    kept = keep.sum(1)
    spare = s.frame.capacity
    where = torch.where(keep, s.length[:, None] + place, spare).clamp(max=spare)
    put_at(s.tokens, where, tokens)
    s.length.add_(kept)
    over = (ends & keep).any(1) | (s.length - s.base >= s.limit)
    s.done.logical_or_(over & here)
    return kept


@step("note")
def note(s: Step, op: Op, x: Operand) -> None:
    """A figure of the program. Raises NotSteppable in a loop that drafts, and in a rule: they go on here where nothing is left
    to grow or to test."""
    outside = (o for o in s.function.body.walk() if "fills" in o.attrs or o.opcode == "tree.walk")
    if op.memo.once("drafts", lambda: any(op in inner.walk() for o in outside for inner in o.regions)):
        raise NotSteppable("a note in a loop that drafts, or in a rule", op)
    s.counts.note(op.attrs["name"], s.lanes(x))


@step("ended")
def ended(s: Step, op: Op, x: Operand, tree: Tree | None = None) -> Operand:
    """Whether the text ends along tokens."""
    if tree is not None:
        raise NotSteppable("a tree that ends where the text does", op)
    room = s.limit - (s.length - s.base)
    tokens, count = offered(s, x, op)
    there = s.steps(int(tokens.shape[1])) < s.lanes(count)[:, None]
    return s.done | (is_end(s, tokens) & there).any(1) | (there.sum(1) >= room)


# -- states
@step("state.read")
def state_read(s: Step, op: Op) -> Operand:
    """The value of a state."""
    name = op.attrs["state"]
    if name not in s.states:
        raise NotSteppable(f"the state `{name}`", op)
    value = s.states[name]
    if isinstance(value, Vec):
        return Vec(value.data.clone(), value.live.clone())
    return value.clone() if isinstance(value, Tensor) else value


@step("state.write")
def state_write(s: Step, op: Op, value: Operand) -> None:
    """Set a state, in place, in the lanes that are here."""
    name = op.attrs["state"]
    old = s.states.get(name)
    if not isinstance(old, Tensor | Vec):
        raise NotSteppable(f"the state `{name}` is no number or vector", op)
    bound = next(bound_of(state.type) for state in s.function.states if state.name == name)
    s.states[name] = written(s, old, value, s.active(), f"the state `{name}`", bound)
