"""Searches over whole texts: conditional Poisson beams, best-first beam search, constrained beams, MCTS over tokens,
LiteSearch, superposed decoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, after, replayed
from fidelity.watched import Watched, run

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request
from lab.recordings import tabled
from lab.recordings.searches import mixing, promise, spelled, table, value
from lab.recordings.tables import Letters, Stream, untied


def target(case: Mapping[str, Any]) -> Any:
    return untied(case["size"], case["seed"], window=case.get("window", 2), sharp=case.get("sharp", 1.0))


def beams(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The texts that a search finds, best first, and the texts after which each call asked."""
    return {"texts": [tuple(path) for path in done.result.results], "calls": asked_after(done, case)}


def asked_after(done: Watched, case: Mapping[str, Any]) -> list[list[tuple[int, ...]]]:
    """By call, the texts behind the prompt after which it asked."""
    n = len(case["prompt"])
    return [sorted({row[n:] for row in c.rows}) for c in done.calls]


beams_of = partial(replayed, models=lambda case: {"target": target(case)}, columns=beams)


def seen(program: str, *names: str, asked: str, by: Any, **more: Any) -> Any:
    """Ours: the text, and the texts of which the caller's function was asked, in order; of each it is asked once."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        asks: list[str] = []

        def said(text: str) -> float:
            asks.append(text)
            return float(by(text))

        how = {"max_tokens": case["limit"], "eos": case["eos"], "temperature": case.get("temperature", 0)}
        how |= {"externs": {asked: said, **more}, "tokenizer": Letters("\n")}
        with given(case["seed"]):
            done = run(program, case["prompt"], {"target": table(case)}, backend, **how, **{n: case[n] for n in names})
        return {"text": done.tokens[len(case["prompt"]) :], "asked": asks}

    return ours


def mcts(case: Mapping[str, Any], backend: str) -> Columns:
    """In order, each text once."""
    found = seen("mcts", "k", "rolls", "c", "noise_", asked="reward", by=value)(case, backend)
    return {**found, "asked": list(dict.fromkeys(found["asked"]))}


def litesearch(case: Mapping[str, Any], backend: str) -> Columns:
    """In order, but for the first two. A text whose last step is empty, or repeats the one before, is worth nothing."""
    names = ("most", "sure", "reach", "rounds", "goal", "ends")

    def worth(text: str) -> float:
        steps = text.split("\n")[:-1] if text.endswith("\n") and len(text) < case["limit"] else [text]
        return 0.0 if len(steps) > 0 and text and (not steps[-1] or steps[-1:] == steps[-2:-1]) else promise(text)

    ours = seen("litesearch", *names, asked="worth", by=worth, step_ends=lambda t: t.endswith("\n"))
    found = ours(case, backend)
    return {"text": spelled(found["text"]), "asked": list(dict.fromkeys([*sorted(found["asked"][:2]), *found["asked"][2:]]))}


def superposed(case: Mapping[str, Any], backend: str) -> Columns:
    """It is not watched: a mixture has no token."""
    params = {name: case[name] for name in ("k", "pool", "heat", "alpha", "penalty")}
    session = decgraph.load("superposed").session({"target": mixing(case)}, plan=Plan(backend=backend), **params)
    request = Request(tuple(case["prompt"]), max_tokens=case["limit"], eos=frozenset(case["eos"]), temperature=0)
    result = session.run(request)
    assert result.error is None, result.error
    return {"texts": [tuple(path) for path in result.results]}


def poisson_beam(case: Mapping[str, Any], backend: str) -> Columns:
    """Every coin reads a uniform, also one that is certain."""
    ours = replayed("poisson_beam", "k", "mass", "heat", "n", models=lambda case: {"target": table(case)}, columns=beams)
    with mock.patch.object(Stream, "flip", lambda self, p: self.coin() < p):
        return ours(case, backend)


def committed(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The text that a search commits, and the texts after which each call asked."""
    return {"texts": done.tokens[len(case["prompt"]) :], "calls": asked_after(done, case)}


