"""Regions of a recorded step that Inductor compiles, and what it writes for them, also for a GPU that is not there.

A recorded step is cut at products, sorts and kernels by hand. What is between is Inductor's: C++ on a CPU, Triton on a GPU.
What was compiled stays on disk, in the user's cache; the next process compiles nothing that is there.
"""

from __future__ import annotations

import ast
import ctypes
import operator
import os
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast
from unittest.mock import patch

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate
from torch.fx.passes.split_module import split_module

from decgraph import cache
from decgraph.backends.triton.graph import Graph, is_opaque, is_view, pruned, writes
from decgraph.backends.triton.rows import is_generated

Compiled: TypeAlias = Callable[..., object]
"""A function of a graph's tensors."""
OPTIONS = {
    "combo_kernels": True,  # small kernels that do not depend on each other are one launch
    "emulate_precision_casts": True,  # rounded as torch's own kernels round: both serve the same request
    "joint_graph_constant_folding": False,  # done when the step was recorded
    "triton.cudagraphs": False,
}


# -- cutting
def regions(graph: Graph, compiled: Callable[[fx.GraphModule, list[Tensor]], object]) -> fx.GraphModule:
    """A function of the graph's tensors (of any shape), in which
    every run of operations that can be fused is what `compiled` makes of it and
    of its arguments (fake tensors). Equal runs are compiled once, so that the layers of a model share theirs. The runs are
    submodules; all else stands in the function itself."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.module.graph, {}))
    whole = fx.GraphModule(graph.module, copied)
    parts: dict[fx.Node, int] = {}
    part, opaque = 0, True
    for node in whole.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem:  # results of several are taken apart where they are computed
            parts[node] = parts[node.args[0]]
            continue
        alone = is_opaque(node) and not is_generated(node, inductor)
        if alone or opaque:
            part, opaque = part + 1, alone
        parts[node] = part
    _viewed(whole.graph, parts)
    split = split_module(whole, whole, lambda n: parts.get(n, part), keep_original_order=True)
    made: dict[Hashable, Any] = {}
    mode = FakeTensorMode(shape_env=ShapeEnv())  # no size is unknown, but without it nothing goes to the cache
    for call in split.graph.find_nodes(op="call_module"):
        inner = split.get_submodule(str(call.target))
        assert isinstance(inner, fx.GraphModule)
        work = [n for n in inner.graph.nodes if n.op == "call_function"]
        if (
            any(is_opaque(n) and not is_generated(n, inductor) for n in work)
            or all(is_view(n) for n in work)
            or _overlaps(graph, call, work)
        ):
            _inlined(split, call, inner)
            continue
        given = [_fake(mode, n) for n in inner.graph.find_nodes(op="placeholder")]
        key = (_form(inner.graph), tuple((tuple(t.shape), t.stride(), t.dtype, t.device) for t in given))
        if key not in made:
            made[key] = compiled(inner, given)
        inner.forward = made[key]
    split.recompile()
    return split


def _form(graph: fx.Graph) -> str:
    """What a graph does, whatever its nodes and arguments are called."""
    number = {node: f"%{n}" for n, node in enumerate(graph.nodes)}
    return repr([(n.op == "placeholder" or n.target, fx.map_arg((n.args, n.kwargs), number.__getitem__)) for n in graph.nodes])


def _inlined(split: fx.GraphModule, call: fx.Node, inner: fx.GraphModule) -> None:
    """Put the operations of a part in the place of its call."""
    known = dict(zip(inner.graph.find_nodes(op="placeholder"), cast(Any, call.args), strict=True))
    with split.graph.inserting_before(call):
        out = split.graph.graph_copy(inner.graph, known)
    for user in list(call.users) if isinstance(out, tuple) else ():
        user.replace_all_uses_with(cast(Any, out)[user.args[1]])
        split.graph.erase_node(user)
    if isinstance(out, fx.Node):
        call.replace_all_uses_with(out)
    split.graph.erase_node(call)


def _fake(mode: FakeTensorMode, node: fx.Node) -> Tensor:
    """A tensor without numbers, of the shape, kind and device of a node's result."""
    like: Tensor = node.meta["val"]
    with mode:
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=node.meta["device"])


