"""Segments: straight-line runs of pure ops as torch.fx graphs, whose nodes call lowerings.

A graph is printed as one readable Python function, which is what runs: under a file name that debuggers and profiles can show.
The GraphModule (`Segment.module`), which takes longer to make, is made when somebody asks for it: to compile, draw or edit it.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import fx

from decgraph.backends.torch.kit import TORCH, Kit
from decgraph.backends.torch.lowering import TEMPLATES, not_
from decgraph.backends.torch.names import Names
from decgraph.backends.torch.texts import atom, function_name, hint_of, negated
from decgraph.ir.values import Op, Value

_SERIAL = count(1)


class Segment:
    """A segment ready to run: `call(m, *operands)` gives the result, or a tuple of several.

    graph: the fx graph. source: its Python text. filename, lines: where tracebacks find it, and the op of each line. inner: the
    segments that it calls.
    """

    def __init__(self, graph: fx.Graph, name: str, inner: dict[str, Segment]) -> None:
        self.graph, self.name, self.inner = graph, name, inner
        self.lines: dict[int, Op] = {}
        self.source, scope = self._text()
        self.filename = f"<decgraph {name} {next(_SERIAL)}>"
        linecache.cache[self.filename] = (len(self.source), None, self.source.splitlines(keepends=True), self.filename)
        exec(compile(self.source, self.filename, "exec"), scope)  # our own text over our own functions
        self.call = scope[name]

    @cached_property
    def module(self) -> fx.GraphModule:
        """The graph as a module: `forward(m, *operands)`."""
        return fx.GraphModule(torch.nn.Module(), self.graph, class_name=self.name)

    def all(self) -> Iterator[Segment]:
        """The segments that it calls, theirs before them, and itself."""
        for s in self.inner.values():
            yield from s.all()
        yield self

    def _text(self) -> tuple[str, dict[str, Any]]:
        """The graph as a function, and the scope that it runs in."""
        scope: dict[str, Any] = {"__name__": __name__}  # fx asks functions for their module
        taken = {self.name, *(n.name for n in self.graph.nodes)}
        values: dict[fx.Node, str] = {}
        parts = {n: {u.args[1]: u for u in n.users if u.target is item} for n in self.graph.nodes}
        out, marked = [""], ""
        for node in self.graph.nodes:
            if node.op == "placeholder" or node.target is item:
                values[node] = node.name
            elif node.op == "output":
                out.append(f"    return {_written(node.args[0], values)}")
            else:
                op = node.meta["op"]
                text = self._call(node, op, values, scope, taken)
                several = len(op.results) > 1
                used = {i: part.name for i, part in parts[node].items() if part.users}
                names = [used.get(i, "_") for i in range(len(op.results))] if several else [node.name]
                values[node] = node.name
                here = f"  # {op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}" if op.loc.line else ""
                out.append(f"    {', '.join(names)} = {text}{here if here != marked else ''}")
                self.lines[len(out)] = op
                marked = here
        out[0] = f"def {self.name}({', '.join(n.name for n in self.graph.nodes if n.op == 'placeholder')}):"
        return "\n".join(out) + "\n", scope

    def _call(self, node: fx.Node, op: Op, values: dict[fx.Node, str], scope: dict[str, Any], taken: set[str]) -> str:
        args = [_written(a, values) for a in node.args]
        if node.target is not_:
            return negated(args[0])
        if node.target in TEMPLATES:
            return TEMPLATES[node.target].format(*map(atom, args))
        name = base = function_name(node.meta["called"])
        n = 1
        while name in taken or scope.get(name, node.target) is not node.target:
            n += 1
            name = f"{base}_{n}"
        scope[name] = node.target
        return f"{name}({', '.join([*args, *(f'{k}={_written(v, values)}' for k, v in node.kwargs.items())])})"


def _written(x: Any, values: dict[fx.Node, str]) -> str:
    if isinstance(x, fx.Node):
        return values[x]
    if isinstance(x, tuple):
        return f"({', '.join(_written(v, values) for v in x)}{',' if len(x) == 1 else ''})"
    if isinstance(x, float) and (x != x or abs(x) == float("inf")):
        return f'float("{x}")'
    return f"({x!r})" if isinstance(x, int | float) and x < 0 else repr(x)


def build_segment(op: Op, given: Mapping[Value, str], kit: Kit = TORCH) -> Segment:
    """The fx graph of a `segment` op's region; `given`: what its operands are called outside. Raises DecError for an op
    without a lowering."""
    region, name = op.regions[0], segment_name(str(op.attrs["name"]))
    graph, names, inner = fx.Graph(), Names(), dict[str, Segment]()
    names.taken |= {function_name(step.opcode.replace(".", "_")) for step in region.ops}
    env: dict[Value, Any] = {}
    called: dict[Value, str] = {}
    machine = graph.placeholder("m")

    def named(v: Value, hint: str) -> str:
        called[v] = names.fresh(v.name or hint)
        return called[v]

    for free in op.operands:
        if free not in env:
            outside = given.get(free, "x")
            env[free] = graph.placeholder(named(free, re.sub(r"_\d+$", "", outside) if outside.isidentifier() else "x"))
    for step in region.ops:
        if step.opcode == "const":
            env[step.result] = _constant(graph, step)
            continue
        args = tuple(env[v] for v in step.operands)
        fused = kit.fused(step)
        if fused is not None:
            node = graph.call_function(fused.fn, (machine, *args))
            node.meta["called"] = fused.name
        elif step.opcode == "segment":
            part = inner.setdefault(str(step.attrs["name"]), build_segment(step, called, kit))
            node = graph.call_function(part.call, (machine, *args))
            node.meta["called"] = part.name
        else:
            low = kit.lower(step)
            node = graph.call_function(
                low.fn, (machine, *args) if low.machine else args, {k: v for k, v in low.kwargs.items() if v is not None}
            )
            node.meta["called"] = low.name
        node.meta["op"] = step
        if step.loc.line:
            node.meta["stack_trace"] = f'File "{step.loc.path}", line {step.loc.line}, in {op.attrs["name"]}'
        if len(step.results) == 1:
            node.name = named(step.result, hint_of(step, called))
            env[step.result] = node
        else:
            node.name = names.fresh("results")
            for i, r in enumerate(step.results):
                env[r] = graph.call_function(item, (node, i))
                env[r].name = named(r, hint_of(step, called))
    outs = tuple(env[v] for v in region.yields)
    graph.output(outs[0] if len(outs) == 1 else outs)
    return Segment(graph, name, inner)


def segment_name(name: str) -> str:
    """The name of a segment's function: what it makes, and the source line."""
    return re.sub(r"_(\d+)(_\d+)?$", r"_at_\1\2", name)


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
        node = graph.call_function(vector, (tuple(float(x) if isinstance(x, Fraction) else x for x in v),))
        node.meta.update(op=op, called="vector")
        return node
    return v
