"""What a program says it refines in tokens, it commits the tokens of: on small tables. Whether the programs run at all, and
what they commit, is asked by tests/backends/torch/test_torch_programs.py."""

from __future__ import annotations

import re

import pytest
from lib.programs.corpus import lowered, program
from lib.programs.corpus_runs import RUN, V, parameters, run

from decgraph.check.worlds import models_for
from decgraph.runtime.request import Request


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in RUN if re.search(r"^ *refines .* in tokens", program(name), re.M)])
def test_claims_in_tokens(name: str, seed: int) -> None:
    module = lowered(name)
    for function, f in module.functions.items():
        claim = next((c for c in f.claims if c.kind == "refines" and c.mode == "tokens"), None)
        if claim is None or function in ("best_first_beam", "a_star"):
            continue
        spec = module.functions[claim.spec]
        models, params = models_for(f, V, seed), parameters(f, seed)
        request = Request(prompt=(0, 1, 2, 0, 1), max_tokens=5, seed=seed + 10)
        result = run(module, f, request, params, models)
        assert result.error is None, result.error
        bound = {k: {**models, **params}[v] if kind == "param" else v for k, (kind, v) in claim.args}
        served = {p.name for p in spec.params if p.value.type.elem == "model"}
        of_models = {k: v for k, v in bound.items() if k in served}
        theirs = run(module, spec, request, {k: v for k, v in bound.items() if k not in served}, of_models)
        assert theirs.error is None, theirs.error
        assert result.tokens == theirs.tokens
