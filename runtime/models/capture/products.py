"""Pass: linear maps of rows become plain matrix products with weights stored the way they are read fastest.

Why: on matrices `linear` is `mm` or `addmm` after a transposition and a check of its operands' dimensions. How weights
are stored is told in storage.py; the module's parameters become views.

Precondition: matrices in, a weight that the module names. One that it ties to another of its tensors, or that is a caller's,
stays where it is.

    before   linear(x, w, b)
    after    addmm(b, x, w_t)         without a bias: mm(x, w_t); w_t = w.t()
"""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn

from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, shape_of
from decgraph.runtime.models.capture.storage import turned


def products(program: CapturedGraph, tied: frozenset[int] = frozenset()) -> None:
    """`tied`: ids of tensors that the module also uses elsewhere; they stay where they are."""
    for node in program.of("linear"):
        x, weight = node.args[0], node.args[1]
        if len(shape_of(x) or ()) != 2 or not plain(program.tensor(weight)):
            continue
        matrix = transposed(program, weight, tied)
        bias = argument(node, 2, "bias")
        with program.before(node):
            op, args = ("mm", (x, matrix)) if bias is None else ("addmm", (bias, x, matrix))
            new = program.make(op, args, shape=shape_of(node), dtype=dtype_of(node), layer=node.meta["layer"])
        program.replace(node, new)
    program.sweep()


def transposed(program: CapturedGraph, weight: object, tied: frozenset[int]) -> fx.Node:
    """The node of a weight's transposition [in, out]."""
    assert isinstance(weight, fx.Node)
    name = f"{weight.target}_t"
    if name in program.named:
        return program.named[name]
    tensor = program.tensors[str(weight.target)]
    stays = program.borrowed or id(tensor) in tied or not isinstance(tensor, nn.Parameter)
    return program.constant(name, tensor.detach().t() if stays else turned([tensor]))


def plain(tensor: Tensor | None) -> bool:
    """Whether this is a dense tensor of any shape: not quantised, and not of a subclass with its own storage."""
    return tensor is not None and type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
