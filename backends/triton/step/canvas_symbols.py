"""Lazy small vectors: operations on them are recorded, and one kernel computes them.

Between a model's scores and the next canvas are some fifty operations over a few cells, each of which would be a launch. A
`Symbol` is a tensor [B] or [B, N] with the expression that computes it; torch's functions over symbols return symbols, and a
function without a rule (such as a forward or a copy) first computes the symbols that it needs, all in one launch
(canvas_kernels.py). Axis 0 is the sequence, and nothing here mixes sequences: a program of the kernel is one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from decgraph.errors import InternalError

MOST_LANES = 1024
_KINDS = (torch.bool, torch.int64, torch.float32, torch.float64)


class Symbol(Tensor):
    """op: the operation; args: symbols, tensors and numbers; value: the tensor itself, where it is computed ("leaf")."""

    op: str
    args: tuple[Any, ...]
    value: Tensor | None

    @staticmethod
    def __new__(
        cls, like: Tensor, op: str, args: tuple[Any, ...], value: Tensor | None = None, device: torch.device | None = None
    ) -> Symbol:
        made: Symbol = Tensor._make_wrapper_subclass(cls, tuple(like.shape), dtype=like.dtype, device=device or like.device)
        made.op, made.args, made.value = op, args, value
        return made

    @classmethod
    def leaf(cls, value: Tensor) -> Symbol:
        """A computed tensor as a symbol."""
        return cls(value, "leaf", (), value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__" or name in PLAIN:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        rule = RULES.get(name)
        if rule is not None:
            out = rule(func, name, args, kwargs)
            if out is not None:
                return out
        known = computed([a for a in _flat((args, kwargs)) if isinstance(a, Symbol)])
        args, kwargs = _swapped((args, kwargs), known)
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse torch's own kernels: a symbol has no memory."""
        raise InternalError(f"{func} of a symbol")

    def __repr__(self, **_: Any) -> str:
        return f"<{self.op} {tuple(self.shape)} {self.dtype}>"


PLAIN = {"__repr__", "__hash__", "dim", "size", "numel", "is_floating_point", "stride", "__len__"}
RULES: dict[str, Callable[[Any, str, Any, Any], Any]] = {}


COMPUTE: list[Callable[[list[tuple[Symbol, Tensor | None]]], None]] = []
"""The function that computes symbols in one kernel; canvas_kernels.py, which generates kernels of symbols, sets it to its
`launch`."""


def computed(symbols: Sequence[Symbol]) -> dict[int, Tensor]:
    """The tensors [B] or [B, N] of symbols, by id; those not computed yet are computed in one launch."""
    missing = [s for s in dict.fromkeys(symbols) if s.value is None]
    if missing:
        COMPUTE[0]([(s, None) for s in missing])
    return {id(s): s.value for s in symbols}


def plain(t: Any) -> Any:
    """A tensor as it is, a symbol's tensor; anything else as it is."""
    return computed([t])[id(t)] if isinstance(t, Symbol) else t


def _flat(x: Any) -> list[Any]:
    if isinstance(x, list | tuple):
        return [a for v in x for a in _flat(v)]
    if isinstance(x, dict):
        return [a for v in x.values() for a in _flat(v)]
    return [x]


def _swapped(x: Any, known: dict[int, Tensor]) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_swapped(v, known) for v in x)
    if isinstance(x, dict):
        return {k: _swapped(v, known) for k, v in x.items()}
    return known.get(id(x), x) if isinstance(x, Symbol) else x


