"""A recorded step as text: Python that does the same when it is imported, the kernels that it launches, and their table.

    step(tensors)       one step over the tensors of the graph, by name; constants of a few numbers stand in the text

With what Inductor writes for the regions of a step (regions.py) it is the step as it runs on a device: products as the calls
that they are, kernels by hand, and Inductor's, each with the lines of the `.dec` file that it is from. Without, all between
products is torch's operations.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from linecache import getline
from typing import Any, cast

import torch
from torch import Tensor, fx

from decgraph.backends.triton.graph import Graph, is_opaque, is_view
from decgraph.backends.triton.regions import RegionText, cut, named

INLINE = 64
"""Elements of a constant that stands in the text, at most."""
KERNELS = {"attend": "attend", "draw": "race", "truncate": "truncate"}
"""The files of the operations `torch.ops.decgraph` in kernels/."""
SEVERAL = {"attend": 2, "truncate": 3}
"""Launches of those that are more than one."""


# -- the text of a step
def text(graph: Graph, title: str = "", step: fx.GraphModule | None = None) -> str:
    """The whole text: the kernels, the step with its places in the `.dec` file, and the launches as a comment.
    step: the graph cut into regions, with what is written for each (`regions.written`)."""
    kernels = sorted({_name(n) for n in graph.nodes() if by_hand(n)} & set(KERNELS))
    lines = [f'"""{title or "A step"}. Written by decgraph."""', "", "import torch"]
    lines += ["import triton", "import triton.language as tl", "from torch import inf, nan", ""]
    lines += [f"import decgraph.backends.triton.kernels.{KERNELS[k]}" for k in kernels]
    parts = _regions(step) if step is not None else {}
    lines += dict.fromkeys(line for made in parts for line in made.header)
    lines += ["", "aten = torch.ops.aten", "", "", *_constants(graph)]
    body = step.graph if step is not None else graph.module.graph
    lines += ["", "", "def step(tensors):"]
    lines += [f"    {line}" if line else "" for line in _body(graph, body)]
    for made, call in parts.items():
        lines += ["", "", *_region(made, call)]
    for k in kernels:
        lines += ["", "", f"# {k}: the kernel by hand", *_source(KERNELS[k])]
    if step is not None:
        lines += ["", "", *(f"# {line}".rstrip() for line in table(launches(step)))]
    return "\n".join(lines) + "\n"


def _source(file: str) -> Iterator[str]:
    """The device functions of a kernel by hand, with the constants that they read."""
    module = importlib.import_module(f"decgraph.backends.triton.kernels.{file}")
    yield from (f"{name} = tl.constexpr({v.value!r})" for name, v in vars(module).items() if type(v).__name__ == "constexpr")
    every = [v.fn for v in vars(module).values() if getattr(getattr(v, "fn", None), "__module__", "") == module.__name__]
    for function in sorted(every, key=lambda f: inspect.getsourcelines(f)[1]):
        yield from ("", "", *inspect.getsource(function).splitlines())


def _constants(graph: Graph) -> Iterator[str]:
    yield from ("def constants(at):", '    """Constants of a few numbers, on a device."""', "    return {")
    for name in sorted(graph.constants):
        value = graph.tensors[name]
        if value.numel() <= INLINE:
            yield f'        "{name}": torch.tensor({value.tolist()!r}, dtype={value.dtype}, device=at),'
    yield "    }"


def _regions(step: fx.GraphModule) -> dict[RegionText, fx.Node]:
    """What is written for regions, each with a call of it. Calls get the name that it has in the text, and their places."""
    found: dict[RegionText, fx.Node] = {}
    for call in step.graph.find_nodes(op="call_module"):
        first = found.setdefault(of_region(step, call), call)
        call.meta["region"] = first.meta.get("region", f"region_{len(found)}")
        inner = inside(step, call).graph
        call.meta["places"] = list(dict.fromkeys(n.meta["dec"] for n in inner.nodes if "dec" in n.meta))
        call.meta["single"] = isinstance(inner.output_node().args[0], fx.Node)
    return found


def _region(written: RegionText, call: fx.Node) -> Iterator[str]:
    """The kernels of a region, and the function that launches them. Names are unique: Inductor counts anew in each region."""
    name = call.meta["region"]
    defined = {d for kernel, source in written.kernels.items() for d in (kernel, *re.findall(r"^def (\w+)\(", source, re.M))}
    lines = [*_places(call.meta["places"], name)]
    for source in written.kernels.values():
        lines += [*source.splitlines(), "", ""]
    if any("async_compile." in source for source in written.kernels.values()):  # C++
        lines += ["async_compile.wait(globals())", "", ""]
    lines += [f"def {name}({written.arguments}):", *(f"    {line}".rstrip() for line in written.body)]
    known = re.compile(rf"\b({'|'.join(map(re.escape, defined)) or '$^'})\b")
    yield from (known.sub(rf"\1_of_{name}", line) for line in lines)


def _places(places: Iterable[tuple[str, int]], what: str = "") -> Iterator[str]:
    """Comments that show lines of `.dec` files."""
    yield from (f"# {what + ': ' if what else ''}{named(p)}  {getline(*p).strip()}".rstrip() for p in places)


def _body(graph: Graph, body: fx.Graph) -> Iterator[str]:
    nodes = list(body.nodes)
    yield '"""One step, in place. tensors: by name."""'
    yield f"tensors = constants({str(next(iter(graph.tensors.values())).device)!r}) | tensors"
    inlined = {n for n in nodes if n.op == "call_function" and is_view(n) and len(n.users) == 1}
    said = {n: n.name for n in nodes}
    line = {n: n for n in nodes}  # the one in whose line a node stands
    for node in reversed(nodes):
        if node in inlined:
            line[node] = line[next(iter(node.users))]
    order = {n: i for i, n in enumerate(nodes)}
    last_use = {n: max((line[user] for user in n.users), key=order.__getitem__) for n in nodes if n.users}
    gone: dict[fx.Node, list[str]] = {}
    for n, user in last_use.items():
        if n.op == "call_function" and n not in inlined:
            gone.setdefault(user, []).append(n.name)
    before: list[tuple[str, int]] = []
    for node in nodes:
        if node.op == "placeholder":
            yield f"{node.name} = tensors[{node.target!r}]  # {_kind(graph.tensors[node.target])}"
        elif node.op == "output":
            yield f"return {_value(node.args[0], said)}"
        elif node in inlined:
            said[node] = _call(node, said)
        else:
            places = node.meta.get("places") or [node.meta["dec"]] if "dec" in node.meta or "places" in node.meta else before
            if places != before:
                before = places
                yield from ("", *_places(places))
            call = _call(node, said)
            yield f"{node.name} = {call}" if node.users else call
            if node in gone:
                yield f"del {', '.join(gone[node])}"


def _call(node: fx.Node, said: dict[fx.Node, str]) -> str:
    """An operation as an expression."""
    args = [_value(a, said) for a in node.args]
    if node.op == "call_module":
        return f"{node.meta['region']}({', '.join(args)}){'[0]' if node.meta['single'] else ''}"
    if node.target is operator.getitem:
        return f"{args[0]}[{args[1]}]"
    args += [f"{k}={_value(v, said)}" for k, v in node.kwargs.items()]
    return f"{'' if str(node.target).startswith('aten.') else 'torch.ops.'}{node.target}({', '.join(args)})"


def _value(value: object, said: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return said[value]
    if isinstance(value, tuple | list):
        inner = ", ".join(_value(v, said) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else repr(value)


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


# -- launches
@dataclass
class Launch:
    """One launch, or the few of a kernel by hand. kind: "product", "kernel" (by hand), "sort", "fused" (Inductor's) or "torch"
    (an operation that no compiler sees); names: of the kernel or the operation; count: how many they are; where: their places
    in the `.dec` file; bytes: those of a product, of weights, of rows over the vocabulary, and of all else."""

    kind: str
    names: list[str]
    count: int
    where: list[str]
    bytes: dict[str, int] = field(default_factory=dict)


def launches(step: fx.GraphModule | Graph, vocabulary: int = 0) -> list[Launch]:
    """The launches of a step, in order: of one that is cut into regions (`regions.written`), or of a graph that was recorded on
    the CPU, for a GPU that need not be there. vocabulary: its size, to know which bytes are rows over it."""
    found: list[Launch] = []
    step = cut(step) if isinstance(step, Graph) else step
    for node in step.graph.nodes:
        if node.op == "call_module":
            here = {named(n.meta["dec"]) for n in inside(step, node).graph.nodes if "dec" in n.meta}
            for name, where in of_region(step, node).launches:
                found.append(Launch("fused", [name], 1, [w for w in where if w in here] or sorted(here)))
        elif node.op == "call_function" and not is_view(node):
            name, kind = _name(node), "torch"
            if is_opaque(node):
                kind = "kernel" if by_hand(node) else "sort" if name in ("sort", "topk") else "product"
            count = SEVERAL.get(name, 1) if kind == "kernel" else 1
            size: Counter[str] = Counter()
            for n in (node, *node.all_input_nodes) if kind == "product" else ():
                if (value := n.meta.get("val")) is None:  # what a region gives
                    continue
                rows = vocabulary and n is node and value.shape[-1] >= vocabulary
                role = "rows" if rows else "weights" if n.op == "placeholder" or is_view(n) else "all else"
                size[role] += value.numel() * value.element_size()
            found.append(Launch(kind, [name], count, [named(node.meta["dec"])] if "dec" in node.meta else [], dict(size)))
    return found


def of_region(step: fx.GraphModule, call: fx.Node) -> RegionText:
    """What is written for a region that is called."""
    return cast(Any, inside(step, call)).forward


def inside(step: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    """A region that is called."""
    return cast(fx.GraphModule, step.get_submodule(str(call.target)))


def by_hand(node: fx.Node) -> bool:
    """Whether an operation is a kernel by hand."""
    return str(node.target).startswith("decgraph.")


def _name(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removeprefix("decgraph.").split(".")[0]


def totals(launches: Iterable[Launch]) -> tuple[Counter[str], Counter[str]]:
    """Launches by kind, and the bytes of products by what they are of."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for launch in launches:
        count[launch.kind] += launch.count
        size.update(launch.bytes)
    return count, size


def table(every: list[Launch]) -> list[str]:
    """The launches as lines of text."""
    lines = [f"{n + 1:4} {m.kind:8} {m.names[0]}  {' '.join(m.where[:3])}".rstrip() for n, m in enumerate(every)]
    count, size = totals(every)
    lines += ["", f"{count.total()} launches: " + ", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))]
    return [*lines, "Bytes of products: " + ", ".join(f"{n:,} of {what}" for what, n in sorted(size.items()))]


def as_json(graph: Graph, title: str = "", step: fx.GraphModule | None = None) -> dict[str, object]:
    """The same in JSON's types: the text, its tensors, and the launches, if they are known."""
    found = launches(step) if step is not None else []
    return {
        "title": title,
        "text": text(graph, title, step),
        "tensors": {k: _kind(v) for k, v in graph.tensors.items()},
        "operations": sum(not is_view(n) for n in graph.nodes()),
        "launches": [asdict(made) for made in found],
        "totals": {"launches": dict(totals(found)[0]), "bytes": dict(totals(found)[1])},
    }
