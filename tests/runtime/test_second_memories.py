"""A memory of other tokens than the request's: calls on it are what the model computes on those rows, on both backends."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.models import bind, request_for
from decgraph.runtime.models.interface import Model

TEXT = """
algorithm on_memory(target: causal, other: token[<= 8] = [40, 41, 42, 43, 44], known: int in 1..8 = 3):
    while not done:
        text = other ++ ctx
        m = target.memory(text[:known])EDIT
        x ~ target(text, given = m) as output
        commit x
"""
OTHER = (40, 41, 42, 43, 44)


def target() -> Model:
    return bind(load_text(TEXT.replace("EDIT", ""), "own.dec").entry, {"target": "target"}).models["target"]


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("edit", ["", ".without([1])", ".quantized(2)"])
def test_tokens_after_a_memory_of_other_tokens(backend: str, edit: str) -> None:
    session = decgraph.parse(TEXT.replace("EDIT", edit)).session(backend=backend)
    request = request_for(session, prompt="def mean(values):", max_tokens=4, temperature=0.0)
    result = session.run(request)
    assert result.error is None
    model, text = target(), (*OTHER, *request.prompt)
    memory = model.memory(text[:3])
    given = {"": memory, ".without([1])": memory.without([1]), ".quantized(2)": memory.quantized(2)}[edit]
    for token in result.tokens:
        (row,) = model.eval([text], given)
        assert row.logits is not None and int(row.logits.argmax()) == token
        text = (*text, token)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_the_whole_memory_changes_nothing(backend: str) -> None:
    made: list[Any] = []
    for given in (", given = m", ""):
        text = TEXT.replace("EDIT", "").replace(", given = m", given)
        made.append(decgraph.parse(text).run("import os\n", max_tokens=8, seed=3, temperature=0.8, backend=backend).tokens)
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("target.each(prompt, given = target.memory(prompt))", "takes no given ="),
        ("target(prompt, given = 3)", "given = needs a memory"),
        ("target(prompt, allow = [1])", "takes no allow ="),
        ("target.attention(prompt, at = 3)", "attention takes given = and last =, not at ="),
        ("target.attention(ctx, ctx)", "attention is read at one place"),
        ("target.attention(3)", "attention is read at a context"),
    ],
)
def test_what_is_refused(call: str, said: str) -> None:
    with pytest.raises(DecError, match=said):
        decgraph.parse(
            f"algorithm a(target: causal):\n    while not done:\n        p = {call}\n        x ~ p\n        commit x\n"
        )
