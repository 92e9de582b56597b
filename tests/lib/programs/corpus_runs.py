"""Runs of the programs of tests/dsl/programs on small tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from decgraph.backends.reference.values import SuffixSearch
from decgraph.backends.registry import machine
from decgraph.backends.torch.stores import Suffixes
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.values import Function, Module
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from lib.programs.corpus import NAMES
from lib.stdlib.requests import heard

V = 4
LATER = {"clasp", "tli", "elastic_cache", "lookahead_reasoning", "everything"}
"""Programs that the front end does not take yet."""
RUN = [name for name in NAMES if name not in LATER]


def parameters(f: Function, seed: int, backend: str = "reference") -> dict[str, Any]:
    """Small parameters of a function, an automaton, a set and an index of the backend's among them."""
    index = Suffixes if backend == "torch" else SuffixSearch
    given = {
        "automaton": lambda: Automaton(((0, 1, -1, 0), (1, 0, 1, -1)), frozenset({0, 1})),
        "set": lambda: frozenset({1}),
        "index": lambda: index(4).learn((0, 1, 2, 3, 0, 1, 2)),
    }
    values = {p.name: given[p.value.type.elem]() for p in f.params if p.value.type.elem in given}
    return params_for(f, seed, values)


def run(
    module: Module,
    f: Function,
    request: Request,
    params: Mapping[str, Any],
    models: Mapping[str, Any],
    backend: str = "reference",
) -> Result:
    """A function of a module; its numbers are cut to 4."""
    small = {k: min(v, 4) if isinstance(v, int) else v for k, v in params.items()}
    externs = dict.fromkeys(module.externs, lambda *texts: 0.5)
    session = Session(replace(module, main=f.name), models, small, machine=machine(backend), externs=externs)
    return session.run(heard(f, request))


def in_world(module: Module, f: Function, seed: int, request: Request, backend: str = "reference") -> Result:
    """A function in the world of a seed."""
    return run(module, f, request, parameters(f, seed, backend), models_for(f, V, seed), backend)
