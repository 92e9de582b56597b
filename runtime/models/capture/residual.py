"""Pass: the addition of the residual stream is part of the matrix product before it.

Why: `addmm` starts from the states instead of zeros: one call and one temporary less for attention's output and for
the MLP's.

Precondition: matrices; a linear map without a bias that nobody else reads; the other summand is of the same shape and
dtype.

    before   h + linear(x, w)
    after    addmm(h, x, w.t())
"""

from __future__ import annotations

from torch import fx

from decgraph.runtime.models.capture.products import plain, transposed
from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, is_op, only_user, shape_of


def residual(program: CapturedGraph, tied: frozenset[int] = frozenset()) -> None:
    """`tied`: ids of tensors that the module also uses elsewhere."""
    for node in program.of("add"):
        shape = shape_of(node)
        if len(node.args) != 2 or shape is None or len(shape) != 2 or shape[0] != "BT":
            continue
        for product, other in (node.args, node.args[::-1]):
            if _fits(program, node, product) and shape_of(other) == shape and dtype_of(other) == dtype_of(product):
                assert isinstance(product, fx.Node)
                matrix = transposed(program, product.args[1], tied)
                args = (other, product.args[0], matrix)
                with program.before(node):
                    new = program.make("addmm", args, shape=shape, dtype=dtype_of(node), layer=node.meta["layer"])
                program.replace(node, new)
                break
    program.sweep()


def _fits(program: CapturedGraph, node: fx.Node, product: object) -> bool:
    return (
        isinstance(product, fx.Node)
        and is_op(product, "linear")
        and argument(product, 2, "bias") is None
        and only_user(product) is node
        and plain(program.tensor(product.args[1]))
        and len(shape_of(product.args[0]) or ()) == 2
    )
