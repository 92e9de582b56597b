"""Programs of `decgraph.testing.programs` on every backend that a CPU has: the same tokens, or an error on each."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quick import examples

import decgraph
from decgraph.ir.text import equal, parse_module, print_module
from decgraph.testing import parameters, programs, requests


@pytest.mark.quick("masked")
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_backends_agree_on_drawn_programs(kind: str) -> None:
    @settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs(kind), requests(), st.data())
    def agree(text: str, request: decgraph.Request, data: st.DataObject) -> None:
        algorithm = decgraph.parse(text)
        assert equal(parse_module(print_module(algorithm.module)), algorithm.module)
        models, params = data.draw(parameters(algorithm))
        results = [algorithm.session(models, backend=b, **params).run(request) for b in ("reference", "torch")]
        assert results[0].tokens == results[1].tokens
        assert (results[0].error is None) == (results[1].error is None)

    agree()
