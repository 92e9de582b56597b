"""Numbers of a configuration, whose values may be anything that JSON has."""

from __future__ import annotations

from collections.abc import Mapping


def whole(config: Mapping[str, object], name: str, otherwise: int | None = None) -> int:
    """A whole number; otherwise: what stands for 0, null and a name that is not there. Raises KeyError where nothing does, and
    TypeError for what is no number."""
    value = config[name] if otherwise is None else config.get(name) or otherwise
    if not isinstance(value, int | float | str):
        raise TypeError(f"{name} is {value!r}, and must be a whole number")
    return int(value)


def wholes(config: Mapping[str, object], name: str) -> tuple[int, ...]:
    """Whole numbers. Raises KeyError for a name that is not there, and TypeError for what is no list of numbers."""
    values = config[name]
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} is {values!r}, and must be whole numbers")
    return tuple(int(n) for n in values)


def number(config: Mapping[str, object], name: str, otherwise: float) -> float:
    """A number; otherwise: what stands for null and a name that is not there. Raises TypeError for what is none."""
    value = config.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, int | float | str):
        raise TypeError(f"{name} is {value!r}, and must be a number")
    return float(value)


def mapping(config: Mapping[str, object], name: str) -> dict[str, object]:
    """A part of a configuration by its own names; empty where there is none."""
    value = config.get(name) or {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, and must hold settings by name")
    return dict(value)
