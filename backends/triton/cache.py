"""The slots of one model in a step: committed tokens at slots equal to their positions, nodes of trees behind them.

A step's first call also computes the last committed tokens that are not computed yet: `behind` of them, a number that follows
from the program's structure. Computing one again does no harm (its slot gets the same values), so nothing counts what is
computed. Nodes get slots from the number of committed tokens on, in the order in which they are computed: a chain stands where
it would be committed. Where an accepted path stands elsewhere its keys and values are moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.models.interface import DeviceModel, Seen
from decgraph.backends.triton.state import Slots, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, Nodes, NodeSet, Path, Tree
from decgraph.backends.triton.vectors import with_at


def _gathered(rows: Tensor, at: Tensor) -> Tensor:
    """The numbers [B or 1, n] of rows [B or 1, N] at places int64[B or 1, n]."""
    b = max(int(rows.shape[0]), int(at.shape[0]))
    return rows.expand(b, -1).gather(1, at.expand(b, -1))


class Cache(Slots):
    """behind: how many of the last committed tokens are not computed when an iteration begins; peak: the most slots that a step
    used behind the committed ones."""

    def __init__(self, s: Step, name: str, model: DeviceModel) -> None:
        self.s, self.name, self.model = s, name, model
        self.features = model.kind == "features"
        self.behind, self.least, self.peak = 1, 1, 0
        self.start()

    def start(self) -> None:
        """Nothing is computed behind the committed tokens."""
        self.used = 0
        self.asked = False
        self.slots: Array = np.zeros(0, dtype=np.int64)
        """By uid: how many slots behind the committed tokens a node stands, -1: not computed. NumPy [U] or int64[B, U]."""
        self.whole = np.zeros(0, dtype=bool)
        """By uid: whether a node is computed in every lane."""
        self.chosen: list[Tensor] = []
        """Nodes that data chose and that were computed, int64[B, F]; recent: the keys below which those of the last ones
        are."""
        self.recent = 0
        self.rows: dict[int, tuple[Tensor, int]] = {}
        """By uid of a node of a tree of static structure (-1: the root): the states of a forward, and their row."""

    # -- calls
    def states(self, tree: Tree | None, nodes: NodeSet | Array, known: Tensor | None = None) -> Tensor:
        """Last states [B, F, W] after nodes."""
        if isinstance(nodes, Nodes):
            return self._chosen(tree, nodes, known)
        ids = np.asarray(nodes, dtype=np.int64)
        if tree is not None and isinstance(tree.uid, Tensor):
            return self._pruned(tree, ids, known)
        uid = np.full(len(ids), -1) if tree is None else tree.uid[ids]
        missing = [int(n) for n, u in zip(ids, uid, strict=True) if int(u) not in self.rows]
        if missing:
            self._known(tree, list(dict.fromkeys(missing)), known)
        if not len(ids):  # of no nodes: as many numbers as any
            if not self.rows:
                self._known(None, [0], known)
            return next(iter(self.rows.values()))[0][:, :0]
        parts = [self.rows[int(u)] for u in uid]
        first = parts[0][0]
        if all(p[0] is first for p in parts):
            at = np.array([p[1] for p in parts])
            whole = len(at) == first.shape[1] and bool((at == np.arange(len(at))).all())
            return first if whole else first.index_select(1, self.s.constant(at))
        return torch.cat([t[:, j : j + 1] for t, j in parts], 1)

    def parent_state(self) -> Tensor:
        """[B, 1, W]: the state before the last committed token."""
        if self.behind < 2 or self.asked:
            raise NotSteppable(f"`{self.name}` has not computed the token before the last one in this step", self.s.place)
        states = self._forward(None, np.zeros(0, dtype=np.int64), None)
        self.rows[-1] = (states, int(states.shape[1]) - 1)
        return states[:, -2:-1]

    def _known(self, tree: Tree | None, nodes: list[int], known: Tensor | None) -> None:
        """One forward over static nodes and those of their ancestors that may not be computed."""
        new: list[int] = []
        if tree is not None:
            self._extend(self.s.uids)
            needed = sorted({n for n in nodes if n} | self._above(tree, nodes))
            new = [n for n in needed if n in nodes or not self.whole[tree.uid[n]]]
        root = any(n == 0 for n in nodes)
        states = self._forward(tree, np.array([n for n in new if n], dtype=np.int64), known)
        lead = int(states.shape[1]) - len(new)
        if root:
            if not lead:
                raise NotSteppable(f"`{self.name}` is called at the root after another call", self.s.place)
            self.rows[-1] = (states, lead - 1)
        for j, n in enumerate(new):
            assert tree is not None
            self.rows[int(tree.uid[n])] = (states, lead + j)

    def _above(self, tree: Tree, nodes: Sequence[int]) -> set[int]:
        """All that may be ancestors of nodes, but the root."""
        found: set[int] = set()
        if tree.fixed:
            for node in nodes:
                up = int(tree.parent[node])
                while up and up not in found:
                    found.add(up)
                    up = int(tree.parent[up])
            return found
        for g in reversed(tree.growths):
            if any(g.first <= n < g.first + g.count for n in {*nodes, *found}):
                above = g.above.within if isinstance(g.above, Nodes) else g.above
                if above is None:
                    raise NotSteppable(f"`{self.name}` is called below nodes that are not known", self.s.place)
                if isinstance(g.above, Nodes) and any(g.above.ids is c for c in self.chosen):
                    continue  # those of its nodes that something hangs from are computed
                found |= {int(n) for n in above if n}
        return found

    def _chosen(self, tree: Tree | None, nodes: Nodes, known: Tensor | None) -> Tensor:
        """States after nodes that data chooses."""
        if tree is None or isinstance(tree.uid, Tensor) or nodes.within is None:
            raise NotSteppable(f"`{self.name}` is called at nodes that are chosen among unknown ones", self.s.place)
        self._extend(self.s.uids)
        missing = [n for n in sorted(self._above(tree, nodes.within.tolist())) if not self.whole[tree.uid[n]]]
        if missing:
            self._forward(tree, np.array(missing, dtype=np.int64), known)
        states = self._forward(tree, nodes.ids, known)
        self.chosen.append(nodes.ids)
        self.recent = self.s.uids
        return states[:, int(states.shape[1]) - int(nodes.ids.shape[1]) :]

    def _pruned(self, tree: Tree, ids: np.ndarray, known: Tensor | None) -> Tensor:
        """States after nodes of a tree whose pruning depends on data: all of its nodes are computed."""
        self._extend(self.s.uids)
        states = self._forward(tree, self.s.steps(tree.size - 1)[None] + 1, known)
        lead = int(states.shape[1]) - (tree.size - 1)
        self.chosen.append(self.s.tensor(tree.uid))
        self.recent = self.s.uids
        if not lead:
            raise NotSteppable(f"`{self.name}` is called on a pruned tree after another call", self.s.place)
        self.rows[-1] = (states, lead - 1)
        return states[:, lead - 1 :] if len(ids) == tree.size else states.index_select(1, self.s.constant(lead - 1 + ids))

    def _extend(self, uids: int) -> None:
        """Room for all nodes of the step."""
        more = uids - len(self.whole)
        if more > 0:
            self.whole = np.concatenate([self.whole, np.zeros(more, dtype=bool)])
            none = np.full(more, -1, dtype=np.int64)
            if isinstance(self.slots, Tensor):
                self.slots = torch.cat([self.slots, self.s.constant(none)[None].expand(self.slots.shape[0], -1)], 1)
            else:
                self.slots = np.concatenate([self.slots, none])

    def _forward(self, tree: Tree | None, nodes: Array, known: Tensor | None) -> Tensor:
        """States [B, lead + n, W] of one forward over the committed tokens that are not computed, if none has been before in
        this step, and n nodes (NumPy int64[n], or int64[B or 1, n])."""
        s, b = self.s, self.s.frame.batch
        lead, n = (0 if self.asked else self.behind), int(nodes.shape[-1])
        length = s.length
        first, self.used, self.asked = self.used, self.used + n, True
        self.peak = max(self.peak, self.used)
        rows, parents, tail = [], [], None  # rows: tokens, positions, slots, and below which slots all are seen
        if lead:
            at = (length[:, None] + s.constant(np.arange(-lead, 0))).clamp(min=0)
            rows.append((s.tokens.gather(1, at), at, at, at + 1))
            parents.append((at - 1).clamp(min=0))
        if n:
            assert tree is not None
            self._placed(tree, nodes, first, n)
            own, depth = self._tokens(tree, nodes).clamp(min=0), self._at(tree.depth, nodes)
            places = length[:, None] + s.constant(np.arange(first, first + n))
            new = (own, length[:, None] - 1 + depth, places, length[:, None])
            rows.append(tuple(a.expand(b, n) for a in new))
            tail = self.ancestors(tree, nodes)
            if lead:
                tail = torch.cat([tail.new_zeros((tail.shape[0], lead, tail.shape[2])), tail], 1)
            if self.features:
                up = self._at(tree.parent, nodes).expand(b, -1)
                place = length[:, None] + self.slot_of(tree).expand(b, -1).gather(1, up)
                parents.append(torch.where(up == 0, length[:, None] - 1, place))
        tokens, positions, slots, below = (torch.cat(parts, 1) for parts in zip(*rows, strict=True))
        seen, chunk = Seen(below, tail, None if tail is None else length), None
        if s.chunk is not None and self.model.takes_chunks and id(self.model) not in s.chunked:
            s.chunked.add(id(self.model))
            chunk = s.chunk
        return self.model.forward(
            tokens, positions, slots.clamp(max=self.model.capacity - 2), seen,
            parents=torch.cat(parents, 1) if self.features else None,
            known=known if self.features or self.model.following else None, chunk=chunk,
        )  # fmt: skip

    def _tokens(self, tree: Tree, nodes: Array) -> Tensor:
        """int64[B, n]: the tokens of nodes. Those of one growth are taken as it has them: what reads all tokens waits for one
        more launch, which joins them."""
        if isinstance(nodes, np.ndarray) and not tree.pruned:
            for g in tree.growths:
                if nodes.min() >= g.first and nodes.max() < g.first + g.count:
                    return self.s.take(g.tokens, nodes - g.first)
        return self._at(tree.token, nodes)

    def _at(self, column: Array, nodes: Array) -> Tensor:
        """A column of a tree (NumPy [N] or [B, N]) at nodes (NumPy [n] or [B, n])."""
        if isinstance(nodes, Tensor):
            return _gathered(self.s.tensor(column), nodes)
        return column[:, self.s.constant(nodes)] if isinstance(column, Tensor) else self.s.constant(column[nodes])[None]

    def _placed(self, tree: Tree, nodes: Array, first: int, n: int) -> None:
        """Note the slots of nodes."""
        s = self.s
        uid = self._uid(tree, nodes)
        if isinstance(uid, np.ndarray):
            self.whole[uid] = True
            if isinstance(self.slots, np.ndarray):
                self.slots[uid] = np.arange(first, first + n)
                return
            uid = s.constant(uid)[None]
        b, values = s.batch, s.constant(np.arange(first, first + n))[None].expand(s.batch, -1)
        table = torch.cat([s.lanes(self.slots), values[:, :1]], 1)  # the last column is that of nodes that are not there
        at = torch.where(uid < 0, int(table.shape[1]) - 1, uid).expand(b, -1)
        self.slots = with_at(table, at, values)[:, :-1]

    def _uid(self, tree: Tree, nodes: Array) -> Array:
        if isinstance(tree.uid, np.ndarray) and isinstance(nodes, np.ndarray):
            return tree.uid[nodes]
        return self._at(tree.uid, nodes)

    def slot_of(self, tree: Tree) -> Tensor:
        """int64[B or 1, N]: how far behind the committed tokens every node stands; -1 for the root and those not computed."""
        self._extend(self.s.uids)
        if isinstance(self.slots, np.ndarray) and isinstance(tree.uid, np.ndarray):
            made = np.where(tree.uid >= 0, self.slots[np.maximum(tree.uid, 0)] if len(self.slots) else -1, -1)
            return self.s.constant(made)[None]
        if not len(self.whole):  # no node has been grown in this iteration
            return self.s.constant(np.full((1, tree.size), -1))
        uid = self.s.tensor(tree.uid)
        return torch.where(uid >= 0, _gathered(self.s.tensor(self.slots), uid.clamp(min=0)), -1)

    def ancestors(self, tree: Tree, nodes: Array) -> Tensor:
        """bool[B or 1, n, used]: the slots behind the committed tokens that nodes see: their own and those of their
        ancestors."""
        s, slot = self.s, self.slot_of(tree)
        if tree.fixed and all(isinstance(a, np.ndarray) for a in (self.slots, nodes, tree.uid)):
            sees = np.zeros((len(nodes), self.used), dtype=bool)
            for i, n in enumerate(nodes.tolist()):
                while n:
                    sees[i, self.slots[tree.uid[n]]] = True
                    n = int(tree.parent[n])
            return s.constant(sees)[None]
        own, up = (slot[..., None] == s.steps(self.used)) & (slot[..., None] >= 0), s.tensor(tree.parent)  # own: [B, N, U]
        b = max(int(own.shape[0]), int(up.shape[0]))
        bits, up = own.expand(b, -1, -1), up.expand(b, -1)
        reach = 1
        while reach <= max(1, tree.height):  # every iteration doubles how far up the bits reach
            bits = bits | bits.gather(1, up[..., None].expand(-1, -1, self.used))
            up = up.gather(1, up)
            reach *= 2
        if isinstance(nodes, np.ndarray):
            return bits[:, s.constant(nodes)]
        b = max(b, int(nodes.shape[0]))
        return bits.expand(b, -1, -1).gather(1, nodes.expand(b, -1)[..., None].expand(-1, -1, self.used))

    # -- after a commit
    def committed(self, before: Tensor, accepted: Tensor, most: int, path: Path | None) -> None:
        """After a commit of kept int64[B] tokens, at most `most`, behind `before` int64[B] ones. path: the verified path of
        this step's tree, where it was committed."""
        if not self.asked:
            self.behind += most
            return
        tree = None if path is None else path.tree
        reads = self.features or self.model.following  # what is committed is taken anew from another model
        if tree is None or reads or not self.used:
            self.behind = most + 1 if reads else max(most, self.least)
        else:
            assert path is not None
            missing = self._missing(tree)
            self.behind = max(self.least, min(most, missing + 1))
            if missing < tree.height and not self._in_place(tree):
                b, s = self.s.frame.batch, self.s
                n = int(path.nodes.shape[1])
                where = self.slot_of(tree).expand(b, -1).gather(1, path.nodes.clamp(min=0))
                real = (path.nodes >= 0) & (where >= 0) & (s.steps(n) < accepted[:, None])
                spare = self.model.capacity - 1
                source = torch.where(real, before[:, None] + where, spare)
                self.model.move(source, torch.where(real, before[:, None] + s.steps(n), spare))
        self.start()

    def _in_place(self, tree: Tree) -> bool:
        """Whether every computed node stands where it would be committed."""
        if not tree.fixed or isinstance(self.slots, Tensor) or isinstance(tree.uid, Tensor):
            return False
        slot = self.slots[np.maximum(tree.uid, 0)]
        return all(slot[n] in (-1, tree.depth[n] - 1) for n in range(1, tree.size))

    def _missing(self, tree: Tree) -> int:
        """The most nodes at the end of an accepted path that are not computed."""
        self._extend(self.s.uids)
        if isinstance(tree.uid, Tensor):
            return 0 if any(c is tree.uid for c in self.chosen) else tree.height
        if tree.fixed:
            lead = np.zeros(tree.size, dtype=np.int64)
            for n in range(1, tree.size):
                p = int(tree.parent[n])
                lead[n] = lead[p] + (lead[p] == tree.depth[p] and self.whole[tree.uid[n]])
            return int((tree.depth - lead).max(initial=0))
        levels = sum(g.levels for g in tree.growths if not self.whole[tree.uid[g.first : g.first + g.count]].all())
        above = [g.above for g in tree.growths]
        inner = {int(n) for a in above if isinstance(a, np.ndarray) for n in a if n}
        covered = all(isinstance(a, np.ndarray) or any(a.ids is c for c in self.chosen) for a in above)
        if covered and all(self.whole[tree.uid[n]] for n in inner):
            return min(1, levels)  # all that something hangs from is computed
        return min(tree.height, levels)


Step.slots[""] = Cache
