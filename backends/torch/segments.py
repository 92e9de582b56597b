"""Segments: straight-line runs of pure ops as torch.fx GraphModules, whose nodes call lowerings."""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.names import Names
from decgraph.ir.values import Op, Value


class Segment:
    """A segment ready to run: called with the machine and the operands, gives the result, or a tuple of several."""

    __slots__ = ("module", "forward")

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.forward = module.forward

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


def build_segment(op: Op) -> Any:
    """The fx graph of a `segment` op's region. Raises DecError for an op without a lowering."""
    region = op.regions[0]
    graph, names = fx.Graph(), Names()
    env: dict[Value, Any] = {}
    machine = graph.placeholder("m")
    for free in op.operands:
        env[free] = graph.placeholder(names.fresh(free.name))
    for inner in region.ops:
        if inner.opcode == "const":
            env[inner.result] = _constant(graph, inner)
            continue
        low = lower(inner)
        args = tuple(env[v] for v in inner.operands)
        node = graph.call_function(low.fn, ((machine, *args) if low.machine else args), _kwargs(low.kwargs))
        node.name = names.fresh(inner.results[0].name or low.name) if inner.results else node.name
        if inner.loc.line:
            node.meta["stack_trace"] = f'File "{inner.loc.path}", line {inner.loc.line}, in {op.attrs.get("name", "segment")}'
        if len(inner.results) == 1:
            env[inner.result] = node
        else:
            for i, r in enumerate(inner.results):
                env[r] = graph.call_function(_item, (node, i))
    outs = tuple(env[v] for v in region.yields)
    graph.output(outs[0] if len(outs) == 1 else outs)
    graph.eliminate_dead_code()
    return Segment(fx.GraphModule(torch.nn.Module(), graph, class_name=str(op.attrs.get("name", "Segment"))))


def _item(value: Any, i: int) -> Any:
    return value[i]


def _kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if v is not None}


def _constant(graph: fx.Graph, op: Op) -> Any:
    from fractions import Fraction
    v = op.attrs["value"]
    if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
        return float(v)
    if isinstance(v, Fraction):
        return float(v)
    if isinstance(v, list | tuple):
        return graph.call_function(_vector, (tuple(float(x) if isinstance(x, Fraction) else x for x in v),))
    return v


def _vector(values: tuple[Any, ...]) -> Any:
    import numpy as np
    return np.array(values) if values else []