def _viewed(graph: fx.Graph, parts: dict[fx.Node, int]) -> None:
    """Take views again in every part that uses them, so that only whole memory goes from part to part: a compiler does not see
    that two arguments are the same memory."""
    again: dict[tuple[fx.Node, int], fx.Node] = {}

    def local_view(node: fx.Node, user: fx.Node) -> fx.Node:
        part = parts[user]
        taken = node.target is operator.getitem and not is_view(cast(fx.Node, node.args[0]))
        if node.op != "call_function" or parts[node] == part or taken or not is_view(node):
            return node
        if (node, part) not in again:
            with graph.inserting_before(user):
                made = again[node, part] = graph.node_copy(node)
            parts[made] = part
            made.args, made.kwargs = fx.map_arg((made.args, made.kwargs), lambda n: local_view(n, made))
        return again[node, part]

    for node in list(graph.nodes):
        if node in parts:
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda n, user=node: local_view(n, user))
    pruned(graph)


def _overlaps(graph: Graph, call: fx.Node, work: list[fx.Node]) -> bool:
    """Whether a region writes one of the graph's tensors and another one of its arguments shares that memory."""
    given = [graph.tensors[str(n.target)].untyped_storage().data_ptr() for n in call.all_input_nodes if n.op == "placeholder"]
    return len(set(given)) < len(given) and any(writes(n) for n in work)


# -- compiling
def inductor(module: fx.GraphModule, inputs: list[Tensor]) -> Compiled:
    """What Inductor makes of a region for tensors of the shapes of `inputs`, without running it."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    usual, name = default_cache_dir(), "TORCHINDUCTOR_CACHE_DIR"  # a folder for temporary files
    if os.environ.get(name, usual) == usual:
        os.environ[name] = str(cache.folder() / "inductor")
    with torch.no_grad(), _options(module, inputs):
        return cast(Compiled, compile_fx(module, inputs))


def _options(module: fx.GraphModule, inputs: list[Tensor], **more: object) -> Any:
    """Inductor's options for a region, as a context: those that this version of torch has."""
    from torch._inductor import config

    hopper = inputs[0].device.type == "cuda" and torch.cuda.get_device_capability(inputs[0].device) >= (9, 0)
    product = bool(module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))  # of one row: see rows.py
    wanted = {
        **OPTIONS, "triton.enable_pdl": hopper,  # a kernel may begin before the one before it ends
        "coordinate_descent_tuning": product,  # which writes such a product as a reduction
        **more,
    }  # fmt: skip

    def known(name: str) -> bool:
        try:
            return reduce(getattr, name.split("."), cast(Any, config)) is not NotImplemented
        except AttributeError:
            return False

    return config.patch({name: value for name, value in wanted.items() if known(name)})


# -- what is written
@dataclass(eq=False)
class RegionText:
    """What Inductor writes for a region. header: imports; kernels: their source by name; arguments, body: the function that
    launches them; launches: by name, with the places in the `.dec` file that they are for."""

    header: list[str] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    arguments: str = ""
    body: list[str] = field(default_factory=list)
    launches: list[tuple[str, list[str]]] = field(default_factory=list)


class _Stopped(Exception):
    """The text is there."""


def written(module: fx.GraphModule, inputs: list[Tensor]) -> RegionText:
    """Inductor's text for a region, which is not compiled. inputs: fake tensors of any shape; where there is no CUDA device,
    those that say they are on one need `imagined`. Raises what Inductor does."""
    from torch._functorch import config as functorch
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.graph import GraphLowering

    found: list[str] = []

    def stop(self: object, code: Any) -> None:
        found.append(code.value)
        raise _Stopped

    off = {"fx_graph_cache": False, "compile_threads": 1}
    with (
        torch.no_grad(),
        _options(module, inputs, **off),
        functorch.patch(enable_autograd_cache=False),
        patch.object(GraphLowering, "_compile_to_module_lines", stop),
    ):
        try:
            compile_fx(module, inputs)
        except Exception:
            if not found:
                raise
    return _parsed(found[0], {n.name: named(n.meta["dec"]) for n in module.graph.nodes if "dec" in n.meta})


def named(place: tuple[str, int]) -> str:
    """A place in a `.dec` file as text."""
    return f"{place[0].rsplit('/', 1)[-1] or 'line'}:{place[1]}"


LAUNCH = re.compile(r"\s*(?:\w+ = )?(?:((?:extern_kernels|aten|torch\.ops)\.[\w.]+)|(\w+)(?:\.run)?)\(")
SOURCES = re.compile(r"\s*# .*Source Nodes: \[(.*?)\], Original ATen: .*")


