"""What a model holds of B sequences, and the cells of a step: committed tokens that it has not seen, then nodes of trees.

Let L be the number of committed tokens and h, `held`, how many of them the model keeps cells of. Its first forward of a step
computes the pending ones, h .. L - 1: at least one (the root's scores come from the last token's cell), and never more than
`span`, which the program's structure says: as many as a commit may leave behind. Fewer are padded. Nodes of trees come behind
them in the tail. When tokens are committed the cells of the accepted path that the model has computed are kept (`move`), and
what else it computed in the step is forgotten.

`span` is found by running turns (machine.py, `settled`): with the pending cells of a turn padded to what the one before can
leave, until that stays the same.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotStatic
from decgraph.backends.triton.step.values import Nodes, Path, Tree

WORD = 32


class Held:
    """One model's cells. `back`: how many of the committed tokens stay pending at least."""

    def __init__(self, s: Any, name: str, model: Any) -> None:
        self.s, self.name, self.model = s, name, model
        self.held: Tensor = s.buffer((s.frame.batch,), torch.int32)
        self.span, self.back = 1, 1
        self.width = 1        # words of bits; see `room`
        self.most = 1         # tail cells that a step has had at most
        self.keeps_paths = getattr(model, "keeps_paths", True)
        self.start()

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute the prompts but their last tokens."""
        self.model.begin(prompts)
        n = np.array([max(0, len(p) - self.back) for p in prompts], dtype=np.int32)
        self.held.copy_(torch.from_numpy(n))

    def start(self) -> None:
        """A new step: the tail is empty."""
        self.used = 0                              # tail cells given out
        self.asked = False                         # whether the pending ones are among them
        self.tail: dict[int, int] = {}             # uid of a node -> its tail index
        self.levels: list[Any] = []                # id arrays of nodes that were computed where data chose them
        self.tails: Tensor | None = None           # int64[B, U]: the same where data chose them; -1: not computed
        self.chosen: Tensor | None = None          # int32[B, cells, W]: bits of the tail's cells, then
        self.scores: dict[int, tuple[Tensor, int]] = {}   # uid -> scores and the row of it; -1: the root's

    # -- forwards
    def pending(self) -> Tensor:
        """int64[B]: how many committed tokens have no cell yet, 1 .. span."""
        return (self.s.length - self.held).clamp(1, self.span).long()

    def ask(self, tree: Tree | None, nodes: np.ndarray) -> Tensor:
        """Scores [B, F, V] after the context (node 0) and nodes of a tree of fixed structure."""
        s = self.s
        uids = [-1 if n == 0 or tree is None else int(tree.uid[n]) for n in nodes.tolist()]
        missing = [n for n, u in zip(nodes.tolist(), uids, strict=True) if u not in self.scores]
        if missing:
            self._compute(tree, np.array(missing, dtype=np.int64))
        first = self.scores[uids[0]][0]
        if all(self.scores[u][0] is first for u in uids):
            rows = np.array([self.scores[u][1] for u in uids])
            n = int(first.shape[1])
            return first if len(rows) == n and bool((rows == np.arange(n)).all()) else first.index_select(1, s.constant(rows))
        return torch.cat([self.scores[u][0][:, self.scores[u][1]:self.scores[u][1] + 1] for u in uids], 1)

    def _compute(self, tree: Tree | None, nodes: np.ndarray) -> None:
        """One forward over the pending cells, where they are not computed yet, and the nodes with their ancestors."""
        s, root = self.s, bool((nodes == 0).any())
        new = np.zeros(0, dtype=np.int64)
        if tree is not None:
            new = np.array([n for n in tree.ancestors(nodes) if int(tree.uid[n]) not in self.tail], dtype=np.int64)
        wanted = [n for n in nodes.tolist() if n and int(tree.uid[n]) in self.tail]  # type: ignore[union-attr]
        if wanted or (root and self.asked):
            raise NotStatic(f"`{self.name}` is asked again at a place whose cell it has computed without an answer")
        first, fresh = self.used, not self.asked
        lead = self.span if fresh else 0
        self.reserve(lead + len(new))
        for j, n in enumerate(new.tolist()):
            self.tail[int(tree.uid[n])] = first + lead + j  # type: ignore[union-attr]
        pend = self.pending()
        tokens, positions, bits = [], [], []
        if fresh:
            steps = s.steps(lead)
            at = self.held.long()[:, None] + steps
            tokens.append(s.tokens.gather(1, at.clamp(max=s.frame.capacity)))
            positions.append(at)
            bits.append(self.pending_bits(pend))
        if len(new):
            assert tree is not None
            tokens.append(tree.token.index_select(1, s.constant(new)))
            positions.append(s.length.long()[:, None] - 1 + s.constant(tree.depth[new]))
            own = s.constant(self.tree_bits(tree, new))[None]
            bits.append(own | self.below(pend))
        rows, place = self._rows(nodes, new, lead, pend, len(tokens) > 1 or fresh)
        scores = self.forward(torch.cat(tokens, 1) if len(tokens) > 1 else tokens[0],
                              torch.cat(positions, 1) if len(positions) > 1 else positions[0], first,
                              torch.cat(bits, 1) if len(bits) > 1 else bits[0], rows)
        for j, n in enumerate(place):
            self.scores[-1 if n == 0 or tree is None else int(tree.uid[n])] = (scores, j)
        self.asked = True

    def _rows(self, nodes: np.ndarray, new: np.ndarray, lead: int, pend: Tensor, some: bool) -> tuple[Tensor, list[int]]:
        """Which of the forward's cells are wanted, int64[B, R], and the nodes that they are of."""
        s, index = self.s, {int(n): lead + j for j, n in enumerate(new.tolist())}
        place = nodes.tolist()
        fixed = s.constant(np.array([0 if n == 0 else index[n] for n in place], dtype=np.int64))[None]
        if 0 not in place or self.span == 1:
            return fixed.expand(s.frame.batch, -1), place
        return torch.where(s.constant(nodes == 0)[None], pend[:, None] - 1, fixed), place

    def forward(self, tokens: Tensor, positions: Tensor, first: int, bits: Tensor, rows: Tensor) -> Tensor:
        """Scores [B, R, V] of one forward over new cells."""
        s = self.s
        bits = bits.expand(s.frame.batch, -1, -1).contiguous()
        out: Tensor = self.model.forward(tokens, positions, first, self.held, bits, rows.contiguous())
        return out

    def reserve(self, n: int) -> None:
        """n more tail cells."""
        self.used += n
        self.most = max(self.most, self.used)
        tail = getattr(self.model, "tail", None)
        if tail is not None and self.used > tail:
            raise NotStatic(f"a step of `{self.name}` has more than the {tail} cells that it was made for")
        self.width = max(self.width, -(-(tail or self.used) // WORD))

    # -- who sees whom
    def pending_bits(self, pend: Tensor) -> Tensor:
        """int32[B or 1, span, W]: pending cell j sees the first j + 1; a padded one nothing."""
        s, upto = self.s, first_bits(self.span, self.width)
        table = s.constant(upto[1:])[None]
        if self.span == self.back:
            return table       # as many are pending always
        return torch.where((s.steps(self.span) < pend[:, None])[..., None], table, 0)

    def below(self, pend: Tensor) -> Tensor:
        """int32[B or 1, 1, W]: the pending cells, which every node of a tree sees."""
        s, upto = self.s, first_bits(self.span, self.width)
        if self.span == self.back:
            return s.constant(upto[-1:])[None]
        return s.constant(upto)[pend][:, None]

    def tree_bits(self, tree: Tree, nodes: np.ndarray) -> np.ndarray:
        """int32[n, W]: the tail cells of the nodes and of their ancestors."""
        sees = np.zeros((len(nodes), self.width * WORD), dtype=bool)
        for i, n in enumerate(nodes.tolist()):
            while n:
                sees[i, self.tail[int(tree.uid[n])]] = True
                n = int(tree.parent[n])
        return packed(sees)

    # -- after a commit
    def settle(self, kept: Tensor, most: int, path: Path | None) -> None:
        """Tokens were committed: kept int32[B] of them (0 where a sequence stays as it is), at most `most`; `path` where they
        are one that was verified in this step. Called after the lengths have changed."""
        s = self.s
        if not self.asked:
            self.span += most
            return
        length = s.length
        pend = (length - kept - self.held).clamp(1, self.span)
        if path is None or not self.keeps_paths or not self.tail and self.tails is None:
            source, depth, behind = None, pend, most
        else:
            source, depth, behind = self._kept(path, pend)
        held = torch.minimum(self.held + depth, length - self.back).clamp(min=0)
        held = torch.where(kept > 0, held, self.held)
        if source is not None:
            self.model.move(self.held, source, torch.minimum(depth, held - self.held).clamp(min=0).to(torch.int32))
        self.held.copy_(held)
        self.span = max(behind, self.back)
        self.start()

    def _kept(self, path: Path, pend: Tensor) -> tuple[Tensor, Tensor, int]:
        """The tail cells of what stays, int64[B, span + D]; how many they are, int32[B]; and how many committed tokens may be
        without a cell."""
        s, tree = self.s, path.tree
        deepest = int(path.nodes.shape[1])
        if self.tails is None and tree.fixed:
            where = np.array([-1] + [self.tail.get(int(u), -1) for u in tree.uid[1:]], dtype=np.int64)
            cells = s.constant(where)[path.nodes.clamp(min=0)]
            behind = self._behind(tree, where)
        else:
            raise NotStatic("a tree that data chose")
        cells = torch.where(path.nodes > 0, cells, -1)
        run = (cells >= 0).long().cumprod(1).sum(1)
        lead = pend.long()[:, None]
        steps = s.steps(self.span + deepest)
        at = (steps - lead).clamp(0, max(deepest - 1, 0))
        source = torch.where(steps < lead, steps, cells.gather(1, at)) if deepest else steps.expand(s.frame.batch, -1)
        return source.clamp(min=0), (pend + run.to(torch.int32)), behind

    @staticmethod
    def _behind(tree: Tree, where: np.ndarray) -> int:
        """The most tokens of an accepted path, with the emitted one, behind the first without a cell."""
        lead = np.zeros(tree.size, dtype=np.int64)
        for n in range(1, tree.size):
            p = int(tree.parent[n])
            full = lead[p] == tree.depth[p]
            lead[n] = lead[p] + (1 if full and where[n] >= 0 else 0)
        return int((tree.depth - lead).max()) + 1

    def settle_at_end(self) -> None:
        """A step is over."""


def first_bits(n: int, width: int) -> np.ndarray:
    """int32[n + 1, W]: row i names the first i tail cells."""
    return packed(np.arange(width * WORD)[None] < np.arange(n + 1)[:, None])


def packed(sees: np.ndarray) -> np.ndarray:
    """bool[n, W * 32] as words int32[n, W]."""
    bits = sees.reshape(len(sees), -1, WORD).astype(np.uint32) << np.arange(WORD, dtype=np.uint32)
    return bits.sum(-1, dtype=np.uint32).view(np.int32)


__all__ = ["Held", "Nodes", "first_bits", "packed"]
