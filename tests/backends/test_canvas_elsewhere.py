"""A canvas after other tokens than the request's: what is said of it is what a request with these tokens is told."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel

V = 5
LOOP = """    while any(c.masked):
        p = model({call})
        x ~ p
        unmask c where first_max(where(c.masked, p.raw[x], 0)) with x
    commit c
"""
HEAD = "algorithm one(model: masked, other: token[<= 8] = [], n: int in 1..16 = 5):\n    canvas c: n\n"
PLAIN, AFTER = HEAD + LOOP.format(call="c"), HEAD + LOOP.format(call="c, after = other")
MODELS: dict[str, Any] = {
    "table": lambda: TableModel(V, 3, kind="masked"),
    "free": lambda: FreeModel(6, V, 2, visibility="full"),
    "shipped": lambda: "shipped",
}


def told(program: str, model: Model | str, backend: str, prompt: list[int], **given: Any) -> tuple[int, ...]:
    models = None if isinstance(model, str) else {"model": model}
    done = decgraph.parse(program).run(prompt, models=models, backend=backend, max_tokens=5, temperature=0, params=given)
    assert done.error is None
    return done.tokens


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("table", "reference"),
        ("table", "torch"),
        ("free", "reference"),
        ("free", "torch"),
        pytest.param("shipped", "torch", marks=pytest.mark.nightly),
    ],
)
def test_other_tokens_are_read_in_the_prompts_place(name: str, backend: str) -> None:
    model, texts = MODELS[name](), {}
    for other in ([1, 2], [4], [3, 3, 0, 1, 2, 4]):
        there = texts[tuple(other)] = told(PLAIN, model, backend, other)
        assert told(AFTER, model, backend, [2, 0, 1], other=other) == there == told(AFTER, model, backend, other, other=other)
    assert len(set(texts.values())) > 1


def test_sequences_of_a_batch_read_their_own() -> None:
    session = decgraph.parse(AFTER).session({"model": FreeModel(6, V, 2, visibility="full")}, other=[4, 1])
    prompts = [[1], [2, 0, 1], [3, 3]]
    alone = {told(AFTER, FreeModel(6, V, 2, visibility="full"), "torch", p, other=[4, 1]) for p in prompts}
    together = [r.tokens for r in session.generate(prompts, max_tokens=5, temperature=0)]
    assert {*together} == alone and len(alone) == 1


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_policys_memory_is_of_the_requests_own_text(backend: str) -> None:
    """A call elsewhere between two governed ones changes nothing."""
    rows = "        u = model(c, at = b, after = other)\n        s = sum(u.raw[0])\n"
    steps = """    cache model by late
    for b in blocks(c, 3):
        while any(c.masked[b]):
            p = model(c, at = b)
{between}            x ~ p
            unmask c[b] where first_max(p.raw[x]{more}) with x
    commit c
"""
    policy = "policy late(b: span):\n    on enter b: recompute all\n    otherwise: recompute b, reuse the rest\n\n"
    plain = policy + HEAD + steps.format(between="", more="")
    between = policy + HEAD + steps.format(between=rows.replace("        ", "            "), more=" * s / s")
    model = FreeModel(6, V, 2, visibility="full")
    assert told(plain, model, backend, [2, 0, 1], other=[1]) == told(between, model, backend, [2, 0, 1], other=[1])


@pytest.mark.parametrize("call", ["c, after = other, given = model.memory(c)", "c, after = 3"])
def test_what_no_call_elsewhere_can_be(call: str) -> None:
    with pytest.raises(decgraph.DecError, match="after"):
        decgraph.parse(HEAD + LOOP.format(call=call))
