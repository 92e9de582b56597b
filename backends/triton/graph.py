"""A step as a graph of torch's operations: recorded and folded.

`traced` records one run of a step, which is a real one: it computes, and its buffers are written. What the step reads and
writes from outside (buffers, weights, constants) are the graph's tensors; everything that follows from constants alone becomes
one. The nodes remember which place of the `.dec` file they are from (emit.py prints them). regions.py cuts a graph into regions
that are compiled, replay.py replays it as a CUDA graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import Argument
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.values import Op

OPAQUE = ("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "sort", "topk", "_scaled", "decgraph::")
"""Beginnings of the names of operations that are launched as they are: products, sorts and the kernels by hand."""


@dataclass
class Graph:
    """A recorded step. module: a function of the tensors, in order. tensors: by name; constants: the names of those that no one
    writes and that follow from nothing else. first: what the recorded run gave."""

    module: fx.GraphModule
    tensors: dict[str, Tensor]
    constants: frozenset[str]
    first: object = None

    def __call__(self) -> object:
        """Run the step once, as it was recorded."""
        with torch.no_grad():
            return self.module(*self.tensors.values())

    def nodes(self) -> Iterator[fx.Node]:
        """The operations, in order."""
        return (n for n in self.module.graph.nodes if n.op == "call_function")


def traced(run: Callable[[], object], step: Step | None = None, roots: Mapping[str, object] | None = None) -> Graph:
    """Record one run of a function over tensors that it has from elsewhere.

    step: the state (state.py) of the program that it is a step of: its places are noted, its constants are taken for constants,
    and nothing is read back. roots: objects whose tensors get names, `root_attribute_key`; by default the step and its models.
    Raises NotSteppable where a value is read.
    """
    recorder = GraphRecorder()
    with torch.no_grad(), _noted(step, recorder), recorder:
        result = run()
    recorder.graph.output(tree_map_only(Tensor, recorder.node_of, result))
    fixed = {id(t) for t in (step.constants() if step is not None else ())}
    tensors, constants = _named(recorder, {id(t): name for name, t in tensors_of(step, roots).items()}, fixed)
    graph = recorder.graph
    constants |= _folded(graph, tensors, constants)
    _shared(graph)
    _joined(graph)
    pruned(graph)
    tensors = {n.target: tensors[n.target] for n in graph.find_nodes(op="placeholder")}
    return Graph(fx.GraphModule(torch.nn.Module(), graph), tensors, frozenset(constants & set(tensors)), result)


class GraphRecorder(TorchDispatchMode):
    """Notes every operation that is run in it as a node. Tensors that none of them made become arguments of the graph. (As
    `make_fx` does, whose proxies and fake tensors take some ten times as long.)"""

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.nodes: dict[int, fx.Node] = {}
        self.alive: list[Tensor] = []  # so that their ids stay theirs
        self.arguments: dict[fx.Node, Tensor] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        if func in READS:
            raise NotSteppable("a value is read, or a size depends on data")
        out = func(*args, **(kwargs or {}))
        given, named = tree_map_only(Tensor, self.node_of, (args, kwargs or {}))
        node = self.graph.call_function(func, tuple(given), named)
        if isinstance(out, Tensor):
            self.keep(out, node)
        elif isinstance(out, tuple | list):
            for n, part in enumerate(out):
                if isinstance(part, Tensor):
                    self.keep(part, self.graph.call_function(operator.getitem, (node, n)))
        return out

    def keep(self, value: Tensor, node: fx.Node) -> None:
        """A result; what an operation wrote in place and returns is what it was. A tensor of any shape."""
        if id(value) not in self.nodes:
            self.nodes[id(value)] = node
            self.alive.append(value)
        _says(node, value)

    def node_of(self, value: Tensor) -> fx.Node:
        """The node of a tensor."""
        if id(value) not in self.nodes:
            node = _argument(self.graph, f"argument_{len(self.arguments)}", value)
            self.arguments[node] = value
            self.keep(value, node)
        return self.nodes[id(value)]


READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default)


def _says(node: fx.Node, value: Tensor) -> None:
    """Note the shape and the device of a result."""
    node.meta["val"] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    node.meta["device"] = value.device


def _argument(graph: fx.Graph, name: str, value: Tensor) -> fx.Node:
    """One more argument of a graph, the last."""
    first = next((n for n in graph.nodes if n.op != "placeholder"), None)
    with graph.inserting_before(first) if first is not None else nullcontext():
        node = graph.placeholder(name)
    _says(node, value)
    return node


@contextmanager
def _noted(step: Step | None, recorder: GraphRecorder) -> Iterator[None]:
    """While it is entered, nodes are marked with the op of the program that an evaluator is at."""
    if step is None:
        yield
        return
    inner, nodes = step.op, recorder.graph.nodes

    def op(o: Op) -> None:
        last = next(iter(reversed(nodes)), None)
        inner(o)
        for node in reversed(nodes) if o.loc.line else ():
            if node is last:
                break
            node.meta.setdefault("dec", (o.loc.path, o.loc.line))

    step.recording = True
    vars(step)["op"] = op
    try:
        yield
    finally:
        step.recording = False
        del vars(step)["op"]


BESIDE = ("model", "s", "function", "module", "env", "origin")
"""Attributes of steps and device models that lead to the program and to the models as they were loaded."""


def tensors_of(step: Step | None = None, roots: Mapping[str, object] | None = None, deepest: int = 8) -> dict[str, Tensor]:
    """The tensors that can be reached from objects (by default a step and its models) through attributes, mappings and lists,
    by the first of their shortest names. They have any shape."""
    if roots is None:
        roots = {cache.name: cache.model for cache in step.caches.values()} | {"": step} if step is not None else {}
    out: dict[str, Tensor] = {}
    seen: set[int] = set()
    level = list(roots.items())
    for _ in range(deepest):
        deeper: list[tuple[str, object]] = []
        for name, value in level:
            if id(value) not in seen:
                seen.add(id(value))
                if isinstance(value, Tensor):
                    out[name] = value
                else:
                    deeper += [(f"{name}.{k}" if name else k, v) for k, v in _parts(value)]
        level = deeper
    return out


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What a mapping, a list or an object has, by name."""
    if isinstance(value, torch.nn.Module):
        yield from [*value.named_parameters(), *value.named_buffers()]
    elif isinstance(value, Mapping):
        yield from ((str(k), v) for k, v in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(n), v) for n, v in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((k, v) for k, v in vars(value).items() if not k.startswith("_") and k not in BESIDE)


