"""Calls of models at the context and at nodes of trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.cache import Cache
from decgraph.backends.triton.canvas_cache import CanvasCache
from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.models.interface import DeviceModel
from decgraph.backends.triton.ops import masked
from decgraph.backends.triton.ops.distributions import every_row
from decgraph.backends.triton.ops.nodes import node_tokens, positions_at
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import ROOT, Canvas, Context, Dist, OnDevice, Operand, Rows, Tree, is_static
from decgraph.backends.triton.vectors import count_of, live_of, vec_of
from decgraph.ir.values import Op
from decgraph.runtime.models.reading import ROUNDING

if TYPE_CHECKING:
    from decgraph.backends.triton.models.heads import ReadingHead


@dataclass(frozen=True)
class Memory(OnDevice):
    """What a model computed of the committed tokens up to a length, int64[B]: its own slots."""

    family: str
    length: Tensor
    model: DeviceModel
    parent: bool


@step("model.eval")
def evaluate(s: Step, op: Op, model: DeviceModel, place: Operand, *rest: Operand) -> Operand:
    """The distributions of a model at a place."""
    extra = dict(zip(op.attrs.get("with", ()), rest, strict=True))
    cache = s.cache_of(model)
    if isinstance(cache, CanvasCache) and isinstance(place, Canvas):
        return masked.evaluate(s, op, cache, place, extra)
    if "at" in extra or not isinstance(cache, Cache):
        raise NotSteppable("a call at positions", op)
    if op.attrs.get("part") == "heads":
        return heads(s, op, cache, model, place)
    s.counts.call(cache.name + (".drafting" if op.attrs.get("drafts") else ""))
    memory = extra.get("given")
    if memory is not None and not (isinstance(memory, Memory) and memory.family == str(op.operands[0].type.of[2])):
        raise NotSteppable("a memory of another model, or of something else than the context", op)
    if memory is None and cache.features:
        raise NotSteppable("a call of a head without the target's memory", op)
    if memory is not None and memory.model is not model:
        read_other(s, op, cache, memory)
    out = at_place(s, op, cache, place, extra.get("tree"), None if memory is None else memory.length)
    if "allow" in extra:
        allow = extra["allow"]
        a = s.lanes(allow)
        out.rows.allow = a if a.ndim == 3 else a[:, None]
    return out


def read_other(s: Step, op: Op, cache: Cache, memory: Memory) -> None:
    """A call that reads what another model has of the text: a head its target's states, a derived model the keys and values of
    the whole one."""
    source = tokens_of(s, memory.model, op)
    if not cache.features:
        if cache.model.origin is not memory.model or not memory.parent:
            raise NotSteppable("a memory of a model that this one is not derived from", op)
        cache.model.follow()
    if source.behind > 1 and not source.asked:
        source.states(None, ROOT)  # it has not computed all of the text


@step("head.read")
def value(s: Step, op: Op, head: DeviceModel | ReadingHead, place: Operand, tree: Tree | None = None) -> Operand:
    """What a head says after the context, at nodes, or at every node of a tree: of the states of the model that it reads."""
    kind = op.operands[1].type.elem
    if kind not in ("node", "tree") or isinstance(place, Context) and place.parent:
        raise NotSteppable("a head is read after something else than the text and trees of drafts", op)
    s.counts.call(s.names.get(id(head), head.name))
    q = at_place(s, op, tokens_of(s, head.trunk, op), place, tree, None, head.read)
    out = s.take(s.lanes(q.rows.scores[..., 0]), q.index)
    live, gives = q.live, op.result.type.elem
    wrong = ~torch.isfinite(out)
    if gives == "prob":
        wrong, out = wrong | ((out - 0.5).abs() > 0.5 + ROUNDING), out.clamp(0, 1)
    s.flag(wrong if live is None else wrong & live)
    return vec_of(out.nan_to_num().long() if gives == "int" else out == 1 if gives == "bool" else out, live)


@step("model.memory")
def memory(s: Step, op: Op, model: DeviceModel, place: Operand, *rest: Operand) -> Operand:
    """A model's memory of the context: its slots."""
    cache = s.cache_of(model)
    if isinstance(cache, CanvasCache) and isinstance(place, Canvas):
        return masked.memory(s, op, cache, place, dict(zip(op.attrs.get("with", ()), rest, strict=True)))
    if not isinstance(place, Context) or rest:
        raise NotSteppable("a memory of something else than the context", op)
    if place.parent:
        s.flag(s.length < 2)
    return Memory(str(op.operands[0].type.of[2]), s.length - int(place.parent), model, bool(place.parent))


