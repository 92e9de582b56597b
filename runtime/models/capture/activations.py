"""Pass: GELU's tanh form, written out, becomes one operation.

Why: GPT-2's activation is eight calls with as many temporaries of the MLP's inner size; `gelu(approximate="tanh")` is
the same formula in one kernel.

Precondition: the constants are that formula's.

    before   0.5 * x * (1 + tanh(0.79788 * (x + 0.044715 * x ** 3)))
    after    gelu(x, approximate="tanh")
"""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, either, is_op, shape_of


def activations(program: CapturedGraph) -> None:
    """Rewrites every chain that spells the tanh form of GELU as one `gelu`."""
    for node in program.of("mul"):
        x = _gelu(node)
        if x is not None:
            with program.before(node):
                made = program.make(
                    "gelu", (x,), shape=shape_of(node), dtype=dtype_of(node), layer=node.meta["layer"], approximate="tanh"
                )
            program.replace(node, made)
    program.sweep()


def _gelu(node: fx.Node) -> fx.Node | None:
    """x if this node is the formula of x."""
    for half, rest in (node.args, node.args[::-1]) if len(node.args) == 2 else ():
        x = _with(half, "mul", 0.5)
        tanh = _with(rest, "add", 1.0)
        if x is None or tanh is None or not is_op(tanh, "tanh"):
            continue
        total = _with(tanh.args[0], "mul", math.sqrt(2 / math.pi))
        if total is None or not is_op(total, "add"):
            continue
        pair = either(total, lambda a, x=x: a is x)  # type: ignore[misc]
        cube = None if pair is None else _with(pair[1], "mul", 0.044715)
        if cube is not None and is_op(cube, "pow") and cube.args == (x, 3) and isinstance(x, fx.Node):
            return x
    return None


def _with(node: Any, op: str, number: float) -> Any:
    """The other operand of `op` with this number."""
    if not is_op(node, op):
        return None
    pair = either(node, lambda a: isinstance(a, float | int) and math.isclose(a, number, rel_tol=1e-6))
    return None if pair is None else pair[1]
