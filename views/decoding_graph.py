"""A step as a drawing: what is computed from what, without the plumbing. For `decgraph compile --emit graph`."""

from __future__ import annotations

import json

import networkx as nx

from decgraph.ir.values import Function, Op
from decgraph.ir.walk import graph_of

PLUMBING = frozenset((
    "const", "map", "if", "for", "while", "each", "len", "as_int", "noise", "gather", "face", "tree.nodes", "tree.get",
    "canvas.get", "context", "done", "draw.get", "level.get", "list", "concat", "slice", "reduce", "lookup", "tile",
    "request", "state.read", "compact", "edit.get", "path.get", "positions", "take_first", "segment",
    "within", "unfailing",
))  # fmt: skip
SHAPES = {"model": "box3d", "commit": "doubleoctagon", "tree.walk": "diamond", "draw": "ellipse", "bernoulli": "ellipse"}


def drawn(function: Function) -> nx.DiGraph:
    """The graph that is drawn, its nodes with label, opcode ("parameter"), line and loop.

    What only carries values (constants, gathers, comparisons, branches) is contracted: its inputs become the inputs
    of what uses it. Parameters are there where something uses them.
    """
    graph = graph_of(function)
    for node, (op, loop) in [(n, tuple(attributes.values())) for n, attributes in graph.nodes.items()]:
        opcode, line = (op.opcode, op.loc.line) if op is not None else ("parameter", 0)
        graph.nodes[node].clear()
        graph.nodes[node].update(label=node if op is None else label(op), opcode=opcode, line=line, loop=loop)
    for carrier in [n for n, opcode in graph.nodes(data="opcode") if opcode in PLUMBING]:
        ends = [(a, b) for b in graph.succ[carrier] for a in graph.pred[carrier] if a != b and carrier not in (a, b)]
        graph.remove_node(carrier)
        graph.add_edges_from(ends)
    graph.remove_nodes_from([n for n in nx.isolates(graph) if graph.nodes[n]["opcode"] == "parameter"])
    return graph


def edges(graph: nx.DiGraph) -> list[tuple[str, str]]:
    """The edges, those into one node together."""
    return [(a, b) for b in graph for a in graph.pred[b]]


def label(op: Op) -> str:
    """What a node says: the operation, and the name that the source gives its result."""
    names = [v.name.split(".")[0] for v in op.results if v.name and not v.name.startswith("%")]
    extra = [str(op.attrs[a]) for a in ("rule", "how", "part", "fn", "state", "extern") if op.attrs.get(a)]
    words = op.opcode + (f" {', '.join(extra)}" if extra else " masked again" if op.attrs.get("kind") == "mask" else "")
    return f"{words}: {', '.join(dict.fromkeys(names))}" if names else words


def dot(graph: nx.DiGraph) -> str:
    """The graph in Graphviz's language; loops and rules are boxes around their operations."""
    lines = [f"digraph {json.dumps(graph.name)} {{", '  rankdir=TB; node [shape=box, fontname="monospace"];']
    loops: dict[str, list[str]] = {}
    for name, node in graph.nodes.items():
        shape = next((s for start, s in SHAPES.items() if node["opcode"].startswith(start)), "box")
        text = node["label"] + (f"\n{node['line']}" if node["line"] else "")
        loops.setdefault(node["loop"], []).append(f"n{name} [label={json.dumps(text)}, shape={shape}];")
    for number, (loop, inside) in enumerate(loops.items()):
        if loop:
            lines.append(f"  subgraph cluster_{number} {{ label={json.dumps(loop)}; style=rounded;")
        lines += [f"{'    ' if loop else '  '}{line}" for line in inside] + (["  }"] if loop else [])
    return "\n".join([*lines, *(f"  n{a} -> n{b};" for a, b in edges(graph)), "}"])


def mermaid(graph: nx.DiGraph) -> str:
    """The graph in mermaid's language, for Markdown pages."""
    lines = ["flowchart TD"]
    for name, node in graph.nodes.items():
        text = node["label"].replace('"', "'")
        lines.append(f'  n{name}(["{text}"])' if node["opcode"] == "commit" else f'  n{name}["{text}"]')
    return "\n".join([*lines, *(f"  n{a} --> n{b}" for a, b in edges(graph))])
