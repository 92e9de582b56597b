"""Programs of `decgraph.testing.programs` on every backend that a CPU has: the same tokens, or an error on each."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quick import examples

import decgraph
from decgraph.ir.text import equal, parse_module, print_module
from decgraph.runtime.request import Factor
from decgraph.runtime.session import Result
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

        def run(request: decgraph.Request) -> list[Result]:
            return [algorithm.session(models, backend=b, **params).run(request) for b in ("reference", "torch")]

        results = run(request)
        if results[0].tokens != results[1].tokens and request.bias:
            # Whole factors of small weights make ties, which rounding decides: 4 * 1/6 and 2/3. These make none.
            odd = tuple((token, Factor(factor.value * Fraction(1009, 1000))) for token, factor in request.bias)
            results = run(replace(request, bias=odd))
        assert results[0].tokens == results[1].tokens
        assert (results[0].error is None) == (results[1].error is None)

    agree()
