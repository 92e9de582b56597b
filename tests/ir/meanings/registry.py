"""What an op means, written again: a registry of samples whose results were computed by a few lines of plain Python over lists,
from the op's documentation (docs/reference/ops.md), and of what is checked elsewhere.

A meaning is a function of a hypothesis `draw` that gives a `Sample`: a line of IR, its operands, and what each result is.
Nothing here, and nothing that registers here, calls the ops' own meanings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from decgraph.ir.table import TABLE

V = 3
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Sample:
    """text: IR whose last op is the op in question. operands: type and value by name. want: one plain value per result, or
    `Raises` with a word of the message."""

    text: str
    operands: dict[str, tuple[str, Any]]
    want: tuple[Any, ...] | Raises
    externs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Raises:
    """The run ends with a DecError that says this."""

    word: str


MEANINGS: dict[str, list[Callable[[Draw], Sample]]] = {}


def says(*ops: str) -> Callable[[Callable[[Draw], Sample]], Callable[[Draw], Sample]]:
    """Register a meaning of ops."""

    def register(f: Callable[[Draw], Sample]) -> Callable[[Draw], Sample]:
        for op in ops:
            MEANINGS.setdefault(op, []).append(f)
        return f

    return register


ELSEWHERE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "for",
            "while",
            "if",
            "unfailing",
            "break",
            "verdict",
            "each",
            "run",
            "const",
            "commit",
            "done",
            "ended",
            "return",
            "state.read",
            "state.write",
            "noise",
            "draw",
            "draw.many",
            "bernoulli",
            "tree.walk",
            "tree.grow",
            "tree.reroot",
            "tree.continue",
            "context",
            "request",
        ),
        ("tests/check/oracle/interpret.py", "the language's own interpreter over plain values, for whole programs"),
    ),
    **dict.fromkeys(
        ("model.eval", "model.memory", "model.derive", "memory.only", "memory.quantized", "memory.join"),
        ("tests/runtime/given/test_given.py", "a plain transformer"),
    ),
    "model.attention": ("tests/runtime/given/test_attention.py", "eager attention, and a plain transformer"),
    **dict.fromkeys(
        ("memory.layer", "memory.put", "memory.scores"),
        ("tests/runtime/masked/test_attention_logits.py", "transformers' own attention weights"),
    ),
    "model.read": ("tests/runtime/test_second_contexts.py", "what the model gives after those tokens as a prompt"),
    "memory.merged": ("tests/runtime/given/test_merged.py", "a plain transformer"),
    "token": ("tests/backends/test_token_texts.py", "the number of the token in its place"),
    "note": ("tests/backends/test_notes.py", "figures counted by hand"),
    "model.evals": ("tests/passes/test_meaning.py", "its parts, one by one"),
    "segment": ("tests/backends/torch/test_torch_ops.py", "every op in a segment and outside of one"),
}
"""Ops whose independent meaning is a whole machine's: where it stands, and what it is."""

LAWS = {"draw.race", "beta"}
"""Ops whose law is checked too, or only, in test_laws.py."""

REFUSED = {name for name, row in TABLE.items() if row.unavailable}
"""No backend has them."""
