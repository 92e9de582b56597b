"""The canonical names of the operations that passes know, and how each is called in a captured graph.

A module may write `x + y`, `torch.add(x, y)` or `x.add(y)`; the graph has one spelling, the one that is called
fastest: operators, functions of torch's C++ bindings without a Python wrapper around them, and methods. What is
not named here stays as the module called it, and no pass touches it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from decgraph.runtime.models.capture.attention import plain_attention

_NN: Any = torch._C._nn  # Any: C++ bindings without stubs of their own
_PACKED: Any = torch.ops.mkldnn._linear_pointwise


def put(cache: Tensor, new: Tensor, write: Tensor) -> Tensor:
    """Writes new rows [B, H, T, D] into a cache [B, H, S, D] at rows `write` int64[B, T], in place; returns the cache.

    What recording puts in place of a cache's update; passes replace it (writes.py).
    """
    sequences = torch.arange(len(write), device=write.device)[:, None]
    cache.transpose(1, 2).index_put_((sequences, write), new.transpose(1, 2))
    return cache


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "put": put,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "getitem": operator.getitem,
    "linear": _NN.linear,
    "embedding": F.embedding,
    "layer_norm": torch.layer_norm,
    "rms_norm": torch.rms_norm,
    "vector_norm": torch.linalg.vector_norm,
    "silu": _NN.silu,
    "gelu": _NN.gelu,
    "relu": torch.relu,
    "attention": F.scaled_dot_product_attention,
    "plain_attention": plain_attention,
    "mm": torch.mm,
    "addmm": torch.addmm,
    "packed": _PACKED.default,
    "packed_onto": _PACKED.binary,
    "addcmul": torch.addcmul,
    "hypot": torch.hypot,
    "roll": torch.roll,
    "cat": torch.cat,
    "rsqrt": torch.rsqrt,
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "where": torch.where,
    "softmax": torch.softmax,
    "arange": torch.arange,
}

METHODS = {
    "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "expand", "contiguous", "to", "float", "type_as",
    "chunk", "split", "mean", "size", "numel", "narrow", "t", "index_copy_", "index_put_", "repeat",
}  # fmt: skip

# How recorded functions are called elsewhere, and whether the operands come in the other order.
_SPELLED: dict[str, tuple[str, bool]] = {
    "__add__": ("add", False), "__radd__": ("add", True),
    "__sub__": ("sub", False), "__rsub__": ("sub", True), "rsub": ("sub", True), "subtract": ("sub", False),
    "__mul__": ("mul", False), "__rmul__": ("mul", True), "multiply": ("mul", False),
    "__truediv__": ("div", False), "__rtruediv__": ("div", True), "true_divide": ("div", False), "divide": ("div", False),
    "__neg__": ("neg", False), "negative": ("neg", False),
    "__pow__": ("pow", False), "__rpow__": ("pow", True),
    "__matmul__": ("matmul", False), "__rmatmul__": ("matmul", True), "bmm": ("bmm", False),
    "__getitem__": ("getitem", False),
    "scaled_dot_product_attention": ("attention", False),
    "concat": ("cat", False), "concatenate": ("cat", False),
    "swapaxes": ("transpose", False), "swapdims": ("transpose", False),
    "arange": ("arange", False),
}  # fmt: skip

_Spelt = tuple[str, tuple[Any, ...], dict[str, Any]]

BINARY = {"add", "sub", "mul", "div", "pow", "matmul"}
# Same value, perhaps another place in memory or another number of dimensions.
VIEWS = {"view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "expand", "contiguous", "getitem", "t", "narrow"}
# The result's rows depend on the same rows of the operands alone, and the last dimension is not mixed.
POINTWISE = {
    "add", "sub", "mul", "div", "neg", "pow", "silu", "gelu", "relu", "tanh", "sigmoid", "rsqrt", "hypot", "to",
    "float", "addcmul", "cos", "sin",
}  # fmt: skip


def canonical(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Spelt:
    """(name, args, kwargs) of a recorded call; the name is "" where there is no canonical spelling."""
    raw = getattr(func, "__name__", "")
    name, swapped = _SPELLED.get(raw, (raw, False))
    if swapped:
        args = (args[1], args[0], *args[2:])
    if name in BINARY:
        if "other" in kwargs and len(args) == 1:
            args, kwargs = (*args, kwargs["other"]), {k: v for k, v in kwargs.items() if k != "other"}
        return (name, args, {}) if len(args) == 2 and not kwargs else ("", args, kwargs)
    if name == "embedding" and func is F.embedding:
        plain = (_given(args, kwargs, 3, "max_norm"), _given(args, kwargs, 6, "sparse"))
        ids, weight = _given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "weight")
        return ("embedding", (ids, weight), {}) if not any(plain) else ("", args, kwargs)
    if name == "layer_norm":
        return (
            "layer_norm",
            tuple(
                _given(args, kwargs, i, key, default)
                for i, (key, default) in enumerate(
                    (("input", None), ("normalized_shape", None), ("weight", None), ("bias", None), ("eps", 1e-5))
                )
            ),
            {},
        )
    if name == "softmax":
        dim, dtype = _given(args, kwargs, 1, "dim"), _given(args, kwargs, 3, "dtype", kwargs.get("dtype"))
        if len(args) == 3 and func is not F.softmax:  # the method: (x, dim, dtype)
            dtype = args[2]
        return "softmax", (_given(args, kwargs, 0, "input"), dim), {} if dtype is None else {"dtype": dtype}
    if name in ("silu", "relu"):
        return (name, args[:1], {}) if not (_given(args, kwargs, 1, "inplace") or len(args) > 2) else ("", args, kwargs)
    if name == "gelu":
        return "gelu", args[:1], {"approximate": kwargs.get("approximate", "none")}
    if name in ("view", "reshape", "expand", "permute"):
        sizes = args[1:] or (kwargs.get("shape", kwargs.get("size", kwargs.get("dims"))),)
        if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
            sizes = tuple(sizes[0])
        if any(isinstance(s, torch.dtype) for s in sizes):
            return "", args, kwargs
        return name, (args[0], *sizes), {}
    if name in ("transpose", "unsqueeze") and kwargs:
        keys = ("input", "dim0", "dim1") if name == "transpose" else ("input", "dim")
        return name, tuple(_given(args, kwargs, i, key) for i, key in enumerate(keys)), {}
    if name == "cat":
        dim = _given(args, kwargs, 1, "dim", 0)
        return "cat", (_given(args, kwargs, 0, "tensors"), dim), {}
    if name in FUNCTIONS or name in METHODS:
        return name, args, kwargs
    return "", args, kwargs


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def run(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """What a call node computes from these values."""
    if node.op == "call_function":
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    raise TypeError(node.op)
