"""The reference refuses a `break` or `verdict` whose values are not those that its loop or rule yields on that way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Module, Op
from decgraph.ir.walk import map_bodies, rebuild
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

TEXT = """rule first(p: dist, children: draws):
    for x in children:
        if p[x] > 0:
            accept x
    y ~ p
    emit y

algorithm ends(target: causal):
    while not done:
        a = 0
        b = 7
        for i in 0..3:
            a = i
            if i == 1:
                break
            b = i
        draft t:
            repeat a + b + 1:
                x ~ target(t.leaves)
                grow x
        verify t by first against target(t)
        commit t.accepted
"""


def error_of(module: Module) -> Exception | None:
    """The error that a run on the reference ends with."""
    models = {"target": TableModel(4, seed=1, name="target")}
    return Session(module, models, {}, machine=machine("reference")).run(Request(prompt=(0,), max_tokens=4)).error


def swapped(module: Module, opcode: str, one: int, other: int) -> Module:
    """The module with two values of every such op in each other's place."""

    def swap(op: Op) -> tuple[tuple[Op, ...], tuple[()]] | None:
        if op.opcode != opcode:
            return None
        operands = list(op.operands)
        operands[one], operands[other] = operands[other], operands[one]
        return (replace(op, operands=tuple(operands)),), ()

    return map_bodies(module, lambda body: rebuild(body, swap))


@pytest.mark.parametrize(("opcode", "one", "other"), [("break", 0, 1), ("verdict", 1, 3)])
def test_values_of_an_early_end_are_those_of_what_it_ends(opcode: str, one: int, other: int) -> None:
    module = load_text(TEXT, "ends.dec")
    assert error_of(module) is None
    error = error_of(swapped(module, opcode, one, other))
    assert "internal error" in str(error) and f"`{opcode}` has other values" in str(error)