def _meta(x: Any) -> Any:
    """A meta tensor from which torch infers types and shapes."""
    if isinstance(x, Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return torch.empty(x.shape, dtype=x.dtype, device="meta")
    return [_meta(v) for v in x] if isinstance(x, list) else tuple(_meta(v) for v in x) if isinstance(x, tuple) else x


def _fits(t: Any) -> bool:
    """Whether a result, or an operand, is a vector for each sequence that a kernel can hold."""
    if not isinstance(t, Tensor):
        return isinstance(t, bool | int | float)
    return t.ndim <= 2 and t.dtype in _KINDS and (t.ndim < 2 or 1 <= t.shape[1] <= MOST_LANES)


def _device(args: Any) -> torch.device:
    return next(a.device for a in _flat(args) if isinstance(a, Symbol))


def _batch(args: Any) -> int:
    return next(int(a.shape[0]) for a in _flat(args) if isinstance(a, Symbol))


def _made(func: Any, op: str, args: Any, kwargs: Any, kept: tuple[Any, ...]) -> Any:
    """The symbol of a function's result as `op` of `kept`; None where it has no rule."""
    if not all(_fits(a) for a in kept):
        return None
    like = func(*_meta(args), **{k: _meta(v) for k, v in kwargs.items()})
    if not _fits(like) or like.ndim == 0 or like.shape[0] != _batch((args, kwargs)):
        return None
    return Symbol(like, op, kept, device=_device((args, kwargs)))


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function below, `f(func, name, args, kwargs)`, as the rule for torch's functions of these names."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = f
        return f

    return register


ALIASES = {
    "__and__": "and",
    "bitwise_and": "and",
    "logical_and": "and",
    "__or__": "or",
    "bitwise_or": "or",
    "logical_or": "or",
    "__invert__": "not",
    "logical_not": "not",
    "bitwise_not": "not",
    "true_divide": "div",
    "__truediv__": "div",
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__neg__": "neg",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
    "__eq__": "eq",
    "__ne__": "ne",
}


@rule("add", "sub", "mul", "div", "lt", "le", "gt", "ge", "eq", "ne", "minimum", "maximum", *ALIASES)
def _pair(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    op = ALIASES.get(name, name)
    if (
        kwargs
        or len(args) > 2
        or op in ("and", "or", "not")
        and any(isinstance(a, Tensor) and a.dtype != torch.bool for a in args)
    ):
        return None
    return _made(func, op, args, kwargs, tuple(args))


@rule("neg", "exp", "log", "relu", "abs", "isnan", "isfinite", "trunc", "long", "double", "clone", "contiguous")
def _single(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if kwargs or len(args) > 1:
        return None
    op = "cast" if name in ("long", "double", "clone", "contiguous") else name
    return _made(func, op, args, kwargs, tuple(args))


@rule("where")
def _where(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    return None if kwargs or len(args) != 3 else _made(func, "where", args, kwargs, tuple(args))


@rule("clamp", "clamp_min", "clamp_max")
def _clamp(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, *bounds = args
    if kwargs or any(isinstance(b, Tensor) for b in bounds):
        return None
    low, high = (bounds[0], None) if name == "clamp_min" else (None, bounds[0]) if name == "clamp_max" else bounds
    out = x
    for op, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            if not _fits(out):
                return None
            out = Symbol(out, op, (out, bound), device=x.device)
    return out


@rule("sum", "any", "all", "amax", "amin", "cumsum", "mean")
def _fold(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    keep = bool(kwargs.get("keepdim", False))
    if x.ndim != 2 or dim not in (1, -1) or set(kwargs) - {"dim", "keepdim"} or len(args) > 2:
        return None
    made = _made(func, name, args, kwargs, (x,))
    return made if made is not None and (name == "cumsum" or made.ndim == 1 or keep) else None


@rule("sort")
def _sort(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x = args[0]
    if len(args) > 1 or kwargs != {"dim": 1, "stable": True} or x.ndim != 2 or not _fits(x):
        return None
    with torch._C.DisableTorchFunctionSubclass():
        like = torch.empty(x.shape, dtype=torch.int64, device="meta")
    return SimpleNamespace(indices=Symbol(like, "order", (x,), device=x.device))


@rule("gather")
def _gather(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if kwargs or len(args) != 3 or args[1] != 1 or args[0].ndim != 2:
        return None
    return _made(func, "gather", args, kwargs, (args[0], args[2]))


@rule("scatter_", "scatter")
def _scatter(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if kwargs or len(args) != 4 or args[1] != 1 or args[0].ndim != 2 or not isinstance(args[0], Symbol):
        return None
    if name == "scatter_" and args[0].op not in ("empty", "zeros"):
        return None  # other references would see the change
    return _made(torch.scatter, "scatter", args, kwargs, (args[0], args[2], args[3]))


@rule("zeros_like", "empty_like")
def _filled(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if set(kwargs) - {"dtype"}:
        return None
    return _made(func, name.removesuffix("_like"), args, kwargs, ())


@rule("__getitem__")
def _item(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x, index = args
    if not isinstance(index, tuple) or len(index) != 2 or index[0] != slice(None) or not isinstance(x, Symbol):
        return None
    second = index[1]
    if second is None and x.ndim == 1:
        return _made(func, "cast", args, kwargs, (x,))
    if x.ndim != 2:
        return None
    if isinstance(second, int) and second >= 0:
        return _made(func, "item", args, kwargs, (x, second))
    if isinstance(second, slice) and second.step is None:
        start, stop, _ = second.indices(int(x.shape[1]))
        if stop - start == 1:
            return _made(func, "item", args, kwargs, (x, start))
        return _made(func, "cut", args, kwargs, (x, start)) if stop > start else None
    return None


@rule("expand", "expand_as")
def _expand(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    return None if kwargs else _made(func, "cast", args, kwargs, (args[0],))


@rule("reshape", "flatten")
def _shape(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    x = args[0]
    if kwargs:
        return None
    like = func(*_meta(args))
    same = x.ndim == like.ndim == 2 and like.shape == x.shape
    return (
        _made(func, "cast", args, kwargs, (x,))
        if same or x.ndim == 1 and tuple(like.shape) in ((x.shape[0],), (x.shape[0], 1))
        else None
    )


def written(tokens: Tensor, ids: Tensor, chosen: Tensor, values: Tensor) -> Tensor:
    """tokens [B, n] with values[b, i] at ids[b, i] where chosen[b, i]: int64[B, N], int64[B, N], bool[B, N]. No place is chosen
    twice."""
    every = (tokens, ids, chosen, values)
    if any(isinstance(t, Symbol) for t in every) and all(map(_fits, every)):
        return Symbol(_meta(tokens), "written", every, device=_device(every))
    tokens, ids, chosen, values = (plain(t) for t in (tokens, ids, chosen, values))
    n = tokens.shape[1]
    # Values that are not chosen go to an extra last column.
    out = torch.cat((tokens, tokens[:, :1]), 1).scatter(1, torch.where(chosen, ids, n), values)
    return out[:, :n]
