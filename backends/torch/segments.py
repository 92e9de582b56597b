"""Segments: straight-line runs of pure ops as torch.fx graphs, whose nodes call lowerings.

The Python of a graph is loaded directly, under a file name that debuggers and profiles can show; the GraphModule itself
(`Segment.module`), which takes longer to make, is made when somebody asks for it: to compile it, to draw it, to edit it.
"""
from __future__ import annotations

import linecache
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import fx

from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.names import Names
from decgraph.ir.values import Op, Value

_SERIAL = count(1)


class Segment:
    """A segment ready to run: called with the machine and the operands, gives the result, or a tuple of several."""

    def __init__(self, graph: fx.Graph, name: str) -> None:
        self.graph, self.name = graph, name
        code = graph.python_code("self")
        self.source = code.src
        filename = f"<decgraph {name} {next(_SERIAL)}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        scope: dict[str, Any] = dict(code.globals)
        exec(compile(self.source, filename, "exec"), scope)  # fx's text over our own functions
        forward = scope["forward"]

        def call(m: Any, *operands: Any) -> Any:
            return forward(None, m, *operands)

        call.__name__ = call.__qualname__ = name
        self.call = call

    @cached_property
    def module(self) -> fx.GraphModule:
        """The graph as a module."""
        return fx.GraphModule(torch.nn.Module(), self.graph, class_name=self.name)


def build_segment(op: Op) -> Segment:
    """The fx graph of a `segment` op's region. Raises DecError for an op without a lowering."""
    region = op.regions[0]
    graph, names = fx.Graph(), Names()
    env: dict[Value, Any] = {}
    machine = graph.placeholder("m")
    for free in op.operands:
        if free not in env:
            env[free] = graph.placeholder(names.fresh(free.name or "x"))
    for inner in region.ops:
        if inner.opcode == "const":
            env[inner.result] = _constant(graph, inner)
            continue
        args = tuple(env[v] for v in inner.operands)
        if inner.opcode == "segment":
            node = graph.call_function(build_segment(inner).call, (machine, *args))
        else:
            low = lower(inner)
            node = graph.call_function(low.fn, (machine, *args) if low.machine else args,
                                       {k: v for k, v in low.kwargs.items() if v is not None})
        if inner.results:
            node.name = names.fresh(inner.results[0].name or inner.opcode.rsplit(".", 1)[-1] + "_")
        if inner.loc.line:
            node.meta["stack_trace"] = f'File "{inner.loc.path}", line {inner.loc.line}, in {op.attrs["name"]}'
        if len(inner.results) == 1:
            env[inner.result] = node
        else:
            for i, r in enumerate(inner.results):
                env[r] = graph.call_function(item, (node, i))
    outs = tuple(env[v] for v in region.yields)
    graph.output(outs[0] if len(outs) == 1 else outs)
    return Segment(graph, str(op.attrs["name"]))


def item(values: Any, i: int) -> Any:
    """One of several results."""
    return values[i]


def vector(values: tuple[Any, ...]) -> Any:
    """A constant vector."""
    return np.array(values) if values else []


def _constant(graph: fx.Graph, op: Op) -> Any:
    v = op.attrs["value"]
    if v in ("inf", "-inf") and op.attrs["type"].elem != "text" or isinstance(v, Fraction):
        return float(v)
    if isinstance(v, list | tuple):
        return graph.call_function(vector, (tuple(float(x) if isinstance(x, Fraction) else x for x in v),))
    return v
