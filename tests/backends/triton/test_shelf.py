"""Every algorithm of stdlib/ has a whole step or says why not (docs/reference/steps.md), and steps commit the reference's
tokens: alone, in a ragged batch of all settings, and in lanes that are given to the next request."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, product
from typing import Any

import pytest
from lib.repository import ROOT

from decgraph import stdlib
from decgraph.api import load, parse
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.session import Session

STEPS = runpy.run_path(str(ROOT / "docs" / "reference" / "steps.py"))
PAGE = STEPS["PAGE"].read_text(encoding="utf-8")
WITH, WITHOUT = (re.findall(r"^\|? ?`(\w+)`|, `(\w+)`", part, re.M) for part in PAGE.split("## The driver runs"))
NAMES = [a or b for a, b in WITH]
DRIVEN = [a or b for a, b in WITHOUT]
FEW = ("autoregressive", "speculative", "medusa", "eagle2", "sequoia", "judge_decoding", "prompt_lookup", "dream")
VOCAB = STEPS["VOCAB"]

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 0.7, "eos": frozenset({4}), "top_k": 4},
    {"temperature": 1.3, "eos": frozenset({0, 6}), "top_p": 0.9, "repetition_penalty": 1.2},
    {"min_p": 0.05, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    {"bias": {1: 1.0}, "bans": frozenset({2}), "min_length": 2, "eos": frozenset({3})},
]
PROMPTS = [(1, 2, 3, 1, 2), (1, 2, 3, 1, 2), (3, 1), (2, 2, 5, 1, 0, 3, 4), (5, 4, 5), (6, 1, 1, 2)]
UNREAD: list[dict[str, Any]] = [
    {},
    {"temperature": 1, "top_k": None, "top_p": None, "min_p": None},
    {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0},
    {"bias": {}, "bans": frozenset(), "min_length": 0},
]
"""What an algorithm may refuse because it would change nothing, one after the other."""


def sessions(name: str) -> tuple[Session, Session]:
    """The reference's session, and the one of steps."""
    algorithm = load(name)
    models = models_for(algorithm.function, VOCAB, STEPS["SEED"])
    params = params_for(algorithm.function, STEPS["SEED"], vocab=VOCAB)
    reference, steps = (algorithm.session(models, backend=backend, **params) for backend in ("reference", "triton"))
    return reference, steps


def wanted(reference: Session, requests: list[Request]) -> tuple[list[Request], list[Result]]:
    """What the reference makes of each request, with those of its settings that the algorithm reads."""
    asked, out = [], []
    for request in requests:
        for fields in UNREAD:
            request = replace(request, **fields)
            try:
                out.append(reference.run(request))
            except DecError as error:
                assert "would change nothing" in str(error) or fields is not UNREAD[-1], str(error)
                continue
            asked.append(request)
            break
    return asked, out


def shares(name: str) -> bool:
    """Whether runs of a session hand something on."""
    return any(state.scope != "sequence" for state in load(name).function.states)


@pytest.mark.budget(14)
@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_steps_commit_the_reference_s_tokens(name: str) -> None:
    reference, steps = sessions(name)
    made = [
        Request(prompt, max_tokens=10 if n % 2 else 7, seed=9, request_id=n * (2**31 + 1), **fields)
        for n, (prompt, fields) in enumerate(zip(PROMPTS, SETTINGS, strict=True))
    ]
    requests, want = wanted(reference, made)
    if shares(name):  # each sees what those before left
        reference, steps = sessions(name)
        want = [reference.run(r) for r in requests]
        got = [steps.run(r, keep_events=False) for r in requests]
    else:
        got = steps.generate(requests, batch=4)  # six requests in four lanes
        alone = steps.run(requests[1], keep_events=False)
        assert (alone.tokens, alone.reason) == (want[1].tokens, want[1].reason)
    for one, other in zip(got, want, strict=True):
        assert (one.tokens, one.reason, str(one.error)) == (other.tokens, other.reason, str(other.error))
    modes = [one.mode for one in got]
    assert modes.count("graph mode") >= len(modes) // 2, f"steps left requests to the driver: {modes}"


def test_every_algorithm_stands_on_the_page_once() -> None:
    assert sorted(NAMES + DRIVEN) == sorted(stdlib.names())
    assert len(NAMES) >= 120 and set(FEW) <= set(NAMES)
    assert STEPS["page"](STEPS["committed"]()) == PAGE


@pytest.mark.budget(10)
@pytest.mark.quick(first=12)
@pytest.mark.parametrize("name", sorted(stdlib.names(), key=lambda name: (name not in (*FEW, "foreal", "bass"), name)))
def test_the_page_says_what_the_backend_says(name: str) -> None:
    why = STEPS["reason"](name)
    assert (why is None) == (name in NAMES), why
    assert why is None or f"| `{name}` | {why} |" in PAGE, "run: python docs/reference/steps.py"


CUT = """algorithm cut(target: causal, mass: prob = 0.5):
    while not done:
        p = target(ctx)
        commit argmax(where(renorm_topp(p.raw, mass) > 0, 1 - p.raw, 0))
"""


@pytest.mark.slow
def test_a_nucleus_ends_where_its_mass_is_reached_exactly() -> None:
    """The least likely token of every nucleus, at masses that the sum of some tokens is: the sums of probabilities are exact or
    nearly so there, and a step let one token more in."""
    algorithm, exact = parse(CUT), 0
    for seed, mass in product(range(8), (Fraction(1, 2), Fraction(1, 4), Fraction(3, 4))):
        models = models_for(algorithm.function, VOCAB, seed)
        asked = [Request((a, b), max_tokens=6, temperature=0) for a in range(VOCAB) for b in range(2)]
        want, got = ([r.tokens for r in algorithm.session(models, backend=backend, mass=mass).generate(asked, batch=14)]
                     for backend in ("reference", "triton"))  # fmt: skip
        assert got == want, (seed, mass)
        for request, tokens in zip(asked, want, strict=True):
            weights = models["target"].eval([(*request.prompt, *tokens[:-1])])[0].weights
            sums = accumulate(sorted((Fraction(w) / sum(weights) for w in weights), reverse=True))
            exact += mass in sums
    assert exact > 5
