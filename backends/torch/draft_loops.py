"""Autoregressive draft loops (chains.py) as one model call.

Run iteration by iteration, each creates a request, rows, draws and a tree. Instead the driver calls `DraftLoops.draft_loop`
once, and an engine that can (`RollEngine`) computes the loop token after token with a callback that chooses each token. Tokens,
distributions, noise, statistics and events are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from decgraph.backends.torch import noise as stream
from decgraph.backends.torch.calls import below
from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.ops.draws import draw
from decgraph.backends.torch.ops.trees import grow
from decgraph.backends.torch.pending import DraftLoopCall, Pending, PendingCall
from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.randomness import Randomness
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.trees import TorchTree
from decgraph.ir.ops.draws import NoiseKey
from decgraph.runtime.models.engine.forward_call import DraftLoop, ForwardCall
from decgraph.runtime.models.interface import Model


class DraftLoops(Randomness):
    """Autoregressive draft loops of a run."""

    part: str = ""
    """The opcode of the part of a draft loop that runs, which is one statement of the driver; "" outside of one."""

    def at(self, part: str) -> None:
        """A part of a draft loop runs."""
        self.part = part
        if self.recorder is not None:
            for place in islice(self.places(), 1):
                self.recorder.ran(place)

    def draft_loop(
        self, model: Model, t: TorchTree, lo: int, hi: int, key_of: Callable[[int], NoiseKey], *, alone: bool = False
    ) -> Generator[Pending[Any], Any, TorchTree]:
        """The tree after the loop over lo .. hi - 1; `key_of(i)` is the noise of iteration i. A generator of model calls."""
        try:
            return (yield from self.drafted(model, t, lo, hi, key_of, alone))
        finally:
            self.part = ""

    def drafted(
        self, model: Model, t: TorchTree, lo: int, hi: int, key_of: Callable[[int], NoiseKey], alone: bool
    ) -> Generator[Pending[Any], Any, TorchTree]:
        """What `draft_loop` does, with `part` told."""
        leaves, length = t.leaves(), t.base.length
        leaf = int(leaves[0])
        depth = int(t.depth[leaf])
        count = min(hi - lo, self.room(t) - depth)
        over = bool(t.closes) and bool(t.closed(leaves[:1])[0])
        engine = self.draft_loop_engine(model)
        if count < 2 or len(leaves) > 1 or over or engine is None:
            for i in range(lo, hi):
                if self.full(t, "leaves"):
                    break
                self.at("model.eval")
                q = yield self.evaluate(model, t.leaves(), {"tree": t}, alone=alone)
                self.at("draw")
                x = draw(self, q, key_of(i))
                self.at("tree.grow")
                t, _ = grow(self, t, x)
            return t

        self.at("model.eval")
        first = self.evaluate(model, leaves, {"tree": t})  # counts the first call
        assert isinstance(first, PendingCall) and isinstance(first.ask, ForwardCall)
        chosen: list[int] = []
        nodes = np.concatenate(([leaf], np.arange(len(t), len(t) + count - 1)))
        root = below(t, leaf)
        ahead = stream.Ahead(lambda j: self.key(key_of(lo + j), (0,), length + depth + j, int(nodes[j])), count)

        def choose(scores: Any) -> int:
            """The token of the next draw, from its row's scores [1, V]."""
            j = len(chosen)
            rows = Rows(
                scores, self.request, label=model.name, path=Prefixes(self.text, length, lambda _: (*root, *chosen[:j]))
            )
            points = rows.points("shaped")
            if points is None:
                q = stream.fetched(rows.face("shaped"))
                rows.require_mass(0, "shaped")
                points = stream.races(q, (), partial(ahead.times, j))
            else:
                rows.require_mass(0, "shaped")
            chosen.append(int(points[0]))
            return chosen[j]

        uids = self.next_uids(count)
        scores = yield DraftLoopCall(
            engine, first.sequence, DraftLoop(first.ask, uids.tolist(), choose, t.closes), alone, chosen
        )
        count = len(chosen)
        tokens, nodes, uids = np.array(chosen, dtype=np.int64), nodes[:count], uids[:count]
        depths = depth + 1 + np.arange(count)
        rows = Rows(
            scores,
            self.request,
            positions=length + depths - 1,
            nodes=nodes,
            label=model.name,
            path=Prefixes(self.text, length, lambda i: (*root, *chosen[:i])),
        )
        draws = TorchDraws(tokens, rows, np.arange(count))
        tree = t.grow(draws, np.arange(count), tokens, nodes, depths, uids, np.full(count, np.nan), {}, [])
        last = np.array([len(tree) - 1])
        self.tally.drafted += count
        for j in range(count):
            if j:
                self.at("model.eval")
                self.count_call(model, 1, depth + j)
            self.at("draw")
            self.at("tree.grow")
            if self.listener is not None:
                self.grew(tree, np.array([len(t) + j]), draws, np.array([j]))
        tree = replace(tree, new=last, frontier=last)  # what the last iteration grew
        self.now(tree)
        return tree
