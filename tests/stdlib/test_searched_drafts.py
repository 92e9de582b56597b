"""ADED's drafts are those of a tree search that is written here once more, over counts of the text."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from fidelity.watched import run
from lib.stdlib.table_models import tables

from decgraph.backends.reference.values import SuffixSearch

Path = tuple[int, ...]


@dataclass
class Node:
    """A node of the search, with what came of it."""

    path: Path
    prob: float = 0.0
    visits: int = 0
    worth: float = 0.0
    children: list[Node] = field(default_factory=list)


def followers(text: Path, pair: Path, k: int) -> list[tuple[int, float]]:
    """The k tokens that followed a pair most often, with their shares."""
    seen = Counter(text[i + 2] for i in range(len(text) - 2) if text[i : i + 2] == pair)
    return [(t, n / seen.total()) for t, n in sorted(seen.items(), key=lambda e: (-e[1], e[0]))[:k]]


def searched(text: Path, rounds: int, depth: int, k: int, budget: int, c1: float, c2: float) -> set[Path]:
    """The paths of the most visited nodes."""
    root = Node(())
    nodes = [root]
    for _ in range(rounds):
        trail = [root]
        while trail[-1].children:
            here = trail[-1]
            explore = c1 + math.log((here.visits + c2 + 1) / c2)

            def value(n: Node) -> float:
                if not n.visits:
                    return math.inf
                return n.worth / n.visits + explore * n.prob * math.sqrt(here.visits) / (1 + n.visits)  # noqa: B023

            trail.append(max(here.children, key=value))
        node = trail[-1]
        pair = (text + node.path)[-2:]
        found = followers(text, pair, k)
        if len(node.path) < depth:
            node.children = [Node((*node.path, t), p) for t, p in found]
            nodes += node.children
        worth = 1 + sum(n.prob for n in trail)
        for _ in range(depth - len(node.path)):
            if not followers(text, pair, 1):
                break
            ((token, p),) = followers(text, pair, 1)
            worth += p
            pair = (pair[1], token)
        for n in trail:
            n.visits += 1
            n.worth += worth
    order = sorted(nodes[1:], key=lambda n: -n.visits)[:budget]
    return {n.path for n in order if all(any(o.path == n.path[:i] for o in order) for i in range(1, len(n.path)))}


@pytest.mark.parametrize(
    "text", [(0, 1, 2, 0, 1, 3, 0, 1, 2, 3, 0, 1), (1, 1, 2, 1, 1, 1, 3, 1, 1, 2, 2, 1, 1), (0, 1, 2, 3, 0, 2)]
)
@pytest.mark.parametrize(
    "setting", [(1, 3, 4, 8, 32.0, 8.0), (12, 3, 2, 5, 32.0, 8.0), (40, 4, 4, 6, 0.5, 2.0), (9, 2, 4, 3, 4.0, 1.0)]
)
def test_the_first_draft_is_that_of_the_search(text: Path, setting: tuple[int, int, int, int, float, float]) -> None:
    names = ("rounds", "depth", "k", "budget", "c1", "c2")
    known = {"seen": SuffixSearch(2).learn(text)}
    done = run(
        "aded",
        text,
        {"target": tables()["target"]},
        "reference",
        max_tokens=8,
        shared=known,
        **dict(zip(names, setting, strict=True)),
    )
    assert done.calls[0].drafted == searched(text, *setting)
    assert bool(done.calls[0].drafted) == bool(followers(text, text[-2:], 1))