def tokens_of(s: Step, model: DeviceModel, op: Op) -> Cache:
    """The slots of a model that is called at texts and trees of drafts."""
    cache = s.cache_of(model)
    if not isinstance(cache, Cache):
        raise NotSteppable("a masked model that is called at a text", op)
    return cache


def heads(s: Step, op: Op, cache: Cache, model: DeviceModel, place: Operand) -> Dist:
    """The distributions of a model's own heads at the context, or its parent."""
    s.counts.call(cache.name + ".heads")
    if not isinstance(place, Context):
        raise NotSteppable("a model's own heads after something else than the text", op)
    if place.parent:
        s.flag(s.length < 2)
        cache.least = 2  # the state before the last token is computed again with it
        if cache.behind < 2:
            cache.behind = 2
        states = cache.parent_state()
    else:
        states = cache.states(None, ROOT)
    scores = model.heads(states)[:, 0]
    n = int(scores.shape[1])
    first = s.length[:, None] + (0 if place.parent else 1)
    return Dist(Rows(scores, positions=first + s.steps(n), before=s.length - int(place.parent)), np.arange(n))


def at_place(
    s: Step, op: Op, cache: Cache, place: Operand, tree: Operand, known: Tensor | None,
    read: Callable[[Tensor], Tensor] | None = None,
) -> Dist:  # fmt: skip
    """A model's rows at the context, at all nodes of a tree, or at some. read: what is read off its states instead of
    logits. known: int64[B] or None."""
    reads = cache.model.read if read is None else read
    for t in (place, tree):
        if isinstance(t, Tree) and t.epoch != s.epoch:
            raise NotSteppable("a call at a tree of before a commit", op)
    if isinstance(place, Context):
        if place.parent:
            raise NotSteppable("a call at the context's parent", op)
        rows = Rows(reads(cache.states(None, ROOT, known)), positions=s.lanes(positions_at(s, None, ROOT)), nodes=ROOT)
        return Dist(rows, every_row(rows, ()))
    t = place if isinstance(place, Tree) else tree
    if not isinstance(t, Tree):
        raise NotSteppable("a call at nodes of no tree, or on something else than the text and trees of drafts", op)
    every = np.arange(t.size)
    nodes = every if place is t else s.nodes_or_static(place, every)
    rows = Rows(
        reads(cache.states(t, nodes, known)),
        positions=s.lanes(positions_at(s, t, nodes)),
        nodes=nodes,
        tree=t,
        path=lambda: node_tokens(s, t, nodes),
    )
    if place is t:
        return Dist(rows, every, live=t.live)
    if isinstance(place, Tensor):
        return Dist(rows, every_row(rows, tuple(place.shape[1:])))
    if is_static(place) and np.ndim(place) != 1:
        return Dist(rows, every_row(rows, np.shape(place)))
    return Dist(rows, every_row(rows, (rows.count,)), at=nodes, live=live_of(nodes))


@step("within", folded=True)
def within(s: Step, op: Op, x: Operand, *sizes: Operand) -> Operand:
    """A value that is as small as it must be; a lane in which it is not is the driver's, which says so."""
    if not sizes:
        a, most = s.tensor(x), min(op.attrs["most"], 2**62)
        s.flag(~(a.abs() <= most))
        s.bounds_of(op, "minimum")
        if not (op.result in s.sizes and s.sizes[op.result] <= most):
            s.tops[op.result] = min(float(most), s.tops.get(op.result, float(most)))
        return x
    most, live = sizes[0], live_of(x)
    if s.lengths and is_static(most) and (live is not None or count_of(x) > int(most)):
        s.flag(s.lives(x).sum(1) > int(most))
        return x
    if live is not None or not is_static(most) or count_of(x) > int(most):
        raise NotSteppable("a vector whose length data decides", op)
    return x


@step("model.derive")
def derive(s: Step, op: Op, model: DeviceModel, *args: Operand) -> Operand:
    """A model that shares another's weights; made once."""
    return s.derived(op, model, args)


@step("model.layers")
def layers(s: Step, op: Op, model: DeviceModel) -> Operand:
    """The layers of a model."""
    return np.arange(model.layers)


@step("vocab_size")
def vocabulary(s: Step, op: Op) -> int:
    """The number of tokens."""
    return int(s.vocab_size)
