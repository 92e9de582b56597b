"""decgraph compile: Show what an algorithm becomes: its IR, cost and graph, the Python that runs it, its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

import decgraph
from decgraph import extras
from decgraph.cli import options, output, parsing, planning
from decgraph.ir.values import Module
from decgraph.runtime.models.forwards import ForwardChoice, forwards_of
from decgraph.runtime.session import check_params

MODEL = "With --emit cost: target=FOLDER or a shipped model's name; says whether the decoder or its own module runs it."


class EmitKind(StrEnum):
    """What is shown."""

    ir = "ir"
    cost = "cost"
    graph = "graph"
    passes = "passes"
    python = "python"
    segments = "segments"
    triton = "triton"


class GraphForm(StrEnum):
    """How a graph is written."""

    dot = "dot"
    mermaid = "mermaid"


@options.grouped
def command(
    algorithm: Annotated[str, options.algorithm()],
    wishes: planning.Wishes,
    emit: Annotated[
        EmitKind,
        typer.Option(
            "--emit",
            help="IR, static cost of a step, graph, what passes did; the Python "
            "that the torch backend runs; its segments as torch.fx graphs; the "
            "decoding step as the triton backend runs it on a GPU.",
        ),
    ] = EmitKind.ir,
    form: Annotated[GraphForm, typer.Option("--form", help="How a graph is written.")] = GraphForm.dot,
    lines: Annotated[bool, typer.Option("--lines", help="With the source line of every operation.")] = False,
    set_: options.Set = None,
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help=MODEL)] = None,
    json: options.Json = False,
) -> None:
    """Show what an algorithm becomes: its IR, cost and graph, the Python that runs it, its kernels.

    The IR and the graph are shown as they were lowered, unless an option speaks of passes or parameters; the cost, the report
    of the passes (`--emit passes`), the Python, its segments and the kernels are those after them.
    """
    chosen = decgraph.load(algorithm)
    if model and emit not in (EmitKind.cost, EmitKind.triton):
        raise decgraph.DecError(
            "--model is for --emit cost and triton", hint="nothing else that compile shows depends on the models"
        )
    params = parsing.known(chosen.function, parsing.pairs(set_ or (), "--set"))
    module, report = chosen.module, None
    if wishes.any or params or emit in (EmitKind.cost, EmitKind.passes, EmitKind.python, EmitKind.segments, EmitKind.triton):
        module, report = wishes.run(chosen.module, params)
    if emit is EmitKind.ir:
        text = decgraph.Algorithm(module, chosen.text, chosen.path).ir(locs=lines)
        output.emit_json({"name": chosen.name, "ir": text}) if json else print(text.rstrip())
    elif emit is EmitKind.passes and report is not None:
        output.emit_json(report.to_json()) if json else print(report.text())
    elif emit is EmitKind.cost:
        from decgraph.passes.cost import cost_of

        cost, ways = cost_of(module), forwards(chosen, parsing.folders(model or (), chosen.models))
        if json:
            output.emit_json({**cost.to_json(), **({"forwards": {n: f.to_json() for n, f in ways.items()}} if model else {})})
        else:
            output.print_folded(cost.text())
            if ways:
                print("\nforwards\n" + "\n".join(f"  {name}  {way.text()}" for name, way in ways.items()))
    elif emit is EmitKind.triton:
        steps(chosen, module, params, parsing.folders(model or (), chosen.models), as_json=json)
    elif emit in (EmitKind.python, EmitKind.segments):
        generated(module, chosen.name, as_graphs=emit is EmitKind.segments, as_json=json)
    else:
        from decgraph.views import decoding_graph

        graph = decoding_graph.drawn(module.entry)
        if json:
            nodes = [{"id": name, **node} for name, node in graph.nodes.items()]
            output.emit_json({"name": chosen.name, "nodes": nodes, "edges": list(map(list, decoding_graph.edges(graph)))})
        else:
            print(decoding_graph.dot(graph) if form is GraphForm.dot else decoding_graph.mermaid(graph))


def forwards(chosen: decgraph.Algorithm, folders: Mapping[str, str]) -> dict[str, ForwardChoice]:
    """Which way the models that were named run, found by making their engines. Raises DecError for unusable ones."""
    if not folders:
        return {}
    from decgraph.models import bind
    from decgraph.runtime.models.engine.of import engine_of

    models = {name: bound for name, bound in bind(chosen.function, folders).models.items() if name in folders}
    for bound in models.values():
        engine_of(bound)
    return forwards_of(models)


def steps(
    chosen: decgraph.Algorithm, module: Module, params: Mapping[str, Any], folders: Mapping[str, str], *, as_json: bool
) -> None:
    """Print the decoding step as it runs on a GPU, with the given models or the shipped ones. Raises DecError where triton is
    not installed, and for unusable models."""
    extras.check("models", also="triton", what="steps need")
    from decgraph.backends.triton import emit as emitted
    from decgraph.backends.triton.listing import graphs_of
    from decgraph.backends.triton.regions import cut
    from decgraph.backends.triton.support import NotSteppable
    from decgraph.check.worlds import models_for
    from decgraph.models import bind

    function = module.functions[module.main]
    try:
        models: dict[str, Any] = bind(chosen.function, folders, device="cpu").models
    except decgraph.DecError:
        if folders:
            raise
        models = models_for(function, 64, 3)  # no model of that kind is shipped: small tables
    why, found = "", []
    try:
        graphs = graphs_of(module, module.main, models, check_params(function, params))
        found = [(what, graph, cut(graph)) for what, graph in graphs]
    except NotSteppable as error:
        why = str(error)
    if as_json:
        made = [emitted.as_json(graph, what, step) for what, graph, step in found]
        output.emit_json({"name": chosen.name, "eager": why or None, "graphs": made})
        return
    if why:
        print(f"# {chosen.name}: eager mode, the torch backend's driver runs its decoding steps: {why}")
    for what, graph, step in found:
        print(emitted.text(graph, f"{chosen.name}: {what}", step).rstrip())


def generated(module: Module, name: str, *, as_graphs: bool, as_json: bool) -> None:
    """Print what the torch backend makes of a module: Python, or the fx graphs of its segments. Raises DecError where torch is
    not installed."""
    extras.check("models", what="the generated Python needs")
    if as_graphs:
        from decgraph.backends.torch.segments import graphs_of

        graphs = {name: str(graph).strip() for name, graph in graphs_of(module).items()}
        text = "\n\n".join(f"{s}\n{graph}" for s, graph in graphs.items())
        output.emit_json({"name": name, "segments": graphs}) if as_json else print(text)
        return
    from decgraph.backends.torch.program import printed

    text = printed(module)
    output.emit_json({"name": name, "python": text}) if as_json else print(text.rstrip())
