"""Constraints: which tokens a grammar allows, and draws until a constraint accepts one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
from fidelity.causal_search import arriving
from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.models import Same
from fidelity.transcribed.compared import Columns
from fidelity.watched import run
from lib.stdlib.letters import Letters

from decgraph.runtime.grammars import Grammar
from lab.recordings.grammars import EOS, PIECES, Pieces, models, scores, uniforms


def grammar(case: Mapping[str, Any], backend: str) -> Columns:
    """With the tokens that may come, by token of the text."""
    params = {"g": case["g"], "gamma": case["gamma"]}
    how = {"max_tokens": case["limit"], "eos": (EOS,), "temperature": case["temperature"], "tokenizer": Pieces()}
    with given(case["seed"]):
        done = run("grammar", case["prompt"], models(case), backend, **how, **params)
    automaton, allowed, state = Grammar.regex(case["g"]).table(Pieces(), (EOS,), len(PIECES)), [], 0
    for token in done.tokens[len(case["prompt"]) :]:
        allowed.append(sorted(automaton.allowed(state)))
        state = automaton.step(state, token)
    return {"tokens": done.tokens, "allowed": allowed}


def awrs(case: Mapping[str, Any], backend: str) -> Columns:
    """One token: the race reads the uniforms, and the constraint is the set. A weight of 0 has no logarithm."""
    asked: list[list[Any]] = []

    def valid(text: str) -> bool:
        asked.append([ord(text[-1]), ord(text[-1]) in case["accepted"]])
        return bool(asked[-1][1])

    how = {"max_tokens": 1, "temperature": 1, "externs": {"valid": valid}, "tokenizer": Letters(chr(i) for i in range(64))}
    with arriving(repeat(-np.log(uniforms(case)))):
        done = run("awrs", [0], {"target": Same(scores(case))}, backend, **how, tries=case["tries"])
    (weight,) = done.result.results[0]
    return {"token": done.tokens[1], "tried": asked, "thousandths": None if weight == -(10**9) else weight}


EMPTY = "src/cfg_monitor.py:40: the end may not come first, also where the empty text is one of the language"
ENTRIES = [
    recorded("awrs", awrs),
    recorded("grammar", grammar, differs={("5 (a|b|c)* 0", column): EMPTY for column in ("tokens", "allowed")}),
]
