"""What a caller hands over is what its type says: the answers of functions, and tokens of the vocabulary among the parameters.

Programs are proved for values of the declared types (`n <= 2 or n >= 3` is true of every int), so any other one ends the run
where it comes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, SupportsFloat

import numpy as np

from decgraph.errors import DecError
from decgraph.ir.types import Type
from decgraph.ir.values import Function
from decgraph.runtime.models.interface import Model

WANTED = {
    "int": ("number", "an int is a whole number: int(round(x))"),
    "token": ("token", "token ids are whole numbers below the vocabulary's size"),
    "prob": ("probability", "probabilities are between 0 and 1"),
    "real": ("number", "a float is a number"),
    "bool": ("value", "a bool is True or False"),
    "text": ("value", "a text is a str"),
}
"""By type what an answer is called, and what is to be handed over."""


def answer(name: str, t: Type, value: Any, size: int) -> Any:  # Any: whatever a function returned
    """What a function of the caller's returned, as a value of its declared type. size: of the vocabulary. Raises DecError where
    it is none."""
    if t.elem not in WANTED:
        return value
    if not t.dims:
        return _one(name, t.elem, value, size)
    if isinstance(value, str) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        raise DecError(f"{name} gave {value!r}, which is no vector", hint="return a list, or an array")
    dim, count = t.dims[0], len(value)
    most = size if dim.kind == "vocab" else dim.bound
    if most is not None and (count > most or dim.of != "upto" and count != most):
        raise DecError(
            f"{name} gave {count} values, not {'at most ' if dim.of == 'upto' else ''}{most}", hint="see its declaration"
        )
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == len(t.dims) and t.elem in ("int", "token"):
        for x in (value.min(), value.max()) if value.size else ():
            _one(name, t.elem, x, size)
        return value
    rows = [answer(name, t.drop(), x, size) for x in value]
    dtype = {"int": np.int64, "token": np.int64, "bool": bool}.get(t.elem)
    return np.array(rows, dtype) if rows else np.zeros((0,) * len(t.dims), dtype or np.float64)


def _one(name: str, elem: str, x: Any, size: int) -> Any:
    number: Any = x
    fits: bool
    if elem == "text":
        fits = isinstance(x, str)
    elif isinstance(x, bool | np.bool_) or not isinstance(x, SupportsFloat):
        fits = isinstance(x, bool | np.bool_) and elem == "bool"
    elif elem in ("int", "token"):
        fits = bool(abs(number) < float("inf") and int(number) == number and (elem == "int" or 0 <= number < size))
    else:
        fits = elem == "real" or bool(0 <= number <= 1) and (elem == "prob" or number in (0, 1))
    if not fits:
        what, hint = WANTED[elem]
        raise DecError(f"{name} gave the {what} {x!r}", hint=hint)
    return int(x) if elem in ("int", "token") else bool(x) if elem == "bool" else x


def check_tokens(function: Function, params: Mapping[str, object], models: Mapping[str, Model]) -> None:
    """Raises DecError for a token among the parameters that is outside the vocabulary of the models that read it."""
    types = {p.name: p.value.type for p in function.params}
    sizes = {str(types[name].of[1]): m.vocab.size for name, m in models.items() if name in types}
    for name, value in params.items():
        t = types[name].item if types[name].elem == "list" else types[name]
        size = sizes.get(t.vocab) if t.elem == "token" else None
        wrong = next((x for x in _tokens(value) if size is not None and not 0 <= x < size), None)
        if wrong is not None and size is not None:
            raise DecError(
                f"{function.name}: `{name}` is the token {wrong}, and the vocabulary has {size} tokens",
                hint=f"token ids are 0..{size - 1}",
            )


def _tokens(value: object) -> Iterator[int]:
    if isinstance(value, np.ndarray):
        yield from (value.min(), value.max()) if value.size else ()
    elif isinstance(value, list | tuple):
        for x in value:
            yield from _tokens(x)
    elif isinstance(value, int):
        yield value
