"""The programs do what they say: each runs on small tables, and what refines another one in tokens commits its tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lib.programs.corpus import NAMES, lowered

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

PAIRS = [
    (n, f)
    for n in NAMES
    if n not in LATER
    for f in lowered(n).functions
    if f not in ("autoregressive", "static_masked") or n == f
]


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


@pytest.mark.parametrize(("name", "function"), PAIRS)
def test_program_runs(name: str, function: str) -> None:
    module = lowered(name)
    if any(lookup(op.opcode).unavailable for op in module.functions[function].body.walk()):
        with pytest.raises(DecError, match=rf"{name}.dec:\d+:\d+: [a-z.]+: no model adapter returns"):
            run(module, module.functions[function], 1)
        return
    result = run(module, module.functions[function], 1)
    if function in OPAQUE:
        assert result.error is not None and OPAQUE[function] in str(result.error)
        return
    assert result.error is None, result.error
    returned_only = {"diverse_beam", "superposed"}
    assert (len(result.tokens) > 0) != (function in returned_only)
    assert len(result.tokens) <= LIMIT and all(0 <= t < V for t in result.tokens)


IN_TOKENS = [(n, f) for n, f in PAIRS for c in lowered(n).functions[f].claims if c.kind == "refines" and c.mode == "tokens"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "function"), [p for p in IN_TOKENS if p[1] not in ("best_first_beam", "a_star")])
def test_claims_in_tokens(name: str, function: str, seed: int) -> None:
    module = lowered(name)
    f = module.functions[function]
    claim = next(c for c in f.claims if c.mode == "tokens")
    spec = module.functions[claim.spec]
    models = models_for(f, V, seed)
    values = {p.name: v for p in f.params if (v := given(p)) is not None}
    params = params_for(f, seed, values)
    own = run(module, f, seed, models, params)
    assert own.error is None, own.error
    bound = {k: {**models, **params}[v] if kind == "param" else v for k, (kind, v) in claim.args}
    served = {p.name for p in spec.params if p.value.type.elem == "model"}
    theirs = run(
        module, spec, seed, {k: v for k, v in bound.items() if k in served}, {k: v for k, v in bound.items() if k not in served}
    )
    assert theirs.error is None, theirs.error
    assert own.tokens == theirs.tokens
