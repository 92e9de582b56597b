"""A step as a graph: what is computed from what, without the plumbing. For `decgraph compile --emit graph`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from decgraph.ir.values import Function, Module, Op, Region, Value

if TYPE_CHECKING:
    import networkx

PLUMBING = frozenset((
    "const", "map", "if", "for", "while", "each", "len", "as_int", "noise", "gather", "face", "tree.nodes", "tree.get",
    "canvas.get", "context", "done", "draw.get", "level.get", "list", "concat", "slice", "reduce", "lookup", "tile",
    "request", "state.read", "compact", "edit.get", "path.get", "positions", "take_first", "segment",
    "within",
))  # fmt: skip
SHAPES = {"model": "box3d", "commit": "doubleoctagon", "tree.walk": "diamond", "draw": "ellipse", "bernoulli": "ellipse"}


def graph_of(module: Module, name: str = "") -> networkx.DiGraph:
    """The operations of an algorithm as nodes (label, opcode, line, loop), an edge where one uses another's result.

    What only carries values (constants, gathers, comparisons, branches) is contracted: its inputs become the inputs
    of what uses it. Parameters that are models are nodes too.
    """
    import networkx

    function = module.functions[name or module.main]
    graph = networkx.DiGraph(name=function.name)
    _Builder(graph, function).build()
    for node in [n for n, data in graph.nodes(data=True) if data["opcode"] in PLUMBING]:
        for a in list(graph.predecessors(node)):
            for b in list(graph.successors(node)):
                if a != b:
                    graph.add_edge(a, b)
        graph.remove_node(node)
    unused = [n for n, data in graph.nodes(data=True) if data["opcode"] == "parameter" and not graph.degree(n)]
    graph.remove_nodes_from(unused)
    return graph


class _Builder:
    """Numbers the operations in order and follows values into regions and out of them."""

    def __init__(self, graph: networkx.DiGraph, function: Function) -> None:
        self.graph, self.function = graph, function
        self.maker: dict[Value, set[str]] = {}

    def build(self) -> None:
        for p in self.function.params:
            self.graph.add_node(p.name, label=p.name, opcode="parameter", line=0, loop="")
            self.maker[p.value] = {p.name}
        self.region(self.function.body, "")

    def region(self, region: Region, loop: str) -> None:
        for op in region.ops:
            node = f"{len(self.graph)}"
            self.graph.add_node(node, label=label(op), opcode=op.opcode, line=op.loc.line, loop=loop)
            for value in op.operands:
                for source in self.maker.get(value, ()):
                    self.graph.add_edge(source, node)
            inner = loop
            if op.opcode in ("for", "while", "each"):
                inner = f"{loop}/line {op.loc.line}".strip("/")
            elif op.opcode == "tree.walk":
                inner = f"{loop}/rule {op.attrs['rule']}".strip("/")
            made = {node}
            for r in op.regions:
                for value in r.args:
                    self.maker[value] = {node}
                self.region(r, inner)
                for value in r.yields:
                    made |= self.maker.get(value, set())
            for value in op.results:
                self.maker[value] = made if op.opcode in ("for", "while", "each", "if", "segment") else {node}


def label(op: Op) -> str:
    """What a node says: the operation, and the name that the source gives its result."""
    names = [v.name.split(".")[0] for v in op.results if v.name and not v.name.startswith("%")]
    extra = [str(op.attrs[a]) for a in ("rule", "how", "part", "fn", "state", "extern") if op.attrs.get(a)]
    words = op.opcode + (f" {', '.join(extra)}" if extra else "")
    return f"{words}: {', '.join(dict.fromkeys(names))}" if names else words


def dot(graph: networkx.DiGraph) -> str:
    """The graph in Graphviz's language; loops and rules are boxes around their operations."""
    lines = [f"digraph {json.dumps(graph.name)} {{", '  rankdir=TB; node [shape=box, fontname="monospace"];']
    loops: dict[str, list[str]] = {}
    for node, data in graph.nodes(data=True):
        loops.setdefault(data["loop"], []).append(node)
    for number, (loop, nodes) in enumerate(loops.items()):
        pad = "  "
        if loop:
            lines.append(f"  subgraph cluster_{number} {{ label={json.dumps(loop)}; style=rounded;")
            pad = "    "
        for node in nodes:
            data = graph.nodes[node]
            shape = next((s for start, s in SHAPES.items() if data["opcode"].startswith(start)), "box")
            text = data["label"] + (f"\n{data['line']}" if data["line"] else "")
            lines.append(f"{pad}n{node} [label={json.dumps(text)}, shape={shape}];")
        if loop:
            lines.append("  }")
    lines += [f"  n{a} -> n{b};" for a, b in graph.edges]
    return "\n".join([*lines, "}"])


def mermaid(graph: networkx.DiGraph) -> str:
    """The graph in mermaid's language, for Markdown pages."""
    lines = ["flowchart TD"]
    for node, data in graph.nodes(data=True):
        text = data["label"].replace('"', "'")
        lines.append(f'  n{node}(["{text}"])' if data["opcode"] == "commit" else f'  n{node}["{text}"]')
    return "\n".join([*lines, *(f"  n{a} --> n{b}" for a, b in graph.edges)])
