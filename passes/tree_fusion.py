"""tree_fusion: calls of one model that do not depend on each other become one call.

>>> from decgraph.passes.example import after
>>> body = '''
...   %c: node<ctx> = context()
...   %t: tree<t,token,V> = tree.new(%c, tree = "t", vocab = "V", edge = "token")
...   %p: dist<V,shaped> = model.eval(%target, %c)
...   %best: token<V> = arg(%p, fn = "max")
...   %x: draw<V> = draw.point(%guess)
...   %grown: tree<t,token,V>, %new: node<t>[part.t<=1] = tree.grow(%t, %x)
...   %q: dist<V,shaped>[nodes.t] = model.eval(%target, %grown)
...   return(%best, %q, has_tree = false)
... '''
>>> print(after("tree_fusion", body, "%target: model<causal,V,target,causal>, %guess: token<V>"))
%c: node<ctx> = context()
%t: tree<t,token,V> = tree.new(%c, tree = "t", vocab = "V", edge = "token")
%x: draw<V> = draw.point(%guess)
%grown: tree<t,token,V>, %new: node<t>[part.t<=1] = tree.grow(%t, %x)
%p: dist<V,shaped>, %q: dist<V,shaped>[nodes.t] = model.evals(%target, %c, %grown, parts = ((), ()))
%best: token<V> = arg(%p, fn = "max")
return(%best, %q, has_tree = false)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from decgraph.ir.opdef import Attribute
from decgraph.ir.values import Module, Op, Region
from decgraph.ir.walk import Dependences, map_bodies
from decgraph.passes.motion import writes
from decgraph.passes.plan import Pass, Plan


def run(module: Module, plan: Plan) -> Module:
    """The module with calls joined wherever they may be."""
    return map_bodies(module, fused)


def fused(region: Region) -> Region:
    """A region, and those in it, with every pair of calls that may be one as one."""
    ops: list[Op] = []
    for op in region.ops:
        regions = tuple(map(fused, op.regions))
        same = all(a is b for a, b in zip(regions, op.regions, strict=True))
        ops.append(op if same else Op(op.opcode, op.operands, op.attrs, regions, op.results, op.loc))
    while (pair := find(ops)) is not None:
        ops = join(ops, *pair)
    if len(ops) == len(region.ops) and all(a is b for a, b in zip(ops, region.ops, strict=True)):
        return region
    return Region(region.args, tuple(ops), region.yields)


def is_call(op: Op) -> bool:
    """Whether an op calls a model for distributions at places (Medusa's heads are another output, read at one node)."""
    return op.opcode == "model.evals" or op.opcode == "model.eval" and not op.attrs.get("part")


def find(ops: Sequence[Op]) -> tuple[int, int] | None:
    """Two calls that may be one, the earliest pair there is."""
    calls = [n for n, op in enumerate(ops) if is_call(op)]
    if len(calls) < 2:
        return None
    graph = Dependences(ops)
    for a, b in combinations(calls, 2):
        apart = any(writes(op) for op in ops[a + 1 : b])
        if not apart and ops[a].operands[0] is ops[b].operands[0] and a not in graph.ancestors({b}):
            return a, b
    return None


def parts_of(op: Op) -> tuple[tuple[str, ...], ...]:
    """The names of the further operands of every part of a call."""
    if op.opcode == "model.evals":
        return tuple(tuple(names) for names in op.attrs["parts"])
    return (tuple(op.attrs.get("with", ())),)


def join(ops: Sequence[Op], a: int, b: int) -> list[Op]:
    """The ops with call b joined to call a; what b needs comes before, the rest keeps its order after it."""
    ahead = Dependences(ops).ancestors({b})
    first, second = ops[a], ops[b]
    attrs: dict[str, Attribute] = {"parts": (*parts_of(first), *parts_of(second))}
    call = Op("model.evals", (*first.operands, *second.operands[1:]), attrs, (), (*first.results, *second.results), first.loc)
    early = [ops[n] for n in range(a + 1, b) if n in ahead]
    late = [ops[n] for n in range(a + 1, b) if n not in ahead]
    return [*ops[:a], *early, call, *late, *ops[b + 1 :]]


def notes(before: Module, after: Module) -> list[str]:
    """The calls that became one, with their lines."""
    out = []
    for op in after.entry.body.walk() if after.main in after.functions else ():
        if op.opcode == "model.evals":
            model = op.operands[0].name or "a model"
            out.append(f"{len(op.attrs['parts'])} calls of {model} are one (line {op.loc.line})")
    return out


PASS = Pass(
    name="tree_fusion",
    reason=(
        "a call costs a read of the weights, whatever it computes. A Jacobi window beside the verification, "
        "guesses beside a branch, the context beside a tree on it: one call over all of them costs what the "
        "largest alone does."
    ),
    precondition=(
        "both calls stand in one region, of the same model; neither needs the result of the other; nothing between "
        "them commits, writes a state or calls the host. Contexts merge (shared prefixes are computed once), draws "
        "never do."
    ),
    run=run,
    notes=notes,
)
