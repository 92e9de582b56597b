"""What no model can be asked for, on any backend: refused at its place before a run begins."""

from __future__ import annotations

from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.ir.walk import functions_of

UNASKED = {
    "memory.layer": "a layer of its memory",
    "memory.put": "a layer of its memory",
    "model.embed": "embeddings",
    "memory.scores": "the attention that its memory got",
}


def unasked(opcode: str) -> str | None:
    """Why an op cannot run on any backend; None where it can."""
    return f"refused: there is no way yet to ask a model for {UNASKED[opcode]}" if opcode in UNASKED else None


def refuse_unasked(module: Module) -> None:
    """Raises DecError for an op of the functions that a module runs which would fail in the middle of a run."""
    for f in functions_of(module):
        for op in f.body.walk():
            what = "queries in its memory" if op.attrs.get("queries") else UNASKED.get(op.opcode)
            if what is not None:
                where = f"{op.loc}: " if op.loc.line else ""
                raise DecError(
                    f"{where}there is no way yet to ask a model for {what}",
                    hint="models give distributions and memories; their layers stay their own",
                )


__all__ = ["UNASKED", "refuse_unasked", "unasked"]
