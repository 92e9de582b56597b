"""Every masked program under every shipped policy: it runs the same on both backends, or says why it cannot."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import NAMES

import decgraph
from decgraph import stdlib
from decgraph.backends.registry import machine
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

MASKED = [n for n in NAMES if "model: masked" in stdlib.text(n)]
WHOLE = {"dream", "dream_confidence", "dream_margin", "dream_origin", "prophet"}
"""Programs whose calls read the whole canvas."""


def tokens(module: Module, name: str, backend: str) -> tuple[int, ...]:
    params = {p.name: p.default for p in module.functions[name].params if p.has_default}
    params.update({k: v for k, v in {"length": 6, "block": 3, "steps": 4, "width": 2}.items() if k in params})
    model = TableModel(3, 4, kind="masked", name="model")
    request = Request((1, 2), max_tokens=6, eos=frozenset(), temperature=0.7, seed=3)
    m = machine(backend)(module, name, {"model": model}, params, request)
    m.run()
    committed: tuple[int, ...] = tuple(m.committed_tokens())
    return committed


@pytest.mark.parametrize("policy", ["dual", "prefix", "none"])
@pytest.mark.parametrize("name", MASKED)
def test_a_policy_serves_or_says_why(name: str, policy: str) -> None:
    if name in WHOLE and policy != "none":
        with pytest.raises(DecError, match="does not say which") as error:
            _ = decgraph.load(name).cached(policy).module
        assert "E380" in str(error.value) and f"{name}.dec:" in str(error.value)
        return
    module = decgraph.load(name).cached(policy).module
    found = {b: tokens(module, name, b) for b in ("reference", "torch")}
    assert len(found["torch"]) == 6 and found["torch"] == found["reference"]


def test_all_are_here() -> None:
    assert len(MASKED) >= 12 and set(MASKED) >= WHOLE


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_freedave_says_what_it_did(backend: str) -> None:
    """Calls are those that are computed, edits that verification accepts are told of like those that a statement makes."""
    from decgraph.runtime.models.engine.of import engine_of

    model = TableModel(3, 4, kind="masked", name="model")
    session = decgraph.load("freedave").session({"model": model}, plan=Plan(backend=backend), length=8, block=4, d=3)
    result = session.run(Request((1, 2), max_tokens=8, eos=frozenset(), temperature=0))
    kinds = [type(e).__name__ for e in result.events]
    s = result.stats
    assert s.unmasked == kinds.count("Unmasked") == 8 == s.tokens
    assert s.drafted == kinds.count("Drafted") > 0 and sum(s.accepted) == kinds.count("Accepted")
    assert s.target_calls == kinds.count("ModelCall") and s.tokens_per_call == 8 / s.target_calls
    if backend == "torch":
        counted = engine_of(model).counted
        assert s.target_calls < counted.sequence_calls and counted.computed == sum(
            e.computed or 0 for e in result.events if type(e).__name__ == "ModelCall"
        )
