"""A recorded step as text: Python that does the same when it is imported, the kernels by hand that it calls, and its launches.

    step(tensors)       one step over the tensors of the graph, by name; constants of a few numbers stand in the text

Launches are an estimate of what Inductor makes of the operations between products: everything computed element by element is
inlined into what reads it, and what has to be stored is put into one kernel with what it reads or shares, where both go over
the same elements. Bytes are those of what a launch reads and writes, each once; of keys and values all slots, whatever is seen.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from linecache import getline

import torch
from torch import Tensor, fx

from decgraph.backends.triton.graph import Graph, is_opaque, is_view, writes

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "__rshift__": ">>", "__lshift__": "<<", "mm": "@", "bmm": "@",
    "bitwise_not": "~",
}  # fmt: skip
INLINE = 64
"""Elements of a constant that stands in the text, at most."""
KERNELS = {"attend": "attend", "draw": "race", "truncate": "truncate"}
"""The files of the operations `torch.ops.decgraph` in kernels/."""
SEVERAL = {"attend": 2, "truncate": 3}
"""Launches of those that are more than one."""
REDUCED = (
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "prod", "_softmax", "cumsum", "cumprod",
)  # fmt: skip
STORED = (*REDUCED, "scatter", "index_put", "index_copy", "index_add", "copy_")


# -- the text of a step
def text(graph: Graph, title: str = "", vocabulary: int = 0) -> str:
    """The whole text: the step with its places in the `.dec` file, the kernels by hand, and the launches as a comment.
    vocabulary: its size, to know which bytes are rows over it."""
    kernels = sorted({_name(n) for n in graph.nodes() if by_hand(n)} & set(KERNELS))
    lines = [f'"""{title or "A step"}. Written by decgraph."""', "", "import torch"]
    lines += ["import triton", "import triton.language as tl", "from torch import inf, nan", ""]
    lines += [f"import decgraph.backends.triton.kernels.{KERNELS[k]}" for k in kernels]
    lines += ["", "aten = torch.ops.aten", "", "", *_constants(graph), "", "", "def step(tensors):"]
    lines += [f"    {line}" if line else "" for line in _body(graph)]
    for k in kernels:
        lines += ["", "", f"# {k}: the kernel by hand", *_source(KERNELS[k])]
    return "\n".join([*lines, "", "", *(f"# {line}".rstrip() for line in table(graph, vocabulary))]) + "\n"


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


def _body(graph: Graph) -> Iterator[str]:
    nodes = list(graph.module.graph.nodes)
    yield '"""One step, in place. tensors: by name."""'
    yield f"tensors = constants({str(next(iter(graph.tensors.values())).device)!r}) | tensors"
    inlined = _inlined(nodes)
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
    place = None
    for node in nodes:
        if node.op == "placeholder":
            yield f"{node.name} = tensors[{node.target!r}]  # {_kind(graph.tensors[node.target])}"
        elif node.op == "output":
            yield f"return {_value(node.args[0], said)}"
        elif node in inlined:
            call = _call(node, said)
            said[node] = f"({call})" if _symbol(node) else call
        else:
            if node.meta.get("dec", place) != place:
                place = node.meta["dec"]
                yield from ("", f"# {_where(place)}  {getline(*place).strip()}".rstrip())
            call = _call(node, said)
            yield f"{node.name} = {call}" if node.users else call
            if node in gone:
                yield f"del {', '.join(gone[node])}"


def _inlined(nodes: list[fx.Node]) -> set[fx.Node]:
    """The operations that stand in the line of the only one that uses them: few, of the same place, before the next write."""
    order = {n: i for i, n in enumerate(nodes)}
    written = [*(i for i, n in enumerate(nodes) if writes(n)), len(nodes)]
    depth: dict[fx.Node, int] = {}
    out: set[fx.Node] = set()
    for i, node in enumerate(nodes):
        depth[node] = 1 + sum(depth[n] for n in node.all_input_nodes if n in out)
        users = list(node.users)
        if node.op != "call_function" or len(users) != 1 or writes(node) or depth[node] > 4 or is_opaque(node):
            continue
        same = users[0].op == "call_function" and users[0].meta.get("dec") == node.meta.get("dec")
        if same and order[users[0]] <= written[bisect_right(written, i)]:
            out.add(node)
    return out


def _call(node: fx.Node, said: dict[fx.Node, str]) -> str:
    """An operation as an expression."""
    args = [_value(a, said) for a in node.args]
    if node.target is operator.getitem:
        return f"{args[0]}[{args[1]}]"
    symbol = _symbol(node)
    if symbol:
        return f"{args[0]} {symbol} {args[1]}" if len(args) == 2 else f"{symbol}{args[0]}"
    if str(node.target) == "aten.where.self":
        return f"torch.where({', '.join(args)})"
    args += [f"{k}={_value(v, said)}" for k, v in node.kwargs.items()]
    return f"{'' if str(node.target).startswith('aten.') else 'torch.ops.'}{node.target}({', '.join(args)})"


def _symbol(node: fx.Node) -> str:
    """The operator that an operation is written with, if it is."""
    name, _, form = str(node.target).removeprefix("aten.").partition(".")
    plain = not node.kwargs and form in ("Tensor", "Scalar", "default")
    return SYMBOLS.get(name, "") if plain and len(node.args) == (1 if name == "bitwise_not" else 2) else ""


def _value(value: object, said: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return said[value]
    if isinstance(value, tuple | list):
        inner = ", ".join(_value(v, said) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else repr(value)


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _where(place: tuple[str, int]) -> str:
    return f"{place[0].rsplit('/', 1)[-1] or 'line'}:{place[1]}"


# -- launches
@dataclass
class Launch:
    """One launch, or the few of a kernel by hand. kind: "product", "kernel", "sort" or "fused"; count: how many they are; ops:
    how many operations are in it; names: of those that it is for; where: their places in the `.dec` file; bytes: of weights, of
    keys and values, of rows over the vocabulary, and of all else."""

    kind: str
    count: int
    ops: int
    names: list[str]
    where: list[str]
    bytes: dict[str, int]


def launches(graph: Graph, vocabulary: int = 0) -> list[Launch]:
    """The launches of a step, in order (an estimate, see above)."""
    nodes = list(graph.nodes())
    stored = {n for n in nodes if _is_stored(n)}
    sources: dict[fx.Node, set[fx.Node]] = {}  # what a node reads of memory: through what is inlined
    for node in nodes:
        inlined = [n for n in node.all_input_nodes if n.op == "call_function" and n not in stored]
        sources[node] = {n for n in node.all_input_nodes if n not in inlined}.union(*(sources[n] for n in inlined))
    groups: list[list[fx.Node]] = []
    needs: list[set[int]] = []
    of: dict[fx.Node, int] = {}
    writer: dict[fx.Node, int] = {}  # the group that wrote a buffer last
    for node in (n for n in nodes if n in stored):
        memory = [_memory(n) for n in sources[node]]
        before = {of[n] for n in sources[node] if n in of} | {writer[m] for m in memory if m in writer}
        place = None if is_opaque(node) else _joined(node, sources, groups, needs, before)
        if place is None:
            place = len(groups)
            groups.append([])
            needs.append(set())
        groups[place].append(node)
        needs[place] |= before - {place}
        of[node] = place
        writer |= {_memory(w): place for w in writes(node)}
    return [_launch(group, sources, stored, vocabulary) for group in groups]


def _joined(
    node: fx.Node, sources: dict[fx.Node, set[fx.Node]], groups: list[list[fx.Node]], needs: list[set[int]], before: set[int]
) -> int | None:
    """The group that a stored node can join: one that it reads from or shares a source with, over as many elements, or over as
    many as that one has results, and on which nothing depends that the node needs."""
    beyond: set[int] = set()
    for b in before:
        beyond |= _needed(b, needs)
    for place in reversed(range(max(0, len(groups) - 24), len(groups))):
        group = groups[place]
        if is_opaque(group[0]) or place in beyond:
            continue
        near = place in before or any(sources[n] & sources[node] for n in group)
        if near and _domain(node) in {size for n in group for size in (_domain(n), _size(n))}:
            return place
    return None


def _needed(group: int, needs: list[set[int]]) -> set[int]:
    """The groups that a group depends on."""
    out: set[int] = set()
    left = [group]
    while left:
        fresh = needs[left.pop()] - out
        out |= fresh
        left += fresh
    return out


def by_hand(node: fx.Node) -> bool:
    """Whether an operation is a kernel by hand."""
    return str(node.target).startswith("decgraph.")


def _name(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.").removeprefix("decgraph.").split(".")[0]


def _memory(node: fx.Node) -> fx.Node:
    while node.op == "call_function" and is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _is_stored(node: fx.Node) -> bool:
    """Whether a result goes to memory: it is written in place or by a kernel of its own, reduced, or read by one of these."""
    if is_view(node):
        return False

    def read(n: fx.Node) -> bool:
        return any(u.op == "output" or is_opaque(u) or (is_view(u) and read(u)) for u in n.users)

    return is_opaque(node) or bool(writes(node)) or _name(node).startswith(STORED) or read(node)


def _size(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else 0


def _domain(node: fx.Node) -> int:
    """How many elements an operation goes over."""
    return max([_size(node), *(_size(n) for n in node.all_input_nodes if _name(node) in REDUCED)])


def _launch(group: list[fx.Node], sources: dict[fx.Node, set[fx.Node]], stored: set[fx.Node], vocabulary: int) -> Launch:
    first, inside, left = group[0], set(group), list(group)
    while left:
        fresh = {n for n in left.pop().all_input_nodes if n.op == "call_function" and n not in stored} - inside
        inside |= fresh
        left += fresh
    kind, name = "fused", _name(first)
    if is_opaque(first):
        kind = "kernel" if by_hand(first) else "sort" if name in ("sort", "topk") else "product"
    sizes: Counter[str] = Counter()
    most = max(_domain(n) for n in group)
    beside = {s for n in group for s in sources[n]} - set(group)
    for n in {_memory(m) for m in (*group, *beside)}:
        value = n.meta.get("val")
        if isinstance(value, Tensor):  # of a table that is gathered from only what is gathered
            elements = min(value.numel(), most) if kind == "fused" and n.op == "placeholder" else value.numel()
            sizes[_role(n, kind, vocabulary)] += elements * value.element_size()
    ops = [n for n in inside if not is_view(n)]
    where = sorted({_where(n.meta["dec"]) for n in ops if "dec" in n.meta})
    count = SEVERAL.get(name, 1) if kind == "kernel" else 1
    return Launch(kind, count, len(ops), sorted({_name(n) for n in group}), where, dict(sizes))


def _role(node: fx.Node, kind: str, vocabulary: int) -> str:
    """What the bytes of a tensor are counted as."""
    value = node.meta["val"]
    if node.op == "placeholder" and value.is_floating_point() and kind in ("product", "kernel"):
        if value.ndim == 4:
            return "keys and values"
        if value.ndim == 2 and kind == "product":
            return "weights"
    return "rows" if vocabulary and value.ndim and value.shape[-1] >= vocabulary else "all else"


def totals(launches: Iterable[Launch]) -> tuple[Counter[str], Counter[str]]:
    """Launches by kind, and bytes by what they are of."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for launch in launches:
        count[launch.kind] += launch.count
        size.update(launch.bytes)
    return count, size


