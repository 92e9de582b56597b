"""Pass: linear maps of the same input become one, with their weights side by side.

Why: queries, keys and values are three matrix products of one input, gate and up two. On one row each is a pass
over its weight plus the cost of a call; on many, one wide product fills a device better than three narrow ones.

Precondition: plain matrices of one dtype on one device, all with a bias or all without, named by the module and not
tied to another of its tensors, and not a caller's. Memory: the joined weight takes the parts' place. The module's
parameters become views of it (storage.py), so both go on sharing every number; parts that already lie side by side are
joined without a copy.

    before   q = linear(x, wq); k = linear(x, wk); v = linear(x, wv)
    after    q, k, v = linear(x, w).split((nq, nk, nv), -1)          w = cat((wq, wk, wv)); wq = w[:nq] ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import fx

from decgraph.runtime.models.capture.products import plain
from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, shape_of
from decgraph.runtime.models.capture.storage import joined, turned


def projections(program: CapturedGraph, tied: frozenset[int] = frozenset()) -> None:
    """`tied`: ids of tensors that the module also uses elsewhere."""
    if program.borrowed:
        return
    groups: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in program.of("linear"):
        if isinstance(node.args[0], fx.Node):
            groups[node.args[0]].append(node)
    for nodes in groups.values():
        if len(nodes) > 1 and _joinable(program, nodes, tied):
            _join(program, nodes)
    program.sweep()


def _joinable(program: CapturedGraph, nodes: Sequence[fx.Node], tied: frozenset[int]) -> bool:
    weights = [program.tensor(n.args[1]) for n in nodes]
    biases = [argument(n, 2, "bias") for n in nodes]
    if any(not plain(w) or w is None or w.dim() != 2 or id(w) in tied for w in weights):
        return False
    if len({id(w) for w in weights}) != len(weights) or len({(w.dtype, w.device) for w in weights if w is not None}) != 1:
        return False
    if any(b is None for b in biases):
        return all(b is None for b in biases)
    return all(program.tensor(b) is not None for b in biases)


def _join(program: CapturedGraph, nodes: Sequence[fx.Node]) -> None:
    first = nodes[0]
    weights = [program.tensor(n.args[1]) for n in nodes]
    widths = tuple(int(w.shape[0]) for w in weights if w is not None)
    bias = None
    name = "_and_".join([str(first.args[1].target), *(str(n.args[1].target).split("_")[-3] for n in nodes[1:])])
    if argument(first, 2, "bias") is not None:
        biases = [program.tensor(argument(n, 2, "bias")) for n in nodes]
        bias = program.constant(f"{name}_bias", joined([b for b in biases if b is not None]))
    shape, dtype, layer = shape_of(first), dtype_of(first), first.meta["layer"]
    lead = shape[:-1] if shape is not None else ()
    with program.before(first):
        weight = program.constant(name, turned([w for w in weights if w is not None]).t())
        whole = program.make("linear", (first.args[0], weight, bias), shape=(*lead, sum(widths)), dtype=dtype, layer=layer)
        split = program.make("split", (whole, widths, -1), shape=None, dtype=None, layer=layer)
        parts = []
        for place, width in enumerate(widths):
            part = program.make("getitem", (split, place), shape=(*lead, width), dtype=dtype, layer=layer)
            part.meta["op"] = "item"
            parts.append(part)
    for node, part in zip(nodes, parts, strict=True):
        program.replace(node, part)
