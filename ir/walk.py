"""Looking around in functions, what their ops need of each other, and changed copies: what passes are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from decgraph.ir.values import Function, Module, Op, Region, Value

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Use:
    """A place where a value is used: an operand of `op`, or what a region yields (then `op` owns it, None:
    the body)."""

    op: Op | None
    index: int
    region: Region | None = None


def regions_of(function: Function) -> Iterator[Region]:
    """The outermost regions of a function: its body, the starts of its states, the regions of its claims."""
    yield function.body
    for state in function.states:
        yield state.init
    for claim in function.claims:
        if claim.region is not None:
            yield claim.region


def ops_of(function: Function) -> Iterator[Op]:
    """Every op of a function, outer before inner, in order."""
    for region in regions_of(function):
        yield from region.walk()


def uses(region: Region) -> dict[Value, list[Use]]:
    """Where each value is used in a region and inside it, in order."""
    found: dict[Value, list[Use]] = {}

    def look(inner: Region, owner: Op | None) -> None:
        for op in inner.ops:
            for n, value in enumerate(op.operands):
                found.setdefault(value, []).append(Use(op, n))
            for r in op.regions:
                look(r, op)
        for n, value in enumerate(inner.yields):
            found.setdefault(value, []).append(Use(owner, n, inner))

    look(region, None)
    return found


def producers(region: Region) -> dict[Value, Op]:
    """The op that each value is a result of, in a region and inside it (arguments of regions are results of none)."""
    return {value: op for op in region.walk() for value in op.results}


def parents(region: Region) -> dict[Op, Op | None]:
    """For each op the op whose region it stands in; None at the top."""
    found: dict[Op, Op | None] = {}

    def look(inner: Region, owner: Op | None) -> None:
        for op in inner.ops:
            found[op] = owner
            for r in op.regions:
                look(r, op)

    look(region, None)
    return found


def free_values(region: Region) -> list[Value]:
    """The values that a region uses and does not define, in order of first use."""
    own = {*region.args, *producers(region)}
    own.update(a for op in region.walk() for r in op.regions for a in r.args)
    return [value for value in uses(region) if value not in own]


def substitute(region: Region, mapping: Mapping[Value, Value]) -> Region:
    """The region with values replaced wherever they are used. Ops in which nothing changes are kept as they
    are."""
    if not mapping:
        return region
    return rebuild(region, lambda op: None, mapping)


def clone(region: Region, mapping: Mapping[Value, Value] | None = None) -> Region:
    """A copy with values of its own, free values replaced by `mapping`; fit to stand beside the original."""
    known = dict(mapping or {})

    def fresh(value: Value) -> Value:
        known[value] = replace(value)
        return known[value]

    def copy(inner: Region) -> Region:
        args = tuple(map(fresh, inner.args))
        ops = tuple(map(copy_op, inner.ops))
        return Region(args, ops, tuple(known.get(v, v) for v in inner.yields))

    def copy_op(op: Op) -> Op:
        operands = tuple(known.get(v, v) for v in op.operands)
        regions = tuple(map(copy, op.regions))
        return Op(op.opcode, operands, dict(op.attrs), regions, tuple(map(fresh, op.results)), op.loc)

    return copy(region)


def inline(region: Region, args: Sequence[Value]) -> tuple[tuple[Op, ...], tuple[Value, ...]]:
    """The ops of a copy of `region` with its arguments given, and the values that it yields."""
    body = clone(Region((), region.ops, region.yields), dict(zip(region.args, args, strict=True)))
    return body.ops, body.yields


EXITS = ("break", "verdict")
"""Ops that end a loop or a rule, and stand last in the branch that leaves it."""


def without_exit(ops: Sequence[Op]) -> Sequence[Op]:
    """The ops of a branch that are put in its place: what follows them is no longer on another way."""
    return ops[:-1] if ops and ops[-1].opcode in EXITS else ops


def breaks(region: Region) -> Iterator[Op]:
    """The ops that end the loop whose body a region is."""
    for op in region.ops:
        if op.opcode == "break":
            yield op
        elif op.opcode not in ("for", "while"):
            for r in op.regions:
                yield from breaks(r)


def regions_ended(region: Region) -> dict[Op, Region]:
    """For each op that ends a loop or a rule the body of that loop or rule."""
    found: dict[Op, Region] = {}

    def look(inner: Region, loop: Region, rule: Region) -> None:
        for op in inner.ops:
            if op.opcode in EXITS:
                found[op] = loop if op.opcode == "break" else rule
            for r in op.regions:
                look(r, r if op.opcode in ("for", "while") else loop, r if op.opcode == "tree.walk" else rule)

    look(region, region, region)
    return found


def breaking(region: Region, columns: Sequence[int]) -> Region:
    """The body of a loop of whose carried values some remain, with those alone in the ops that end the loop."""
    mine = set(breaks(region))
    if not mine:
        return region

    def one(op: Op) -> Op:
        if op in mine:
            return replace(op, operands=tuple(op.operands[n] for n in columns))
        return replace(op, regions=tuple(map(inside, op.regions))) if op.regions and op.opcode not in ("for", "while") else op

    def inside(inner: Region) -> Region:
        return Region(inner.args, tuple(map(one, inner.ops)), inner.yields)

    return inside(region)


Rewrite = Callable[[Op], "tuple[Sequence[Op], Sequence[Value]] | None"]


def rebuild(region: Region, rewrite: Rewrite, mapping: Mapping[Value, Value] | None = None) -> Region:
    """The region with ops replaced, innermost first.

    `rewrite(op)`, whose operands and regions are already rewritten, gives None to keep the op, or the ops to
    put in its place with the values that stand for its results; later uses follow.
    """
    known = dict(mapping or {})

    def value(v: Value) -> Value:
        while v in known:
            v = known[v]
        return v

    def inside(inner: Region) -> Region:
        ops: list[Op] = []
        for old in inner.ops:
            operands, regions = tuple(map(value, old.operands)), tuple(map(inside, old.regions))
            same = operands == old.operands and regions == old.regions
            op = old if same else replace(old, operands=operands, regions=regions)
            answer = rewrite(op)
            if answer is None:
                ops.append(op)
                continue
            ops.extend(answer[0])
            known.update((a, b) for a, b in zip(op.results, answer[1], strict=True) if a is not b)
        yields = tuple(map(value, inner.yields))
        if len(ops) == len(inner.ops) and all(map(_is, ops, inner.ops)) and yields == inner.yields:
            return inner
        return Region(inner.args, tuple(ops), yields)

    return inside(region)


def _is(a: object, b: object) -> bool:
    return a is b


def map_functions(module: Module, change: Callable[[Function], Function]) -> Module:
    """The module with every function changed (the same module where none is)."""
    changed = {name: change(f) for name, f in module.functions.items()}
    if all(changed[name] is f for name, f in module.functions.items()):
        return module
    return replace(module, functions=changed)


def map_bodies(module: Module, change: Callable[[Region], Region]) -> Module:
    """The module with the body of every function changed."""

    def one(f: Function) -> Function:
        body = change(f.body)
        return f if body is f.body else replace(f, body=body)

    return map_functions(module, one)


def functions_of(module: Module) -> list[Function]:
    """The functions that a module runs: its main one, after those that it runs on scratch contexts."""
    names: list[str] = []

    def visit(name: str) -> None:
        if name not in names:
            for op in module.functions[name].body.walk():
                if op.opcode == "run":
                    visit(str(op.attrs["callee"]))
            names.append(name)

    visit(module.main)
    return [module.functions[name] for name in names]


YIELDING = ("for", "while", "each", "if", "segment")
"""Ops whose results are what their regions yield."""


def used_by(op: Op) -> tuple[Value, ...]:
    """The values that an op and what stands in its regions use; a segment's operands are all of them."""
    if not op.regions or op.opcode == "segment":
        return op.operands
    return (*op.operands, *(v for r in op.regions for v in free_values(r)))