def table(graph: Graph, vocabulary: int = 0) -> list[str]:
    """The launches as lines of text."""
    found = launches(graph, vocabulary)
    lines = ["Launches: an estimate, in which what stands between products is fused as Inductor would.", ""]
    for n, made in enumerate(found):
        names = ", ".join(made.names[:4]) + (" ..." if len(made.names) > 4 else "")
        size = f"{sum(made.bytes.values()):,}"
        lines.append(f"{n + 1:4} {made.kind:8} {size:>14} bytes  {names}  {' '.join(made.where[:3])}".rstrip())
    count, size_of = totals(found)
    lines += ["", f"{sum(count.values())} launches: " + ", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))]
    return [*lines, "Bytes: " + ", ".join(f"{n:,} of {what}" for what, n in sorted(size_of.items()))]


def as_json(graph: Graph, title: str = "", vocabulary: int = 0) -> dict[str, object]:
    """The same in JSON's types: the text, its tensors, and the launches."""
    found = launches(graph, vocabulary)
    count, size = totals(found)
    return {
        "title": title,
        "text": text(graph, title, vocabulary),
        "tensors": {k: _kind(v) for k, v in graph.tensors.items()},
        "operations": sum(not is_view(n) for n in graph.nodes()),
        "launches": [asdict(made) for made in found],
        "totals": {"launches": dict(count), "bytes": dict(size), "estimate": True},
    }
