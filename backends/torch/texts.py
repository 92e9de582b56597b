"""Small pieces of generated Python: how expressions are put together, and what values without a name are called."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping

from decgraph.ir.values import Op, Value

_ATOM = re.compile(r"\w[\w.]*(\([^()]*\))?|\([^()]*\)|-?[\d.e+-]+")
_SAME = re.compile(r"(\S+) (==|!=) (\S+)")


def atom(text: str) -> str:
    """An expression as an operand: in brackets where it has parts."""
    return text if _ATOM.fullmatch(text) else f"({text})"


def negated(text: str) -> str:
    """What is true where a condition is not."""
    same = _SAME.fullmatch(text)
    if same:
        return f"{same[1]} {'!=' if same[2] == '==' else '=='} {same[3]}"
    if text.startswith("not ") and atom(text[4:]) == text[4:]:
        return text[4:]
    return f"not {atom(text)}"


_WORDS = {
    "noise": "key",
    "draw": "x",
    "draw.many": "xs",
    "draw.point": "point",
    "bernoulli": "coin",
    "normalize": "q",
    "lookup": "p",
    "gather": "item",
    "len": "count",
    "as_int": "n",
    "take_first": "first",
    "compact": "kept",
    "select.top": "best",
    "first_max": "surest",
    "context": "ctx",
    "state.read": "state",
    "index.ask": "found",
    "tree.new": "t",
    "tree.grow": "grown",
    "positions": "cells",
    "model.memory": "memory",
    "segment": "value",
    "if": "value",
    "for": "value",
    "while": "value",
}


def function_name(name: str) -> str:
    """The name of a function in generated text: no keyword, and not one of Python's own."""
    return f"{name}_of" if keyword.iskeyword(name) or hasattr(builtins, name) else re.sub(r"\W", "_", name)


def hint_of(op: Op, names: Mapping[Value, str]) -> str:
    """What a value that the author gave no name is called: for what made it."""
    if op.opcode in ("model.eval", "model.evals"):
        return f"p_{names.get(op.operands[0], 'model')}"
    if op.attrs.get("fn") == "not":
        name = names.get(op.operands[0], "")
        return f"not_{name}" if name.isidentifier() else "not"
    known = _WORDS.get(op.opcode)
    if known:
        return known
    for a in ("fn", "field", "which", "column", "what"):
        if a in op.attrs:
            return str(op.attrs[a])
    return op.opcode.rsplit(".", 1)[-1]


def summary(doc: str, most: int = 300) -> str:
    """The first sentences of a docstring that fit, at least one; cut at the end of a sentence."""
    words = " ".join(doc.split())
    out, depth = "", 0
    for n, c in enumerate(words):
        depth += (c == "(") - (c == ")")
        if c in ".!?" and depth <= 0 and (n + 1 == len(words) or words[n + 1] == " "):
            if out and n > most:
                break
            out = words[: n + 1]
    return out or words
