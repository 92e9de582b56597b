"""Random operands: small numbers with many ties, conditions, rows over the vocabulary, distributions, trees, canvases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw as DrawFrom
from meanings.registry import V

from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, value_row
from decgraph.ir.data.tree import Tree

INTS = st.integers(-3, 4)
REALS = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 3.5])
WEIGHTS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 5.0])
TOKENS = st.integers(0, V - 1)


def lists(of: st.SearchStrategy[Any], least: int = 0, most: int = 6) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=least, max_size=most)


def exactly(of: st.SearchStrategy[Any], n: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=n, max_size=n)


def ints(xs: Sequence[int]) -> tuple[str, Any]:
    return "int[k<=8]", np.array(xs, dtype=np.int64)


def reals(xs: Sequence[float]) -> tuple[str, Any]:
    return "real[k<=8]", np.array(xs, dtype=np.float64)


def bools(xs: Sequence[bool]) -> tuple[str, Any]:
    return "bool[k<=8]", np.array(xs, dtype=bool)


def tokens(xs: Sequence[int]) -> tuple[str, Any]:
    return "token<V>[k<=8]", np.array(xs, dtype=np.int64)


def row(xs: Sequence[float]) -> tuple[str, Any]:
    """Numbers over the vocabulary."""
    return "real[vocab.V]", np.array(xs, dtype=np.float64)


def rows(xss: Sequence[Sequence[float]]) -> tuple[str, Any]:
    return "real[k<=8,vocab.V]", np.array(xss, dtype=np.float64).reshape(len(xss), V)


def probs(draw: DrawFrom) -> list[float]:
    """A distribution over the vocabulary, zeros and ties included."""
    weights = draw(exactly(WEIGHTS, V).filter(lambda w: sum(w) > 0))
    return [w / sum(weights) for w in weights]


def dist(p: Sequence[float]) -> tuple[str, Any]:
    made = Dist.of([value_row(np.array(p))], "shaped", None)
    return "dist<V,shaped>", Dist(made.rows.reshape(()), made.face)


def dists(ps: Sequence[Sequence[float]]) -> tuple[str, Any]:
    return "dist<V,shaped>[k<=8]", Dist.of([value_row(np.array(p)) for p in ps], "shaped", None)


def edge(token: int, p: Sequence[float]) -> Draw:
    return Draw(token, value_row(np.array(p)))


def tree(draw: DrawFrom, most: int = 7) -> tuple[tuple[str, Any], list[int], list[int], list[float]]:
    """A tree below the context 1 0 2, its parents, tokens and log-probabilities by node (0 the root)."""
    parents, names, logs = [0], [2], [0.0]
    t = Tree.start((1, 0, 2))
    for _ in range(draw(st.integers(0, most))):
        parent = draw(st.integers(0, len(parents) - 1))
        token, log = draw(TOKENS), draw(st.sampled_from([-0.25, -1.0, -1.5]))
        t = t.grow([edge(token, [1 / V] * V)], [parent], [logs[parent] + log], [{}])
        parents.append(parent)
        names.append(token)
        logs.append(logs[parent] + log)
    return ("tree<t,token,V>", t), parents, names, logs


def canvas(draw: DrawFrom, most: int = 6) -> tuple[tuple[str, Any], list[int | None]]:
    """A canvas after the context 1 0 2, and its cells, None where masked."""
    cells = draw(lists(st.none() | TOKENS, 1, most))
    c = Canvas.start((1, 0, 2), len(cells), len(cells) + 3)
    for i, token in enumerate(cells):
        if token is not None:
            c = c.put([i], [edge(token, [1 / V] * V)])
    return ("canvas<c,V>", c), cells
