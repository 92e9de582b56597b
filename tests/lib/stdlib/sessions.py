"""Sessions of programs with what they need beside models: a tokenizer of letters, and the functions that they declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import decgraph
from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.passes.plan import Plan
from decgraph.runtime.models.interface import Model
from decgraph.runtime.session import Session, check_params
from lib.stdlib.letters import Letters


def session_of(
    algorithm: decgraph.Algorithm,
    models: Mapping[str, Model],
    params: Mapping[str, Any],
    backend: str = "reference",
    plan: Plan | None = None,
) -> Session:
    """plan: whose passes the program goes through; None: none on the reference, all on a backend that compiles."""
    plan = plan or Plan(passes=() if backend == "reference" else None)
    module = algorithm.optimised(check_params(algorithm.function, params), plan)
    externs = outside(algorithm.module)["externs"]
    return Session(module, models, params, machine=machine(backend), tokenizer=Letters(), externs=externs)
