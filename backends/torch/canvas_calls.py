"""Calls of masked models by the torch machine: canvases, subsets of them, and their memories as values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import ids_of
from decgraph.backends.torch.events import count_call
from decgraph.backends.torch.pending import PendingCall, ResolvedCall
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, TorchDist
from decgraph.backends.torch.trees import TorchTree, canvas_at
from decgraph.runtime.models.attention_logits import AttentionLogits, check_layer, logits_of_queries, read_logits
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput, KeptMemory, MaskedEngine, SoftCells, fresh_of
from decgraph.runtime.models.engine.forward_call import Remembered
from decgraph.runtime.models.interface import MASK, Cell, Model, Number, SoftCell, mixture


class Extra(TypedDict, total=False):
    """The further operands of a call, beside its place."""

    tree: TorchTree
    memory: CanvasMemory | Remembered | None  # of a canvas the former
    at: np.ndarray
    after: object
    allow: np.ndarray | Tensor
    queries: bool


@dataclass(frozen=True)
class CanvasMemory:
    """A model's memory of a canvas, or a layer of it, and where the canvas starts in it. `only` and `without` speak of canvas
    positions, and `without` of those below 0 too, which are the context's. layers: how many the model has;
    attention_logits: see `read_logits`;
    which: the layer."""

    memory: KeptMemory
    base: int
    layers: int
    attention_logits: AttentionLogits | None = None
    which: int | None = None

    def restrict(self, positions: ArrayLike, kind: str) -> CanvasMemory:
        """With the canvas positions kept ("only") or dropped ("without")."""
        absolute = self.base + np.ravel(np.asarray(positions, dtype=np.int64))
        if kind == "only":
            return replace(self, memory=self.memory.only(np.concatenate((np.arange(self.base), absolute))))
        return replace(self, memory=self.memory.without(absolute))

    def join(self, other: CanvasMemory) -> CanvasMemory:
        return replace(self, memory=self.memory.join(other.memory))

    def layer(self, index: int) -> CanvasMemory:
        """One layer, to be cut and put back. Raises DecError for one that it does not have."""
        check_layer(index, self.layers, self.which)
        return replace(self, memory=self.memory[index], which=index)

    def put(self, part: CanvasMemory, index: int) -> CanvasMemory:
        """With one layer replaced, by a layer or by that layer of a memory. Raises DecError for one that it does not have."""
        check_layer(index, self.layers, self.which)
        return replace(self, memory=self.memory.with_layer(index, (part.layer(index) if part.which is None else part).memory))

    def scores(self, queries: object, at: object) -> Sequence[Number]:
        """The meaning of `memory.scores`."""
        return read_logits(self.attention_logits, self.which, self.base, queries, at)


def cells_of(engine: MaskedEngine, c: Canvas, before: Sequence[int]) -> tuple[np.ndarray, SoftCells | None]:
    """(int64[base + n], the soft cells or None) of a canvas after these tokens."""
    base = len(before)
    out = np.empty(base + len(c), dtype=np.int64)
    out[:base] = before
    out[base:] = np.where(c.token < 0, engine.mask, c.token)
    if not c.soft:
        return out, None
    at, weights, masks = [], [], []
    for i in sorted(c.soft):
        cell = mixture(c.soft[i].tolist())
        if not isinstance(cell, SoftCell):
            out[base + i] = cell if isinstance(cell, int) else engine.mask
            continue
        v = torch.as_tensor(c.soft[i], dtype=torch.float64)
        at.append(i)
        weights.append(v[:-1])
        masks.append(float(v[-1]))
    if not at:
        return out, None
    return out, ([base + i for i in at], torch.stack(weights), torch.tensor(masks, dtype=torch.float64))


def read(c: Canvas) -> tuple[Cell, ...]:
    """What a masked model reads: the context, then the canvas."""
    held = {i: mixture(v.tolist()) for i, v in c.soft.items()}
    return (*c.base.ids(), *(held.get(i, MASK if t < 0 else int(t)) for i, t in enumerate(c.token)))


def asked(
    m: Machine, engine: MaskedEngine, canvases: list[Canvas], extra: Extra, rows: Sequence[int], keep: bool
) -> CanvasCall:
    """The call of an engine."""
    first = canvases[0]
    before = first.base.ids() if "after" not in extra else ids_of(extra["after"])
    base, n = len(before), len(first)
    memory = extra.get("given")
    assert isinstance(memory, CanvasMemory | None)
    fresh, seen = fresh_of(base, n, None if "after" in extra else extra.get("at"), None if memory is None else memory.memory)
    made = [cells_of(engine, c, before) for c in canvases]
    cells = torch.from_numpy(made[0][0] if len(made) == 1 else np.stack([c for c, _ in made]))
    return CanvasCall(
        m.engines.sequence,
        cells,
        made[0][1] if len(made) == 1 else None,
        None if fresh is None else [int(i) for i in fresh],
        seen,
        rows,
        keep,
        name=f"request {m.request.request_id}",
        prompt=base,
    )


def evaluate_canvas(m: Machine, model: Model, place: Canvas | TorchTree, extra: Extra) -> PendingCall:
    """The meaning of `model.eval` on a canvas, at positions of one, or on every canvas of a tree."""
    tree = place if isinstance(place, TorchTree) else None
    nodes: list[Canvas] = [canvas_at(place, i) for i in range(len(place))] if isinstance(place, TorchTree) else [place]
    order: dict[Hashable, int] = {}
    canvases: list[Canvas] = []
    for c in nodes:
        if c.key() not in order:
            order[c.key()] = len(canvases)
            canvases.append(c)
    at, base, n = extra.get("at"), canvases[0].base.length, len(canvases[0])
    which = np.arange(n) if at is None else np.ravel(np.asarray(at, dtype=np.int64))
    read = base if "after" not in extra else len(ids_of(extra["after"]))
    engine = m.engines.masked(model)
    ask = asked(m, engine, canvases, extra, [read + int(i) for i in which], False)
    counted, width = not m.uncounted, len(which)

    def path(i: int) -> tuple[int, ...]:
        c = canvases[i // width] if width else canvases[0]
        cells = np.where(c.token < 0, m.mask_token, c.token)[: int(which[i % width])]
        return (*c.base.ids(), *(int(t) for t in cells))

    def finish(answer: object) -> TorchDist:
        assert isinstance(answer, CanvasOutput)
        if counted and answer.computed:  # a cached result is no call
            count_call(m, model, width * len(canvases), len(canvases) * (read + n), answer.computed)
        scores = answer.logits.reshape(-1, answer.logits.shape[-1])
        everywhere = np.tile(which, len(canvases))
        rows = Rows(scores, m.request, positions=base + everywhere, nodes=everywhere, path=path, label=model.name)
        if tree is None:
            return TorchDist(rows, np.arange(width), "shaped", None if at is None else which)
        index = np.stack([order[c.key()] * width + np.arange(width) for c in nodes])
        return TorchDist(rows, index, inner=None if at is None else which)

    return PendingCall(engine, ask.sequence, ask, finish)


def memory_of_canvas(m: Machine, model: Model, c: Canvas, extra: Extra) -> PendingCall | ResolvedCall:
    """The meaning of `model.memory` of a canvas."""
    base = c.base.length
    at = extra.get("at")
    engine = m.engines.masked(model)
    if at is not None and len(at) == 0 and extra.get("given") is None:
        return ResolvedCall(CanvasMemory(engine.empty(base + len(c)), base, model.layers))
    ask = asked(m, engine, [c], extra, [], True)
    counted = not m.uncounted

    attention_logits = logits_of_queries(model.after(base), read(c)) if extra.get("queries") else None

    def finish(answer: object) -> CanvasMemory:
        assert isinstance(answer, CanvasOutput)
        if counted and answer.computed:  # usually that of the call before, which the engine has cached
            count_call(m, model, 0, base + len(c), answer.computed)
        assert answer.memory is not None  # the call says `keep`
        return CanvasMemory(answer.memory, base, model.layers, attention_logits)

    return PendingCall(engine, ask.sequence, ask, finish)
