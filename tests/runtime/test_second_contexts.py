"""A second context: a causal model on other tokens than the request's, against the same tokens as a prompt."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from lib.stdlib.table_models import layered, tables

import decgraph.models
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

LAST = """
algorithm last(target: causal, other: token[<= 8] = [1, 2]):
    while not done:
        x ~ target(other ++ ctx) as output
        commit x
"""
EACH = """
algorithm each(target: causal, other: token[<= 8] = [1, 2]):
    while not done:
        p = target.each(other ++ ctx)
        x ~ p[len(p) - 1] as output
        commit x
"""
OWN = """
algorithm own(target: causal, other: token[<= 8] = []):
    while not done:
        x ~ target(ctx) as output
        commit x
"""
TWO = """
algorithm two(target: causal, a: token[<= 8] = [1, 2, 3], b: token[<= 8] = [3, 2, 3]):
    while not done:
        p = target(a ++ ctx).raw
        q = target(b ++ ctx).raw
        r = target(ctx.last(2)).raw
        x ~ normalize(p + q + r)
        commit x
"""
BACKENDS = ("reference", "torch")
"""Both alone; `test_in_a_ragged_batch` has the others."""


@cache
def real() -> Model:
    """A model of the engine with a KV cache."""
    return decgraph.models.bind(load_text(OWN, "own.dec").entry, {"target": "target"}).models["target"]


def session(text: str, models: Any, backend: str, **params: Any) -> Session:
    return Session(load_text(text, "second.dec"), models, params, machine=machine(backend))


def requests(**more: Any) -> list[Request]:
    return [Request(prompt=(3, 1, 2, 0)[:n], max_tokens=9 - n, seed=n, **more) for n in (1, 4, 2)]


def shifted(tokens: tuple[int, ...], request: Request) -> Request:
    """The request whose prompt is the second context of the first step."""
    return Request(
        prompt=tokens + request.prompt, max_tokens=request.max_tokens, seed=request.seed, temperature=request.temperature
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", [LAST, EACH], ids=["last", "each"])
def test_another_prompt_gives_what_it_gives_as_the_prompt(text: str, backend: str) -> None:
    """Greedily, since noise depends on where a token stands in the text."""
    for models in ({"target": tables()["target"]}, {"target": layered("free")["target"]}, {"target": real()}):
        for request in requests(temperature=0):
            wanted = session(OWN, models, backend).run(shifted((1, 2), request))
            got = session(text, models, backend).run(request)
            assert got.error is None and got.tokens == wanted.tokens, (str(got.error), models)


@pytest.mark.parametrize("kind", ["table", "free", "hf"])
def test_in_a_ragged_batch(kind: str) -> None:
    """torch, alone and in a batch, with passes, as the reference: draws too, and texts that end alike but begin differently."""
    models = {"target": {"table": tables()["target"], "free": layered("free")["target"], "hf": real()}[kind]}
    for text in (TWO, EACH, LAST):
        wanted = [session(text, models, "reference").run(r) for r in requests()]
        assert all(r.error is None for r in wanted), [str(r.error) for r in wanted]
        module = optimise(load_text(text, "second.dec"))[0]
        together = Session(module, models, {}, machine=machine("torch")).generate(requests(), batch=3)
        alone = [session(text, models, "torch").run(r) for r in requests()]
        assert [r.tokens for r in together] == [r.tokens for r in alone] == [r.tokens for r in wanted]


def test_what_was_read_is_not_computed_again() -> None:
    """The engine computes the other prompt once, and then a token a step."""
    from decgraph.runtime.models.engine.of import engine_of

    target = real()
    before = engine_of(target).counted.computed
    result = session(LAST, {"target": target}, "torch", other=[1, 2, 3, 1, 2]).run(
        Request(prompt=(1, 2), max_tokens=6, temperature=0)
    )
    assert result.error is None
    assert engine_of(target).counted.computed - before == 5 + 2 + 6 - 1


def test_the_request_constrains_what_is_drawn() -> None:
    """A second context longer or shorter than the request's: the minimum length is counted in the request's text."""
    for backend in BACKENDS:
        for other in ([], [1], [1, 2, 3, 1, 2, 3]):
            done = session(LAST, tables_target(), backend, other=other).run(
                Request(prompt=(1, 2), max_tokens=6, min_length=4, eos=frozenset({0, 1, 2}), seed=1)
            )
            assert done.error is None and len(done.tokens) > 4
            assert done.tokens[:4] == (3, 3, 3, 3)


def tables_target() -> dict[str, Any]:
    return {"target": tables()["target"]}


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_tokens_and_too_many(backend: str) -> None:
    empty = "algorithm empty(target: causal):\n    while not done:\n        x ~ target(prompt[:0])\n        commit x\n"
    got = session(empty, tables_target(), backend).run(Request(prompt=(1, 2), max_tokens=2))
    assert "at least one token" in str(got.error)
    got = session(LAST, {"target": tables(context=4)["target"]}, backend, other=[1, 2, 3]).run(
        Request(prompt=(1, 2), max_tokens=2)
    )
    assert "context length" in str(got.error)


@pytest.mark.parametrize(
    "line, word",
    [
        ("target(ctx.token)", "vector of tokens"),
        ("target(prompt, allow = yes)", "no allow ="),
        ("target.each()", ".each takes"),
        ("target.each(1.5)", "vector of tokens"),
    ],
)
def test_diagnostics(line: str, word: str) -> None:
    with pytest.raises(DecError, match=word):
        load_text(f"algorithm a(target: causal):\n    while not done:\n        x ~ {line}\n        commit x\n", "a.dec")


def test_a_text_is_read_by_the_tokenizer() -> None:
    class Letters:
        detokenizer = None

        def encode(self, text: str) -> list[int]:
            return [ord(c) - ord("a") for c in text]

        def decode(self, tokens: Any) -> str:
            return ""

    made = Session(load_text(LAST, "a.dec"), tables_target(), {"other": "bdc"}, machine=machine("torch"), tokenizer=Letters())  # type: ignore[arg-type]
    assert np.array_equal(made.params["other"], [1, 3, 2])
    with pytest.raises(DecError, match="at most 8 token ids"):
        session(LAST, tables_target(), "torch", other=list(range(9)))
    with pytest.raises(DecError, match="at most 8 token ids"):
        session(LAST, tables_target(), "torch", other="bdc")