def _named(recorder: GraphRecorder, names: Mapping[int, str], fixed: set[int]) -> tuple[dict[str, Tensor], set[str]]:
    """Give the arguments of a recording their names. Returns them, and the names of the constants."""
    tensors: dict[str, Tensor] = {}
    constants: set[str] = set()
    for node, value in recorder.arguments.items():
        base = names.get(id(value), "constant" if id(value) in fixed else "tensor")
        name = base = "".join(c if c.isalnum() else "_" for c in base).strip("_") or "tensor"
        n = 0
        while name in tensors:
            n += 1
            name = f"{base}_{n}"
        node.target = node.name = name
        tensors[name] = value
        if id(value) in fixed:
            constants.add(name)
    return tensors, constants


def writes(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operation writes in place."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return []
    named = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    written = [named.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [n for n in written if isinstance(n, fx.Node)]


def is_view(node: fx.Node) -> bool:
    """Whether an operation computes nothing: its result is another view of its first argument."""
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns) and not writes(node)


def _roots(graph: fx.Graph) -> tuple[dict[fx.Node, fx.Node], set[fx.Node]]:
    """The node whose memory each one has, and those whose memory is written."""
    root: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        viewed = node.args[0] if node.op == "call_function" and is_view(node) and node.args else node
        root[node] = root[viewed] if isinstance(viewed, fx.Node) and viewed is not node else node
    return root, {root[w] for node in graph.nodes for w in writes(node)}


def _repeatable(node: fx.Node) -> bool:
    """Whether an operation gives the same result at any time, for the same arguments."""
    tags = getattr(node.target, "tags", ())
    return node.op == "call_function" and not writes(node) and torch.Tag.nondeterministic_seeded not in tags


def _folded(graph: fx.Graph, tensors: dict[str, Tensor], constants: set[str]) -> set[str]:
    """Compute what follows from constants alone, once. Returns the names of the new constants."""
    root, written = _roots(graph)
    values: dict[fx.Node, Argument] = {
        n: tensors[n.target] for n in graph.find_nodes(op="placeholder") if n.target in constants
    }
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if _repeatable(node) and root[node] not in written and all(n in values for n in inputs):
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    known: dict[Hashable, fx.Node] = {}
    names: set[str] = set()
    for node, value in list(values.items()):
        if node.op == "placeholder" or not isinstance(value, Tensor) or all(user in values for user in node.users):
            continue
        content = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        key = (value.dtype, tuple(value.shape), value.device, content)
        if key not in known:
            name = f"folded_{len(known)}"
            tensors[name] = value.clone(memory_format=torch.contiguous_format)
            known[key] = _argument(graph, name, tensors[name])
            names.add(name)
        node.replace_all_uses_with(known[key], delete_user_cb=lambda user: user not in values)
    return names


def _shared(graph: fx.Graph) -> None:
    """What is computed twice from the same values is computed once."""
    root, written = _roots(graph)
    found: dict[Hashable, fx.Node] = {}
    for node in graph.nodes:
        if not _repeatable(node) or any(root[n] in written for n in (node, *node.all_input_nodes)):
            continue
        key = (node.target, repr(node.args), repr(sorted(node.kwargs.items(), key=lambda kv: kv[0])))
        other = found.setdefault(key, node)
        if other is not node:
            node.replace_all_uses_with(other)


def _joined(graph: fx.Graph) -> None:
    """Parts of what is joined step by step are joined once, where it is read whole."""
    root, written = _roots(graph)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
        parts: list[fx.Node] = []
        for part in cast(list[fx.Node], node.args[0]):
            same = part.target is node.target and part.args[1:] == node.args[1:] and part not in written
            same = same and all(user.target is node.target for user in part.users)
            inner = cast(list[fx.Node], part.args[0]) if same else []
            fresh = same and not any(root[n] in written or n.meta["val"].dtype != node.meta["val"].dtype for n in inner)
            parts += inner if fresh else [part]
        node.args = (parts, *node.args[1:])


def pruned(graph: fx.Graph) -> None:
    """Leave out what nobody uses, and arguments that nobody reads."""
    graph.eliminate_dead_code(lambda node: node.op == "output" or bool(writes(node)))


def is_opaque(node: fx.Node) -> bool:
    """Whether an operation is launched as it is, whatever stands beside it."""
    name = str(node.target)
    name = getattr(node.target, "name", lambda: name)()
    return name.removeprefix("aten::").startswith(OPAQUE)