def _parsed(code: str, places: dict[str, str]) -> RegionText:
    """The parts of a module that Inductor wrote. places: in the `.dec` file, by the names of nodes."""
    out, tree, text = RegionText(), ast.parse(code), code.splitlines()
    for node in tree.body:
        source = "\n".join(text[node.lineno - 1 : node.end_lineno])
        if not isinstance(node, ast.Assign | ast.Import | ast.ImportFrom) or source.startswith("runner"):
            continue
        if isinstance(node, ast.Assign) and "async_compile." in source and isinstance(node.value, ast.Call):
            given = [a.value for a in node.value.args if isinstance(a, ast.Constant)]
            if "async_compile.triton(" in source:
                imports, at, source = str(given[1]).strip().partition("\n@")
                out.header += filter(None, imports.splitlines())
                source = at.strip() + source
            out.kernels[cast(ast.Name, node.targets[0]).id] = source
        elif not (isinstance(node, ast.Assign) and source.startswith(("call", "recursively"))):
            out.header.append(source)
    (call,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call")
    lines = text[call.body[0].lineno - 1 : call.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    near: list[str] = []
    for line in (line[indent:] for line in lines):
        if line.endswith(" = args"):
            out.arguments = line.removesuffix(" = args")
        elif line == "args.clear()":
            continue
        elif found := SOURCES.fullmatch(line):
            near = sorted({places[n] for n in found[1].split(", ") if n in places})
            out.body.append(f"{line[: len(line) - len(line.lstrip())]}# {', '.join(near)}".rstrip(" #"))
        else:
            called = LAUNCH.match(line)
            if called and (called[1] or called[2] in out.kernels):
                out.launches.append((called[1] or called[2], near))
            out.body.append(line)
    return out


# -- a GPU that is not there
H100 = {
    "name": "H100", "multi_processor_count": 132, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024, "warp_size": 32, "total_memory": 80 << 30, "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448, "L2_cache_size": 50 << 20, "gcnArchName": "",
}  # fmt: skip
GUARDS, KINDS, OF_CUDA, OF_META = "_ZN3c104impl26device_guard_impl_registryE", 21, 1, 14
"""c10's table of what switches devices, how many kinds of devices it has, and the places of two."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within it torch takes tensors that say they are on CUDA, though it was built without."""
    library = ctypes.CDLL(str(next((Path(str(torch.__file__)).parent / "lib").glob("*c10.*"))))
    guards = (ctypes.c_void_p * KINDS).in_dll(library, GUARDS)
    assert guards[OF_META], "torch has another table of devices"
    had, guards[OF_CUDA] = guards[OF_CUDA], guards[OF_META]  # that of a device on which there is nothing to switch
    try:
        yield
    finally:
        guards[OF_CUDA] = had


@contextmanager
def imagined(capability: int = 90) -> Iterator[None]:
    """Within it Inductor writes for a GPU of that compute capability, with the sizes of an H100, without any being there. One
    that is there is used instead."""
    if torch.cuda.is_available():
        yield
        return
    from torch._dynamo import device_interface
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils import _triton

    had = device_interface.get_interface_for_device("cuda")
    made = SimpleNamespace(**H100, major=capability // 10, minor=capability % 10)
    says = {
        "get_device_properties": made, "get_compute_capability": capability, "is_available": True, "current_device": 0,
        "device_count": 1, "is_bf16_supported": True, "is_triton_capable": True, "raise_if_triton_unavailable": None,
    }  # fmt: skip
    answers = {name: staticmethod(lambda *_, out=value, **__: out) for name, value in says.items()}
    worker = type("Worker", (had.Worker,), {n: answers[n] for n in ("get_device_properties", "current_device")})
    device: Any = type("Imagined", (had,), {**answers, "Worker": worker})
    caches = (DeviceProperties.create, _triton.has_triton, _triton.triton_hash_with_backend)
    with ExitStack() as stack:
        stack.enter_context(guarded())
        for name in ("get_device_properties", "current_device"):
            stack.enter_context(patch.object(torch.cuda, name, getattr(device, name)))
        stack.enter_context(patch.object(torch.cuda, "get_device_capability", lambda _=None: divmod(capability, 10)))
        stack.enter_context(patch.object(_triton, "triton_hash_with_backend", lambda: ""))
        for name in ("cuda", "cuda:0"):
            stack.callback(device_interface.register_interface_for_device, name, had)
            device_interface.register_interface_for_device(name, device)
        for cached in caches:
            getattr(cached, "cache_clear", lambda: None)()
            stack.callback(getattr(cached, "cache_clear", lambda: None))
        yield


def cut(graph: Graph, capability: int = 90) -> fx.GraphModule:
    """A graph that was recorded on the CPU, in regions, with what Inductor writes for each, for a GPU of that compute
    capability."""
    device = torch.device("cuda", 0)
    for node in graph.module.graph.nodes:
        node.args, node.kwargs = (
            map_aggregate(given, lambda v: device if isinstance(v, torch.device) else v) for given in (node.args, node.kwargs)
        )
        if "device" in node.meta:
            node.meta["device"] = device
    with imagined(capability):
        return regions(graph, written)
