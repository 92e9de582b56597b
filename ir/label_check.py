"""The label check of a module (ir/labels.py says what it follows and why)."""

from __future__ import annotations

import decgraph.ir.table  # noqa: F401  (the ops' rules)
from decgraph.ir.labels import Checker, Finding
from decgraph.ir.values import Function, Module, Op


def check_labels(module: Module) -> list[Finding]:
    """Every finding in the functions of a module, for trees that a rule tests against the distributions of their draws."""
    found = []
    for function in module.functions.values():
        if trees := weighed(function):
            found += [f for f in Checker(function).run() if f.tree in trees]
    return found


def weighed(function: Function) -> set[str]:
    """The trees of a function that are verified by a rule that reads the distributions of draws."""
    out = set()
    for op in function.body.walk():
        if op.opcode == "tree.walk" and any(_reads_law(o) for o in op.regions[0].walk()):
            out.add(str(op.operands[0].type.of[0]))
    return out


def _reads_law(op: Op) -> bool:
    return (op.opcode == "draw.get" and op.attrs["field"] == "law") or (op.opcode == "tree.get" and op.attrs["column"] == "law")


__all__ = ["Finding", "check_labels", "weighed"]
