"""Values of parameters, as users write them or programs pass them, converted to the parameters' types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decgraph.errors import DecError
from decgraph.ir.data.numbers import Number, objects
from decgraph.ir.data.topology import Topology
from decgraph.ir.ops.limits import WIDEST
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Param
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.grammars import Grammar

if TYPE_CHECKING:
    from decgraph.runtime.arguments import ParamValue

MOST_DIGITS = 400
"""The most characters, and the largest exponent, of a number in text; longer ones are refused before they are parsed."""

WRITTEN = {
    "int": "a whole number",
    "bool": "yes or no",
    "topology": "a topology: 4x2x1, medusa_63 or [[0], [1], [0, 0]]",
    "set": "a set of whole numbers: 1,3,5 or [1, 3, 5]",
    "text": "a text",
    "real": "a number",
    "prob": "a number",
    "automaton": 'an automaton: {"next": [[1, 0], [-1, 1]], "accepting": [1]} with a row for every state and an entry '
    "for every token, or a JSON file that holds one; a regular expression; a file schema.json, grammar.lark or pattern.regex",
    "token": "a token id, or the text of one token",
}
"""How a value of each kind is written."""


def check_value(owner: str, p: Param, v: ParamValue) -> ParamValue:
    """One parameter's value, converted to its type. Raises DecError, which says how such a value is written."""
    t, name = p.value.type, p.name
    try:
        v = _value(t, v)
    except DecError:
        raise
    except OverflowError:
        if p.low is not None and p.high is not None:
            hint = f"{name}={p.low if str(v).startswith('-') else p.high}"
            raise DecError(f"{owner}: `{name}` is {_short(v)}; it must be in {p.low}..{p.high}", hint=hint) from None
        raise DecError(f"{owner}: `{name}` is {_short(v)}, which is too large", hint=f"{name}={example(t)}") from None
    except (ValueError, TypeError, ZeroDivisionError, KeyError, RecursionError):
        raise DecError(f"{owner}: `{name}` must be {wanted(t)}, not {_short(v)}", hint=f"{name}={example(t)}") from None
    for one in np.asarray(v, None if t.dims else object).ravel() if t.is_number else ():
        check_range(owner, p, one)
    return v


def check_range(owner: str, p: Param, v: Number | str) -> None:
    """Raises DecError for a number outside a parameter's range."""
    low, high = p.low, p.high
    if p.value.type.elem == "prob":
        low, high = 0 if low is None else low, 1 if high is None else high
    if not isinstance(v, str) and ((low is not None and v < low) or (high is not None and v > high)):
        near = low if low is not None and v < low else high
        raise DecError(f"{owner}: `{p.name}` is {_short(v)}; it must be in {low}..{high}", hint=f"{p.name}={near}")


def wanted(t: Type) -> str:
    """A type's values in words, for a message."""
    if t.dims:
        inner = {"int": "whole numbers", "token": "token ids", "bool": "yes or no", "set": "sets"}.get(t.elem, "numbers")
        most = "at most " if t.dims[0].of == "upto" else ""
        size = f" of {most}{t.dims[0].bound}" if t.dims[0].bound is not None else ""
        return f"{'a list of lists' if len(t.dims) > 1 else 'a list'}{size} {inner}" if size else f"a list of {inner}"
    if t.elem == "list" and t.of and isinstance(t.of[0], Type):
        return f"a list, each entry {wanted(t.of[0])}"
    return WRITTEN.get(t.elem, f"{t.elem}, which cannot be written out: give it from Python")


def example(t: Type) -> str:
    """An example of a type's values as users write them, for hints."""
    if len(t.dims) == 1 and t.elem in ("int", "token") and (t.dims[0].bound or 99) <= 8:
        return str(list(range(t.dims[0].bound or 0)))
    if t.dims:
        one = "1, 2, 0" if t.elem in ("int", "token", "set") else "yes, no" if t.elem == "bool" else "0.5, 1"
        return f"[[{one}], [{one}]]" if len(t.dims) > 1 else f"[{one}]"
    if t.elem == "list" and t.of and isinstance(t.of[0], Type):
        return "[[1, 3], [2]]" if t.of[0].dims or t.of[0].elem == "set" else f"[{example(t.of[0])}]"
    return {"int": "4", "bool": "yes", "topology": "4x2x1", "set": "1,3", "automaton": "grammar.json", "token": "3"}.get(
        t.elem, "0.5"
    )


