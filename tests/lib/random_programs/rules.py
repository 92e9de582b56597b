"""What random whole programs bring along: rules of their own, automata, and functions that the caller hands over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from decgraph.runtime.automaton import Automaton
from decgraph.runtime.noise import hash32
from lib.random_programs.text import V

OWN_RULES = {
    "likely": "rule likely(p: dist, children: draws, tau: prob):\n    for x in children:\n        if p[x] > tau:\n"
    "            accept x\n    y ~ p as output\n    emit y",
    "last_child": "rule last_child(p: dist, children: draws):\n    y ~ p as output\n    if len(children) > 0:\n"
    "        n = last(children)\n        if p[n] >= 0.2:\n            accept n\n    emit y",
    "coin": "rule coin(p: dist, children: draws, tau: prob):\n    for x in children:\n        if bernoulli(tau):\n"
    "            accept x\n    emit argmax(p)",
    "scored": "rule scored(p: dist, children: draws):\n    best = 0.0\n    for x in children:\n        best = max(best, p[x])\n"
    "    for x in children:\n        if p[x] == best and best > 0:\n            accept x\n    y ~ p\n    emit y",
    "longest_likely": "rule longest_likely(t: tree, p: dist[t.nodes], tau: prob):\n    above = p[t.parent]\n"
    "    live = down(t, above[t.token] >= tau, all)\n    n = argmax(t.nodes where live, by = [t.depth, t.logprob])\n"
    "    accept n\n    y ~ p[n]\n    emit y",
    "all_or_none": "rule all_or_none(t: tree, p: dist[t.nodes]):\n"
    "    ok = argmax(p[t.parent]) == t.token\n    live = down(t, ok, all)\n"
    "    n = argmax(t.nodes where live, by = t.depth)\n    if count(live) > 2:\n        accept n\n        emit argmax(p[n])\n"
    "    else:\n        accept root\n        y ~ p[root]\n        emit y",
}


def hashed(*values: Any) -> int:
    """A number that depends on the values alone."""
    flat: list[int] = []
    for v in values:
        if isinstance(v, str):
            flat += [ord(c) for c in v]
        elif isinstance(v, Sequence):
            flat += [int(x) for x in v]
        else:
            flat.append(int(v))
    return int(hash32(tuple(flat)))


def automaton(seed: int) -> Automaton:
    """Three states over the vocabulary, none of which is stuck."""
    r = random.Random(f"automaton {seed}")
    rows = []
    for state in range(3):
        row = [r.choice((-1, 0, 1, 2)) for _ in range(V)]
        row[r.randrange(V)] = (state + 1) % 3
        rows.append(tuple(row))
    return Automaton(tuple(rows), frozenset({0, 1, 2}))


__all__ = ["OWN_RULES", "automaton", "hashed"]
