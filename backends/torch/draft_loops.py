"""Autoregressive draft loops (`control_flow.chain_of`) as one model call.

Run iteration by iteration, each creates a request, rows, draws and a tree. Instead the driver calls `m.draft_loop` once, and an
engine with a KV cache (`CausalEngine`) computes the loop token after token with a callback that chooses each token. Tokens,
distributions, noise, statistics and events are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np
from torch import Tensor

from decgraph.backends.torch import noise as stream
from decgraph.backends.torch.calls import below, evaluate
from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.events import count_call, grew
from decgraph.backends.torch.ops.draws import draw
from decgraph.backends.torch.ops.trees import full, grow
from decgraph.backends.torch.pending import DraftLoopCall, PendingCall, Steps
from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchTree, filled
from decgraph.ir.ops.draws import NoiseKey
from decgraph.runtime.models.engine.forward_call import DraftLoop, ForwardCall
from decgraph.runtime.models.interface import Model
from decgraph.runtime.noise import Key


class Ahead:
    """The noise of draws that are made one after the other, with keys that do not depend on the draws: where the vocabulary is
    small it is computed for several at once, when the first of them is drawn. keys: a function of a draw's number; count: of
    them."""

    def __init__(self, keys: Callable[[int], Key], count: int) -> None:
        self._keys, self._count = keys, count
        self._made, self._first = np.empty((0, 0)), 0

    def times(self, draw: int, n: int) -> np.ndarray:
        """The arrival times of a draw, float64[1, n], for the caller to write to."""
        place = draw - self._first
        if not 0 <= place < len(self._made) or self._made.shape[1] != n:
            end = min(self._count, draw + max(1, 4 * stream.BLOCKS // max(n, 1)))
            self._made, self._first, place = stream.exponentials([self._keys(j) for j in range(draw, end)], n), draw, 0
        return self._made[place : place + 1].copy()


def at(m: Machine, part: str) -> None:
    """A part of a draft loop runs."""
    m.part = part
    if m.recorder is not None:
        for place in islice(m.places(), 1):
            m.recorder.ran(place)


def draft_loop(
    m: Machine, model: Model, t: TorchTree, lo: int, hi: int, key_of: Callable[[int], NoiseKey], *, alone: bool = False
) -> Steps[TorchTree]:
    """The tree after the loop over lo .. hi - 1; `key_of(i)` is the noise of iteration i. A generator of model calls."""
    try:
        return (yield from drafted(m, model, t, lo, hi, key_of, alone))
    finally:
        m.part = ""


def drafted(
    m: Machine, model: Model, t: TorchTree, lo: int, hi: int, key_of: Callable[[int], NoiseKey], alone: bool
) -> Steps[TorchTree]:
    """What `draft_loop` does, with `part` told."""
    leaves, length, size = t.leaves(), t.context.length, len(t)
    leaf = int(leaves[0])
    depth = int(t.depth[leaf])
    count = min(hi - lo, t.end - length - depth)
    over = bool(t.closes) and bool(t.closed(leaves[:1])[0])
    engine = m.engines.for_loops(model)
    if count < 2 or len(leaves) > 1 or over or engine is None:
        for i in range(lo, hi):
            if full(m, t, "leaves"):
                break
            at(m, "model.eval")
            q = yield evaluate(m, model, t.leaves(), {"tree": t}, alone=alone)
            at(m, "draw")
            x = draw(m, q, key_of(i))
            at(m, "tree.grow")
            t, _ = grow(m, t, x)
        return t

    at(m, "model.eval")
    first = evaluate(m, model, leaves, {"tree": t})  # counts the first call
    assert isinstance(first, PendingCall) and isinstance(first.ask, ForwardCall)
    chosen: list[int] = []
    nodes = np.concatenate(([leaf], np.arange(size, size + count - 1)))
    root = below(t, leaf)
    ahead = Ahead(lambda j: m.key(key_of(lo + j), (0,), length + depth + j, int(nodes[j])), count)

    def choose(scores: Tensor) -> int:
        """The token of the next draw, from its row's scores [1, V]."""
        j = len(chosen)
        rows = Rows(scores, m.request, label=model.name, path=Prefixes(m.text, length, lambda _: (*root, *chosen[:j])))
        points = rows.points("shaped")
        if points is None:
            q = fetched(rows.face("shaped"))
            rows.require_mass(0, "shaped")
            points = stream.races(q, (), partial(ahead.times, j))
        else:
            rows.require_mass(0, "shaped")
        chosen.append(int(points[0]))
        return chosen[j]

    uids = m.next_uids(count)
    scores = yield DraftLoopCall(engine, first.sequence, DraftLoop(first.ask, uids.tolist(), choose, t.closes), alone, chosen)
    assert isinstance(scores, Tensor)
    count = len(chosen)
    tokens, nodes, uids = np.array(chosen, dtype=np.int64), nodes[:count], uids[:count]
    depths = depth + 1 + np.arange(count)
    rows = Rows(
        scores,
        m.request,
        positions=length + depths - 1,
        nodes=nodes,
        label=model.name,
        path=Prefixes(m.text, length, lambda i: (*root, *chosen[:i])),
    )
    draws = TorchDraws(tokens, rows, np.arange(count))
    last = np.array([size + count - 1])  # what the last iteration grew
    tree = t.grow(draws, np.arange(count), tokens, nodes, depths, uids, filled(count, np.nan, np.float64), {}, [], new=last)
    m.tally.drafted += count
    heard = m.recorder is not None or m.listener is not None
    for j in range(count):
        if j:
            if heard:
                at(m, "model.eval")
            count_call(m, model, 1, depth + j)
        if heard:
            at(m, "draw")
            at(m, "tree.grow")
        if m.listener is not None:
            grew(m, tree, np.array([size + j]), draws, np.array([j]))
    m.now(tree)
    return tree
