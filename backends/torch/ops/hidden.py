"""Lowerings of ir/ops/hidden.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from decgraph.backends.torch.calls import Place, states_call
from decgraph.backends.torch.canvas_calls import read
from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import ids_of
from decgraph.backends.torch.events import count_call
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.trees import TorchPath, TorchTree
from decgraph.ir.data.hidden import states_value
from decgraph.ir.memo import memo_of
from decgraph.ir.values import Op
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.memories import inside, kept_rows
from decgraph.runtime.models.features import states_at
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import Memory, Model


@lowering("model.states")
def states(m: Machine, trunk: Model, place: Place, *rest: object, op: Op) -> np.ndarray:
    """The states [..., width] that a trunk computes at a place, or at the end (attribute each: at every token) of another text,
    on the keys and values that the target's engine keeps."""
    extra, each = dict(zip(op.attrs.get("named", ()), rest, strict=True)), bool(op.attrs.get("each"))
    if isinstance(place, Canvas):
        cells = read(place)
        base, at = len(cells) - len(place), extra.get("at")
        which = [base + int(i) for i in np.ravel(np.asarray(at))] if at is not None else range(base, len(cells))
        count_call(m, trunk, len(which), len(cells))
        return states_value(trunk.after(base).canvas_states(cells, which), (len(which),))
    if isinstance(place, TorchPath) or isinstance(place, list | np.ndarray) and "tree" not in extra:
        tokens = tuple(int(t) for t in ids_of(place))
        paths = [tokens[: i + 1] for i in range(len(tokens))] if each else [tokens]
        count_call(m, trunk, len(paths), sum(map(len, paths)))
        return states_value(trunk.hidden_states(paths), (len(paths),) if each else ())
    tree = extra.get("tree")
    assert isinstance(tree, TorchTree | None)
    call, shape = states_call(m, place, tree)
    count_call(m, trunk, len(call.rows), len(call.tokens))
    if not call.rows:
        return states_value([], shape)
    memory = extra.get("given")
    assert isinstance(memory, Remembered | None)
    on = (
        memory.value if trunk.kind == "features" and memory is not None else _memory_at(m, trunk.target_or_self(), call, memory)
    )
    return states_value(states_at(trunk, call.paths(), on), shape)


def _memory_at(m: Machine, model: Model, call: ForwardCall, memory: Remembered | None) -> Memory | None:
    """The memory that states are computed on. That of the target itself is what its engine has cached. Where nothing is given
    to the whole target, those rows are what it would compute."""
    target = model.root if isinstance(model, HFCausal) else model
    if memory is None and isinstance(model, HFCausal) and model.origin is None and len(call.context) > 1:
        memory = Remembered(model, call.context, len(call.context) - 1)
    if memory is None:
        return None
    whole = memory.plain and memory.model is target
    engine = m.engines[target] if whole and inside(call, memory) else None
    if not isinstance(engine, CausalEngine) or not isinstance(target, HFCausal):
        return memory.value
    length = min(memory.length, len(call.context))
    key = tuple(map(int, call.context[:length]))
    kept = memo_of(target).once("kept rows", dict[tuple[int, ...], Memory])
    if key not in kept:
        made = kept_rows(engine, replace(call, memory=replace(memory, length=length)), target)
        kept.clear()  # one context's at a time
        kept[key] = made
    return kept[key]


on_host("hidden.similarity", why="it is one number a state")
on_host("hidden.mean", why="states are on the host")
