"""The KV cache of a model for B sequences, and the tail of a step: committed tokens that are not cached, then nodes of trees.

Let L be the number of committed tokens and h, `cached`, how many of them are cached. The model's first forward of a step
computes the uncached ones, h .. L - 1: at least one (the root's scores are computed at the last token), and at most
`most_uncached`, which follows from the program's structure: as many as a commit may leave uncached. Fewer are padded. Nodes of
trees follow them in the tail. When tokens are committed the computed slots of the accepted path are kept (`move`), and the
others are dropped.

`most_uncached` is found by running iterations on shapes (why.py), with the uncached tokens of each padded to the most that the
one before can leave, until that stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.launch import compact_cache, new_cells
from decgraph.backends.triton.step.values import DevicePath, DeviceTree, Nodes

WORD = 32


class DeviceCache:
    """One model's KV cache. `back`: the least number of committed tokens that stay uncached."""

    def __init__(self, s: Any, name: str, model: Any) -> None:
        self.s, self.name, self.model = s, name, model
        self.cached: Tensor = s.buffer((s.frame.batch,), torch.int32)
        self.most_uncached, self.back = 1, 1
        self.width = 1  # words of bits; see `room`
        self.most = 1  # the most tail slots that a step has used
        self.keeps_paths = getattr(model, "keeps_paths", True)
        self.start()

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute the prompts but their last tokens."""
        self.model.begin(prompts)
        n = np.array([max(0, len(p) - self.back) for p in prompts], dtype=np.int32)
        self.cached.copy_(torch.from_numpy(n))

    def start(self) -> None:
        """A new step: the tail is empty."""
        self.used = 0  # tail slots in use
        self.asked = False  # whether the uncached tokens are among them
        self.tail: dict[int, int] = {}  # uid of a node -> its tail index
        self.tails: Tensor | None = None  # int64[B, U], by uid, where the choice of nodes depends on data; -1: not computed
        self.chosen: list[Any] = []  # Nodes that were computed, and trees that were as a whole
        self.scores: dict[Any, tuple[Tensor, int]] = {}  # call -> its scores and row; -1: the root

    # -- forwards
    def ask(self, tree: DeviceTree | None, nodes: np.ndarray, given: Tensor | None = None) -> Tensor:
        """Scores [B, F, V] after the context (node 0) and static nodes."""
        s = self.s
        uids = [-1 if n == 0 or tree is None else int(tree.uid[n]) for n in nodes.tolist()]
        missing = np.array([n for n, u in zip(nodes.tolist(), uids, strict=True) if u not in self.scores], dtype=np.int64)
        if len(missing):
            scores = self._known(tree, missing, given)
            for j, n in enumerate(missing.tolist()):
                self.scores[-1 if n == 0 or tree is None else int(tree.uid[n])] = (scores, j)
        first = self.scores[uids[0]][0]
        if all(self.scores[u][0] is first for u in uids):
            rows = np.array([self.scores[u][1] for u in uids])
            n = int(first.shape[1])
            return first if len(rows) == n and bool((rows == np.arange(n)).all()) else first.index_select(1, s.constant(rows))
        return torch.cat([self.scores[u][0][:, self.scores[u][1] : self.scores[u][1] + 1] for u in uids], 1)

    def ask_chosen(self, tree: DeviceTree, nodes: Nodes, given: Tensor | None = None) -> Tensor:
        """Scores [B, F, V] after data-dependent nodes. Raises NotCapturable where their ancestors may not be computed."""
        s = self.s
        if nodes.within is None or tree.origin is not None:
            raise NotCapturable(f"`{self.name}` is called at nodes that are chosen among unknown ones")
        self.need(tree, nodes.within)
        n, first = nodes.count, self.used + (0 if self.asked else self.most_uncached)
        uid = s.constant(tree.uid)[nodes.ids]
        cells = s.constant(first + np.arange(n))
        tails = self.table()
        self.tails = tails.scatter(1, uid, cells.expand(s.frame.batch, -1))
        scores = self._forward(tree, nodes.ids, n, given, np.arange(n))
        self.chosen.append(nodes)
        return scores

    def ask_pruned(self, tree: DeviceTree, given: Tensor | None = None) -> Tensor:
        """Scores [B, N, V] after all nodes of a tree whose pruning depends on data."""
        s, n = self.s, tree.size - 1
        ids = s.constant(np.arange(1, n + 1))[None].expand(s.frame.batch, -1)
        first = self.used + (0 if self.asked else self.most_uncached)
        self.tails = self.table().scatter(1, self.uids(tree)[:, 1:], s.constant(first + np.arange(n)).expand(s.frame.batch, -1))
        if self.asked:
            raise NotCapturable(f"`{self.name}` is called on a pruned tree after another call")
        scores = self._forward(tree, ids, n, given, np.arange(-1, n))
        self.chosen.append(tree)
        return scores

    def above(self, tree: DeviceTree, nodes: np.ndarray) -> np.ndarray:
        """int64[n]: the nodes int64[m] and all that may be their ancestors but the root, in order. Raises NotCapturable where
        those depend on data and this model has not computed them."""
        needed, more = set(nodes[nodes > 0].tolist()), [nodes]
        while more:
            for found in tree.hangs_from(more.pop()):
                if isinstance(found, Nodes):
                    if not any(found is c for c in self.chosen):
                        raise NotCapturable(f"`{self.name}` has not computed nodes whose choice depends on data")
                    continue
                fresh = [n for n in np.unique(found).tolist() if n and n not in needed]
                needed.update(fresh)
                more += [np.array(fresh, dtype=np.int64)] if fresh else []
        return np.array(sorted(needed), dtype=np.int64)

    def need(self, tree: DeviceTree, nodes: np.ndarray) -> None:
        """Raises NotCapturable where ancestors of the nodes may not be computed."""
        if any(int(tree.uid[n]) not in self.tail for n in self.above(tree, nodes).tolist() if n not in nodes):
            raise NotCapturable(f"`{self.name}` has not computed the ancestors of the nodes that it is called at")

    def _known(self, tree: DeviceTree | None, nodes: np.ndarray, given: Tensor | None) -> Tensor:
        """Scores [B, F, V] at static nodes: one forward over the uncached tokens, the nodes and their ancestors, as far as they
        are not computed yet."""
        root = bool((nodes == 0).any())
        wanted: list[int] = nodes.tolist()
        new = np.zeros(0, dtype=np.int64)
        if tree is not None:
            every = tree.ancestors(nodes) if tree.fixed else self.above(tree, nodes)
            new = np.array([n for n in every.tolist() if int(tree.uid[n]) not in self.tail], dtype=np.int64)
        if (root and self.asked) or any(n and n not in new for n in wanted):
            raise NotCapturable(f"`{self.name}` is called again at a node that it has computed without scores")
        first = self.used + (0 if self.asked else self.most_uncached)
        for j, n in enumerate(new.tolist()):
            self.tail[int(tree.uid[n])] = first + j  # type: ignore[union-attr]
        index = {int(n): j for j, n in enumerate(new.tolist())}

        wanted_cells = np.array([-1 if n == 0 else index[n] for n in wanted], dtype=np.int64)
        return self._forward(tree, new, len(new), given, wanted_cells)

    def _forward(self, tree: DeviceTree | None, new: Any, count: int, given: Tensor | None, wanted: np.ndarray) -> Tensor:
        """One forward over the uncached tokens, where they are not computed yet, and `count` nodes (NumPy int64[n] or int64[B,
        n]), whose tail indices are reserved already, in this order. wanted: the nodes whose scores are returned, -1 for the
        last uncached token."""
        s, first = self.s, self.used
        lead = 0 if self.asked else self.most_uncached
        self.reserve(lead + count)
        if count and tree is not None:
            if isinstance(new, Tensor):
                ids = new
                depth = tree.depth.gather(1, new) if isinstance(tree.depth, Tensor) else s.constant(tree.depth)[new]
            else:
                ids = s.constant(new[None])
                known = not isinstance(tree.depth, Tensor)
                depth = s.constant(tree.depth[new][None]) if known else tree.depth.index_select(1, ids[0])
            token, own = tree.token, self.tree_bits(tree, new)
        else:
            ids = depth = s.constant(np.zeros((1, 1), dtype=np.int64))
            token, own = s.tokens, s.constant(np.zeros((1, 1, self.width), dtype=np.int32))
        cells = s.constant(np.where(wanted < 0, -1, wanted + lead))
        tokens, positions, bits, rows = new_cells(
            s.tokens,
            s.length,
            self.cached,
            token.contiguous(),
            ids,
            depth,
            own,
            cells,
            count=count,
            lead=lead,
            most_uncached=self.most_uncached,
        )
        self.asked = True
        more = {} if given is None else {"given": given}
        scores: Tensor = self.model.forward(tokens, positions, first, self.cached, bits, rows, **more)
        return scores

    def reserve(self, n: int) -> None:
        """n more tail cells."""
        self.used += n
        self.most = max(self.most, self.used)
        tail = getattr(self.model, "tail", None)
        if tail is not None and self.used > tail:
            raise NotCapturable(f"a step of `{self.name}` needs more than its {tail} tail slots")
        self.width = max(self.width, -(-(tail or self.used) // WORD))

    # -- attention masks
    def tree_bits(self, tree: DeviceTree, nodes: Any) -> Tensor:
        """int32[B or 1, n, W]: the tail slots of nodes and of their ancestors, as bits."""
        s = self.s
        if tree.fixed and self.tails is None and not isinstance(nodes, Tensor):
            sees = np.zeros((len(nodes), self.width * WORD), dtype=bool)
            for i, n in enumerate(nodes.tolist()):
                while n:
                    sees[i, self.tail[int(tree.uid[n])]] = True
                    n = int(tree.parent[n])
            return s.constant(packed(sees))[None]
        b, n = s.frame.batch, tree.size
        one = np.zeros((self.used + 1, self.width * WORD), dtype=bool)
        one[np.arange(1, self.used + 1), np.arange(self.used)] = True
        bits = s.constant(packed(one))[self.cells(tree).expand(b, -1) + 1]  # [B, N, W]; the root has none
        above = tree.parent if isinstance(tree.parent, Tensor) else s.constant(tree.parent)[None].expand(b, n)
        reach = 1
        while reach <= tree.height:  # every iteration doubles how far up the bits reach
            bits = bits | bits.gather(1, above[..., None].expand(-1, -1, self.width))
            above = above.gather(1, above)
            reach *= 2
        where = nodes if isinstance(nodes, Tensor) else s.constant(nodes)[None].expand(b, -1)
        return bits.gather(1, where[..., None].expand(-1, -1, self.width))

    def table(self) -> Tensor:
        """int64[B, U]: tail indices by uid, -1 for nodes that are not computed, for all uids."""
        s = self.s
        n = 0 if self.tails is None else int(self.tails.shape[1])
        if self.tails is not None and n == s.uids:
            return self.tails
        fresh = s.constant(np.full((s.frame.batch, s.uids - n), -1, dtype=np.int64))
        return fresh if self.tails is None else torch.cat([self.tails, fresh], 1)

    def uids(self, tree: DeviceTree) -> Tensor:
        """int64[B, N]: the uid of every node, -1 for the root."""
        known = self.s.constant(tree.uid)
        return known[None].expand(self.s.frame.batch, -1) if tree.origin is None else known[tree.origin]

    def cells(self, tree: DeviceTree) -> Tensor:
        """int64[B or 1, N]: the tail index of every node, -1 for the root and for nodes that are not computed."""
        s = self.s
        known = np.full(s.uids + 1, -1, dtype=np.int64)
        for uid, cell in self.tail.items():
            known[uid] = cell
        if tree.origin is None and self.tails is None:
            return s.constant(known[tree.uid][None])  # uid -1, the root's, indexes the last entry, which is -1
        uid = self.uids(tree)
        out = s.constant(known)[torch.where(uid < 0, s.uids, uid)]
        if self.tails is None:
            return out
        here = self.table().gather(1, uid.clamp(min=0))
        return torch.where(uid < 0, -1, torch.where(here >= 0, here, out))

    # -- after a commit
    def compact(self, kept: Tensor, most: int, path: DevicePath | None) -> None:
        """Compact the cache after a commit of kept int32[B] tokens (0 for a sequence that is over), at most `most`; `path`: the
        verified path of this step, if that was committed. Called after the lengths have changed."""
        s = self.s
        if not self.asked:
            self.most_uncached += most
            return
        if path is None or not self.keeps_paths or not self.tail and self.tails is None:
            source, count, after = compact_cache(
                s.length, self.cached, kept, None, None, most_uncached=self.most_uncached, back=self.back
            )
            behind = most
        else:
            source, count, after = compact_cache(
                s.length, self.cached, kept, path.nodes, self.cells(path.tree), most_uncached=self.most_uncached, back=self.back
            )
            behind = self._behind(path.tree)
        if source is not None:
            self.model.move(self.cached, source, count)
        self.cached.copy_(after)
        self.most_uncached = max(behind, self.back)
        self.start()

    def _behind(self, tree: DeviceTree) -> int:
        """The most tokens of an accepted path, with the emitted one, from the first that is not computed on."""
        if any(c is tree for c in self.chosen):
            return 1
        if tree.fixed and self.tails is None and tree.origin is None:
            lead = np.zeros(tree.size, dtype=np.int64)
            for n in range(1, tree.size):
                p = int(tree.parent[n])
                lead[n] = lead[p] + (lead[p] == tree.depth[p] and int(tree.uid[n]) in self.tail)
            return int((tree.depth - lead).max()) + 1
        try:
            above = {int(n) for g in tree.growths if not isinstance(g.above, Nodes) for n in g.above if n}
            self.above(tree, np.arange(1, len(tree.uid)))
            every = set(range(1, len(tree.uid)))
        except NotCapturable:
            return tree.height + 1
        if all(int(tree.uid[n]) in self.tail for n in every):
            return 1
        return 2 if all(int(tree.uid[n]) in self.tail for n in above) else tree.height + 1  # a leaf, and the emitted token


def packed(sees: np.ndarray) -> np.ndarray:
    """bool[n, W * 32] as words int32[n, W]."""
    bits = sees.reshape(len(sees), -1, WORD).astype(np.uint32) << np.arange(WORD, dtype=np.uint32)
    return bits.sum(-1, dtype=np.uint32).view(np.int32)
