"""Searches and drafting loops at details of published code that no recording here has, against the loops written once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lib.stdlib.published_details import Text, causal, run, said

After = Callable[[Any], np.ndarray]
PROMPTS: list[Text] = [(0, 3), (5, 1, 1)]
LIMIT = 12


def ranked(p: np.ndarray, k: int) -> list[int]:
    """The k likeliest tokens."""
    return [int(v) for v in np.argsort(-p, kind="stable")[:k]]


def lattice(target: After, prompt: Text, k: int, grams: int, near: int, budget: int, eos: int) -> tuple[list[Text], int]:
    """The texts, likeliest first, and the calls: a completion that comes to the last tokens of another takes its rest."""
    frontier: list[tuple[float, Text]] = [(0.0, ())]
    done: list[tuple[float, Text]] = []
    follows: dict[Text, tuple[Text, float]] = {}
    known: list[Text] = []
    calls = 0
    while frontier and len(done) < budget:
        score, text = max(frontier, key=lambda f: (f[0] / max(1, len(f[1])) ** 0.75, f[1]))
        frontier.remove((score, text))
        merged = False
        while not merged and not (text and text[-1] == eos) and len(text) < LIMIT:
            p = target((*prompt, *text))
            calls += 1
            best, *rest = ranked(p, k)
            frontier += [(score + float(np.log(p[v])), (*text, v)) for v in rest]
            gain = float(np.log(p[best]))
            follows[text] = ((*text, best), gain)
            score, text = score + gain, (*text, best)
            alike = [o for o in known if len(o) >= grams <= len(text) and o[-grams:] == text[-grams:]]
            twins = [o for o in alike if abs(len(o) - len(text)) < near and text[: len(o)] != o]
            merged = bool(twins)
            known += [] if merged else [text]
            at = twins[0] if merged else text
            gone = {text[: len(text) - i] for i in range(grams)} if merged else set()
            frontier = [f for f in frontier if f[1][:-1] not in gone and (not f[1] or follows[f[1][:-1]][0] not in gone)]
            while at in follows and text[-1] != eos and len(text) < LIMIT:
                at, gain = follows[at]
                follows[text] = ((*text, at[-1]), gain)
                score, text = score + gain, (*text, at[-1])
        done.append((score, text))
    return [t for _, t in sorted(done, key=lambda d: -d[0])], calls


@pytest.mark.parametrize(("k", "grams", "near"), [(2, 1, 2), (3, 2, 64)])
def test_a_lattice_merges_within_a_completion_where_lengths_are_near(k: int, grams: int, near: int) -> None:
    for seed in range(1):
        model = causal(seed)
        for prompt in PROMPTS:
            params = {"k": k, "grams": grams, "near": near, "budget": 6}
            done = run("lattice", {"target": model}, prompt, params, max_tokens=LIMIT, eos=frozenset({2}))
            want = lattice(said(model), prompt, k, grams, near, 6, 2)
            assert ([tuple(r) for r in done.results], done.stats.target_calls) == want, (seed, prompt)
