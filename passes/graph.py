"""A step as a graph: what is computed from what, without the plumbing. For `decgraph compile --emit graph`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from decgraph.ir.values import Function, Module, Op, Region, Value

PLUMBING = frozenset((
    "const", "map", "if", "for", "while", "each", "len", "as_int", "noise", "gather", "face", "tree.nodes", "tree.get",
    "canvas.get", "context", "done", "draw.get", "level.get", "list", "concat", "slice", "reduce", "lookup", "tile",
    "request", "state.read", "compact", "edit.get", "path.get", "positions", "take_first", "segment",
    "within",
))  # fmt: skip
SHAPES = {"model": "box3d", "commit": "doubleoctagon", "tree.walk": "diamond", "draw": "ellipse", "bernoulli": "ellipse"}


class GraphNode(NamedTuple):
    """label: what it says. opcode: of the operation, or "parameter". line: of the source; 0 where there is none. loop: the
    loops and rules around it, outermost first, "/" between them."""

    label: str
    opcode: str
    line: int = 0
    loop: str = ""


@dataclass
class Graph:
    """nodes: by number, or a parameter's name. before: the nodes whose results each one uses."""

    name: str
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    before: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, name: str, node: GraphNode, sources: dict[str, None]) -> None:
        self.nodes[name], self.before[name] = node, sources

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(a, b) for b, sources in self.before.items() for a in sources]


def graph_of(module: Module, name: str = "") -> Graph:
    """The operations of an algorithm, each with those whose results it uses.

    What only carries values (constants, gathers, comparisons, branches) is contracted: its inputs become the inputs
    of what uses it. Parameters that are models are nodes too.
    """
    function = module.functions[name or module.main]
    graph = Graph(function.name)
    _Builder(graph, function).build()
    for carrier in [n for n, node in graph.nodes.items() if node.opcode in PLUMBING]:
        del graph.nodes[carrier]
        inputs = graph.before.pop(carrier)
        for user, sources in graph.before.items():
            if carrier in sources:
                del sources[carrier]
                sources.update({source: None for source in inputs if source not in (user, carrier)})
    used = {end for edge in graph.edges for end in edge}
    for unused in [n for n, node in graph.nodes.items() if node.opcode == "parameter" and n not in used]:
        del graph.nodes[unused], graph.before[unused]
    return graph


class _Builder:
    """Numbers the operations in order and follows values into regions and out of them."""

    def __init__(self, graph: Graph, function: Function) -> None:
        self.graph, self.function = graph, function
        self.definition: dict[Value, dict[str, None]] = {}

    def build(self) -> None:
        for p in self.function.params:
            self.graph.add(p.name, GraphNode(p.name, "parameter"), {})
            self.definition[p.value] = {p.name: None}
        self.region(self.function.body, "")

    def region(self, region: Region, loop: str) -> None:
        for op in region.ops:
            node = f"{len(self.graph.nodes)}"
            sources = {source: None for value in op.operands for source in self.definition.get(value, {})}
            self.graph.add(node, GraphNode(label(op), op.opcode, op.loc.line, loop), sources)
            inner = loop
            if op.opcode in ("for", "while", "each"):
                inner = f"{loop}/line {op.loc.line}".strip("/")
            elif op.opcode == "tree.walk":
                inner = f"{loop}/rule {op.attrs['rule']}".strip("/")
            made: dict[str, None] = {node: None}
            for r in op.regions:
                for value in r.args:
                    self.definition[value] = {node: None}
                self.region(r, inner)
                for value in r.yields:
                    made |= self.definition.get(value, {})
            for value in op.results:
                self.definition[value] = made if op.opcode in ("for", "while", "each", "if", "segment") else {node: None}


def label(op: Op) -> str:
    """What a node says: the operation, and the name that the source gives its result."""
    names = [v.name.split(".")[0] for v in op.results if v.name and not v.name.startswith("%")]
    extra = [str(op.attrs[a]) for a in ("rule", "how", "part", "fn", "state", "extern") if op.attrs.get(a)]
    words = op.opcode + (f" {', '.join(extra)}" if extra else "")
    return f"{words}: {', '.join(dict.fromkeys(names))}" if names else words


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language; loops and rules are boxes around their operations."""
    lines = [f"digraph {json.dumps(graph.name)} {{", '  rankdir=TB; node [shape=box, fontname="monospace"];']
    loops: dict[str, list[str]] = {}
    for name, node in graph.nodes.items():
        shape = next((s for start, s in SHAPES.items() if node.opcode.startswith(start)), "box")
        text = node.label + (f"\n{node.line}" if node.line else "")
        loops.setdefault(node.loop, []).append(f"n{name} [label={json.dumps(text)}, shape={shape}];")
    for number, (loop, inside) in enumerate(loops.items()):
        if loop:
            lines.append(f"  subgraph cluster_{number} {{ label={json.dumps(loop)}; style=rounded;")
        lines += [f"{'    ' if loop else '  '}{line}" for line in inside] + (["  }"] if loop else [])
    lines += [f"  n{a} -> n{b};" for a, b in graph.edges]
    return "\n".join([*lines, "}"])


def mermaid(graph: Graph) -> str:
    """The graph in mermaid's language, for Markdown pages."""
    lines = ["flowchart TD"]
    for name, node in graph.nodes.items():
        text = node.label.replace('"', "'")
        lines.append(f'  n{name}(["{text}"])' if node.opcode == "commit" else f'  n{name}["{text}"]')
    return "\n".join([*lines, *(f"  n{a} --> n{b}" for a, b in graph.edges)])
