"""Searches over whole texts: conditional Poisson beams, best-first beam search, constrained beams, MCTS over tokens,
LiteSearch, superposed decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, replayed
from fidelity.watched import Watched, run

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request
from lab.recordings.searches import ending, promise, spelled, table, value
from lab.recordings.superposed import mixing
from lab.recordings.tables import Letters, Stream


def beams(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The texts that a search finds, best first, and the texts after which each call asked."""
    return {"texts": [tuple(path) for path in done.result.results], "calls": asked_after(done, case)}


def asked_after(done: Watched, case: Mapping[str, Any]) -> list[list[tuple[int, ...]]]:
    """By call, the texts behind the prompt after which it asked."""
    n = len(case["prompt"])
    return [sorted({row[n:] for row in c.rows}) for c in done.calls]


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


def constrained_beam(case: Mapping[str, Any], backend: str) -> Columns:
    """Ours: which words the next one of them must follow."""
    words = [w for phrase in case["phrases"] for w in phrase]
    joined = [i for i in range(len(words)) if i + 1 not in np.cumsum([len(p) for p in case["phrases"]])]
    params = {"words": words, "joined": frozenset(joined), "k": case["k"], "alpha": case["alpha"]}
    how: dict[str, Any] = {"max_tokens": case["limit"], "eos": case["eos"]}
    done = run("constrained_beam", case["prompt"], {"target": ending(case)}, backend, **how, **params)
    return beams(done, case)


FIRST = "sockeye/beam_search.py:672: in the first step rows that stand for nothing are active, and take part in the banks"
FILLED = "sockeye/beam_search.py:193: a row that fills up the beam keeps its score, and may end by padding"
IDLE = {
    ("7 [[0]] 6 all", "calls"): FIRST,
    **{("10 [[1], [5]] 6 all", column): FIRST for column in ("texts", "calls")},
    **{(name, column): FILLED for name in ("3 [[4, 5, 6], [7]] 5 one", "7 [[0]] 6 one") for column in ("texts", "calls")},
}
ENTRIES = [
    recorded("constrained_beam", constrained_beam, differs=IDLE),
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
