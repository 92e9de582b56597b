"""The output matrix of a model: from last states to logits, by runtime/native's product where it is no more than a matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from decgraph.ir.memo import memo_of
from decgraph.runtime.native.library import library
from decgraph.runtime.native.products import NativeProduct

Head = Callable[[Tensor], Tensor]


def output_of(matrix: nn.Module) -> Head:
    """What the output matrix of a model makes of states [n, width]: logits [n, V]. One for all engines of the matrix. A module
    that is more than a matrix (quantised, hooked, of a class of its own) is itself."""
    if type(matrix) is not nn.Linear or _hooked(matrix):
        head: Head = matrix
        return head
    made: Head = memo_of(matrix).once("output", lambda: product_of(matrix))
    return made


def product_of(linear: nn.Linear) -> Head:
    """What a linear module makes of states [..., in], by the native product of few rows: again for other weights."""
    at: tuple[int, int | None] | None = None
    native: NativeProduct | None = None

    def product(states: Tensor) -> Tensor:
        nonlocal at, native
        weight = linear.weight
        if not _native(weight, linear.bias, states):
            out: Tensor = nn.functional.linear(states, weight, linear.bias)
            return out
        now = (weight.data_ptr(), None if linear.bias is None else linear.bias.data_ptr())
        if native is None or at != now:
            at, native = now, NativeProduct(weight.detach(), biases=(None if linear.bias is None else linear.bias.detach(),))
        made: Tensor = native(states.reshape(-1, states.shape[-1])).view(*states.shape[:-1], weight.shape[0])
        return made

    return product


class NativeLinear(nn.Linear):
    """A linear module by the native product where no gradient is wanted: for the matrices of drafting heads. Parameters, names
    and the product of training are those of `nn.Linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if torch.is_grad_enabled() and (input.requires_grad or self.weight.requires_grad):
            return super().forward(input)
        product: Head = memo_of(self).once("product", lambda: product_of(self))
        return product(input)


def _native(weight: Tensor, bias: Tensor | None, states: Tensor) -> bool:
    for t in (weight, states, weight if bias is None else bias):
        # While a graph is traced, states are of another class and have no numbers.
        if t.dtype != torch.float32 or t.device.type != "cpu" or type(t) not in (nn.Parameter, Tensor):
            return False
    recorded = torch._C._len_torch_dispatch_stack() > 0  # what records operations hears of torch's only
    return not recorded and weight.is_contiguous() and library() is not None


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)
