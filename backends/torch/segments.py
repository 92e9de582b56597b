"""Segments as torch.fx graphs: straight-line runs of pure ops, whose nodes call the ops' lowerings.

The generated driver has the ops of a segment in place (writer.py); the graphs are for drawing, editing or compiling
a run of ops as one: `--emit segments` prints them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from torch import fx
from torch.fx.node import Argument

from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.texts import UniqueNames, function_name, hint_of
from decgraph.ir.values import Module, Op, Value
from decgraph.ir.walk import functions_of, ops_of


def graphs_of(module: Module) -> dict[str, fx.Graph]:
    """The graph of every segment of a module, by name, in the order of the program."""
    return {name: graph for f in functions_of(module) for op in ops_of(f) for name, graph in graphs_in(op)}


def graphs_in(op: Op) -> Iterator[tuple[str, fx.Graph]]:
    """The graph of an op that is a segment."""
    if op.opcode == "segment":
        yield segment_name(str(op.attrs["name"])), segment_graph(op)


def segment_graph(op: Op) -> fx.Graph:
    """The fx graph of a `segment` op's region; its first input is the machine. Raises DecError for an op without a lowering."""
    region = op.regions[0]
    graph, names = fx.Graph(), UniqueNames()
    names.taken |= {function_name(step.opcode.replace(".", "_")) for step in region.walk()}
    env: dict[Value, Argument] = {}
    called: dict[Value, str] = {}
    machine = graph.placeholder("m")

    def named(v: Value, hint: str) -> str:
        called[v] = names.fresh(v.name or hint)
        return called[v]

    for free in op.operands:
        if free not in env:
            env[free] = graph.placeholder(named(free, "x"))

    def add(step: Op) -> None:
        if step.opcode == "const":
            env[step.result] = _constant(graph, step)
            return
        if step.opcode == "segment":
            for inner in step.regions[0].ops:
                add(inner)
            env.update((r, env[y]) for r, y in zip(step.results, step.regions[0].yields, strict=True))
            return
        low = lower(step)
        args = tuple(env[v] for v in step.operands)
        kwargs: dict[str, Argument] = {k: v for k, v in low.kwargs.items() if v is not None}
        node = graph.call_function(low.fn, (machine, *args) if low.machine else args, kwargs)
        node.meta["op"] = step
        if step.loc.line:
            node.meta["stack_trace"] = f'File "{step.loc.path}", line {step.loc.line}, in {op.attrs["name"]}'
        if len(step.results) == 1:
            node.name = named(step.result, hint_of(step, called))
            env[step.result] = node
            return
        node.name = names.fresh("results")
        for i, r in enumerate(step.results):
            part = graph.call_function(operator.getitem, (node, i))
            part.name = named(r, hint_of(step, called))
            env[r] = part

    for step in region.ops:
        add(step)
    outs = tuple(env[v] for v in region.yields)
    graph.output(outs[0] if len(outs) == 1 else outs)
    return graph


def segment_name(name: str) -> str:
    """The name of a segment's function: its result, and the source line."""
    return re.sub(r"_(\d+)(_\d+)?$", r"_at_\1\2", name)


def vector(values: tuple[object, ...]) -> object:
    """A constant vector."""
    return np.array(values) if values else []


def _constant(graph: fx.Graph, op: Op) -> Argument:
    v = op.attrs["value"]
    if v in ("inf", "-inf") and op.attrs["type"].elem != "text" or isinstance(v, Fraction):
        return float(v)
    if isinstance(v, list | tuple):
        node = graph.call_function(vector, (tuple(float(x) if isinstance(x, Fraction) else x for x in v),))
        node.meta.update(op=op)
        return node
    return v