def written(value: object) -> str:
    """A parameter's value as an author would write it: `true`, `0.001`, `1/3`, `[1, 3]`, `4x2x1`. `check_value` reads it back.

    >>> written(frozenset({3, 1})), written(Fraction(1, 1000)), written(np.array([True, False]))
    ('[1, 3]', '0.001', '[true, false]')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return _decimal(value)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, Topology):
        return value.name or written(value.paths())
    if isinstance(value, Grammar):
        return value.text
    if isinstance(value, Automaton):
        return value.source or json.dumps({"next": value.next, "accepting": sorted(value.accepting), "start": value.start})
    if isinstance(value, set | frozenset):
        return written(sorted(value))
    if isinstance(value, np.ndarray | list | tuple):
        return f"[{', '.join(map(written, value))}]"
    return str(value)


SHOWN = 80
"""The most characters of a value in text for people."""


def shown(value: object, most: int = SHOWN) -> str:
    """A parameter's value for people, in about `most` characters at most: a short one as `written` has it, a long vector by its
    beginning and its length, an automaton by its states and transitions.

    >>> shown(frozenset({3, 1})), shown(Automaton(((1, -1), (1, 0)), frozenset({1})))
    ('[1, 3]', 'automaton of 2 states (0: 0>1; 1: 0>1 1>0; ends in 1)')
    """
    if isinstance(value, Automaton) and not value.source:
        rows = (" ".join(f"{x}>{s}" for x, s in enumerate(row) if s >= 0) for row in value.next)
        leads = "; ".join(f"{i}: {row or 'nothing'}" for i, row in enumerate(rows))
        start = f"starts in {value.start}; " if value.start else ""
        detail = f" ({start}{leads}; ends in {' '.join(map(str, sorted(value.accepting))) or 'none'})"
        return f"automaton of {value.states} state{'s' * (value.states != 1)}" + (detail if len(detail) <= most else "")
    text = " ".join(written(value).split())
    if len(text) <= most:
        return text
    if isinstance(value, np.ndarray | list | tuple | set | frozenset):
        return text[: text.rfind(",", 0, most - 20) + 1] + f" ... {len(value)} in all]"
    return text[: most - 4].rstrip() + " ..."


def _decimal(value: Fraction) -> str:
    """A decimal where that is exact and short, else a fraction."""
    if value.denominator == 1 or not math.isfinite(float(value)):
        return str(value)
    short = f"{float(value):.12g}"
    return short if "e" not in short and Fraction(short) == value else str(value)


def _short(v: object) -> str:
    text = written(v) if isinstance(v, Fraction) else repr(v)
    if isinstance(v, int) and abs(v) >= 10**30:
        text = f"a number of {v.bit_length():,} bits"
    return text if len(text) <= 60 else text[:57] + "..."


def _value(t: Type, v: ParamValue) -> ParamValue:
    if t.dims:
        return _vector(t, _listed(v))
    if t.elem == "list":
        return [_value(t.of[0], x) if isinstance(t.of[0], Type) else x for x in _listed(v)]
    reader = READERS.get(t.elem)
    return v if reader is None else reader(v)


def _listed(v: ParamValue) -> Iterable[ParamValue]:
    """The items of a list, which may be written as JSON or between commas."""
    if not isinstance(v, str):
        return _items(v)
    text = v.strip()
    if len(text) > 1_000_000:
        raise ValueError
    if text.startswith(("[", "(", "{")):
        if text[0] in "({":
            text = "[" + text[1:-1] + "]"
        listed: list[ParamValue] = json.loads(text)
        return listed
    return [x for x in (part.strip() for part in text.split(",")) if x]


def _items(v: ParamValue) -> Iterable[ParamValue]:
    if not isinstance(v, Iterable):
        raise TypeError
    return v


def _vector(t: Type, v: ParamValue) -> list[ParamValue] | np.ndarray:
    if isinstance(v, np.ndarray):
        v = v.tolist()
    if not isinstance(v, list | tuple):
        raise ValueError
    size = t.dims[0].bound
    rows = [_value(t.drop(), x) for x in v]
    if size is not None and t.dims[0].kind == "k" and (len(rows) > size if t.dims[0].of == "upto" else len(rows) != size):
        raise ValueError
    if t.elem in ("real", "prob"):
        return rows if len(t.dims) > 1 else objects(rows)
    return np.array(rows, dtype=bool if t.elem == "bool" else np.int64)


def _whole(v: object) -> int:
    if isinstance(v, bool):
        raise ValueError
    if isinstance(v, str):
        if len(v) > MOST_DIGITS:
            raise ValueError
        return int(v)
    if not isinstance(v, int | float | Fraction | np.integer | np.floating):
        raise TypeError
    n = int(v)
    if n != v:
        raise ValueError
    return n


def _bounded(v: object) -> int:
    n = _whole(v)
    if abs(n) >= WIDEST:
        raise OverflowError
    return n


def _number(v: object) -> int | float | Fraction | np.integer | np.floating | str:
    if isinstance(v, str) and v.strip() not in ("inf", "-inf"):
        _, _, exponent = v.lower().partition("e")
        if len(v) > MOST_DIGITS or (exponent and abs(int(exponent)) > MOST_DIGITS):
            raise ValueError
        return Fraction(v)
    if isinstance(v, str):
        return v.strip()
    if isinstance(v, bool) or not isinstance(v, int | float | Fraction | np.integer | np.floating):
        raise TypeError
    if isinstance(v, float | np.floating):
        if v != v:
            raise ValueError
        return Fraction(str(float(v))) if abs(v) != float("inf") else v
    return v


def _bool(v: object) -> bool:
    if isinstance(v, str):
        if v.lower() not in ("yes", "no", "true", "false"):
            raise ValueError
        return v.lower() in ("yes", "true")
    return bool(v)


def _set(v: ParamValue) -> frozenset[int]:
    return frozenset(_bounded(x) for x in _listed(v))


def _token(v: object) -> int:
    n = _bounded(v)
    if n < 0:
        raise ValueError
    return n


def _automaton(v: ParamValue) -> Automaton | Grammar:
    if isinstance(v, str | Path):
        text = str(v).strip()
        if not text.startswith("{"):
            suffix = Path(text).suffix
            if isinstance(v, Path) and suffix != ".json" or suffix in (".lark", ".regex"):
                return Grammar.read(text)
            if suffix != ".json":
                return Grammar.regex(str(v))
            try:
                text = Path(text).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise DecError(f"cannot read the automaton {v}: {error}", hint=WRITTEN["automaton"]) from None
        written = json.loads(text)
        if isinstance(written, dict) and written and not set(written) & {"next", "accepting"}:
            return Grammar.json_schema(written)
        v = written
    if isinstance(v, Mapping):
        if set(v) - {"next", "accepting", "start"}:
            raise ValueError
        return Automaton(
            tuple(tuple(_bounded(s) for s in _items(row)) for row in _items(v["next"])),
            frozenset(_bounded(s) for s in _items(v["accepting"])),
            _bounded(v.get("start", 0)),
        )
    if not isinstance(v, Automaton | Grammar):
        raise TypeError
    return v


READERS: dict[str, Callable[[ParamValue], ParamValue]] = {
    "int": _bounded,
    "real": _number,
    "prob": _number,
    "bool": _bool,
    "topology": Topology.of,
    "set": _set,
    "token": _token,
    "automaton": _automaton,
}


def is_text(p: Param, v: object) -> bool:
    """Whether a value for tokens is a text, which a tokenizer has to encode, and not a written id or list of ids."""
    t = p.value.type
    if t.elem != "token" or len(t.dims) > 1 or not isinstance(v, str):
        return False
    try:
        _value(t, v)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return not (t.dims and v.strip().startswith("["))
    return False


__all__ = ["check_value", "is_text", "wanted", "written"]


def check_shapes(function: Function, params: Mapping[str, object], size: int) -> None:
    """Raises DecError for a topology with more children below a node than the vocabulary has tokens (`size`), in a program that
    takes as many of the likeliest tokens as a level is wide."""
    ops = list(function.body.walk())
    widths = {op.result for op in ops if op.opcode == "level.get" and op.attrs["field"] == "width"}
    if not any(op.opcode == "topk" and op.operands[1] in widths for op in ops):
        return
    for name, value in params.items():
        if isinstance(value, Topology) and value.width > size:
            raise DecError(
                f"{function.name}: `{name}` has {value.width} children below a node, and the vocabulary has {size} tokens",
                hint=f"give a tree with at most {size} children below a node: {name}={min(size, 4)}x2x1",
            )
