"""placement: straight-line runs of pure ops are outlined into segments of kind "device"; waits for the host are counted.

>>> from decgraph.passes.example import after
>>> body = '''
...   %zero: int = const(value = 0, type = !int)
...   %first: real = gather(%xs, %zero)
...   %sum: real = reduce(%xs, fn = "sum")
...   %part: real = map(%first, %sum, fn = "div")
...   %text: text = text_of(%tokens)
...   return(%part, %text, has_tree = false)
... '''
>>> print(after("placement", body, "%xs: real[k<=4], %tokens: token<V>[k<=4]"))
%part: real = segment(%xs, kind = "device", name = "part") {
  %zero: int = const(value = 0, type = !int)
  %first: real = gather(%xs, %zero)
  %sum: real = reduce(%xs, fn = "sum")
  %part.1: real = map(%first, %sum, fn = "div")
  yield %part.1
}
%text: text = text_of(%tokens)
return(%part, %text, has_tree = false)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import map_functions, rebuild
from decgraph.passes.motion import HOST, reads
from decgraph.passes.outline import Outliner
from decgraph.passes.plan import Pass, Plan
from decgraph.passes.vocabulary import said

_READ = ("model.states", "head.read", "head.score", "model.attention", "model.embed")
_MODELS = ("model.eval", "model.evals", "model.memory", "model.read", *_READ)
SOURCES = frozenset((*_MODELS, "tree.walk", "state.read", "extern"))
CHOSEN_SIZES = {"compact": "how many pass the test", "take_first": "how many there are"}
SIZED = frozenset({"list", "tree", "path"})
"""Elements that have a size of their own."""

SHAPES = frozenset({"tree.nodes", "len", "tree.size", "tree.new"})
"""Ops that read a size only, which depends on data where a size was chosen by data."""


@dataclass(frozen=True)
class Wait:
    """One place: what is waited for, and where."""

    what: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} (line {self.line})" if self.line else self.what


def waits(function: Function) -> list[Wait]:
    """Every wait of the algorithm's step, once for each place, in order."""
    return WaitFinder(function).waits


def chosen_sizes(function: Function) -> frozenset[Value]:
    """The values whose sizes data decides where they are computed (the sizes of values computed from them are known by
    then)."""
    return frozenset(WaitFinder(function).chosen)


