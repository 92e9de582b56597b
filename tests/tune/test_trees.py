"""The best tree of a size, against all trees."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from decgraph.runtime.tune.trees import best, worth

Tree = tuple["Tree", ...]


def forests(n: int) -> Iterator[Tree]:
    """All ordered forests of n nodes: the children of a root."""
    if n == 0:
        yield ()
        return
    for first in range(1, n + 1):
        for inside, rest in itertools.product(forests(first - 1), forests(n - first)):
            yield (inside, *rest)


def paths(forest: Tree, above: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    out = []
    for rank, below in enumerate(forest):
        out += [(*above, rank), *paths(below, (*above, rank))]
    return out


def test_all_trees_are_there() -> None:
    assert [sum(1 for _ in forests(n)) for n in range(7)] == [1, 1, 2, 5, 14, 42, 132]  # Catalan's numbers


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limit", [1, 2, 3, 6])
def test_against_every_tree(seed: int, limit: int) -> None:
    """Also where a later rank is likelier than an earlier one, and where some are never accepted."""
    rng = random.Random(seed)
    table = [
        [rng.choice([0.0, rng.random()]) if seed % 3 == 0 else rng.random() for _ in range(rng.randint(1, 6))]
        for _ in range(rng.randint(1, 6))
    ]
    answers = best(table, 6, limit)
    for n in range(1, 7):
        all_of_it = [paths(f) for f in forests(n)]
        usable = [t for t in all_of_it if max(map(len, t)) <= min(limit, len(table)) and useful(t, table)]
        if not usable:
            assert np.isnan(answers.worths[n])
            with pytest.raises(ValueError, match="useful"):
                answers.paths(n)
            continue
        most = max(worth(t, table) for t in usable)
        assert answers.worths[n] == pytest.approx(most, abs=1e-12)
        found = answers.paths(n)
        assert len(found) == n == len(set(found)) and worth(found, table) == pytest.approx(most, abs=1e-12)
        assert all(path[:-1] in {(), *found} for path in found)
        assert all(path[-1] == 0 or (*path[:-1], path[-1] - 1) in found for path in found)


def useful(tree: list[tuple[int, ...]], table: list[list[float]]) -> bool:
    return all(rank < len(table[d]) and table[d][rank] > 0 for path in tree for d, rank in enumerate(path))


def test_a_chain_when_only_the_first_is_ever_right() -> None:
    assert best([[0.9, 0.0]] * 8, 8).paths(5) == [(0,) * d for d in range(1, 6)]


def test_a_star_when_nothing_follows() -> None:
    assert best([[0.5, 0.3, 0.1], [0.0]], 8).paths(3) == [(0,), (1,), (2,)]


def test_large() -> None:
    table = [[0.7 * 0.35**r for r in range(16)]] * 12
    answers = best(table, 128)
    assert np.all(np.diff(answers.worths[1:]) > 0)
    assert worth(answers.paths(128), table) == pytest.approx(float(answers.worths[128]))
