"""Grammars: which tokens may come next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns
from fidelity.watched import run

from decgraph.runtime.grammars import Grammar
from lab.recordings.grammars import EOS, PIECES, Pieces, models


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


EMPTY = "src/cfg_monitor.py:40: the end may not come first, also where the empty text is one of the language"
ENTRIES = [recorded("grammar", grammar, differs={("5 (a|b|c)* 0", column): EMPTY for column in ("tokens", "allowed")})]
