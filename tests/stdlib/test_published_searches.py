"""Searches and drafting loops at details of published code that no recording here has, against the loops written once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lib.stdlib.published_details import Text, V, causal, committed, embedded, run, said

After = Callable[[Any], np.ndarray]
PROMPTS: list[Text] = [(0, 3), (5, 1, 1)]
LIMIT = 12


def ranked(p: np.ndarray, k: int) -> list[int]:
    """The k likeliest tokens."""
    return [int(v) for v in np.argsort(-p, kind="stable")[:k]]


def duodecoding(target: After, drafter: After, prompt: Text, budget: int, max_tokens: int) -> list[int]:
    """How many tokens each call of the target settles: one token is drafted while it reads the prompt; the number of sequences
    is rounded down to one that divides the budget."""
    pending: Text = ()
    found: list[int] = []
    text, size = prompt, 1
    while len(text) - len(prompt) < max_tokens:
        start = (*text, *pending)
        q = drafter(start)
        bar = q.max() * drafter((*start, int(q.argmax()))).max()
        k = max(1, sum(q[v] > bar for v in ranked(q, 8)))
        while size % k:
            k -= 1
        drafts = []
        for v in ranked(q, k):
            draft: Text = (v,)
            while len(draft) < size // k:
                draft = (*draft, int(drafter((*start, *draft)).argmax()))
            drafts.append(draft)
        n = 0
        while n < len(pending) and target((*text, *pending[:n])).argmax() == pending[n]:
            n += 1
        token = int(target((*text, *pending[:n])).argmax())
        met = [d for d in drafts if n == len(pending) and d[0] == token]
        text, pending, size = (*text, *pending[:n], token), met[0][1:] if met else (), budget
        found.append(n + 1)
    return found


@pytest.mark.parametrize("budget", [6, 12, 16])
def test_the_sequences_of_duodecoding_divide_its_budget(budget: int) -> None:
    rounded = 0
    for seed in range(3):
        target, drafter = causal(seed), causal(seed + 20)
        for prompt in PROMPTS:
            done = run("duodecoding", {"target": target, "drafter": drafter}, prompt, {"budget": budget}, max_tokens=LIMIT)
            want = duodecoding(said(target), said(drafter), prompt, budget, LIMIT)
            ours = committed(done)
            assert ours[:-1] == want[: len(ours) - 1], (seed, prompt)
            assert sum(ours) == LIMIT
            rounded += want[0] == 1
    assert rounded == 6, "the first call settles the one token that was drafted, or another in its place"


def best_first(target: After, prompt: Text, k: int, eos: int, max_tokens: int) -> tuple[Text, int] | None:
    """The first ended text at the head of all queues, one for each length, and how many texts were extended; a length
    of which k were followed drops all shorter ones. None: none has ended."""
    queues: list[list[tuple[float, Text]]] = [[(0.0, ())], *([] for _ in range(max_tokens + 1))]
    left, calls = [1] + [k] * (max_tokens + 1), 0
    while any(queues):
        score, n = max((max(q)[0], i) for i, q in enumerate(queues) if q)
        text = max(queues[n])[1]
        queues[n].remove((score, text))
        left[n] -= 1
        if text and text[-1] == eos:
            return text, calls
        if n < max_tokens:
            calls += 1
            p = target((*prompt, *text))
            new = [(score + float(np.log(p[v])), (*text, v)) for v in ranked(p, k)]
            queues[n + 1] = sorted([*queues[n + 1], *new], reverse=True)[: left[n + 1]]
        if left[n] <= 0:
            queues[: n + 1] = [[] for _ in range(n + 1)]
    return None


@pytest.mark.parametrize("k", [2, 3, 5])
def test_best_first_beams_drop_shorter_texts_when_a_length_is_full(k: int) -> None:
    longer = 0
    for seed in range(2):
        model = causal(seed)
        for eos in range(0, V, 2):
            want = best_first(said(model), PROMPTS[0], k, eos, 10)
            done = run("best_first_beam", {"target": model}, PROMPTS[0], {"k": k}, max_tokens=10, eos=frozenset({eos}))
            if want is not None and done.tokens[-1] == eos:  # at the limit the program may return a text that has not ended
                assert (done.tokens, done.stats.target_calls) == want, (seed, eos)
                longer += len(want[0]) > 1
    assert longer


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


def superposed(after: After, prompt: Text, eos: int, max_tokens: int) -> Text:
    """With one draft, whose embedding is its token's: it goes on greedily, and of each call's two likeliest tokens an end is
    kept, the likeliest; of both the likelier one is the result."""
    text: Text = ()
    ended: tuple[float, Text] = (-np.inf, ())
    score = 0.0
    while len(text) < max_tokens and score > ended[0]:
        p = np.log(after((*prompt, *text)))
        first, second = ranked(p, 2)
        ended = max(ended, *((score + float(p[v]), (*text, v)) for v in (first, second) if v == eos), (-np.inf, ()))
        on = second if first == eos else first
        score, text = score + float(p[on]), (*text, on)
    return max((score, text), ended)[1]


def test_superposed_drafts_that_ended_stay_beside_those_that_go_on() -> None:
    ends = 0
    for seed in range(2):
        model = embedded(seed)
        for eos in range(V):
            params = {"k": 1, "pool": V, "heat": 1.0, "alpha": 0}
            done = run("superposed", {"target": model}, (0, 3), params, max_tokens=6, eos=frozenset({eos}))
            want = superposed(said(model), (0, 3), eos, 6)
            assert done.tokens == want, (seed, eos)
            ends += want[-1] == eos
    assert 0 < ends < 2 * V
