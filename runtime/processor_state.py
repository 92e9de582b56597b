"""Whether a callable of the caller's keeps state between calls: its state is compared before and after.

Speculation scores many continuations of one text, in no fixed order, and possibly again. A pure function of
(input_ids, scores) is not affected; one that remembers its calls would produce wrong text and must be refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

_DEPTH = 6  # what lies deeper than this is compared by identity
_LIBRARIES = ("torch", "transformers", "tokenizers")


def held_by(function: object) -> dict[str, object]:
    """A callable object's state: its attributes, and the variables that a function closes over, by name."""
    inner = getattr(function, "__func__", function)
    held: dict[str, object] = {}
    if isinstance(inner, types.FunctionType):
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
            try:
                held[name] = cell.cell_contents
            except ValueError:  # a variable that is not set yet
                held[name] = None
        held.update({f"a default of {inner.__name__}, {i}": value for i, value in enumerate(inner.__defaults__ or ())})
    owner = getattr(function, "__self__", None if isinstance(function, types.FunctionType) else function)
    if owner is not None:
        held.update(_attributes(owner))
    return held


def print_of(function: object) -> dict[str, object]:
    """A fingerprint of everything that `held_by` finds, equal as long as nothing of it was changed."""
    return {name: _print(value, 0, frozenset()) for name, value in held_by(function).items()}


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The names whose fingerprints differ."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _attributes(owner: object) -> dict[str, object]:
    found = dict(getattr(owner, "__dict__", {}))
    for cls in type(owner).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(owner, name):
                found[name] = getattr(owner, name)
    return found


def _print(value: Any, depth: int, inside: frozenset[int]) -> object:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, value if value == value else "nan")
    if id(value) in inside or depth > _DEPTH or isinstance(value, type | types.ModuleType):
        return id(value)
    inside = inside | {id(value)}
    if hasattr(value, "_version") and hasattr(value, "data_ptr"):  # a torch tensor: it counts its own changes
        return ("tensor", id(value), value._version)
    if hasattr(value, "get_state") and hasattr(value, "initial_seed"):  # torch.Generator
        return ("generator", value.get_state().numpy().tobytes())
    if type(value).__module__.partition(".")[0] in _LIBRARIES:  # a model, a tokenizer: not what one remembers calls in
        return id(value)
    if hasattr(value, "__array_interface__"):
        return ("array", value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return tuple((_print(k, depth + 1, inside), _print(v, depth + 1, inside)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return (len(value), *(_print(v, depth + 1, inside) for v in value))
    if isinstance(value, set | frozenset):
        return (len(value), frozenset(map(_hashable, value)))
    if isinstance(value, Iterator):
        return ("iterator", id(value), repr(value))
    if hasattr(value, "getstate") and hasattr(value, "getrandbits"):  # random.Random
        return ("generator", value.getstate())
    if hasattr(value, "bit_generator"):  # numpy.random.Generator
        return ("generator", repr(value.bit_generator.state))
    if isinstance(value, types.FunctionType | types.MethodType):
        return (id(getattr(value, "__func__", value)), _print(held_by(value), depth + 1, inside))
    return (id(value), _print(_attributes(value), depth + 1, inside))


def _hashable(value: object) -> object:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
