"""Loops inside loops: all their turns together are bounded, where the numbers stand in the program, else in a run."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.backends.registry import machine
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

HEAD = "algorithm f(target: causal, n: int in 1..1000000 = 1000000):\n    while not done:\n        k = 0\n"
TAIL = "        x ~ target(ctx)\n        commit x\n"


def program(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


@pytest.mark.parametrize("lines", [
    ("repeat 1000000:", "    repeat 1000000:", "        k += 1"),
    ("for a in 0..1000:", "    for b in 0..1000:", "        for c in 0..1000:", "            k += 1"),
])  # fmt: skip
def test_constants_are_refused_where_they_stand(lines: tuple[str, ...]) -> None:
    with pytest.raises(decgraph.DecError) as caught:
        decgraph.parse(program(*lines), path="a.dec")
    (found,) = caught.value.diagnostics
    assert found.code == "E430" and found.span.line == 3 + len(lines) - 1


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(("inner", "ends"), [("n", True), ("min(n, 4)", False)])
def test_other_counts_end_the_request_at_their_line(backend: str, inner: str, ends: bool) -> None:
    text = program("for i in 0..n:", f"    for j in 0..{inner}:", "        k += 1", "    break if i > 3")
    session = Session(
        decgraph.parse(text, path="a.dec").module, {"target": TableModel(4, 1, name="target")}, machine=machine(backend)
    )
    result = session.run(Request(prompt=(0, 1), max_tokens=2, seed=1, request_id=0))
    if ends:
        assert "a.dec:5:13: request 0" in str(result.error) and "10,000,000" in str(result.error)
    else:
        assert result.error is None and len(result.tokens) == 2


def test_squares_of_squares_are_not_written_out() -> None:
    """A hundred squares of a number with a range would have 2^100 digits; the run ends where 64 bits do."""
    lines = ["m = min(n, 9) + 1", *["m = m * m"] * 100, "k = min(m, 3)", "if k > 5:", "    commit argmax(target(ctx))"]
    module = decgraph.parse(program(*lines), path="a.dec").module
    result = Session(module, {"target": TableModel(4, 1, name="target")}, machine=machine("reference")).run(
        Request(prompt=(0, 1), max_tokens=2, seed=1, request_id=0)
    )
    assert result.error is not None and "whole number" in str(result.error)