def constrained_beam(case: Mapping[str, Any]) -> Columns:
    """Phrases as a list of lists. A text knows which words it has met and the last of them; scores are costs, and an ended
    text keeps its cost per token."""
    words = [w for phrase in case["phrases"] for w in phrase]
    goes_on = [i < len(phrase) - 1 for phrase in case["phrases"] for i in range(len(phrase))]
    heads = [i for i in range(len(words)) if not i or not goes_on[i - 1]]
    n, k, prompt, limit, alpha = len(words), case["k"], case["prompt"], case["limit"], case["alpha"]

    def needs(met: tuple[bool, ...], last: int) -> set[int]:
        if last >= 0 and goes_on[last]:
            return {words[last + 1]}
        return {words[i] for i in heads if not met[i]}

    def advance(met: tuple[bool, ...], last: int, token: int) -> tuple[tuple[bool, ...], int]:
        has = list(met)
        if last >= 0 and goes_on[last]:
            if token == words[last + 1]:
                has[last + 1] = True
                return tuple(has), last + 1
            while last >= 0 and goes_on[last]:
                has[last], last = False, last - 1
            return tuple(has), -1
        for i in heads:
            if words[i] == token and not has[i]:
                has[i] = True
                return tuple(has), i
        return met, last

    def ends(text: tuple[int, ...]) -> bool:
        return text[-1:] != () and (text[-1] in case["eos"] or len(text) == limit)

    beam = [((), 0.0, (False,) * n, -1)]
    calls = []
    while not all(ends(b[0]) for b in beam):
        calls.append(sorted(b[0] for b in beam if not ends(b[0])))
        costs, every = {}, []
        for r, (text, cost, _, _) in enumerate(beam):
            if ends(text):
                every.append((cost, r, None))
                continue
            p = after(target(case), (*prompt, *text))
            costs[r] = [cost - math.log(x) for x in p]
            every += [(c, r, v) for v, c in enumerate(costs[r])]
        chosen = {(r, v) for _, r, v in sorted(every, key=lambda e: e[0])[:k]}
        for r, (text, _, met, last) in enumerate(beam):
            if ends(text):
                chosen.add((r, None))
            else:
                chosen |= {(r, v) for v in {int(np.argmin(costs[r]))} | needs(met, last)}
        found = []
        for r, v in chosen:
            text, cost, met, last = beam[r]
            if v is None:
                found.append(beam[r])
            elif all(advance(met, last, v)[0]) or not ends((*text, v)):
                found.append(((*text, v), costs[r][v], *advance(met, last, v)))
        found.sort(key=lambda c: c[1])
        room = [k // (n + 1)] * (n + 1)
        room[-1] += k - sum(room)
        for b in reversed(range(n + 1)):
            spare = room[b] - sum(sum(c[2]) == b for c in found)
            if spare > 0:
                room[b] -= spare
                room[(b - 1) % (n + 1)] += spare
        fresh = []
        for c in found:
            if room[sum(c[2])] > 0:
                room[sum(c[2])] -= 1
                new = c[0] not in {b[0] for b in beam} and ends(c[0])
                fresh.append((c[0], c[1] / len(c[0]) ** alpha, *c[2:]) if new else c)
        beam = fresh
    return {"texts": [c[0] for c in sorted(beam, key=lambda c: c[1])], "calls": calls}


def with_phrases(case: Mapping[str, Any], backend: str) -> Columns:
    """Ours: which words the next one of them must follow."""
    words = [w for phrase in case["phrases"] for w in phrase]
    joined = [i for i in range(len(words)) if i + 1 not in np.cumsum([len(p) for p in case["phrases"]])]
    made: Columns = beams_of("constrained_beam", "words", "joined", "k", "alpha")(
        {**case, "words": words, "joined": frozenset(joined)}, backend
    )
    return made


ENTRIES = [
    recorded(
        "poisson_beam",
        poisson_beam,
        differs=dict.fromkeys(
            (("23 5 0.1", "texts"), ("7 1 1.0", "calls"), ("5 2 0.5", "calls")),
            "fairseq/sequence_generator.py:310: the first text that ends after the k-th is dropped, a bug",
        ),
    ),
    recorded(
        "best_first_beam",
        replayed("best_first_beam", "k", models=lambda case: {"target": table(case)}, columns=committed),
        differs={
            ("12 2", "texts"): "decoding/dijkstra_time_sync.py:43: a text that the limit ends is given up, here it is found"
        },
    ),
    recorded("mcts", mcts),
    recorded("litesearch", litesearch),
    recorded("superposed", superposed),
]
COMPARED = [
    Compared(
        "constrained_beam",
        "awslabs/sockeye b6d8d356, sockeye/lexical_constraints.py, _sequential_topk, get_bank_sizes, ConstrainedHypothesis, "
        "and beam_search.py, BeamSearch",
        constrained_beam,
        with_phrases,
        tabled(
            "{seed} {phrases} {k}",
            "seed phrases k alpha limit",
            (
                (1, [[4]], 4, 1.0, 7),
                (2, [[4, 5]], 5, 1.0, 7),
                (3, [[4, 5, 6], [7]], 5, 1.0, 9),
                (4, [[4], [4], [0, 1]], 7, 0.5, 8),
                (5, [[6, 6], [6, 7]], 6, 1.0, 9),
                (6, [[4], [5]], 2, 0.0, 8),
                (7, [[0]], 6, 1.0, 8),
                (9, [[4]], 5, 2.0, 8),
                (10, [[1]], 6, 1.0, 8),
            ),
            size=8,
            prompt=(1, 2),
            eos=(3,),
        ),
        "--beam-search-stop all; a text that the limit ends has no end token put in its last place",
    ),
]
