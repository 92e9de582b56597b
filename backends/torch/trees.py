"""Trees of states, as columns: int64 arrays over the nodes, and the draws that created them. Growing returns a new tree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from decgraph.backends.torch.canvases import Canvas, Edit
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.rows import Draw, Ids
from decgraph.ir.data.dist import Soft

_NONE = np.zeros(0, dtype=np.int64)


def filled(n: int, value: float, dtype: type[np.number] = np.int64) -> np.ndarray:
    """[n], all one value; `np.full` takes longer to find out the dtype than to fill a tree's columns."""
    out = np.empty(n, dtype=dtype)
    out.fill(value)
    return out


def among(tokens: Ids, few: Collection[int]) -> np.ndarray:
    """bool[*shape]: which tokens are among a few; `np.isin` would sort both."""
    out = np.zeros(tokens.shape, dtype=bool)
    for token in few:
        out |= tokens == token
    return out


@dataclass(frozen=True)
class TorchTree:
    """Node 0 is the root; ids are growth order. base: the committed tokens (a Context) or a Canvas.

    token, parent, depth, uid: int64[N]; the root's token is -1, uids are unique in a run and survive pruning. group, place:
    the growth that created a node's edge, and its index there (`growths[group]`, flattened). logprob: float64[N], NaN where not
    computed yet. columns: the author's, lists of N values (None: never set). edges: for trees of canvases, soft nodes and
    steps, the edges themselves. end, closes: the longest text that it drafts, with the prompt, and the tokens under which it
    grows nothing.
    """

    base: Context | Canvas
    token: Ids
    parent: Ids
    depth: Ids
    uid: Ids
    group: Ids
    place: Ids
    logprob: np.ndarray
    growths: tuple[Draws, ...]
    columns: dict[str, list[object]]
    edges: tuple[Edge, ...]
    new: Ids
    frontier: Ids
    end: int
    closes: frozenset[int]

    @staticmethod
    def start(base: Context | Canvas, end: int = 1 << 30, closes: frozenset[int] = frozenset()) -> TorchTree:
        zero = np.zeros(1, dtype=np.int64)
        none = zero - 1
        return TorchTree(base, none, zero, zero, none, none, zero, np.zeros(1), (), {}, (None,), zero, zero, end, closes)

    def closed(self, nodes: Ids) -> np.ndarray:
        """bool[n]: the nodes that end the text, so that nothing is grown under them."""
        return among(self.token[nodes], self.closes) & (nodes > 0)

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def nodes(self) -> Ids:
        """All nodes, the root first."""
        return np.arange(len(self))

    @property
    def drafted(self) -> Ids:
        """All nodes but the root."""
        return np.arange(1, len(self))

    @property
    def context(self) -> Context:
        """The committed tokens before it."""
        return self.base.base if isinstance(self.base, Canvas) else self.base

    def tokens(self) -> Ids:
        """The token of every node, int64[N]; the root's is the last committed one (0 where there is none)."""
        out = self.token.copy()
        out[0] = self.base.tokens[self.base.length - 1] if isinstance(self.base, Context) and self.base.length else 0
        return out

    def path_nodes(self, node: int) -> list[int]:
        """Nodes from the root (included) down to `node`."""
        out = [node]
        while node != 0:
            node = int(self.parent[node])
            out.append(node)
        return out[::-1]

    def children(self, node: int) -> Ids:
        found = (self.parent == node).nonzero()[0]
        return found[found > 0] if node == 0 else found

    def leaves(self) -> Ids:
        inner = np.zeros(len(self.parent), dtype=bool)
        inner[self.parent[1:]] = True
        return (~inner).nonzero()[0]

    def height(self) -> int:
        return int(self.depth.max())

    def soft(self, nodes: Sequence[int] | Ids) -> dict[int, tuple[Fraction | float, ...]]:
        """Of these nodes those that hold an embedding: their places among them, and their coordinates."""
        if len(self.edges) == 1:
            return {}
        return {i: e.value for i, n in enumerate(nodes) if isinstance(e := self.edges[int(n)], Soft)}

    def draw(self, node: int) -> TorchDraws:
        """The draw that created a node."""
        out = self.growths[int(self.group[node])].pick(int(self.place[node]))
        assert isinstance(out, TorchDraws)
        return out

    def draws(self, nodes: Ids) -> Draws:
        """The draws that created several nodes, as one vector."""
        if len(nodes) == 0:
            return TorchDraws(_NONE, point=True)
        groups = self.group[nodes]
        if bool((groups == groups[0]).all()) and groups[0] >= 0:
            return self.growths[int(groups[0])].pick(self.place[nodes])
        return Mixed([self.draw(int(n)) for n in nodes])

    def probs(self) -> np.ndarray:
        """The raw probability of every node's token where it was drawn, float64[N]; 1 at the root."""
        out = np.ones(len(self))
        for g, growth in enumerate(self.growths):
            here = np.flatnonzero(self.group == g)
            if len(here):
                out[here] = growth.prob()[self.place[here]]
        return out

    def logprobs(self) -> np.ndarray:
        """Cumulative log-probabilities, float64[N], computed where they are not yet."""
        unknown = np.flatnonzero(np.isnan(self.logprob))
        if len(unknown):
            groups, depths = self.group[unknown], self.depth[unknown]
            first, last = int(groups[0]), int(groups[-1])
            p = np.ones(len(unknown))
            for g in (first,) if first == last else np.unique(groups):  # growth order: a growth's nodes stand together
                if g >= 0:
                    here = slice(None) if first == last else groups == g
                    p[here] = self.growths[int(g)].prob()[self.place[unknown[here]]]
            with np.errstate(divide="ignore"):
                logs = np.log(p)
            if int(depths[0]) == int(depths[-1]) and first == last:
                self.logprob[unknown] = self.logprob[self.parent[unknown]] + logs
            else:
                for d in np.unique(depths):
                    at = depths == d
                    self.logprob[unknown[at]] = self.logprob[self.parent[unknown[at]]] + logs[at]
        return self.logprob

    def grow(
        self,
        draws: Draws | None,
        place: Ids,
        tokens: Ids,
        parents: Ids,
        depths: Ids,
        uids: Ids,
        logprob: np.ndarray,
        columns: dict[str, list[object]],
        edges: Sequence[Edge],
        new: Ids | None = None,
    ) -> TorchTree:
        """The tree with one new node for each of `parents` [n], in order; `place` [n] is the index of its draw in `draws`,
        `tokens`, `depths`, `uids` and `logprob` are [n]. new: the nodes that count as new; None: all of these. Never merges
        edges."""
        n, k = len(self.parent), len(parents)
        if new is None:
            new = np.arange(n, n + k)
        wide: dict[str, list[object]] = {}
        for c in self.columns.keys() | columns.keys():  # a comprehension would be a call for each growth
            wide[c] = self.columns.get(c, [None] * n) + columns.get(c, [None] * k)
        every = self.edges
        if edges or len(every) > 1:  # some nodes are no draws: one entry for each node
            every = (*every, *[None] * (n - len(every)), *(edges or [None] * k))

        return TorchTree(
            self.base,
            np.concatenate((self.token, tokens)),
            np.concatenate((self.parent, parents)),
            np.concatenate((self.depth, depths)),
            np.concatenate((self.uid, uids)),
            np.concatenate((self.group, filled(k, len(self.growths) if draws is not None else -1))),
            np.concatenate((self.place, place)),
            np.concatenate((self.logprob, logprob)),
            (*self.growths, draws) if draws is not None else self.growths,
            wide,
            every,
            new,
            new,
            self.end,
            self.closes,
        )

    def only(self, nodes: Ids, root: int = 0) -> TorchTree:
        """The tree of the nodes `nodes` (in growth order, their parents among them, the first one the root)."""
        new_id = filled(len(self), -1)
        new_id[nodes] = np.arange(len(nodes))

        def again(old: Ids) -> Ids:
            ids: Ids = new_id[old]
            return ids[ids >= 0]

        parent = new_id[self.parent[nodes]]
        parent[0] = 0
        edges = tuple(self.edges[int(i)] for i in nodes) if len(self.edges) == len(self) else self.edges
        return replace(
            self,
            token=self.token[nodes],
            parent=parent,
            depth=self.depth[nodes],
            uid=self.uid[nodes],
            group=self.group[nodes],
            place=self.place[nodes],
            logprob=self.logprob[nodes],
            columns={c: [v[int(i)] for i in nodes] for c, v in self.columns.items()},
            edges=edges,
            new=again(self.new),
            frontier=again(self.frontier),
        )

    def closed_under_parents(self, ids: Sequence[int] | Ids) -> Ids:
        """The root and those of `ids` whose ancestors are all among them, in growth order."""
        wanted = np.zeros(len(self), dtype=bool)
        wanted[np.asarray(ids, dtype=np.int64)] = True
        wanted[0] = True
        for _ in range(int(self.depth.max())):
            kept = wanted & wanted[self.parent]
            if bool((kept == wanted).all()):
                break
            wanted = kept
        return np.flatnonzero(wanted)

    def below(self, node: int, base: Context | Canvas) -> TorchTree:
        """The subtree under `node`, rooted there, on the new base."""
        inside = np.zeros(len(self), dtype=bool)
        inside[node] = True
        for i in range(node + 1, len(self)):
            inside[i] = inside[self.parent[i]] and i != 0
        tree = self.only(np.flatnonzero(inside))
        logprob = self.logprobs()[inside]
        if logprob[0] > -np.inf:
            logprob = logprob - logprob[0]
        else:  # below a draft without probability: from the drafts alone
            logprob[:] = np.nan
        logprob[0] = 0.0
        depth = tree.depth - self.depth[node]
        group = tree.group.copy()
        group[0] = -1
        token = tree.token.copy()
        token[0] = -1
        tree = replace(
            tree,
            base=base,
            depth=depth,
            logprob=logprob,
            group=group,
            token=token,
            edges=(None, *tree.edges[1:]) if len(tree.edges) == len(tree) else tree.edges,
            new=np.zeros(1, dtype=np.int64),
        )
        return replace(tree, frontier=tree.leaves())


