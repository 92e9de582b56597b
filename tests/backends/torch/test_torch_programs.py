"""The programs of tests/dsl/programs, every construct of the language among them: the torch backend as the reference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from lib.programs.corpus import NAMES, lowered
from lib.stdlib.requests import heard

from decgraph.backends.reference.values import SuffixSearch as ReferenceSuffixes
from decgraph.backends.registry import machine
from decgraph.backends.torch.stores import Suffixes as TorchSuffixes
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Module
from decgraph.passes.manager import optimise
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

V = 4
REQUESTS = [
    Request(prompt=(0, 1, 2, 0, 1), max_tokens=5, seed=11),
    Request(prompt=(2, 1, 3), max_tokens=4, seed=12, temperature=0),
    Request(prompt=(2, 1, 3, 1, 3), max_tokens=6, seed=13, temperature=0.7, top_p=0.9, eos=frozenset({3}), min_length=2),
]
LATER = {"clasp", "tli", "elastic_cache", "lookahead_reasoning", "everything"}
"""Programs that the front end does not take yet (tests/dsl/test_programs_run.py has the same list)."""
UNREADABLE = {"a_star", "reward_guided"}
"""Other vocabularies and text, which tables have not: both backends must refuse these, in the same words."""


STUCK = {("apd", 1), ("d2f", 0), ("sequoia", 1)}
"""Runs that the program itself cannot finish in these worlds: no mass left, no progress, a row that was not computed."""


@cache
def optimised(name: str) -> Module:
    return optimise(lowered(name))[0]


def given(p: Any, backend: str) -> Any:
    kind = p.value.type.elem
    if kind == "automaton":
        return Automaton(((0, 1, -1, 0), (1, 0, 1, -1)), frozenset({0, 1}))
    if kind == "set":
        return frozenset({1})
    index = TorchSuffixes if backend == "torch" else ReferenceSuffixes
    return index(4).learn((0, 1, 2, 3, 0, 1, 2)) if kind == "index" else None


def run(module: Module, f: Function, seed: int, backend: str, request: Request) -> Result:
    params = params_for(f, seed, {p.name: v for p in f.params if (v := given(p, backend)) is not None})
    small = {k: min(v, 4) if isinstance(v, int) else v for k, v in params.items()}
    session = Session(
        replace(module, main=f.name),
        models_for(f, V, seed),
        small,
        machine=machine(backend),
        externs=dict.fromkeys(module.externs, lambda *texts: 0.5),
    )
    return session.run(heard(f, request))


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")  # scores of two impossible tokens
@pytest.mark.parametrize("passes", [False, True], ids=["plain", "passes"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LATER])
def test_program_runs_as_on_the_reference(name: str, passes: bool) -> None:
    module = lowered(name)
    made = optimised(name) if passes else module
    for n, request in enumerate(REQUESTS):
        for function, f in module.functions.items():
            if any(lookup(op.opcode).unavailable for op in f.body.walk()):
                for backend in ("reference", "torch"):
                    with pytest.raises(DecError, match="no model adapter returns"):
                        run(made, made.functions[function], n, backend, request)
                continue
            wanted = run(module, f, n, "reference", request)
            got = run(made, made.functions[function], n, "torch", request)
            assert (got.tokens, got.reason, got.results) == (wanted.tokens, wanted.reason, wanted.results), got.error
            assert bool(got.error) == bool(wanted.error), (got.error, wanted.error)
            if wanted.error is not None:
                assert function in UNREADABLE or (function, n) in STUCK, wanted.error
