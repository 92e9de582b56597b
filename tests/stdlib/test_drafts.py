"""What is drafted, kept and chosen, against the published rule in plain Python."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from lib.stdlib.table_models import V, run, session, tables

from decgraph.runtime import noise
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.trace import Committed, Drafted

Path = tuple[int, ...]


def row(model: Model, path: Path) -> list[float]:
    return [float(w) for w in model.eval([path])[0].weights]


def likeliest(model: Model, path: Path) -> int:
    weights = row(model, path)
    return weights.index(max(weights))


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


@pytest.mark.parametrize("seed", range(6))
def test_prompt_lookup_takes_the_first_match(seed: int) -> None:
    k, reach = 3, 2
    prompt = (0, 1, 2, 0, 1, 3, 0, 1)
    result = run("prompt_lookup", tables(seed), {"k": k, "reach": reach}, prompt=prompt, seed=seed, max_tokens=20)
    text = prompt
    for tree, new in steps(result, k, 20):
        copied: Path = ()
        for n in range(reach, 0, -1):
            starts = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]]
            if starts:
                copied = text[starts[0] + n : starts[0] + n + k]
                break
        assert tuple(t for _, _, t in tree) == copied
        assert [p for _, p, _ in tree] == list(range(len(copied)))
        text += new


@pytest.mark.parametrize("seed", range(6))
def test_token_recycling_fills_its_tree_from_the_table(seed: int) -> None:
    """Shape 3x2: ranks 0..2 of the last token's row, 0..1 of each of theirs; rows of all the tree's tokens are renewed."""
    k = 3
    models = tables(seed)
    table = [[0] * k for _ in range(V)]
    ask = session("token_recycling", models, {"shape": "3x2", "k": k})
    for prompt in ((0, 1), (2, 3)):  # the table outlives the request
        result = ask(prompt=prompt, seed=seed, max_tokens=12)
        text = prompt
        for tree, new in zip(drafts(result.events), committed(result.events), strict=True):
            first = [table[text[-1]][r] for r in range(3)]  # to the end: what the target says of them is kept
            second = [(1 + i, table[t][r]) for i, t in enumerate(first) for r in range(2)]
            assert [(p, t) for _, p, t in tree] == [(0, t) for t in first] + second
            paths = [text, *((*text, t) for t in first), *((*text, first[p - 1], t) for p, t in second)]
            for path in paths:
                weights = row(models["target"], path)
                table[path[-1]] = sorted(range(V), key=lambda v, w=weights: (-w[v], v))[:k]
            text += new


@pytest.mark.parametrize("seed", range(4))
def test_lookahead_draws_its_window_and_pool_as_published(seed: int) -> None:
    """Windows are filled level by level, then moved; the pool keeps the g latest n-grams of a token."""
    w, n, g = 4, 4, 2
    target = tables(seed)["target"]
    prompt = (0, 1, 3)
    result = run("lookahead", {"target": target}, {"w": w, "n": n, "g": g}, prompt=prompt, seed=seed, max_tokens=24)
    rows: list[list[int]] = [[prompt[i % len(prompt)] for i in range(w + n - 3)]]
    pool: dict[int, list[Path]] = {}
    text: Path = prompt
    for tree, new in zip(drafts(result.events), committed(result.events), strict=True):
        full = len(rows) == n - 1
        # A cell of the last row sees the text, the first row up to its column, then its column downwards.
        width = len(rows[0]) + 1
        seen = [(*text, *rows[0][:j], *(r[j] for r in rows[1:])) for j in range(width)]
        fresh = [likeliest(target, path) for path in seen]
        guesses = [list(gram) for gram in pool.get(text[-1], [])] if full else []
        window = [t for r in rows for t in r]
        room = 24 - (len(text) - len(prompt)) - 1  # the last place is the target's
        assert [t for _, _, t in tree] == window + [t for gram in guesses for t in gram[:room]]
        if full:
            column = [text[-1], *rows[0]]
            for j in range(w):
                gram = (*(r[j] for r in rows[1:]), fresh[j])
                old = [x for x in pool.get(column[j], []) if x != gram]
                pool[column[j]] = [*old, gram][-g:]
            rows = [rows[1][1:], *rows[2:], fresh]
        else:
            rows = [*(r[1:] for r in rows), fresh[1:]]
        text += new
    assert pool


def beam(model: Model, prompt: Path, eos: int, k: int, patience: float, alpha: float, max_tokens: int) -> Path:
    """Kasai et al., 2022, as their code has it: candidates from the best; an end counts among the first k of them."""
    beams: list[tuple[float, Path]] = [(0.0, ())]
    finished: list[tuple[float, Path]] = []
    while beams and len(finished) < k * patience:
        every = [(s + math.log(p), (*path, v)) for s, path in beams for v, p in enumerate(row(model, prompt + path)) if p > 0]
        every.sort(key=lambda c: -c[0])
        beams = []
        for place, (s, path) in enumerate(every[: 2 * k]):
            if path[-1] == eos or len(path) == max_tokens:
                if place < k and len(finished) < k * patience:
                    finished.append((s, path))
            elif len(beams) < k:
                beams.append((s, path))
    return max(finished, key=lambda c: c[0] / len(c[1]) ** alpha)[1]


@pytest.mark.parametrize("patience", [0.5, 1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_beam_with_patience(seed: int, patience: float) -> None:
    target = tables(seed)["target"]
    for k, alpha in product((1, 2, 3), (0, 1)):
        params = {"k": k, "patience": patience, "alpha": alpha}
        result = run("beam_patience", {"target": target}, params, eos={2}, max_tokens=7)
        assert result.tokens == beam(target, (0, 1), 2, k, patience, alpha, 7), (k, alpha)
        assert result.results[0] == result.tokens


def test_patience_one_and_a_beam_of_one_is_greedy() -> None:
    for seed in range(5):
        models = tables(seed)
        greedy = run("autoregressive", models, eos={3}, temperature=0).tokens
        assert run("beam_patience", models, {"k": 1}, eos={3}).tokens == greedy


def typical(p: list[float], x: int, epsilon: float, delta: float) -> bool:
    entropy = -sum(q * math.log(q) for q in p if q > 0)
    return p[x] > min(epsilon, delta * math.exp(-entropy))


@pytest.mark.parametrize("seed", range(8))
def test_medusa_takes_the_longest_typical_path(seed: int) -> None:
    epsilon, delta, widths = 0.3, 0.8, (2, 2, 1)
    target = tables(seed)["target"]
    params = {"shape": "2x2x1", "epsilon": epsilon, "delta": delta}
    result = run("medusa", {"target": target}, params, max_tokens=15)
    text: Path = (0, 1, likeliest(target, (0, 1)))
    steps = committed(result.events)
    assert steps[0] == text[2:]
    for new in steps[1:-1]:
        heads = [[float(w) for w in s.weights] for s in target.heads(text[:-1])]
        guesses = [sorted(range(V), key=lambda v, h=h: (-h[v], v))[:n] for h, n in zip(heads, widths, strict=True)]
        found: list[tuple[int, float, Path]] = [(0, 0.0, ())]
        for depth in (1, 2, 3):
            for path in product(*guesses[:depth]):
                rows = [row(target, text + path[:i]) for i in range(depth)]
                if all(typical(p, x, epsilon, delta) for p, x in zip(rows, path, strict=True)):
                    found.append((depth, round(sum(math.log(p[x]) for p, x in zip(rows, path, strict=True)), 9), path))
        best = max(found, key=lambda f: f[:2])[2]
        assert new == (*best, likeliest(target, text + best))
        text += new


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


def test_pearl_drafts_on_below_what_is_pending() -> None:
    """Pre-verification commits one token or its correction; post-verification at most what was pending and one more."""
    gamma = 3
    runs = [run("pearl", tables(2), {"gamma": gamma}, seed=seed, max_tokens=30) for seed in range(10)]
    sizes = [len(t) for result in runs for t in committed(result.events)]
    assert min(sizes) == 1
    assert 1 < max(sizes) <= 2 * gamma
    same = TableModel(V, 5, name="target")
    result = run(
        "pearl", {"target": same, "drafter": TableModel(V, 5, name="drafter")}, {"gamma": gamma}, seed=1, max_tokens=30
    )
    assert committed(result.events)[0] == result.tokens[:1]
    assert [len(t) for t in committed(result.events)[1:-1]] == [gamma] * (len(committed(result.events)) - 2)


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
        target._table._given[("says", token)] = tuple(weights)

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
