"""placement: straight-line runs of pure ops are outlined into segments of kind "device"; waits for the host are counted.

>>> from decgraph.passes.example import after
>>> body = '''
...   %zero: int = const(value = 0, type = !int)
...   %first: real = gather(%xs, %zero)
...   %sum: real = reduce(%xs, fn = "sum")
...   %part: real = map(%first, %sum, fn = "div")
...   %text: text = text_of(%tokens)
...   return(%part, %text, has_tree = false)
... '''
>>> print(after("placement", body, "%xs: real[k<=4], %tokens: token<V>[k<=4]"))
%part: real = segment(%xs, kind = "device", name = "part") {
  %zero: int = const(value = 0, type = !int)
  %first: real = gather(%xs, %zero)
  %sum: real = reduce(%xs, fn = "sum")
  %part.1: real = map(%first, %sum, fn = "div")
  yield %part.1
}
%text: text = text_of(%tokens)
return(%part, %text, has_tree = false)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module, Op, Value
from decgraph.ir.walk import map_functions, rebuild
from decgraph.passes.declared import Pass
from decgraph.passes.motion import reads
from decgraph.passes.outline import Outliner
from decgraph.passes.plan import Plan
from decgraph.passes.vocabulary import said
from decgraph.passes.waits import chosen_sizes, waits

DATA = frozenset({"dist", "scores", "draw", "token", "hidden", "embedding", "memory", "tree", "canvas", "edit", "path"})
"""Elements of values that hold tokens or what models computed."""

HOST_ONLY = frozenset({"list", "index", "automaton", "astate", "text", "model", "set", "topology", "level", "until"})
"""Elements of values that only the host knows."""


def holds_data(t: Type) -> bool:
    """Whether a value may live on a device: tokens, rows, trees, vectors, and numbers that are no counters."""
    return t.elem in DATA or t.elem in ("real", "prob") or bool(t.dims) and t.elem in ("int", "bool")


def on_host(op: Op) -> bool:
    """Whether only the host can run an op: it talks to the outside, or deals with what only the host knows. What is a device
    segment already stays one: the driver runs it."""
    if op.opcode == "segment" and op.attrs["kind"] == "device":
        return True
    if lookup(op.opcode).batch in ("host", "barrier") or reads(op):
        return True
    return any(v.type.elem in HOST_ONLY for v in (*op.operands, *op.results)) and op.opcode != "const"


def wanted(op: Op) -> bool:
    """Ops on data. Counters, node numbers and other scalars are the driver's unless they lie between such ops."""
    return not on_host(op) and any(holds_data(v.type) for v in (*op.operands, *op.results))


def joins(op: Op, used: set[Value], made: set[Value]) -> bool:
    """Everything in a run goes together."""
    return True


def outlined(function: Function) -> Function:
    """A function with device segments. A size that data decides is known only once the segment that decides it has run, so what
    needs such a value stands in another one."""
    sizes = chosen_sizes(function)

    def fits(ops: Sequence[Op]) -> bool:
        made = {v for op in ops for v in op.results} & sizes
        return not any(v in made for op in ops for v in op.operands)

    return Outliner("device", wanted, joins, lambda op: not on_host(op), wanted, fits).function(function)


def run(module: Module, plan: Plan) -> Module:
    """The module with device segments, unless the plan places everything on the host, and with the plan's capacities."""
    module = sized(module, dict(plan.capacities))
    return map_functions(module, outlined) if plan.placement == "device" else module


def sized(module: Module, capacities: dict[str, int]) -> Module:
    """The module with smaller capacities of trees, by name. Raises DecError for a tree that the algorithm does not have."""
    trees = [op for op in module.entry.body.walk() if op.opcode == "tree.new"] if capacities else []
    names = sorted({str(op.attrs["tree"]) for op in trees})
    for name in capacities:
        if name not in names:
            raise DecError(f"{module.main} has no tree {name}", hint=f"it has {', '.join(names) or 'none'}")
    if not trees:
        return module

    def changed(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        bound = capacities.get(str(op.attrs.get("tree"))) if op.opcode == "tree.new" else None
        if bound is None or op.attrs.get("capacity", bound + 1) <= bound:
            return None
        return (replace(op, attrs={**op.attrs, "capacity": bound}),), op.results

    entry = replace(module.entry, body=rebuild(module.entry.body, changed))
    return module if entry.body is module.entry.body else replace(module, functions={**module.functions, module.main: entry})


def notes(before: Module, after: Module) -> list[str]:
    """The segments, and how often a step waits for the host."""
    return [*said(after, "device"), *(f"waits for the host: {w}" for w in waits(after.entry))]


PASS = Pass(
    name="placement",
    reason=(
        "what a device computes without the host in between can be one graph, replayed as a whole. What "
        "only the host can do (indexes, lists of ragged things, automata, functions of the caller) stays in the "
        "driver between the segments."
    ),
    precondition=(
        "the ops stand in one straight run (no model call, effect or branch between them). Plans with placement = "
        "host leave everything where it is."
    ),
    run=run,
    notes=notes,
    options=("placement", "capacities"),
)
