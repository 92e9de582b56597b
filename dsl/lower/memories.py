"""Memories and attention of a model: `target.memory(ctx.parent)`, `target.attention(ctx, given = m, last = 8)`."""

from __future__ import annotations

from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import tree_value
from decgraph.dsl.lower.state import Lowering
from decgraph.ir.values import Value

TAKES = {"memory": ("at", "given", "queries"), "attention": ("given", "last")}
"""By method: its keyword arguments."""


def place_of(lw: Lowering, model: Value, e: S.Expr) -> tuple[Value, Value | None]:
    """Where a model is evaluated: (place, tree of its nodes)."""
    v = lw.expr(e)
    if v.type.elem == "node" and v.type.of[0] != "ctx":
        return v, tree_value(lw, v, e.span)
    return v, None


def method(lw: Lowering, model: Value, e: S.Call, name: str) -> Value:
    """`model.memory(place)` or `model.attention(place)`."""
    if len(e.args) != 1:
        of = "memory is of one place: a context, a node, tokens or a canvas"
        read = "attention is read at one place: a context, a node or tokens"
        lw.fail(e.span, of if name == "memory" else read, f"target.{name}(ctx.parent)", code="E260")
    place, tree = place_of(lw, model, e.args[0])
    extra: dict[str, Value] = {} if tree is None else {"tree": tree}
    more: dict[str, Any] = {}
    for k in e.kwargs:
        if k.name not in TAKES[name]:
            takes = ", ".join(f"{n} =" for n in TAKES[name][:-1]) + f" and {TAKES[name][-1]} ="
            wanted = "target.attention(ctx) is how much attention each position gets" if k.name == "attention" else ""
            lw.fail(k.span, f"{name} takes {takes}, not {k.name} =", wanted, code="E260")
        if k.name != "queries":
            extra[k.name] = lw.expr(k.value)
        elif not isinstance(k.value, S.Name) or k.value.name not in ("yes", "no", "true", "false"):
            lw.fail(k.value.span, "queries = takes yes or no", "model.memory(c, queries = yes)", code="E260")
        elif k.value.name in ("yes", "true"):
            more["queries"] = True
    names = tuple(x for x in ("tree", "at", "given", "last") if x in extra)
    more["with" if name == "memory" else "named"] = names
    return lw.one(f"model.{name}", model, place, *[extra[x] for x in names], span=e.span, **more)


def merged(lw: Lowering, memory: Value, e: S.Call) -> Value:
    """`m.merged(positions, groups)`; memory: the value that it is called on, a memory of a model (no size)."""
    if len(e.args) != 2 or e.kwargs:
        lw.fail(e.span, "merged takes positions and their groups", "m.merged(i, int(i / 2))", code="E260")
    return lw.one("memory.merged", memory, *[lw.expr(a) for a in e.args], span=e.span)
