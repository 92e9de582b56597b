"""Claims of stdlib about other programs on canvases, exactly, where a request allows fewer cells than the algorithm asks for: a
claim of `group_masked` was false there, and no world had so many cells."""

from __future__ import annotations

import re
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check.case import Case
from decgraph.check.claims import in_distribution, in_tokens
from decgraph.check.distributions import RunTally
from decgraph.ir.settings import holds_for, of_request, settings
from decgraph.ir.values import Claim, Module
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

LENGTH, ROOM = 5, 3
WITHOUT = {"learn2pd", "soft_value"}
"""They ask functions of the caller's."""


def of_canvases(name: str) -> bool:
    """Whether a program that calls masked models alone claims something of another program, by its text: to lower all of
    stdlib/ takes ten seconds."""
    text = stdlib.text(name)
    kinds = set(re.findall(r":\s*(causal|masked|features|layers|head)\b", text))
    return kinds == {"masked"} and re.search(r"^    refines (?!autoregressive)", text, re.MULTILINE) is not None


NAMES = [n for n in stdlib.names() if n not in WITHOUT and of_canvases(n)]


def values(module: Module, claim: Claim) -> dict[str, Any]:
    """Values of the parameters with which the claim speaks of canvases of LENGTH cells."""
    f = module.entry
    few = {"length": LENGTH, "block": 2, "steps": 3, "coarse": 3, "heat": 0}
    start = {p.name: few.get(p.name, p.default) for p in f.params if p.has_default}
    fixed = {"length": LENGTH} if "length" in start else {}
    for found in [{}, *settings(f, claim.setting, {"length": LENGTH})]:
        tried = {**start, **found, **fixed}
        if holds_for(claim, f, {**tried, **of_request(1, ROOM)}):
            return tried
    raise AssertionError(claim.text)


@pytest.mark.parametrize("name", NAMES)
def test_claims_hold_where_a_request_allows_fewer_cells(name: str) -> None:
    module = decgraph.load(name).module
    claims = [c for c in module.entry.claims if c.kind == "refines" and c.spec != "autoregressive"]
    assert claims
    for claim in claims:
        compares(module, claim)


def compares(module: Module, claim: Claim) -> None:
    """Compare a program with what its claim names where a request allows fewer cells than the canvas has."""
    model = TableModel(2, 1, kind="masked", name="model")
    request = Request(prompt=(0,), max_tokens=ROOM, temperature=0 if claim.for_greedy else 1)
    params = values(module, claim)
    case = Case(module, module.entry, claim, {"model": model}, params, request, steps=None, length=ROOM, limit=3000)
    compare = in_tokens if claim.mode == "tokens" else in_distribution
    assert compare(case, RunTally()) is None