@dataclass(frozen=True)
class TorchPath:
    """Tokens below a node: those that a verification accepted and emitted, or that a sub-run produced.

    tokens: host ints. uids: the tree node each came from (-1: none). draws: the draw of each (None where it is only a token).
    """

    tokens: tuple[int, ...]
    node: int = 0
    depth: int = 0
    emitted: int | None = None
    uids: tuple[int, ...] = ()
    draws: tuple[Draw | None, ...] = ()
    base: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def __bool__(self) -> bool:
        return True

    def cut(self, where: slice) -> TorchPath:
        """Part of its tokens, as a path of its own."""
        return TorchPath(self.tokens[where], uids=self.uids[where], draws=self.draws[where], base=self.base)


Edge = TorchPath | Edit | Soft | None


def path_of(tree: TorchTree, node: int, emitted: int | None = None, draw: TorchDraws | None = None) -> TorchPath:
    """The tokens from the root down to a node, and the token emitted there."""
    tokens: list[int] = []
    uids: list[int] = []
    draws: list[Draw | None] = []
    steps = len(tree.edges) == len(tree) and len(tree) > 1
    for n in tree.path_nodes(node)[1:]:
        edge = tree.edges[n] if steps else None
        if isinstance(edge, Soft):
            int(edge)  # raises: it has no token
        if isinstance(edge, TorchPath):
            tokens += edge.tokens
            uids += [-1] * len(edge.tokens)
            draws += edge.draws or [None] * len(edge.tokens)
        else:
            tokens.append(int(tree.token[n]))
            uids.append(int(tree.uid[n]))
            draws.append(tree.draw(n))
    if emitted is not None:
        tokens.append(emitted)
        uids.append(-1)
        draws.append(draw)
    return TorchPath(tuple(tokens), node, int(tree.depth[node]), emitted, tuple(uids), tuple(draws))


def canvas_at(t: TorchTree, node: int) -> Canvas:
    """The canvas at a node: the root's with the node's edits applied."""
    canvas = t.base
    assert isinstance(canvas, Canvas)
    for n in t.path_nodes(node)[1:]:
        edit = t.edges[n]
        assert isinstance(edit, Edit)
        canvas = edit.apply(canvas)
    return canvas
