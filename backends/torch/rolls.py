"""Chains of drafts: a loop that asks a model at a tree's one leaf, draws, and grows the draw.

    repeat gamma:
        x ~ drafter(t.leaves)
        grow x

Run turn by turn, each turn makes an ask, rows, draws and a tree. The driver says such a loop to the machine as one thing, a
roll (`Rolls.roll`), and an engine that can (`CausalEngine.roll`) computes it cell after cell, asking back for each token only.
Tokens, laws, noise, statistics and events are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from decgraph.backends.torch import noise as stream
from decgraph.backends.torch.draws import Draws
from decgraph.backends.torch.ops.draws import draw
from decgraph.backends.torch.ops.trees import grow
from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.trees import Tree
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Op, Value
from decgraph.runtime.models.engine.ask import Roll


@dataclass(frozen=True)
class Chain:
    """A `for` op that is such a loop: the model, and the noise op of its draw."""

    model: Value
    noise: Op
    alone: bool


def chain_of(op: Op) -> Chain | None:
    """The chain that a `for` op is, or None. One tree is carried; its body is leaves, call, noise, draw, grow and no more."""
    region = op.regions[0]
    if op.attrs.get("stops") or op.attrs.get("lanes") or len(op.operands) != 3 or op.operands[2].type.elem != "tree":
        return None
    flat = list(_flattened(region.ops))
    body = [o for o in flat if o.opcode != "const"]
    if [o.opcode for o in body] not in (_SHAPE, _OTHER):
        return None
    found = {o.opcode: o for o in body}
    nodes, asked, noise, drawn, grown = (found[c] for c in _SHAPE)
    tree, same = region.args[1], _aliases(region.ops)
    plain = (
        nodes.attrs["which"] == "leaves"
        and same(nodes.operands[0]) is tree
        and tuple(asked.attrs.get("with", ())) == ("tree",)
        and not asked.attrs.get("part")
        and same(asked.operands[1]) is nodes.result
        and same(asked.operands[2]) is tree
        and same(drawn.operands[0]) is asked.result
        and same(drawn.operands[1]) is noise.result
        and same(grown.operands[0]) is tree
        and same(grown.operands[1]) is drawn.result
        and len(grown.operands) == 2
        and not grown.attrs.get("has_at")
        and not grown.attrs.get("columns")
        and not grown.attrs.get("chain")
        and same(region.yields[0]) is grown.results[0]
    )
    inside = {r for o in flat for r in o.results} | {tree}
    plain = plain and asked.operands[0] not in inside and not any(v in inside for v in noise.operands)
    return Chain(asked.operands[0], noise, not asked.attrs.get("joint")) if plain and len(drawn.operands) == 2 else None


_SHAPE = ["tree.nodes", "model.eval", "noise", "draw", "tree.grow"]
_OTHER = ["tree.nodes", "noise", "model.eval", "draw", "tree.grow"]


def _flattened(ops: Sequence[Op]) -> Sequence[Op]:
    """The ops, those of segments in place."""
    out: list[Op] = []
    for op in ops:
        out += _flattened(op.regions[0].ops) if op.opcode == "segment" else [op]
    return out


def _aliases(ops: Sequence[Op]) -> Callable[[Value], Value]:
    """Which value inside a segment one of its results is."""
    same: dict[Value, Value] = {}
    for op in ops:
        if op.opcode == "segment":
            inner = _aliases(op.regions[0].ops)
            same.update((r, inner(y)) for r, y in zip(op.results, op.regions[0].yields, strict=True))
    return lambda v: same.get(v, v)


@dataclass
class RollCall:
    """A waiting roll; see calls.Call."""

    machine: Any
    engine: Any
    roll: Roll
    alone: bool = False
    chosen: list[int] = field(default_factory=list)

    @property
    def kind(self) -> Any:
        """Calls of one kind are answered together."""
        return ("roll", len(self.roll.uids))

    @staticmethod
    def answer_all(calls: Sequence[RollCall]) -> list[Any]:
        """What each of several rolls of one engine and length gives."""
        got: list[Any] = calls[0].engine.roll([call.roll for call in calls])
        return got

    def answer_alone(self) -> Any:
        return self.take(self.answer_all([self])[0])

    def again(self) -> None:
        """To be asked from its start: forget what was chosen."""
        self.chosen.clear()

    def take(self, answer: Any) -> Any:
        """The scores [count, V]; raises what the engine answered with instead."""
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Rolls:
    """The part of the machine that drafts chains."""

    def roll(
        self: Any, model: Any, t: Tree, lo: int, hi: int, key_of: Callable[[int], NoiseKey], *, alone: bool = False
    ) -> Generator[Any, Any, Tree]:
        """The tree after the loop; `key_of(i)` is the noise of turn i. A generator of model calls."""
        leaves, length = t.leaves(), t.base.length
        leaf = int(leaves[0])
        depth = int(t.depth[leaf])
        count = min(hi - lo, self.room(t) - depth)
        over = bool(t.closes) and bool(t.closed(leaves[:1])[0])
        if count < 2 or len(leaves) > 1 or over or not hasattr(self.engine(model), "roll"):
            for i in range(lo, hi):
                if self.full(t, "leaves"):
                    break
                q = yield self.evaluate(model, t.leaves(), {"tree": t}, alone=alone)
                t, _ = grow(self, t, draw(self, q, key_of(i)))
            return t

        first = self.evaluate(model, leaves, {"tree": t})  # counts the first call
        chosen: list[int] = []
        nodes = np.concatenate(([leaf], np.arange(len(t), len(t) + count - 1)))
        root = self.path_to(length, t, leaf)

        def choose(scores: Any) -> int:
            """The token of the next draw, from its row's scores [1, V]."""
            j = len(chosen)
            rows = Rows(scores, self.request, label=model.name, path=lambda _: (*root, *chosen[:j]))
            points = rows.points("shaped")
            if points is None:
                q = stream.fetched(rows.face("shaped"))
                rows.looked_at(0)
                key = self.key(key_of(lo + j), (0,), length + depth + j, int(nodes[j]))
                points = stream.races(q, [key])
            else:
                rows.looked_at(0)
            chosen.append(int(points[0]))
            return chosen[j]

        uids = self.next_uids(count)
        scores = yield RollCall(self, first.engine, Roll(first.ask, uids.tolist(), choose, t.closes), alone, chosen)
        count = len(chosen)
        tokens, nodes, uids = np.array(chosen, dtype=np.int64), nodes[:count], uids[:count]
        depths = depth + 1 + np.arange(count)
        rows = Rows(
            scores,
            self.request,
            positions=length + depths - 1,
            nodes=nodes,
            label=model.name,
            path=lambda i: (*root, *chosen[:i]),
        )
        draws = Draws(tokens, rows, np.arange(count))
        tree = t.grow(draws, np.arange(count), tokens, nodes, depths, uids, np.full(count, np.nan), {}, [])
        last = np.array([len(tree) - 1])
        self.tally.drafted += count
        for j in range(count):
            if j:
                self.count_call(model, 1, depth + j)
            if self.listener is not None:
                self.grew(tree, np.array([len(t) + j]), draws, np.array([j]))
        return replace(tree, new=last, frontier=last)  # what the last turn grew
