"""Implementations of ir/ops/models.py on the device: calls of causal models at the context and at nodes of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotCapturable, device, is_static
from decgraph.backends.triton.step.values import Context, DeviceDist, DeviceRows, DeviceTree, Nodes

ROOT = np.zeros(1, dtype=np.int64)


def cache_of(s: Any, model: Any, op: Any) -> Any:
    """The cache of a model. Raises NotCapturable for a model that is not a parameter of the function."""
    name = s.names.get(id(model))
    if name is None:
        raise NotCapturable("a model that the program derives", op)
    return s.caches[name]


def count_call(s: Any, cache: Any, what: str = "") -> None:
    """Statistics: one more call in every iteration."""
    s.tally.calls[cache.name + what] = s.tally.calls.get(cache.name + what, 0) + 1


@device("model.eval")
def evaluate(s: Any, op: Any, model: Any, place: Any, *rest: Any) -> DeviceDist:
    """The distributions of a model at a place."""
    extra = dict(zip(op.attrs.get("with", ()), rest, strict=True))
    if "allow" in extra or "at" in extra:
        raise NotCapturable("a call with `allow` or at positions", op)
    cache = cache_of(s, model, op)
    if op.attrs.get("part") == "heads":
        return heads(s, op, cache, place)
    count_call(s, cache, ".drafting" if op.attrs.get("drafts") else "")
    given = extra.get("given")
    # Derived models are not supported (below), so a memory of the model's family is its own cache.
    if given is not None and not (isinstance(given, DeviceMemory) and given.family == str(op.operands[0].type.of[2])):
        raise NotCapturable("a memory of another model", op)
    return at_place(s, op, cache, place, extra.get("tree"), None if given is None else given.length)


@device("model.evals")
def evaluate_together(s: Any, op: Any, *operands: Any) -> Any:
    """Calls of one model that were merged."""
    raise NotCapturable("calls that were merged", op)


@dataclass(frozen=True)
class DeviceMemory:
    """A model's cache of the committed tokens up to a length, int64[B]."""

    family: str
    length: Tensor
    on_device = True


@device("model.memory")
def memory(s: Any, op: Any, model: Any, place: Any, *rest: Any) -> DeviceMemory:
    """A model's memory of a context: its cache."""
    if not isinstance(place, Context) or rest:
        raise NotCapturable("a memory of something else than the context", op)
    if place.parent:
        s.flag(s.length < 2)
    return DeviceMemory(str(op.operands[0].type.of[2]), (s.length - int(place.parent)).long())


def heads(s: Any, op: Any, cache: Any, place: Any) -> DeviceDist:
    """The distributions of a model's own heads at the context's parent, whose state is cached."""
    if not isinstance(place, Context) or not place.parent or cache.most_uncached > 1 or cache.asked:
        raise NotCapturable("heads at another place than the context's parent, or after a call of the model", op)
    s.flag(s.length < 2)
    count_call(s, cache, ".heads")
    scores = cache.model.heads((s.length.long() - 2).clamp(min=0))
    n = int(scores.shape[1])
    rows = DeviceRows(scores, positions=s.length.long()[:, None] + s.steps(n))
    return DeviceDist(rows, np.arange(n))


def at_place(s: Any, op: Any, cache: Any, place: Any, tree: Any, given: Tensor | None) -> DeviceDist:
    """A causal model's rows at the context, at all nodes of a tree, or at some; given: int64[B] or None, see heads.py."""
    if isinstance(place, Context):
        if place.parent:
            raise NotCapturable("a call at the context's parent", op)
        rows = DeviceRows(cache.ask(None, ROOT, given), positions=positions_at(s, None, ROOT), nodes=ROOT)
        return DeviceDist(rows, np.zeros((), dtype=np.int64))
    if isinstance(place, DeviceTree):
        nodes = np.arange(place.size)
        scores = cache.ask(place, nodes, given) if place.origin is None else cache.ask_pruned(place, given)
        return DeviceDist(DeviceRows(scores, positions=positions_at(s, place, nodes), nodes=nodes, tree=place), nodes)
    if not isinstance(tree, DeviceTree) or tree.origin is not None:
        raise NotCapturable("a call at nodes of a tree whose pruning depends on data", op)
    if isinstance(place, Nodes):
        scores = cache.ask_chosen(tree, place, given)
        rows = DeviceRows(scores, positions=positions_at(s, tree, place), nodes=place, tree=tree)
        return DeviceDist(rows, np.arange(place.count), at=place)
    if not is_static(place):
        raise NotCapturable("a call at nodes that depend on data", op)
    ids = np.asarray(place, dtype=np.int64)
    flat = ids.reshape(-1)
    rows = DeviceRows(cache.ask(tree, flat, given), positions=positions_at(s, tree, flat), nodes=flat, tree=tree)
    return DeviceDist(rows, np.arange(len(flat)).reshape(ids.shape), at=ids if ids.ndim == 1 else None)


def positions_at(s: Any, tree: DeviceTree | None, nodes: Any) -> Tensor:
    """int64[B, R]: the index of the token that would be drawn after each node."""
    length: Tensor = s.length.long()[:, None]
    if tree is None:
        return length
    if isinstance(tree.depth, Tensor):
        depth = tree.depth
        return length + (depth.gather(1, nodes.ids) if isinstance(nodes, Nodes) else depth.index_select(1, s.constant(nodes)))
    return length + (s.constant(tree.depth)[nodes.ids] if isinstance(nodes, Nodes) else s.constant(tree.depth[nodes]))


@device("model.derive")
def derive(s: Any, op: Any, *operands: Any) -> Any:
    """A model that shares another's weights."""
    raise NotCapturable("a model that is derived from another", op)