class Dependences:
    """Which ops of one region, by their places in `ops`, need results of which others, directly or through others. Two of them
    may change places where neither needs the other and no effect forbids it (passes/motion.py)."""

    def __init__(self, ops: Sequence[Op]) -> None:
        import networkx as nx  # it takes a third of a second

        made = {v: n for n, op in enumerate(ops) for v in op.results}
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(ops)))
        graph.add_edges_from((made[v], n) for n, op in enumerate(ops) for v in used_by(op) if v in made)
        self._closure = nx.transitive_closure_dag(graph, topo_order=range(len(ops)))

    def ancestors(self, places: Iterable[int]) -> set[int]:
        """The ops that some of these need."""
        return {other for n in places for other in self._closure.pred[n]}

    def descendants(self, places: Iterable[int]) -> set[int]:
        """The ops that need some of these."""
        return {other for n in places for other in self._closure.succ[n]}


def graph_of(function: Function) -> nx.DiGraph:
    """A function's ops by number, with attributes `op` and `loop` (the loops, rules, drafts and branches around it, outermost
    first, "/" between them), and its parameters by name. An edge leads from what computes a value to each op that uses it, in
    regions too."""
    import networkx as nx

    graph = nx.DiGraph(name=function.name)
    sources: dict[Value, list[str]] = {p.value: [p.name] for p in function.params}
    graph.add_nodes_from((p.name for p in function.params), op=None, loop="")

    def add(region: Region, loop: str) -> None:
        for op in region.ops:
            node = f"{len(graph)}"
            graph.add_node(node, op=op, loop=loop)
            graph.add_edges_from((source, node) for value in op.operands for source in sources.get(value, ()))
            inner = f"line {op.loc.line}" if op.opcode in ("for", "while", "each") else ""
            if op.opcode == "tree.walk":
                inner = f"rule {op.attrs['rule']}"
            made = [node]
            for place, r in enumerate(op.regions):
                if op.opcode == "if":
                    drafts = f"draft {op.attrs['draft']}" if op.attrs.get("draft") else ""
                    inner = drafts or f"{'else' if place else 'if'}, line {op.loc.line}"
                sources.update(dict.fromkeys(r.args, [node]))
                add(r, "/".join(filter(None, (loop, inner))))
                made += [source for value in r.yields for source in sources.get(value, ())]
            sources.update(dict.fromkeys(op.results, made if op.opcode in YIELDING else [node]))

    add(function.body, "")
    return graph
