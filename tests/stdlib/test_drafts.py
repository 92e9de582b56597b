"""What is drafted, kept and chosen, against the published rule in plain Python."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from lib.stdlib.table_models import V, run, tables

from decgraph.runtime import noise
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.trace import Committed, Drafted

Path = tuple[int, ...]


def row(model: Model, path: Path) -> list[float]:
    return [float(w) for w in model.eval([path])[0].weights]


def drafts(events: list[Any]) -> list[list[tuple[int, int, int]]]:
    """(node, parent, token) of the drafts of every step."""
    out: list[list[tuple[int, int, int]]] = [[]]
    for e in events:
        if isinstance(e, Drafted):
            out[-1].append((e.node, e.parent, e.token))
        if isinstance(e, Committed):
            out.append([])
    return out[:-1]


def committed(events: list[Any]) -> list[Path]:
    return [tuple(e.tokens) for e in events if isinstance(e, Committed)]


def steps(result: Any, depth: int, max_tokens: int) -> list[tuple[list[tuple[int, int, int]], Path]]:
    """Drafts and new tokens of the steps whose whole trees, `depth` deep, are of use: the last ones draft less."""
    out, done = [], 0
    for tree, new in zip(drafts(result.events), committed(result.events), strict=True):
        if done + depth < max_tokens:
            out.append((tree, new))
        done += len(new)
    assert out
    return out


def test_medusa_with_more_levels_than_heads_drafts_as_deep_as_there_are_heads() -> None:
    result = run("medusa_match", tables(1), {"shape": "1x1x1x1x1"}, max_tokens=12)
    assert {len(tree) for tree, _ in steps(result, 5, 12)[1:]} == {3}


def test_stochastic_beams_hold_the_width_and_differ() -> None:
    """RSD-S: every level of the tree has `width` different prefixes, wherever their parents stand."""
    widths: set[tuple[int, ...]] = set()
    for seed in range(12):
        for tree, _ in steps(run("rsd_s", tables(4), {"width": 3, "depth": 2}, seed=seed, max_tokens=6), 2, 6):
            paths: dict[int, Path] = {0: ()}
            for node, parent, token in tree:
                paths[node] = (*paths[parent], token)
            levels = [[p for p in paths.values() if len(p) == d] for d in (1, 2)]
            assert all(len(level) == len(set(level)) == 3 for level in levels)
            widths.add(tuple(sum(p[:1] == first for p in levels[1]) for first in levels[0]))
    assert len(widths) > 2  # the second level falls as the race does, not two or one to a node


def test_stochastic_beam_is_a_sample_of_sequences_without_replacement() -> None:
    """The first of the beam is a draw from the drafter's law of pairs (Kool et al., 2019)."""
    models = tables(9)
    pairs: dict[Path, int] = {}
    runs = 500
    for seed in range(runs):
        tree = drafts(run("rsd_s", models, {"width": 2, "depth": 2}, seed=seed, max_tokens=2).events)[0]
        paths: dict[int, Path] = {0: ()}
        for node, parent, token in tree:
            paths[node] = (*paths[parent], token)
        first = next(p for p in paths.values() if len(p) == 2)
        pairs[first] = pairs.get(first, 0) + 1
    for a, b in product(range(V), repeat=2):
        p = row(models["drafter"], (0, 1))[a] * row(models["drafter"], (0, 1, a))[b]
        assert abs(pairs.get((a, b), 0) - runs * p) < 4.5 * math.sqrt(runs * p * (1 - p)) + 1


def test_recursive_siblings_are_distinct() -> None:
    for seed in range(10):
        for tree in drafts(run("recursive_sd", tables(seed), {"shape": "3x2"}, seed=seed).events):
            for parent in {p for _, p, _ in tree}:
                children = [t for _, p, t in tree if p == parent]
                assert len(set(children)) == len(children) == (3 if parent == 0 else 2)


def test_eesd_learns_how_far_to_draft() -> None:
    """A tail that is always right drafts longer and longer chains, one that is always wrong shorter ones."""
    agree = {(): [1, 0, 0, 0]}
    lengths = {}
    for name, wrong in (("right", 0), ("wrong", 1)):
        target = TableModel(4, table=agree, window=0, name="target")
        result = run("eesd", {"target": target, "tail": Tail(target, wrong)}, {"gamma": 8, "exit": 1}, max_tokens=160, seed=3)
        trees = drafts(result.events)
        lengths[name] = sum(map(len, trees[-10:])) / 10
    assert lengths["right"] > 5
    assert lengths["wrong"] < 2


class Tail(Model):
    """An adapter whose states read out as one token, surely; the target's `read_out` is asked for it."""

    def __init__(self, target: TableModel, token: int) -> None:
        self.kind, self.vocab, self.context, self.exact = "layers", target.vocab, None, True
        self.name, self.family, self.layers, self.token = "tail", "tail", 1, token
        weights = [int(v == token) for v in range(target.vocab.size)]
        target._table._entries[("says", token)] = tuple(weights)

    def apply(self, states: dict[int, Any]) -> dict[int, Any]:
        return dict.fromkeys(states, ("says", self.token))


@pytest.mark.parametrize("seed", range(4))
def test_rsd_s_is_a_stochastic_beam(seed: int) -> None:
    """Every level has the prefixes whose Gumbel scores lead, each under its own parent's (Kool et al., 2019, algorithm 1)."""
    width, depth, prompt = 3, 3, (0, 1)
    models = tables(seed)
    result = run("rsd_s", models, {"width": width, "depth": depth}, prompt=prompt, seed=seed, max_tokens=9)
    text = prompt
    for turn, (tree, new) in enumerate(steps(result, depth, 9)):
        # (node, path, log-probability, score) of a level, and what it should hold next
        level: list[tuple[int, Path, float, float]] = [(0, (), 0.0, 0.0)]
        left = list(tree)
        for d in range(depth):
            found = []
            for n, (node, path, logprob, score) in enumerate(level):
                q = np.array(row(models["drafter"], text + path))
                with np.errstate(divide="ignore"):
                    times = noise.exponentials(noise.Key(seed, 0, "rsd_s.2", (turn, d), (n,)), V)
                    keys = noise.under(noise.race_keys(np.log(q) + logprob, times), score)
                    found += [
                        (-key, node, token, (*path, token), logprob + math.log(q[token]))
                        for token, key in enumerate(keys)
                        if q[token] > 0
                    ]
            best = sorted(found)[:width]
            got, left = left[: len(best)], left[len(best) :]
            assert [(parent, token) for _, parent, token in got] == [(node, token) for _, node, token, _, _ in best]
            level = [(n, path, logprob, -key) for (n, _, _), (key, _, _, path, logprob) in zip(got, best, strict=True)]
        assert not left
        text += new
