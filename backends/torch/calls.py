"""Model calls of the torch machine: from a place to a request to an engine, and from its result to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from decgraph.backends.run import calls
from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import ids_of
from decgraph.backends.torch.events import count_call
from decgraph.backends.torch.pending import JoinedCall, PendingCall, ResolvedCall
from decgraph.backends.torch.prefixes import Context, Prefixes
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, Rows, TorchDist, empty
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchPath, TorchTree
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.interface import MASK, Cell, Model, SoftCell, mixture
from decgraph.runtime.result import ROWS

if TYPE_CHECKING:
    from decgraph.backends.torch.canvas_calls import Extra
    from decgraph.runtime.models.engine.canvas_call import CanvasCall

NOTHING: Extra = {}
Place = Context | TorchTree | TorchPath | Canvas | np.ndarray | int
"""Where a model is called: at a context, at the nodes of a tree, or on a canvas."""
_ROOT = np.zeros(1, dtype=np.int64)
_FIRST = np.zeros((), dtype=np.int64)


@calls
def evaluate_together(
    m: Machine, model: Model, parts: tuple[tuple[Place, Extra], ...], *, alone: bool = False
) -> JoinedCall | ResolvedCall:
    """The meaning of `model.evals`: parts under one context become one forward call over one tree, whose draws
    stay separate."""
    m.uncounted = True
    try:
        calls = [evaluate(m, model, place, extra) for place, extra in parts]
    finally:
        m.uncounted = False
    asked = [c for c in calls if isinstance(c, PendingCall)]
    new = [_fresh(c.ask) for c in asked]
    computed = None if all(n is None for n in new) else sum(_cells(c.ask) if n is None else n for n, c in zip(new, asked))
    count_call(m, model, sum(len(c.ask.rows) for c in asked), sum(_cells(c.ask) for c in asked), computed)
    if not asked:
        return ResolvedCall(tuple(c.value for c in calls if isinstance(c, ResolvedCall)))
    of_trees = [c.ask for c in asked if isinstance(c.ask, ForwardCall)]
    merged = _merged(of_trees) if len(of_trees) == len(asked) else None
    return JoinedCall(asked[0].engine, m.engines.sequence, calls, merged, alone)


def tail_of(
    place: Place, tree: TorchTree | None
) -> tuple[int, TorchTree | None, Ids, list[int], list[int], tuple[int, ...], Ids]:
    """(context length, tree or None, the drafted nodes that are read, each one's parent among them, wanted rows, shape, wanted
    nodes) of a place. A parent and a row are -1 where they are the context's end."""
    if isinstance(place, Context):
        return place.length, None, _ROOT[:0], [], [-1], (), _ROOT
    if isinstance(place, TorchTree):
        nodes = np.arange(len(place.parent))
        return place.context.length, place, nodes[1:], (place.parent[1:] - 1).tolist(), (nodes - 1).tolist(), nodes.shape, nodes
    ids = np.asarray(place, dtype=np.int64)
    assert tree is not None
    needed = np.zeros(len(tree.parent), bool)
    needed[0] = True
    nodes = above = ids.reshape(-1)
    while not needed[above].all():  # the wanted nodes and their ancestors
        needed[above] = True
        above = tree.parent[above]
    row, tail = needed.cumsum() - 2, needed.nonzero()[0][1:]
    return tree.context.length, tree, tail, row[tree.parent[tail]].tolist(), row[nodes].tolist(), ids.shape, nodes


