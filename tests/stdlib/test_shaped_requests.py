"""What a program claims to decode as, it decodes as in greedy requests with penalties and biases, too: a program that takes the
likeliest token of an unshaped distribution shows here in one run."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.letters import Letters

import decgraph
from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.dsl.lower import load_text
from decgraph.ir.settings import of_request, settings
from decgraph.ir.values import Claim
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session, check_params

V = 6
SHAPED: tuple[dict[str, Any], ...] = (
    {"presence_penalty": 3.0},
    {"bias": ((5, 40.0),)},
    {"bias": ((1, 1.5), (4, -2.0)), "repetition_penalty": 1.8},
    {"frequency_penalty": 1.0, "bans": frozenset({0, 3})},
)
NAMED = [n for n in stdlib.names() if "    refines " in stdlib.text(n).rpartition("\nalgorithm ")[2]]
"""By their text: to lower them all would take seconds wherever tests are collected."""


def run(module: Any, name: str, models: dict[str, Any], params: dict[str, Any], request: Request, externs: Any) -> Any:
    f = module.functions[name]
    mine = {p.name: models[p.name] for p in f.params if p.value.type.elem == "model"}
    s = Session(
        module, mine, check_params(f, params), machine=machine("reference"), tokenizer=Letters(), externs=externs, name=name
    )
    return s.run(request)


def compare(name: str, claim: Claim, seed: int) -> None:
    algorithm = decgraph.load(name)
    f, module = algorithm.function, algorithm.module
    spec = module.functions[claim.spec]
    models = models_for(f, V, seed, free=True)
    params = {**params_for(f, seed), **(settings(f, claim.setting, of_request(2, 6))[0] if claim.setting else {})}
    theirs: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for parameter, (kind, value) in claim.args:
        got = value if kind == "const" else models.get(value, params.get(value))
        (theirs if spec.param(parameter).value.type.elem == "model" else given)[parameter] = got
    externs = outside(module)["externs"]
    for asked in SHAPED:
        request = Request(prompt=(1, 2), max_tokens=6, temperature=0, **asked)
        got, want = (
            run(module, f.name, models, params, request, externs),
            run(module, spec.name, theirs, given, request, externs),
        )
        assert got.error is None or want.error is not None, (asked, str(got.error))
        assert got.tokens == want.tokens, (asked, claim.text, params)


@pytest.mark.quick("speculative", "r2_dllm", "remdm_loop", "medusa")
@pytest.mark.parametrize("name", NAMED)
def test_a_greedy_request_is_shaped_as_the_specification_shapes_it(name: str) -> None:
    entry = load_text(stdlib.text(name), f"stdlib/{name}.dec").entry
    for claim in entry.claims:
        if claim.kind == "refines":
            for seed in (1, 2):
                compare(name, claim, seed)
