"""Trees as lists of parents: node 0 is the root, below the context 1 0 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw, Sample, says
from meanings.values import INTS, REALS, exactly, tree


def way(parents: list[int], node: int) -> list[int]:
    """The nodes from the root down to a node."""
    out = [node]
    while out[0]:
        out.insert(0, parents[out[0]])
    return out


def below(parents: list[int], node: int) -> list[int]:
    """A node and all under it."""
    return [n for n in range(len(parents)) if node in way(parents, n)]


def nodes(xs: list[int]) -> tuple[str, Any]:
    return "node<t>[part.t<=8]", np.array(xs, dtype=np.int64)


@says("tree.new", "tree.size")
def a_root(draw: Draw) -> Sample:
    return Sample('%c = context()\n%t = tree.new(%c, tree = "t")\n%z = tree.size(%t, what = "size")', {}, (0,))


@says("tree.size")
def sizes(draw: Draw) -> Sample:
    t, parents, _, _ = tree(draw)
    what = draw(st.sampled_from(["size", "height"]))
    want = len(parents) - 1 if what == "size" else max(len(way(parents, n)) - 1 for n in range(len(parents)))
    return Sample(f'%z = tree.size(%t, what = "{what}")', {"t": t}, (want,))


@says("tree.get")
def columns(draw: Draw) -> Sample:
    t, parents, names, logs = tree(draw)
    column = draw(st.sampled_from(["token", "parent", "depth", "logprob"]))
    depths = [len(way(parents, n)) - 1 for n in range(len(parents))]
    want = {"token": names, "parent": parents, "logprob": logs, "depth": depths}
    return Sample(f'%z = tree.get(%t, column = "{column}")', {"t": t}, (want[column],))


@says("tree.set", "tree.get")
def own_columns(draw: Draw) -> Sample:
    """Set at all nodes, then at some of them again."""
    t, parents, _, _ = tree(draw)
    n = len(parents)
    first, later = draw(exactly(INTS, n)), draw(INTS)
    at = draw(st.lists(st.integers(0, n - 1), unique=True))
    text = '%u = tree.set(%t, %all, %a, column = "score")\n%v = tree.set(%u, %ns, %b, column = "score")\n'
    return Sample(
        text + '%z = tree.get(%v, column = "score", type = !int)',
        {"t": t, "all": nodes(list(range(n))), "a": ("int[k<=8]", np.array(first)), "ns": nodes(at), "b": ("int", later)},
        ([later if i in at else x for i, x in enumerate(first)],),
    )


@says("tree.front", "tree.nodes")
def frontier(draw: Draw) -> Sample:
    t, parents, _, _ = tree(draw)
    at = draw(st.lists(st.integers(0, len(parents) - 1), unique=True))
    return Sample('%u = tree.front(%t, %ns)\n%z = tree.nodes(%u, which = "frontier")', {"t": t, "ns": nodes(at)}, (at,))


@says("tree.nodes")
def kinds_of_nodes(draw: Draw) -> Sample:
    t, parents, _, _ = tree(draw)
    n = len(parents)
    which = draw(st.sampled_from(["root", "all", "drafted", "leaves", "children", "path"]))
    node = draw(st.integers(0, n - 1))
    want: dict[str, Any] = {
        "root": 0,
        "all": list(range(n)),
        "drafted": list(range(1, n)),
        "leaves": [i for i in range(n) if i not in parents[1:]],
        "children": [i for i in range(1, n) if parents[i] == node],
        "path": way(parents, node),
    }
    if which in ("children", "path"):
        return Sample(f'%z = tree.nodes(%t, %n, which = "{which}")', {"t": t, "n": ("node<t>", node)}, (want[which],))
    return Sample(f'%z = tree.nodes(%t, which = "{which}")', {"t": t}, (want[which],))


FOLDS: dict[str, Any] = {"sum": sum, "max": max, "min": min, "all": all, "any": any}


@says("tree.down")
def along_paths(draw: Draw) -> Sample:
    """The root's own value is left out of sums and of conditions: it counts as 0, as true for `all`, as false for `any`."""
    t, parents, _, _ = tree(draw)
    fn = draw(st.sampled_from(sorted(FOLDS)))
    ways = [way(parents, n) for n in range(len(parents))]
    if fn in ("all", "any"):
        c = draw(exactly(st.booleans(), len(parents)))
        given = ("bool[nodes.t]", np.array(c, dtype=bool))
        want = [FOLDS[fn]([c[i] for i in w if i]) for w in ways]
        return Sample(f'%z = tree.down(%t, %c, fn = "{fn}")', {"t": t, "c": given}, (want,))
    x = draw(exactly(REALS, len(parents)))
    want = [FOLDS[fn]([x[i] for i in w if i or fn != "sum"]) for w in ways]
    return Sample(f'%z = tree.down(%t, %x, fn = "{fn}")', {"t": t, "x": ("real[nodes.t]", np.array(x))}, (want,))


@says("tree.up")
def over_subtrees(draw: Draw) -> Sample:
    t, parents, _, _ = tree(draw)
    fn = draw(st.sampled_from(sorted(FOLDS)))
    subtrees = [below(parents, n) for n in range(len(parents))]
    of = st.booleans() if fn in ("all", "any") else REALS
    x = draw(exactly(of, len(parents)))
    given = ("bool[nodes.t]", np.array(x, dtype=bool)) if fn in ("all", "any") else ("real[nodes.t]", np.array(x))
    want = [FOLDS[fn]([x[i] for i in s]) for s in subtrees]
    return Sample(f'%z = tree.up(%t, %x, fn = "{fn}")', {"t": t, "x": given}, (want,))


@says("tree.keep")
def pruning(draw: Draw) -> Sample:
    """The root, and those of the nodes whose ancestors are all among them, in growth order."""
    t, parents, names, _ = tree(draw)
    chosen = draw(st.lists(st.integers(0, len(parents) - 1), unique=True))
    kept = [n for n in range(len(parents)) if all(i in chosen or not i for i in way(parents, n))]
    column = draw(st.sampled_from(["token", "parent"]))
    want = [names[n] if column == "token" else kept.index(parents[n]) for n in kept]
    return Sample(f'%u = tree.keep(%t, %ns)\n%z = tree.get(%u, column = "{column}")', {"t": t, "ns": nodes(chosen)}, (want,))
