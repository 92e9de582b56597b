"""The programs do what they say: each runs on small tables, and what refines another one in tokens commits its tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from lib.programs.corpus import NAMES, lowered, program

from decgraph.backends.reference.values import SuffixSearch
from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Module
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

V, LIMIT = 4, 5
LATER = {"clasp", "elastic_cache", "lookahead_reasoning", "everything"}
OPAQUE = {"a_star": "tokenizer", "reward_guided": "tokenizer"}
"""What tables cannot answer: other vocabularies, text."""

RUN = [name for name in NAMES if name not in LATER]


def own(name: str) -> list[str]:
    """The functions of a program, those left out that it imports and another file runs."""
    return [f for f in lowered(name).functions if f not in ("autoregressive", "static_masked") or name == f]


def given(p: Any) -> Any:
    kind = p.value.type.elem
    if kind == "automaton":
        return Automaton(((0, 1, -1, 0), (1, 0, 1, -1)), frozenset({0, 1}))
    if kind == "set":
        return frozenset({1})
    return SuffixSearch(4).learn((0, 1, 2, 3, 0, 1, 2)) if kind == "index" else None


def run(module: Module, f: Function, seed: int, models: Any = None, params: Any = None) -> Result:
    values = {p.name: v for p in f.params if (v := given(p)) is not None}
    values = params_for(f, seed, values) if params is None else params
    small = {k: min(v, 4) if isinstance(v, int) else v for k, v in values.items()}
    externs = dict.fromkeys(module.externs, lambda *texts: 0.5)
    session = Session(
        replace(module, main=f.name), models or models_for(f, V, seed), small, machine=machine("reference"), externs=externs
    )
    return session.run(Request(prompt=(0, 1, 2, 0, 1), max_tokens=LIMIT, seed=seed + 10))


@pytest.mark.parametrize("name", RUN)
def test_program_runs(name: str) -> None:
    module = lowered(name)
    for function in own(name):
        f = module.functions[function]
        if any(lookup(op.opcode).unavailable for op in f.body.walk()):
            with pytest.raises(DecError, match=rf"{name}.dec:\d+:\d+: [a-z.]+: no model adapter returns"):
                run(module, f, 1)
            continue
        result = run(module, f, 1)
        if function in OPAQUE:
            assert result.error is not None and OPAQUE[function] in str(result.error)
            continue
        assert result.error is None, result.error
        returned_only = {"diverse_beam", "superposed"}
        assert (len(result.tokens) > 0) != (function in returned_only)
        assert len(result.tokens) <= LIMIT and all(0 <= t < V for t in result.tokens)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in RUN if re.search(r"^ *refines .* in tokens", program(name), re.M)])
def test_claims_in_tokens(name: str, seed: int) -> None:
    module = lowered(name)
    for function in own(name):
        f = module.functions[function]
        claim = next((c for c in f.claims if c.kind == "refines" and c.mode == "tokens"), None)
        if claim is None or function in ("best_first_beam", "a_star"):
            continue
        spec = module.functions[claim.spec]
        models = models_for(f, V, seed)
        params = params_for(f, seed, {p.name: v for p in f.params if (v := given(p)) is not None})
        result = run(module, f, seed, models, params)
        assert result.error is None, result.error
        bound = {k: {**models, **params}[v] if kind == "param" else v for k, (kind, v) in claim.args}
        served = {p.name for p in spec.params if p.value.type.elem == "model"}
        of_models = {k: v for k, v in bound.items() if k in served}
        theirs = run(module, spec, seed, of_models, {k: v for k, v in bound.items() if k not in served})
        assert theirs.error is None, theirs.error
        assert result.tokens == theirs.tokens
