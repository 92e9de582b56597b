"""What happens in a run, as statistics and as the events that its listener hears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from decgraph.backends.torch.canvases import Edit
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids
from decgraph.backends.torch.trees import TorchTree
from decgraph.ir.drafting import drafting
from decgraph.runtime import trace
from decgraph.runtime.models.interface import Model


def count_call(
    m: Machine,
    model: Model,
    rows: int,
    cells: int,
    computed: int | None = None,
    *,
    length: int = 0,
    heads: bool = False,
    drafts: bool = False,
) -> None:
    """Count a call: `rows` distributions from `cells` tokens, of which `computed` went through the model (None: all).
    length: of the context; one past the model's window is refused by its engine, and is no call. heads: of the model's Medusa
    heads, which draft. drafts: the model drafts for itself."""
    if m.uncounted or (model.context is not None and length > model.context):
        return
    whole = m if m.parent is None else m.whole
    target = model is whole.main and not heads and not drafts  # the first model of a sub-run may be the run's drafter
    name = model.name + ".heads" if heads else drafting(model.name) if drafts else model.name
    m.tally.call(name, target)
    if target and whole.second_call is None:
        whole.note_call(answered=model.kind == "masked")
    if m.listener is None:
        return
    role: Literal["target", "draft"] = "target" if target else "draft"
    m.emit_event(trace.ModelCall(name, rows, cells, role, computed))


def grew(m: Machine, tree: TorchTree, ids: Ids, draws: Draws, places: Ids) -> None:
    """Tells the listener of drafted nodes. ids, places: int[N], the nodes and which of the draws each is of."""
    if m.listener is None:
        return
    scores, probs = draws.prob(), draws.law_prob(m.request, m.vocab_size)  # of the whole growth at once
    for n, i in zip(ids.tolist(), places.tolist()):
        drawn = draws.items[i] if isinstance(draws, Mixed) else draws
        m.emit_event(
            trace.Drafted(
                n,
                int(tree.parent[n]),
                int(tree.token[n]),
                float(probs[i]),
                (drawn.rows.label if drawn.rows is not None else "") or "point",
                float(scores[i]),
                not drawn.point,
            )
        )


def grew_edits(m: Machine, tree: TorchTree, ids: Ids) -> None:
    """The events of edits that were drafted."""
    for n in ids.tolist():
        edit, parent, token = tree.edges[n], int(tree.parent[n]), int(tree.token[n])
        value = edit.value if isinstance(edit, Edit) else None
        if not isinstance(value, TorchDraws):
            m.emit_event(trace.Drafted(n, parent, token, 1.0, "point", drawn=False))
            continue
        label = value.rows.label if value.rows is not None else ""
        prob = float(value.law_prob(m.request, m.vocab_size))
        m.emit_event(trace.Drafted(n, parent, token, prob, label or "point", float(value.prob()), not value.point))


def pruned(m: Machine, before: TorchTree, nodes: Sequence[int]) -> None:
    """A tree was cut to those of its nodes, the root among them."""
    dropped = len(before) - len(nodes)
    if len(before.edges) > 1:  # some of its nodes are no draws
        dropped = sum(before.edges[n] is None for n in set(range(len(before))) - set(nodes))
    m.tally.drafted -= dropped
    if m.listener is not None:
        m.emit_event(trace.Pruned(tuple(nodes), dropped))


def unmasked(m: Machine, positions: Sequence[int] | Ids, tokens: Sequence[int] | Ids, draws: Draws | None) -> None:
    """Counts positions of a canvas that were decided, int[N], and tells the listener of them."""
    m.decided += len(positions)
    m.tally.unmasked += len(positions)
    if m.listener is None:
        return
    for n, (i, t) in enumerate(zip(positions, tokens)):
        d = None if draws is None else draws.pick(n) if draws.shape else draws
        m.emit_event(trace.Unmasked(int(i), int(t), 1.0 if d is None else float(d.prob())))


def masked_again(m: Machine, positions: Sequence[int] | Ids) -> None:
    """Counts positions of a canvas that were masked again, int[N], and tells the listener of them."""
    m.tally.remasked += len(positions)
    for i in positions:
        m.emit_event(trace.Remasked(int(i)))
