"""Products of states with matrices as they lie in a file: float32, or blocks of GGUF."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.native import FORMATS
from decgraph.runtime.native.formats import PART, QuantizedBlocks
from decgraph.runtime.native.library import library

Activations = Literal["int16", "float32", "int8"]
DOTS: dict[Activations, int] = {"float32": 0, "int16": 16, "int8": 8}
MANY = 256
"""From so many rows on torch's product is no slower: blocks are made float32 for it part by part."""


class _Matrix(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bias", c_void_p), *((name, c_int64) for name in ("n", "k", "format", "dot"))]


class Parts(ctypes.Structure):
    """`Product` of native.cpp."""

    _fields_ = [*((name, c_int64) for name in ("parts", "n", "k")), ("part", _Matrix * 3)]


class BlockProduct(Product):
    """y = x W' + b for states x [n, in] by torch, which makes matrices in blocks float32 part by part; see `Product`.

    matrices: float32 [out, in] or blocks, of the same `in`."""

    def __init__(self, *matrices: Tensor | QuantizedBlocks, biases: tuple[Tensor | None, ...] = ()) -> None:
        super().__init__(*(m for m in matrices if isinstance(m, Tensor)), biases=biases or (None,) * len(matrices))
        self.matrices = matrices

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        y, at = x.new_empty(len(x), sum(map(len, self.matrices))), 0
        for n, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            outputs, inputs = matrix.shape
            step = outputs if isinstance(matrix, Tensor) else max(1, PART // inputs)
            for first in range(0, outputs, step):
                last = min(outputs, first + step)
                weight = matrix if isinstance(matrix, Tensor) else self._reals(n, first, last)
                y[:, at + first : at + last] = _linear(x, weight, None if bias is None else bias[first:last])
            at += outputs
        return y if added is None else y.add_(added)

    def rows(self, ids: Tensor) -> Tensor:
        """The rows [n, in] of the one matrix by their numbers int64[n]: those of a table of embeddings."""
        (matrix,) = self.matrices
        return F.embedding(ids, matrix) if isinstance(matrix, Tensor) else matrix.reals(ids)

    def _reals(self, part: int, first: int, last: int) -> Tensor:
        matrix = self.matrices[part]
        assert isinstance(matrix, QuantizedBlocks)
        return matrix.reals(slice(first, last))

    def dequantised(self) -> list[Tensor]:
        """The matrices [out, in] in float32 that the product is with."""
        return [m if isinstance(m, Tensor) else self._reals(n, 0, len(m)) for n, m in enumerate(self.matrices)]


def product(*matrices: Tensor | QuantizedBlocks, biases: tuple[Tensor | None, ...] = ()) -> Product:
    """The product with matrices [out, in] by torch."""
    own = next((m.multiplied for m in matrices if isinstance(m, QuantizedBlocks) and m.multiplied is not None), None)
    if own is not None:
        return cast(Product, own(*matrices, biases=biases))
    if any(isinstance(m, QuantizedBlocks) for m in matrices):
        return BlockProduct(*matrices, biases=biases)
    return Product(*(m for m in matrices if isinstance(m, Tensor)), biases=biases)


class NativeProduct(BlockProduct):
    """y = x W' + b for states x [n, in], by runtime/native; see `Product`.

    matrices: at most three float32 [out, in] or blocks, of the same `in`. activations: what blocks are multiplied with. "int16"
    (for up to six rows; float32 for more) differs from the float32 product by 1e-5 of the greatest output, "int8" by 3e-3.
    Raises DecError where the library is not there or a matrix is not such."""

    def __init__(
        self, *matrices: Tensor | QuantizedBlocks, biases: tuple[Tensor | None, ...] = (), activations: Activations = "int16"
    ) -> None:
        super().__init__(*matrices, biases=biases)
        self.activations = activations
        found, inputs = library(), int(matrices[0].shape[1])
        if found is None:
            raise DecError("the library of runtime/native is not there")
        if len(matrices) > 3 or any(m.shape[1] != inputs for m in matrices):
            raise DecError("a product has at most three matrices, of the same inputs")
        self.parts = Parts(len(matrices), sum(int(m.shape[0]) for m in matrices), inputs)
        for n, (matrix, bias) in enumerate(zip(matrices, self.biases, strict=True)):
            data = matrix.data if isinstance(matrix, QuantizedBlocks) else matrix
            tensors = [data] if bias is None else [data, bias]
            float32 = all(t.dtype == torch.float32 for t in tensors if t is not data or data is matrix)
            if not float32 or any(t.device.type != "cpu" or not t.is_contiguous() for t in tensors):
                raise DecError("matrices are float32 or blocks on the CPU, as they lie in a file")
            if bias is not None and bias.shape != (len(matrix),):
                raise DecError(f"a matrix {list(matrix.shape)} has a bias {list(bias.shape)}")
            form = FORMATS[matrix.format][0] if isinstance(matrix, QuantizedBlocks) else 0
            at = None if bias is None else bias.data_ptr()
            self.parts.part[n] = _Matrix(data.data_ptr(), at, matrix.shape[0], inputs, form, DOTS[activations])
        self._library, self._at = found, ctypes.addressof(self.parts)

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        rows = x.shape[0]
        if rows >= MANY:
            return super().__call__(x, added)
        x = x.contiguous()
        y = x.new_empty(rows, self.parts.n) if added is None else added.clone(memory_format=torch.contiguous_format)
        self._library.native_product(self._at, x.data_ptr(), rows, added is not None, y.data_ptr(), torch.get_num_threads())
        return y

    def _reals(self, part: int, first: int, last: int) -> Tensor:
        made = torch.empty(last - first, self.parts.k)
        matrix = self._at + Parts.part.offset + part * ctypes.sizeof(_Matrix)
        self._library.native_reals(matrix, first, last, made.data_ptr())
        return made


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """oneDNN's product, which takes nine tenths of the time of MKL's on an AMD processor, where torch has it."""
    if torch.backends.mkldnn.is_available() and x.is_inference():
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


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
