"""From recordings of one module at several sizes to one graph for all sizes.

A straight-line forward calls the same functions whatever its sizes; numbers among the arguments that differ between
recordings are sizes, and which size is seen from their values (the sizes are chosen so that no two agree in all
recordings). Anything else that differs is a branch of the module's code, and refused: one sequence and one token are
among the recordings, so that a branch on either is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from decgraph.runtime.models.capture.ops import FUNCTIONS, METHODS, canonical
from decgraph.runtime.models.capture.program import DIMENSIONS, CapturedGraph, Refused, Shape
from decgraph.runtime.models.capture.record import Recording
from decgraph.runtime.models.capture.recorder import RecordedCall, Ref

INPUTS = ("ids", "positions", "write", "keys", "values", "masks")


def merge(recordings: Sequence[Recording], sizes: Sequence[tuple[int, int, int]], base: nn.Module) -> CapturedGraph:
    """One program for recordings at (B, T, S) `sizes`. Raises Refused where they took different ways."""
    return _Merging(recordings, sizes, base).program()


class _Merging:
    def __init__(self, recordings: Sequence[Recording], sizes: Sequence[tuple[int, int, int]], base: nn.Module) -> None:
        self.recordings = recordings
        self.values = {dim: tuple((b, t, s, b * t)[i] for b, t, s in sizes) for i, dim in enumerate(DIMENSIONS)}
        first = recordings[0]
        self.graph = fx.Graph()
        self.made = CapturedGraph(self.graph, {}, kinds=first.kinds, windows=first.windows)
        self.inputs: dict[str, fx.Node] = {}
        for name in INPUTS:
            self.inputs[name] = self.graph.placeholder(name)
            integer = name in ("ids", "positions", "write")
            self.inputs[name].meta.update(
                op="input", shape=("B", "T") if integer else None, dtype=torch.long if integer else None, layer=-1
            )
        self.weights: dict[str, Tensor] = dict(base.named_parameters(remove_duplicate=False))
        self.weights.update(base.named_buffers(remove_duplicate=False))
        self.nodes: dict[int, fx.Node] = {}
        self.parts: dict[tuple[Any, ...], fx.Node] = {}  # weights, caches and items of results, each created once

    def program(self) -> CapturedGraph:
        calls = [r.calls for r in self.recordings]
        if len({len(c) for c in calls}) != 1:
            raise Refused("its code takes another way for other sizes")
        for index, together in enumerate(zip(*calls, strict=True)):
            self.node(index, together)
        last = self.reference([r.last for r in self.recordings])
        entering = [self.reference([r.entering[i] for r in self.recordings]) for i in range(len(self.recordings[0].entering))]
        self.graph.output((last, tuple(entering)))
        self.made.output.meta.update(op="output", layer=-1)
        self.made.sweep()
        return self.made

    def node(self, index: int, calls: Sequence[RecordedCall]) -> None:
        first = calls[0]
        if any(c.func is not first.func and c.func != first.func for c in calls):
            raise Refused("its code takes another way for other sizes")
        if first.same is not None and all(c.same is not None for c in calls) and first.func is not FUNCTIONS["put"]:
            self.nodes[index] = self.reference([c.same for c in calls])
            return
        args = self.argument([c.args for c in calls])
        kwargs = self.argument([c.kwargs for c in calls])
        name, args, kwargs = canonical(first.func, args, kwargs)
        single = isinstance(first.out, Tensor)
        meta: dict[str, Any] = {"layer": first.layer, "shape": None, "dtype": None}
        if single:
            meta.update(shape=self.shape([c.out for c in calls]), dtype=first.out.dtype)
        if name in ("view", "reshape", "expand") and single and all(s is not None for s in meta["shape"]):
            args = (args[0], self.made.sizes(meta["shape"]))
        elif name == "permute":
            args = (args[0], tuple(args[1:]))
        if name in FUNCTIONS:
            node = self.graph.call_function(FUNCTIONS[name], args, kwargs)
        elif name in METHODS:
            node = self.graph.call_method(name, args, kwargs)
        else:
            name, node = self.other(first, args, kwargs)
        node.meta.update(meta, op=name)
        self.nodes[index] = node
        if not single:
            for item, _ in enumerate(first.out):
                part = self.graph.call_function(FUNCTIONS["getitem"], (node, item))
                shape = self.shape([c.out[item] for c in calls])
                part.meta.update(op="item", shape=shape, dtype=first.out[item].dtype, layer=first.layer)
                self.parts["call", index, item] = part

    def other(self, call: RecordedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, fx.Node]:
        """A call without a canonical spelling, as it was recorded."""
        func = call.func
        name = str(getattr(func, "__name__", func))
        owner = getattr(func, "__objclass__", None)
        if name == "__get__":
            attribute = str(getattr(getattr(func, "__self__", None), "__name__", ""))
            return f"other:{attribute}", self.graph.call_function(getattr, (args[0], attribute))
        if owner is not None or getattr(torch.Tensor, name, None) is func:
            return f"other:{name}", self.graph.call_method(name, args, kwargs)
        return f"other:{name}", self.graph.call_function(func, args, kwargs)

    def reference(self, refs: Sequence[Any]) -> fx.Node:
        ref = refs[0]
        if any(other != ref for other in refs):
            raise Refused("its code takes another way for other sizes")
        assert isinstance(ref, Ref)
        key = (ref.kind, ref.name, ref.item)
        if ref.kind == "call" and ref.item is None:
            return self.nodes[int(ref.name)]
        if key in self.parts:
            return self.parts[key]
        name = str(ref.name)
        if ref.kind == "input":
            self.parts[key] = self.input(name, ref.item)
        else:
            if ref.kind == "loose":
                tensors = [r.loose.get(name) for r in self.recordings]
                if any(t is None or not torch.equal(t, tensors[0]) for t in tensors):
                    raise Refused("a tensor made outside of its forward differs from call to call")
                tensor = tensors[0]
                assert tensor is not None
            else:
                tensor = self.weights[name]
            self.parts[key] = self.made.constant(name.replace(".", "_"), tensor)
        return self.parts[key]

    def input(self, name: str, item: int | None) -> fx.Node:
        container, _, key = name.partition("/")
        if item is None and not key:
            return self.inputs[name]
        node = self.graph.call_function(FUNCTIONS["getitem"], (self.inputs[container], key or item))
        shape: Shape | None = None
        if container == "masks":
            shape = ("B", 1, "T", "S")
        node.meta.update(op="input", shape=shape, dtype=torch.bool if container == "masks" else None, layer=-1)
        return node

    def shape(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        if len({t.dim() for t in tensors}) != 1:
            raise Refused("its code takes another way for other sizes")
        return tuple(self.dimension(sizes) for sizes in zip(*(t.shape for t in tensors), strict=True))

    def dimension(self, sizes: tuple[int, ...]) -> int | str | None:
        """The size that has these values in the recordings; None where none of ours does."""
        if len(set(sizes)) == 1:
            return sizes[0]
        return next((dim for dim, values in self.values.items() if values == sizes), None)

    def argument(self, values: Sequence[Any]) -> Any:
        """One argument for all recordings: equal, or the same tensor, or a size."""
        first = values[0]
        if any(type(v) is not type(first) for v in values):
            raise Refused("its code takes another way for other sizes")
        if isinstance(first, Ref):
            return self.reference(values)
        if isinstance(first, tuple | list):
            if len({len(v) for v in values}) != 1:
                raise Refused("its code takes another way for other sizes")
            items = [self.argument(list(together)) for together in zip(*values, strict=True)]
            return items if isinstance(first, list) else tuple(items)
        if isinstance(first, dict):
            if any(v.keys() != first.keys() for v in values):
                raise Refused("its code takes another way for other sizes")
            return {key: self.argument([v[key] for v in values]) for key in first}
        if isinstance(first, slice):
            return slice(*(self.argument([getattr(v, end) for v in values]) for end in ("start", "stop", "step")))
        if all(v is first or v == first for v in values):
            return first
        if isinstance(first, int) and not isinstance(first, bool):
            dim = self.dimension(tuple(values))
            if dim is not None:
                return self.made.size(dim)
        raise Refused(f"a value in it depends on the sizes in a way that is not understood ({first!r} and {values[1]!r})")
