"""decgraph compile: Show what an algorithm becomes: its IR, its static cost, its graph."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import decgraph
from decgraph.cli import output


class Emit(StrEnum):
    """What is shown."""

    ir = "ir"
    cost = "cost"
    graph = "graph"


class Form(StrEnum):
    """How a graph is written."""

    dot = "dot"
    mermaid = "mermaid"


def command(
    algorithm: Annotated[str, typer.Argument(help="A name that `decgraph list` prints, or a .dec file.")],
    emit: Annotated[Emit, typer.Option("--emit", help="The IR, the static cost of a step, or the graph.")] = Emit.ir,
    form: Annotated[Form, typer.Option("--form", help="How a graph is written.")] = Form.dot,
    lines: Annotated[bool, typer.Option("--lines", help="With the source line of every operation.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what an algorithm becomes: its IR, its static cost, its graph."""
    chosen = decgraph.load(algorithm)
    if emit is Emit.ir:
        text = chosen.ir(locs=lines)
        output.emit_json({"name": chosen.name, "ir": text}) if json else print(text.rstrip())
    elif emit is Emit.cost:
        cost = chosen.cost()
        output.emit_json(cost.to_json()) if json else print(cost.text())
    else:
        from decgraph.passes import graph as graphs

        graph = graphs.graph_of(chosen.module)
        if json:
            nodes = [{"id": node, **data} for node, data in graph.nodes(data=True)]
            output.emit_json({"name": chosen.name, "nodes": nodes, "edges": [list(edge) for edge in graph.edges]})
        else:
            print(graphs.dot(graph) if form is Form.dot else graphs.mermaid(graph))
