"""Lowerings of ir/ops/heads.py: what heads say of the states of their target, or of hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.drafting import calls
from decgraph.backends.torch.calls import Place, states_call
from decgraph.backends.torch.events import count_call
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, TorchDist, empty
from decgraph.backends.torch.stores import ids_of
from decgraph.backends.torch.trees import TorchTree, filled
from decgraph.ir.data.hidden import joint
from decgraph.ir.values import Op
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Reading, valued


@runtime_checkable
class HasModule(Protocol):
    """A head that is read off given states (runtime/models/hf_heads.py)."""

    target: Model

    def of(self, states: Tensor) -> list[Any]: ...


@runtime_checkable
class HasStates(Protocol):
    """An engine that computes last states."""

    def states(self, calls: Sequence[ForwardCall]) -> list[Tensor | Exception]: ...


@lowering("head.score")
def score(m: Machine, head: Reading, place: Any, *rest: Any, op: Op) -> object:
    """The distributions that a head gives of hidden states."""
    return score_states(m, op, head, place, **dict(zip(op.attrs.get("named", ()), rest, strict=True)))


@lowering("head.read")
def read(m: Machine, head: Reading, place: Any, *rest: Any, op: Op) -> object:
    """What a head says, of the states that its target's engine keeps, or of hidden states."""
    if op.operands[1].type.elem == "hidden":
        return read_states(m, op, head, place, **dict(zip(op.attrs.get("named", ()), rest, strict=True)))
    return read_head(m, op, head, place, *(rest or (None,)))


@calls
def read_states(
    m: Machine, op: Op, head: Reading, states: np.ndarray, layer: int | None = None, token: object = None
) -> object:
    """The meaning of `head.read` of hidden states [..., width]."""
    rows = states.reshape(-1, states.shape[-1])
    count_call(m, head, len(rows), 0)
    values = head.of_states(rows, None if layer is None else int(layer), None if token is None else ids_of(token))
    return valued(m, op.result.type.elem, values, states.shape[:-1])


@calls
def score_states(
    m: Machine, op: Op, head: Reading, states: np.ndarray, layer: int | None = None, token: object = None
) -> TorchDist:
    """The meaning of `head.score` of hidden states [..., width]."""
    rows, length = states.reshape(-1, states.shape[-1]), len(m.tokens)
    count_call(m, head, len(rows), 0)
    beside = None if token is None else ids_of(token)
    found = head.scores_of(rows, None if layer is None else int(layer), beside, joint(op.operands[1].type))
    scores = torch.from_numpy(np.stack([np.asarray(s.to_float().logits) for s in found])) if found else empty(m.vocab_size)
    made = Rows(
        scores,
        m.request,
        positions=filled(len(rows), length),
        nodes=np.arange(len(rows)),
        label=head.name,
        path=Prefixes(m.text, length, lambda i: ()),
    )
    return TorchDist(made, np.arange(len(rows)).reshape(states.shape[:-1]), "shaped")


@calls
def read_head(m: Machine, op: Op, head: Reading, place: Place, tree: TorchTree | None) -> object:
    """The meaning of `head.read`: of a trained head on the last states that its target's engine computes or keeps."""
    call, shape = states_call(m, place, tree)
    count_call(m, head, len(call.rows), len(call.tokens))
    if not call.rows:
        return valued(m, op.result.type.elem, [], shape)
    engine = m.engines[head.target] if isinstance(head, HasModule) else None
    if not isinstance(engine, HasStates):
        return valued(m, op.result.type.elem, head.read(call.paths()), shape)
    with torch.no_grad():
        (states,) = engine.states([call])
    if isinstance(states, Exception):
        raise states
    return valued(m, op.result.type.elem, head.of(states), shape)
