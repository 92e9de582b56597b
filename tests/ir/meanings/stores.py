"""Indexes over texts, keyed tables, automata."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.values import REALS, TOKENS, exactly, row, tokens

from decgraph.runtime.automaton import Automaton

DEPTH = 4


def texts(draw: Draw) -> tuple[list[list[int]], list[str], dict[str, tuple[str, Any]]]:
    """Some texts, the lines that teach them to an index %i0, %i1, ..., and their operands."""
    learned = draw(st.lists(st.lists(TOKENS, max_size=8), max_size=3))
    lines = [f"%n = const(value = {DEPTH}, type = !int)", '%i0 = index.new(%n, kind = "suffixes")']
    lines += [f"%i{n + 1} = index.learn(%i{n}, %t{n})" for n in range(len(learned))]
    return learned, lines, {f"t{n}": tokens(t) for n, t in enumerate(learned)}


def follows(learned: list[list[int]], key: list[int]) -> list[list[int]]:
    """What follows every occurrence that something follows, in the order in which it was learned."""
    n = len(key)
    return [t[i + n :] for t in learned for i in range(len(t) - n) if t[i : i + n] == key]


@says("index.new", "index.learn", "index.ask")
def occurs(draw: Draw) -> Sample:
    learned, lines, given = texts(draw)
    key = draw(st.lists(TOKENS, min_size=1, max_size=3))
    return Sample(
        "\n".join([*lines, f'%z = index.ask(%i{len(learned)}, %k, what = "has", named = ())']),
        {**given, "k": tokens(key)},
        (bool(follows(learned, key)),),
    )


@says("index.ask")
def continuation(draw: Draw) -> Sample:
    """After the longest suffix of the key that occurs, of `at_least` tokens to the index's depth: what followed its last
    occurrence, or its first; or, token by token, what followed most often."""
    learned, lines, given = texts(draw)
    key = draw(st.lists(TOKENS, max_size=6))
    least, most = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    pick = draw(st.sampled_from(["last", "first", "likeliest"]))
    want: list[int] = []

    def after(key: list[int]) -> list[list[int]]:
        lengths = range(min(DEPTH, len(key)), least - 1, -1)
        return next((found for n in lengths if (found := follows(learned, key[len(key) - n :]))), [])

    if pick != "likeliest":
        want = after(key)[-1 if pick == "last" else 0][:most] if after(key) else []
    while pick == "likeliest" and len(want) < most and (found := [f[0] for f in after(key + want)]):
        want = [*want, max(range(V), key=lambda v: (found.count(v), -v))]
    named = '%l, %m, %p, what = "path", named = ("at_least", "at_most", "pick"), bound = 5'
    return Sample(
        "\n".join([*lines, f"%z = index.ask(%i{len(learned)}, %k, {named})"]),
        {**given, "k": tokens(key), "l": ("int", least), "m": ("int", most), "p": ("text", pick)},
        (want,),
    )


@says("index.ask")
def longest(draw: Draw) -> Sample:
    """How long the longest suffix of the key is that something follows."""
    learned, lines, given = texts(draw)
    key = draw(st.lists(TOKENS, max_size=6))
    want = max(n for n in range(min(DEPTH, len(key)) + 1) if n == 0 or follows(learned, key[len(key) - n :]))
    return Sample(
        "\n".join([*lines, f'%z = index.ask(%i{len(learned)}, %k, what = "matched", named = ())']),
        {**given, "k": tokens(key)},
        (want,),
    )


@says("index.ask")
def frequencies(draw: Draw) -> Sample:
    """How often each token followed the longest suffix of the key that occurs (the empty one always does, where there is a
    token at all)."""
    learned, lines, given = texts(draw)
    key = draw(st.lists(TOKENS, max_size=6))
    want = [0.0] * V
    for n in range(min(DEPTH, len(key)), -1, -1):
        found = [f[0] for f in follows(learned, key[len(key) - n :])]
        if found:
            want = [found.count(v) / len(found) for v in range(V)]
            break
    return Sample(
        "\n".join([*lines, f'%z = index.ask(%i{len(learned)}, %k, what = "score", named = ())']),
        {**given, "k": tokens(key)},
        (want,),
    )


@says("index.new", "index.learn", "index.ask")
def entries(draw: Draw) -> Sample:
    """Under a key the last `capacity` entries, oldest first; one that comes again is the newest."""
    capacity, key = draw(st.integers(1, 3)), draw(TOKENS)
    stored = draw(st.lists(st.tuples(TOKENS, st.lists(TOKENS, min_size=1, max_size=2)), max_size=6))
    lines = [f"%n = const(value = {capacity}, type = !int)", '%i0 = index.new(%n, kind = "lru")']
    given: dict[str, tuple[str, Any]] = {"k": ("token<V>", key)}
    kept: list[list[int]] = []
    for n, (k, entry) in enumerate(stored):
        lines.append(f"%i{n + 1} = index.learn(%i{n}, %k{n}, %e{n})")
        given |= {f"k{n}": ("token<V>", k), f"e{n}": tokens(entry)}
        if k == key:
            kept = [e for e in kept if e != entry] + [entry]
            kept = kept[len(kept) - min(len(kept), capacity) :]
    lines.append(f'%z = index.ask(%i{len(stored)}, %k, what = "get", named = ())')
    return Sample("\n".join(lines), given, (kept,))


def automaton(draw: Draw) -> tuple[tuple[str, Any], list[list[int]], set[int], int]:
    """A table, its accepting states and its start."""
    n = draw(st.integers(1, 4))
    table = draw(exactly(exactly(st.integers(-1, n - 1), V), n))
    accepting = set(draw(st.lists(st.integers(0, n - 1), max_size=2)))
    start = draw(st.integers(0, n - 1))
    made = Automaton(tuple(map(tuple, table)), frozenset(accepting), start)
    return ("automaton<V>", made), table, accepting, start


def ends(table: list[list[int]], accepting: set[int], state: int) -> bool:
    """Whether an accepting state can be reached."""
    seen, todo = {state}, [state]
    while todo:
        for after in table[todo.pop()]:
            if after >= 0 and after not in seen:
                seen.add(after)
                todo.append(after)
    return bool(seen & accepting)


@says("automaton")
def walking(draw: Draw) -> Sample:
    g, table, accepting, start = automaton(draw)
    what = draw(st.sampled_from(["start", "step", "run", "allowed", "live", "weights", "states"]))
    s, x = draw(st.integers(0, len(table) - 1)), draw(TOKENS)
    given: dict[str, tuple[str, Any]] = {"g": g, "s": ("astate", s)}
    if what == "start":
        return Sample('%z = automaton(%g, what = "start")', given, (start,))
    if what == "step":
        return Sample('%z = automaton(%g, %s, %x, what = "step")', {**given, "x": ("token<V>", x)}, (table[s][x],))
    if what == "run":
        xs = draw(st.lists(TOKENS, max_size=4))
        at = s
        for t in xs:
            at = table[at][t] if at >= 0 else -1
        return Sample('%z = automaton(%g, %s, %x, what = "run")', {**given, "x": tokens(xs)}, (at,))
    if what == "allowed":
        return Sample(
            '%z = automaton(%g, %s, what = "allowed")',
            given,
            ([after >= 0 and ends(table, accepting, after) for after in table[s]],),
        )
    if what == "live":
        return Sample('%z = automaton(%g, what = "live")', given, ([ends(table, accepting, n) for n in range(len(table))],))
    if what == "weights":
        return Sample(
            '%z = automaton(%g, %s, what = "weights")', given, ([0.0 if n == s else -math.inf for n in range(len(table))],)
        )
    return Sample('%z = automaton(%g, what = "states")', given, (len(table),))


@says("relax")
def best_step(draw: Draw) -> Sample:
    """The best of all ways into each state; of equally good ones the one from the smallest state by the smallest token."""
    g, table, _, _ = automaton(draw)
    w = draw(exactly(REALS | st.just(-math.inf), len(table)))
    s = draw(exactly(REALS | st.just(-math.inf), V))
    best, back, token = [], [], []
    for to in range(len(table)):
        ways = [(w[a] + s[x], -a, -x) for a in range(len(table)) for x in range(V) if table[a][x] == to]
        ways = [way for way in ways if way[0] > -math.inf]
        top = max(ways) if ways else (-math.inf, 0, 0)
        best.append(top[0])
        back.append(-top[1])
        token.append(-top[2])
    return Sample(
        "%z, %b, %t = relax(%g, %w, %s)", {"g": g, "w": ("real[k.states]", np.array(w)), "s": row(s)}, (best, back, token)
    )