class WaitFinder:
    """One walk over a function: `data` holds values that depend on data, `ragged` those whose sizes do."""

    def __init__(self, function: Function) -> None:
        self.data: set[Value] = set()
        self.ragged: set[Value] = set()
        self.chosen: set[Value] = set()
        self.waits: list[Wait] = []
        self.step = next((op for op in function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
        self.inside_step = self.step is None
        while True:
            before = len(self.data) + len(self.ragged)
            self.waits = []
            self.region(function.body)
            if before == len(self.data) + len(self.ragged):
                break

    inside_walk = False

    def add(self, what: str, op: Op) -> None:
        if self.inside_walk or not self.inside_step:
            return  # a walk is one wait, however it decides
        wait = Wait(what, op.loc.line)
        if wait not in self.waits:
            self.waits.append(wait)

    def region(self, region: Region) -> None:
        for op in region.ops:
            self.one(op)

    def one(self, op: Op) -> None:
        if op is self.step:
            self.inside_step = True
        self.enter(op)
        outer, self.inside_walk = self.inside_walk, self.inside_walk or op.opcode == "tree.walk"
        for r in op.regions:
            self.region(r)
        self.inside_walk = outer
        self.leave(op)
        if op is self.step:
            self.inside_step = False

    def enter(self, op: Op) -> None:
        """What the arguments of an op's regions depend on."""
        match op.opcode:
            case "for":
                carried = op.operands[2:]
                self.flow(carried, op.regions[0].args[1:])
                if op.operands[1] in self.data:
                    self.add("a loop's number of iterations", op)
            case "while":
                carried = op.operands[1:] if op.attrs.get("limited") else op.operands
                for r in op.regions:
                    self.flow(carried, r.args[1:])
            case "each":
                self.flow(op.operands[:1], op.regions[0].args[1:])
                if op.operands[0] in self.ragged:
                    self.add("the number of elements to go through", op)
            case "tree.walk":
                self.data.update(op.regions[0].args[1:])

    def flow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for a, b in zip(sources, targets, strict=False):
            if a in self.data:
                self.data.add(b)
            if a in self.ragged:
                self.ragged.add(b)

    def leave(self, op: Op) -> None:
        match op.opcode:
            case "if":
                if op.operands[0] in self.data:
                    self.add("a branch decided by data", op)
                    self.data.update(op.results)
                for r in op.regions:
                    self.flow(r.yields, op.results)
            case "for" | "while":
                body = op.regions[-1]
                skip = 1 if op.attrs.get("stops") else 0
                if skip and body.yields[0] in self.data:
                    self.add("whether a loop stops, once an iteration", op)
                if op.opcode == "while":
                    self.condition(op)
                self.flow(body.yields[skip:], op.results)
                for r in op.regions:
                    self.flow(body.yields[skip:], r.args[1:])
            case "segment":
                self.flow(op.regions[0].yields, op.results)
            case "each":
                self.data.update(op.results if any(v in self.data for r in op.regions for v in r.yields) else ())
            case "tree.walk":
                self.add(f"the verification by {op.attrs.get('rule', 'a rule')}: what it accepts", op)
                self.data.update(op.results)
            case "commit":
                if op.operands[0] not in self.data or not self.walked(op):
                    self.add("the committed tokens", op)
            case _:
                self.plain(op)

    def walked(self, op: Op) -> bool:
        """Whether what is committed is an accepted path, which the host has already waited for."""
        return op.operands[0].type.elem == "path"

    def condition(self, op: Op) -> None:
        if op.attrs.get("bound") == "done":
            self.add("the stop test, once a step", op)
        elif op.regions[0].yields[0] in self.data:
            self.add("whether a loop goes on, once an iteration", op)

    def plain(self, op: Op) -> None:
        known = [v for v in op.operands if v in self.data]
        if op.opcode in CHOSEN_SIZES and (op.operands[-1] in self.data or op.operands[0] in self.ragged):
            if op.operands[-1] in self.data and op.opcode == "compact":
                self.add(CHOSEN_SIZES[op.opcode], op)
                self.chosen.update(op.results)
            self.ragged.update(op.results)
        elif any(v in self.ragged for v in op.operands):
            self.ragged.update(v for v in op.results if v.type.dims or v.type.elem in SIZED)
        if op.opcode in HOST or op.opcode in ("index.ask", "index.learn", "automaton", "tree.best_first"):
            if known:
                self.add(f"what {op.attrs.get('extern', op.opcode)} is given", op)
        if op.opcode in SOURCES or known and op.opcode not in SHAPES:
            self.data.update(op.results)


__all__ = ["Wait", "waits"]


DATA = frozenset({"dist", "scores", "draw", "token", "hidden", "embedding", "memory", "tree", "canvas", "edit", "path"})
"""Elements of values that hold tokens or what models computed."""

HOST_ONLY = frozenset({"list", "index", "automaton", "astate", "text", "model", "set", "topology", "level", "until"})
"""Elements of values that only the host knows."""


def holds_data(t: Type) -> bool:
    """Whether a value may live on a device: tokens, rows, trees, vectors, and numbers that are no counters."""
    return t.elem in DATA or t.elem in ("real", "prob") or bool(t.dims) and t.elem in ("int", "bool")


def on_host(op: Op) -> bool:
    """Whether only the host can run an op: it talks to the outside, or deals with what only the host knows. What is a device
    segment already stays one: the driver runs it."""
    if op.opcode == "segment" and op.attrs["kind"] == "device":
        return True
    if lookup(op.opcode).batch in ("host", "barrier") or reads(op):
        return True
    return any(v.type.elem in HOST_ONLY for v in (*op.operands, *op.results)) and op.opcode != "const"


def wanted(op: Op) -> bool:
    """Ops on data. Counters, node numbers and other scalars are the driver's unless they lie between such ops."""
    return not on_host(op) and any(holds_data(v.type) for v in (*op.operands, *op.results))


def joins(op: Op, used: set[Value], defined: set[Value]) -> bool:
    """Everything in a run goes together."""
    return True


def outlined(function: Function) -> Function:
    """A function with device segments. A size that data decides is known only once the segment that decides it has run, so what
    needs such a value stands in another one."""
    sizes = chosen_sizes(function)

    def fits(ops: Sequence[Op]) -> bool:
        made = {v for op in ops for v in op.results} & sizes
        return not any(v in made for op in ops for v in op.operands)

    return Outliner("device", wanted, joins, lambda op: not on_host(op), wanted, fits).function(function)


def run(module: Module, plan: Plan) -> Module:
    """The module with device segments, unless the plan places everything on the host, and with the plan's capacities."""
    module = sized(module, dict(plan.capacities))
    return map_functions(module, outlined) if plan.placement == "device" else module


def sized(module: Module, capacities: dict[str, int]) -> Module:
    """The module with smaller capacities of trees, by name. Raises DecError for a tree that the algorithm does not have."""
    trees = [op for op in module.entry.body.walk() if op.opcode == "tree.new"] if capacities else []
    names = sorted({str(op.attrs["tree"]) for op in trees})
    for name in capacities:
        if name not in names:
            raise DecError(f"{module.main} has no tree {name}", hint=f"it has {', '.join(names) or 'none'}")
    if not trees:
        return module

    def changed(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        bound = capacities.get(str(op.attrs.get("tree"))) if op.opcode == "tree.new" else None
        if bound is None or op.attrs.get("capacity", bound + 1) <= bound:
            return None
        return (replace(op, attrs={**op.attrs, "capacity": bound}),), op.results

    entry = replace(module.entry, body=rebuild(module.entry.body, changed))
    return module if entry.body is module.entry.body else replace(module, functions={**module.functions, module.main: entry})


def notes(before: Module, after: Module) -> list[str]:
    """The segments, and how often a step waits for the host."""
    return [*said(after, "device"), *(f"waits for the host: {w}" for w in waits(after.entry))]


PASS = Pass(
    name="placement",
    reason=(
        "what a device computes without the host in between can be one graph, replayed as a whole. What "
        "only the host can do (indexes, lists of ragged things, automata, functions of the caller) stays in the "
        "driver between the segments."
    ),
    precondition=(
        "the ops stand in one straight run (no model call, effect or branch between them). Plans with placement = "
        "host leave everything where it is."
    ),
    run=run,
    notes=notes,
    options=("placement", "capacities"),
)
