"""Small pieces of generated Python: how expressions are put together, and names for values that have none."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence

from decgraph.ir.values import Op, Value

_WORD = re.compile(r"\d[\d.e+-]*|\w[\w.]*|(?=\()")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
CONSTANTS = ("True", "False", "None")
MODULES = {"np": "import numpy as np", "torch": "import torch"}
"""The modules that generated expressions read by their usual names, and the imports of these."""
_SAME = re.compile(r"(\S+) (==|!=) (\S+)")


def atom(text: str) -> str:
    """An expression as an operand: in brackets where it is compound."""
    return text if whole(text) else f"({text})"


def whole(text: str) -> bool:
    """Whether an expression is a name, a number, or calls, subscripts and attributes of one: nothing binds into it."""
    start = _WORD.match(text)
    at = start.end() if start else 0
    if start is None or text[:at] == "not":
        return False
    while at < len(text):
        if text[at] == "." and (word := re.match(r"\w+", text[at + 1 :])):
            at += 1 + word.end()
        elif text[at] in _PAIRS:
            at = closing(text, at) + 1
        else:
            return False
    return True


def closing(text: str, at: int) -> int:
    """Where the bracket that opens at a place closes."""
    depth = 0
    for n, c in outside_literals(text, at):
        if c in _PAIRS:
            depth += 1
        elif c in _PAIRS.values():
            depth -= 1
            if not depth:
                return n
    return len(text)


def outside_literals(text: str, at: int = 0) -> Iterator[tuple[int, str]]:
    """The characters from a place on that stand in no string literal, each with its place."""
    quote, escaped = "", False
    for n in range(at, len(text)):
        c = text[n]
        if quote:
            if not escaped and c == quote:
                quote = ""
            escaped = c == "\\" and not escaped
        elif c in "'\"":
            quote = c
        else:
            yield n, c


def arguments(text: str) -> list[str]:
    """The arguments of a call, given as the text between its brackets."""
    depth, start, out = 0, 0, []
    for n, c in outside_literals(text):
        depth += (c in _PAIRS) - (c in _PAIRS.values())
        if c == "," and not depth:
            out.append(text[start:n].strip())
            start = n + 1
    return [*out, text[start:].strip()]


def filled(parts: list[str], width: int, indent: str) -> list[str]:
    """Arguments on as few lines as they fit on; one that is longer than a line stands on a line of its own."""
    lines = [indent + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 < width:
            lines[-1] += ", " + part
        else:
            lines[-1] += ","
            lines.append(indent + part)
    return lines


def negated(text: str) -> str:
    """The negation of a condition."""
    if text in ("True", "False"):
        return "False" if text == "True" else "True"
    same = _SAME.fullmatch(text)
    if same:
        return f"{same[1]} {'!=' if same[2] == '==' else '=='} {same[3]}"
    if text.startswith("not ") and atom(text[4:]) == text[4:]:
        return text[4:]
    return f"not {atom(text)}"


def constant(text: str) -> str | None:
    """The text itself if it is a constant of CONSTANTS, else None."""
    return text if text in CONSTANTS else None


def folded(fn: str, texts: Sequence[str]) -> str | None:
    """A condition folded to "True" or "False" by its operands, or None."""
    if fn == "not":
        return negated(texts[0]) if constant(texts[0]) else None
    decides, other = ("False", "True") if fn == "and" else ("True", "False")
    if decides in texts:
        return decides
    return other if all(t == other for t in texts) else None


class UniqueNames:
    """Assigns every value a unique name."""

    def __init__(self) -> None:
        self.taken = {"m", "stop", *keyword.kwlist, *dir(builtins)}

    def fresh(self, wanted: str) -> str:
        """`wanted` as an identifier, numbered where it is taken."""
        base = re.sub(r"\W+", "_", wanted or "v").strip("_") or "v"
        if base[0].isdigit():
            base = "v" + base
        name = f"{base}_" if keyword.iskeyword(base) or hasattr(builtins, base) else base
        if name == "i":  # a counter within a counter
            name = next((c for c in "ijk" if c not in self.taken), name)
        n = 2
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        return name


_WORDS = {
    "noise": "key",
    "draw": "x",
    "draw.many": "xs",
    "draw.point": "point",
    "bernoulli": "coin",
    "normalize": "q",
    "lookup": "prob",
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
    "tree.continue": "t",
    "positions": "cells",
    "model.memory": "memory",
    "model.attention": "attention",
    "segment": "value",
    "if": "value",
    "for": "value",
    "while": "value",
}


def function_name(name: str) -> str:
    """The name of a function in generated text: no keyword, not one of Python's own, and not that of a module in MODULES."""
    taken = keyword.iskeyword(name) or hasattr(builtins, name) or name in MODULES
    return f"{name}_of" if taken else re.sub(r"\W", "_", name)


def hint_of(op: Op, names: Mapping[Value, str]) -> str:
    """A name for a value that the author did not name, after the op that produced it."""
    if op.opcode in ("model.eval", "model.evals", "model.read"):
        return f"p_{names.get(op.operands[0], 'model')}"
    if op.attrs.get("fn") == "not":
        name = names.get(op.operands[0], "")
        return f"not_{name}" if name.isidentifier() else "not"
    if op.opcode == "draw.get" and op.attrs["field"] == "law":
        return "q"
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
