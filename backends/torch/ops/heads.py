"""Lowerings of ir/ops/heads.py: what heads say of the states of their target, or of hidden states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from decgraph.backends.run import calls
from decgraph.backends.torch.calls import Place, states_call
from decgraph.backends.torch.data import ids_of, whole
from decgraph.backends.torch.events import count_call
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, TorchDist, empty
from decgraph.backends.torch.trees import TorchTree, filled
from decgraph.ir.data.hidden import joint
from decgraph.ir.values import Op
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.hf_heads import HFReading
from decgraph.runtime.models.reading import Reading, valued


@lowering("head.score")
@calls
def score(m: Machine, head: Reading, states: np.ndarray, *rest: object, op: Op) -> TorchDist:
    """The distributions that a head gives of hidden states [..., width]."""
    rows, length = states.reshape(-1, states.shape[-1]), len(m.tokens)
    count_call(m, head, len(rows), 0)
    found = head.scores_of(rows, *_beside(op, rest), joint(op.operands[1].type))
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


@lowering("head.read")
@calls
def read(m: Machine, head: Reading, place: Place, *rest: object, op: Op) -> object:
    """What a head says, of the states that its target's engine keeps, or of hidden states."""
    elem = op.result.type.elem
    if op.operands[1].type.elem == "hidden":
        assert isinstance(place, np.ndarray)
        rows = place.reshape(-1, place.shape[-1])
        count_call(m, head, len(rows), 0)
        return valued(m, elem, head.of_states(rows, *_beside(op, rest)), place.shape[:-1])
    tree = rest[0] if rest else None
    assert isinstance(tree, TorchTree | None)
    call, shape = states_call(m, place, tree)
    count_call(m, head, len(call.rows), len(call.tokens))
    if not call.rows:
        return valued(m, elem, [], shape)
    engine = m.engines[head.target]
    if not isinstance(head, HFReading) or not isinstance(engine, CausalEngine):
        return valued(m, elem, head.read(call.paths()), shape)
    with torch.no_grad():
        (states,) = engine.states([call])
    if isinstance(states, Exception):
        raise states
    return valued(m, elem, head.of(states), shape)


def _beside(op: Op, rest: Sequence[object]) -> tuple[int | None, tuple[int, ...] | None]:
    """The layer and the tokens that a head is read for, as far as the program names them."""
    given = dict(zip(op.attrs.get("named", ()), rest, strict=True))
    layer, token = given.get("layer"), given.get("token")
    return None if layer is None else whole(layer), None if token is None else ids_of(token)
