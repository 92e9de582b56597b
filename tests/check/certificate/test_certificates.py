"""The certificates of what is derived are accepted by a checker that shares nothing with the prover but the IR's reader."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check.certificate import Refused, check, verify
from decgraph.check.proof.certificates import certificates

NO_RULE_YET = {
    # The schedules of canvases are not written into certificates.
    "no rule for claims of this kind yet",
}
NOT_FOLLOWED: dict[str, str] = {}


@cache
def written(name: str) -> dict[str, Any]:
    return json.loads(json.dumps(certificates(decgraph.load(name).module)[0]))  # type: ignore[no-any-return]


@pytest.mark.quick("speculative", "autoregressive", "prompt_lookup", "cfg", "dyspec", "traversal", "a_star")
@pytest.mark.parametrize("name", stdlib.names())
def test_certificates_of_stdlib_are_accepted(name: str) -> None:
    module = decgraph.load(name).module
    for one in written(name)["certificates"]:
        try:
            check(module, one)
        except Refused as refused:
            known = refused.why.startswith(tuple(NO_RULE_YET)) or f"{name}: {one['claim']}" in NOT_FOLLOWED
            assert known, f"{one['claim']}: {refused}"


@pytest.mark.parametrize("data", [None, [], {}, {"certificates": []}, {"certificates": [1]}, {"certificates": [{"format": 1}]}])
def test_what_is_no_certificate_is_refused(data: Any) -> None:
    lines, well = verify(decgraph.load("speculative").module, data)
    assert not well and lines[0].startswith("refused")


def test_an_older_or_newer_format_is_refused() -> None:
    lines, well = verify(decgraph.load("speculative").module, {"certificates": [{**written("speculative")["certificates"][0], "format": 2}]})
    assert not well and "format 2" in lines[0]
