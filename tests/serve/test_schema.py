"""schemathesis: requests of every shape that the schema describes, and of many that it does not. None is answered with a 500,
or with a status or a body that the schema does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from lib.server import served
from lib.waiting import SECONDS

from decgraph.serve.generation import Limits


@pytest.fixture(scope="module")
def app(catalogue: Any) -> Iterator[Any]:
    """A server that writes little."""
    with served(catalogue, width=4, queue=64, limits=Limits(tokens=4, answers=64)) as running:
        yield running


@pytest.mark.slow
@pytest.mark.budget(26)
def test_requests_of_every_shape(app: Any) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    schema = schemathesis.openapi.from_url(f"{app.url}/openapi.json")
    checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
    seen: set[int] = set()
    operations = [one.ok() for one in schema.get_all_operations()]
    assert {one.path for one in operations} >= {"/v1/models", "/v1/completions", "/v1/chat/completions"}
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                _ask(operation.as_strategy(generation_mode=mode), seen, checks)
            except Unsatisfiable:  # a route that takes nothing cannot be asked wrongly
                assert mode is GenerationMode.NEGATIVE and operation.method == "get"
    assert seen >= {200, 400}
    import httpx

    assert httpx.get(f"{app.url}/health", timeout=SECONDS).status_code == 200 and not app.service.open


def _ask(cases: Any, seen: set[int], checks: Any) -> None:
    """A few cases, and what came of them."""

    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "target"  # else almost all would end as a 404
        answer = case.call()
        seen.add(answer.status_code)
        case.validate_response(answer, checks=checks)

    ask()
