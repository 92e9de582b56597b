"""simplify: constants folded, equal computations merged, dead ones dropped, loop-invariant ones moved out of their loops.

>>> from decgraph.passes.example import after
>>> body = '''
...   %two: int = const(value = 2, type = !int)
...   %a: int = map(%n, %two, fn = "mul")
...   %b: int = map(%n, %two, fn = "mul")
...   %no: bool = const(value = false, type = !bool)
...   %c: int = if(%no) {
...     yield %n
...   } {
...     %d: int = map(%a, %b, fn = "add")
...     yield %d
...   }
...   return(%c, has_tree = false)
... '''
>>> print(after("simplify", body, "%n: int"))
%two: int = const(value = 2, type = !int)
%a: int = map(%n, %two, fn = "mul")
%d: int = map(%a, %a, fn = "add")
return(%d, has_tree = false)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Function, Module, Op, Param, Region, Value
from decgraph.ir.walk import map_bodies, substitute
from decgraph.passes.dead import without_dead
from decgraph.passes.folding import fold, merge
from decgraph.passes.motion import LOOPS, reads, speculable, within, writes
from decgraph.passes.outline import closed
from decgraph.passes.plan import Pass, Plan


def hoist(region: Region) -> Region:
    """The region with invariant ops of its loops before them, innermost first.

    Only ops that cannot fail and cost little are moved: a loop may have no iterations. Draws stay: an edge for each iteration.
    """
    ops: list[Op] = []
    changed = False
    for old in region.ops:
        op = old
        regions = tuple(map(hoist, op.regions))
        if any(a is not b for a, b in zip(regions, op.regions, strict=True)):
            op = Op(op.opcode, op.operands, op.attrs, regions, op.results, op.loc)
        if op.opcode in LOOPS:
            moved, op = _invariant(op)
            ops += moved
        changed = changed or op is not old
        ops.append(op)
    return Region(region.args, tuple(ops), region.yields) if changed else region


def _invariant(loop: Op) -> tuple[list[Op], Op]:
    """The ops to stand before a loop, and the loop without them."""
    changing = writes(loop)
    inside: set[Value] = set(within(loop.regions))
    moved: list[Op] = []
    regions = []
    for r in loop.regions:
        kept = []
        for op in r.ops:
            stays = op.regions or not speculable(op) or reads(op) & changing or any(v in inside for v in op.operands)
            if stays:
                kept.append(op)
            else:
                moved.append(op)
                inside.difference_update(op.results)
        regions.append(Region(r.args, tuple(kept), r.yields))
    if not moved:
        return [], loop
    return moved, Op(loop.opcode, loop.operands, loop.attrs, tuple(regions), loop.results, loop.loc)


MOST_ROUNDS = 50
"""Every round makes the module smaller or moves an op outwards; the bound is a guard against a bug in decgraph."""


def run(module: Module, plan: Plan) -> Module:
    """The simplified module; parameters in `plan.params` are constants in it."""
    known = dict(plan.params)
    if known:
        module = replace(
            module, functions={name: bind(f, known) if name == module.main else f for name, f in module.functions.items()}
        )
    return map_bodies(module, simplified)


def simplified(region: Region) -> Region:
    """A region after as many rounds as change it."""
    for _ in range(MOST_ROUNDS):
        before = region
        for step in (fold, merge, without_dead, hoist, closed):
            region = step(region)
        if region is before:
            return region
    return region


def bind(function: Function, known: Mapping[str, object]) -> Function:
    """A function whose parameters are constants where a value is known; what it declares then allows that value alone."""
    ops: list[Op] = []
    params: list[Param] = []
    mapping: dict[Value, Value] = {}
    for p in function.params:
        made = constant(p, known[p.name]) if p.name in known else None
        params.append(p)
        if made is None:
            continue
        ops.append(made)
        mapping[p.value] = made.result
        value = made.attrs["shape" if made.opcode == "topology" else "value"]
        number = p.value.type.elem in ("int", "real", "prob")
        params[-1] = replace(
            p, low=value if number else p.low, high=value if number else p.high, default=value, has_default=True
        )
    if not ops:
        return function
    body = substitute(function.body, mapping)
    states = tuple(replace(s, init=_prefixed(s.init, ops)) for s in function.states)
    return replace(function, params=tuple(params), states=states, body=replace(body, ops=(*ops, *body.ops)))


def _prefixed(region: Region, ops: list[Op]) -> Region:
    """A region of its own in which parameters are constants too."""
    from decgraph.ir.walk import uses

    used = uses(region)
    own = [Op(op.opcode, (), dict(op.attrs), (), (replace(op.result),), op.loc) for op in ops]
    by_name = {op.result.name: op for op in own}
    mapping = {
        v: by_name[v.name].result
        for v in used
        if v.name in by_name and v not in set(region.args) and not any(v in op.results for op in region.walk())
    }
    keep = [op for op in own if op.result in mapping.values()]
    return replace(substitute(region, mapping), ops=(*keep, *substitute(region, mapping).ops)) if keep else region


def constant(p: Param, value: object) -> Op | None:
    """The op that makes a parameter's value, or None where a value of its type has no text (a set)."""
    made = replace(p.value)
    if p.value.type.elem == "topology":
        shape = value.name if isinstance(value, Topology) else value
        return Op("topology", (), {"shape": shape}, (), (made,)) if shape and isinstance(shape, (str, list)) else None
    if isinstance(value, (bool, int, Fraction, str)) and p.value.type.elem in ("int", "real", "prob", "bool", "text"):
        return Op("const", (), {"value": value, "type": p.value.type}, (), (made,))
    return None


def notes(before: Module, after: Module) -> list[str]:
    """How much smaller the algorithm became."""
    was, now = (sum(1 for _ in m.entry.body.walk()) if m.main in m.functions else 0 for m in (before, after))
    return [f"{was} ops, {now} after"]


PASS = Pass(
    name="simplify",
    reason=(
        "lowering writes every name where it stands: a rule's flags, the same field of a tree twice, parameters "
        "whose values are given. The other passes read what is left, and find more in less of it."
    ),
    precondition=(
        "none. Draws and edits are never merged or moved (they are edges of a tree, and equal edges are two "
        "edges); a noise keeps its site and its counters; reads of the context and of states stay on their side of "
        "commits and state writes."
    ),
    run=run,
    notes=notes,
    options=("params",),
)