@calls
def evaluate(
    m: Machine,
    model: Model,
    place: Place,
    extra: Extra = NOTHING,
    *,
    part: Literal["heads"] | None = None,
    alone: bool = False,
    drafts: bool = False,
) -> PendingCall | ResolvedCall:
    """The meaning of `model.eval`: a pending call, whose value is a TorchDist. Raises DecError for a path."""
    if isinstance(place, TorchPath):
        raise DecError("a model is called at a context, at nodes of a tree or on a canvas, not at a path")
    if isinstance(place, Canvas) or (isinstance(place, TorchTree) and isinstance(place.base, Canvas)):
        from decgraph.backends.torch.canvas_calls import evaluate_canvas

        call = evaluate_canvas(m, model, place, extra)
        call.alone = alone
        return call
    length, tree, tail, parents, wanted, shape, nodes = tail_of(place, extra.get("tree"))
    at = nodes if len(shape) == 1 and place is not tree else None
    if not wanted:
        none = np.zeros(shape if part is None else (*shape, 0), dtype=np.int64)
        return ResolvedCall(TorchDist(Rows(empty(m.vocab_size), m.request), none, "shaped", at))
    tokens, uids = ([], []) if tree is None else (tree.token[tail].tolist(), tree.uid[tail].tolist())
    soft: dict[int, Cell] = {}
    below_soft: frozenset[int] = frozenset()
    if tree is not None and len(tree.edges) > 1:  # some of its nodes are no draws
        soft, below_soft = mixtures_of(model, tree, tail), softly(tree, nodes)
        for i, cell in soft.items():
            if isinstance(cell, int):
                tokens[i] = cell
    context = m.tokens if length == len(m.tokens) else m.tokens[:length]
    memory = extra.get("given")
    assert isinstance(memory, Remembered | None)
    ask = ForwardCall(
        m.engines.sequence,
        context,
        m.marks,
        tokens,
        parents,
        uids,
        wanted,
        part or "logits",
        memory=memory,
        name=m.title,
        soft={i: cell for i, cell in soft.items() if isinstance(cell, SoftCell)} if soft else {},
    )
    count_call(m, model, len(wanted), len(tail), length=length, heads=part is not None, drafts=drafts)

    def finish(scores: object) -> TorchDist:
        assert isinstance(scores, Tensor)
        if part == "heads":
            n = int(scores.shape[0]) // len(wanted)  # a row for each head, node by node
            deep = np.zeros(1, dtype=np.int64) if tree is None else tree.depth[nodes]
            positions = (length + 1 + deep[:, None] + np.arange(n)).reshape(-1)
            rows = Rows(
                scores,
                m.request,
                positions=positions,
                path=Prefixes(m.text, length, lambda i: below(tree, int(nodes[i // n]))),
                allow=_for_heads(extra.get("allow"), n),
                label=model.name,
            )
            return TorchDist(rows, np.arange(len(wanted) * n).reshape(*shape, n), "shaped", at)
        rows = Rows(
            scores,
            m.request,
            positions=np.array([length]),
            nodes=nodes,
            tree=tree,
            allow=extra.get("allow"),
            label=model.name,
            path=Prefixes(m.text, length, lambda i: below(tree, int(nodes[i])), below_soft),
        )
        return TorchDist(rows, np.arange(len(wanted)).reshape(shape) if shape else _FIRST, "shaped", at)

    return PendingCall(m.engines[model], m.engines.sequence, ask, finish, alone)


def states_call(m: Machine, place: Place, tree: TorchTree | None) -> tuple[ForwardCall, tuple[int, ...]]:
    """The call of an engine for states at a place, or at the end of a path below the context; and the place's shape."""
    shape: tuple[int, ...] = ()
    if isinstance(place, TorchPath):
        length, tokens, count = len(m.tokens), list(place.tokens), len(place.tokens)
        parents, uids, wanted = [*range(-1, count - 1)], [-1] * count, [count - 1]
    else:
        length, tree, tail, parents, wanted, shape, _ = tail_of(place, tree)
        tokens, uids = ([], []) if tree is None else (tree.token[tail].tolist(), tree.uid[tail].tolist())
    call = ForwardCall(m.engines.sequence, m.tokens[:length], m.marks, tokens, parents, uids, wanted, name=m.title)
    return call, shape


def path_to(m: Machine, length: int, tree: TorchTree, node: int) -> tuple[int, ...]:
    """The tokens of the state at a node."""
    return (*m.tokens[:length], *below(tree, node))


def path_of_place(m: Machine, place: Place, tree: TorchTree | None) -> tuple[int, ...]:
    """The tokens of a context, of a node of a tree, or in the place of a context. Raises DecError below a soft node."""
    if isinstance(place, Context):
        return tuple(place.ids())
    if tree is None:
        return tuple(int(t) for t in ids_of(place))
    node = int(np.ravel(np.asarray(place))[0])
    if tree.soft(tree.path_nodes(node)):
        raise DecError("a memory is of tokens, and a soft node has none", hint="call the model at the node")
    return path_to(m, tree.context.length, tree, node)


@calls
def memory(
    m: Machine, model: Model, place: Place, extra: Extra = NOTHING, *, alone: bool = False
) -> PendingCall | ResolvedCall | Remembered:
    """The meaning of `model.memory`: of a context or node its description, computed when it is read (engines keep it anyway);
    of a canvas a pending call. The memory of an empty context (`ctx.parent` after a prompt of one token) holds nothing.
    Raises DecError for a model without a memory."""
    if isinstance(place, Canvas):
        from decgraph.backends.torch.canvas_calls import memory_of_canvas

        call = memory_of_canvas(m, model, place, extra)
        if isinstance(call, PendingCall):
            call.alone = alone
        return call
    if type(model).memory is Model.memory:
        model.memory(())  # raises: it has none
    tokens: Sequence[int]
    if isinstance(place, Context):
        length, tokens = place.length, m.tokens
    else:
        tokens = path_of_place(m, place, extra.get("tree"))
        length = len(tokens)
    memory = extra.get("given")
    assert isinstance(memory, Remembered | None)
    return memory if memory is not None and not length else Remembered(model, tokens, length, memory)


@calls
def read_tokens(
    m: Machine, model: Model, tokens: object, memory: Remembered | None = None, *, each: bool = False, alone: bool = False
) -> PendingCall | ResolvedCall:
    """The meaning of `model.read`. Raises DecError for no tokens at all."""
    text = tuple(int(t) for t in ids_of(tokens))
    if not text and each:
        none = np.zeros(0, dtype=np.int64)
        return ResolvedCall(TorchDist(Rows(empty(m.vocab_size), m.request), none, "shaped"))
    if not text:
        raise DecError(f"{model.name!r} needs at least one token of context")
    engine = m.engines.causal(model)
    key = m.second_contexts[model].key(m.engines.sequence, text[:1] if each else text)
    # The engine compares only the end of a context with what it has: texts that differ further up are told apart here.
    engine.rewind(key, text)
    n = len(text) if each else 1
    if each:  # a row is computed for drafts below a context: all but the first token are such a chain, which is not cached
        ask = ForwardCall(key, text[:1], (), text[1:], range(-1, n - 2), [-1] * (n - 1), range(-1, n - 1), name=m.title)
    else:
        ask = ForwardCall(key, text, memory=memory, name=m.title)
    count_call(m, model, n, len(text), length=len(text))
    length = len(m.tokens)
    own = m.main is None or model.vocab == m.main.vocab
    request = m.request if own else m.request.elsewhere

    def finish(scores: object) -> TorchDist:
        assert isinstance(scores, Tensor)
        rows = Rows(
            scores,
            request,
            positions=np.full(n, length),
            nodes=np.arange(n),
            label=model.name,
            path=Prefixes(m.text, length, lambda i: ()),
        )
        return TorchDist(rows, np.arange(n) if each else np.zeros((), dtype=np.int64), "shaped")

    return PendingCall(engine, key, ask, finish, alone)


def own_logits(m: Machine, begin: int, end: int) -> Iterator[np.ndarray]:
    """The main model's own logits float32 [n, V] before each of the tokens from `begin` to `end`. These are called as a
    chain of drafts below the tokens before them, whose keys and values are still in the cache."""
    assert m.main is not None
    tokens, uids = m.tokens, range(1 << 40, (1 << 40) + end - begin)  # no draft of the run has these
    for first in range(begin, end, ROWS):
        count = min(ROWS, end - first)
        engine = m.engines.causal(m.main)  # of a causal model: session.py refuses others
        (made,) = engine.compute(
            [
                ForwardCall(
                    m.engines.sequence,
                    tokens[:first],
                    [-1] * begin + list(uids[: first - begin]),
                    tokens[first : first + count - 1],
                    range(-1, count - 2),
                    uids[first - begin : first - begin + count - 1],
                    range(-1, count - 1),
                    name=m.title,
                )
            ]
        )
        if isinstance(made, Exception):
            raise made
        yield fetched(made)


def paths_of(m: Machine, at: Sequence[object], n: int) -> list[tuple[int, ...]]:
    """The paths of a place that `warp` names."""
    if isinstance(at[0], Context):
        return [at[0].ids()] * n
    if isinstance(at[0], TorchTree):
        return [path_to(m, at[0].context.length, at[0], i) for i in range(len(at[0]))]
    tree = at[1]
    assert isinstance(tree, TorchTree)
    return [path_to(m, tree.context.length, tree, int(i)) for i in np.ravel(np.asarray(at[0]))]


def below(tree: TorchTree | None, node: int) -> tuple[int, ...]:
    """The draft tokens of a tree from its root (without it) down to a node, without its soft nodes; none without a tree."""
    if tree is None or node == 0:
        return ()
    nodes = tree.path_nodes(node)[1:]
    soft = tree.soft(nodes)
    return tuple(tree.token[[n for i, n in enumerate(nodes) if i not in soft]].tolist() if soft else tree.token[nodes].tolist())


def softly(tree: TorchTree, nodes: np.ndarray) -> frozenset[int]:
    """The places among nodes int64[n] of those that are soft, or below one that is."""
    return frozenset(i for i, n in enumerate(nodes) if tree.soft(tree.path_nodes(int(n))))


def mixtures_of(model: Model, tree: TorchTree, tail: Ids) -> dict[int, Cell]:
    """What a call reads at the soft nodes of its tail, by their places in it. Raises DecError for a model that reads tokens
    only."""
    found = tree.soft(tail)
    if found and model.kind != "causal":
        raise DecError(f"{model.name!r} reads tokens, and a soft node has none", hint="call a causal model there")
    cells = {i: mixture(e) for i, e in found.items()}
    if MASK in cells.values():
        raise DecError(f"{model.name!r} is causal: it has no mask", hint="an embedding of tokens")
    return cells


def _cells(ask: ForwardCall | CanvasCall) -> int:
    return len(ask.tokens) if isinstance(ask, ForwardCall) else int(ask.cells.numel())


def _fresh(ask: ForwardCall | CanvasCall) -> int | None:
    """How many positions of a canvas a call computes that reads the others from a memory; None for other calls."""
    return None if isinstance(ask, ForwardCall) or ask.memory is None or ask.fresh is None else len(ask.fresh)


def _merged(asks: list[ForwardCall]) -> ForwardCall | None:
    """One forward call for several under the same context, their trees side by side; None where the contexts differ."""
    first = asks[0]
    if any(len(a.context) != len(first.context) or a.part != "logits" or a.memory is not None or a.soft for a in asks):
        return None
    tokens: list[int] = []
    parents: list[int] = []
    uids: list[int] = []
    rows: list[int] = []
    for a in asks:
        n = len(tokens)
        tokens += a.draft_tokens()
        parents += [p if p < 0 else p + n for p in a.parents]
        uids += a.uids
        rows += [r if r < 0 else r + n for r in a.rows]
    return ForwardCall(first.sequence, first.context, first.marks, tokens, parents, uids, rows, name=first.name)


def _for_heads(allow: np.ndarray | Tensor | None, heads: int) -> np.ndarray | Tensor | None:
    """Masks of allowed tokens by node, repeated for the heads of each node; a mask for all nodes stays as it is."""
    return allow if allow is None or allow.ndim < 2 else np.repeat(np.reshape(allow, (-1, np.shape(allow)[-1])), heads, axis=0)
