"""A state holds as much as it was declared for: more is an error at the line that writes it, on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

BACKENDS = ("reference", "torch", "triton")


def run(text: str, backend: str, **params: Any) -> Result:
    module = load_text(text, "room.dec")
    if backend != "reference":
        module = optimise(module)[0]
    session = Session(module, models_for(module.entry, 4, 3), params, machine=machine(backend))
    return session.run(Request(prompt=(0, 1), max_tokens=6, seed=1))


def program(state: str, write: str) -> str:
    return (
        f"algorithm room(target: causal, w: int in 1..8 = 2):\n    state xs: {state}\n\n    while not done:\n"
        f"        x ~ target(ctx)\n        {write}\n        commit x\n"
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("state", "write", "tokens"),
    [
        ("token[<= 2] per sequence = []", "xs = xs ++ [x.token]", 2),
        ("token[<= w] per sequence = []", "xs = xs ++ [x.token]", 2),
        ("draws[<= w + 1] per session = []", "xs = xs ++ [x]", 3),
        ("int[3] = 0", "xs = xs ++ [1]", 0),
        ("list[token[<= 3], <= 2] per sequence = []", "xs = xs ++ [[x.token]]", 2),
        ("list[token[<= 1], <= 9] per sequence = []", "xs = xs ++ [[x.token, x.token]]", 0),
    ],
)
def test_more_than_there_is_room_for(state: str, write: str, tokens: int, backend: str) -> None:
    """`tokens` writes fit; the next one is an error, and what was committed before it is kept."""
    result = run(program(state, write), backend)
    assert len(result.tokens) == tokens
    assert result.error is not None and "room.dec:6:9" in str(result.error) and "state `xs` has room for" in str(result.error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("state", "write"),
    [
        ("token[<= w] per sequence = []", "xs = (xs ++ [x.token])[-w:]"),
        ("list[token[<= 2], <= 2] per sequence = []", "xs = [[x.token, x.token]]"),
        ("int[3] = 0", "xs[0] = 5"),
    ],
)
def test_what_fits_runs(state: str, write: str, backend: str) -> None:
    result = run(program(state, write), backend)
    assert result.error is None and len(result.tokens) == 6, result.error


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_start_has_to_fit_too(backend: str) -> None:
    text = program("token[<= w] per sequence = [0, 1, 2]", "xs = xs[:1]")
    result = run(text, backend)
    assert result.error is not None and "room for 2, this is 3" in str(result.error)
    assert run(text, backend, w=3).error is None


@pytest.mark.parametrize("write", ["k = k / 2", "k += 0.5"])
def test_a_whole_number_stays_whole(write: str) -> None:
    """A quotient in a state of whole numbers was 2.5 on one backend, and an error on another, where the state was read."""
    text = program("int = 5", write).replace("xs", "k")
    with pytest.raises(DecError, match="is int.*, not float") as refused:
        load_text(text, "room.dec")
    assert "E220" in str(refused.value)
    load_text(text.replace("k: int", "k: float"), "room.dec")
    first = program("int per sequence = 7 / 2", "xs += 1")
    with pytest.raises(DecError, match=r"it starts as float[\s\S]*int\(x\)"):
        load_text(first, "room.dec")
    load_text(program("int[16] per sequence = zeros(16)", "xs = zeros(16)"), "room.dec")
