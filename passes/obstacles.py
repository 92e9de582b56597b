"""Why a model call is not fused with others, continues no store, or shares no forward in a batch; and what would change it.

Each obstacle is found with the very tests that the passes apply (tree_fusion.find, reuse.Stores), so that it names what
stopped the pass and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from decgraph.ir.values import Function, Op, Region, Value
from decgraph.ir.walk import Dependences, used_by
from decgraph.passes.motion import writes
from decgraph.passes.reuse import Stores, second
from decgraph.passes.tree_fusion import is_call, parts_of

WRITES = {
    "commit": "a commit", "state.write": "a write of a state", "return": "a return", "extern": "a call of a host function",
    "index.learn": "an index that learns", "run": "a run of another algorithm",
    **dict.fromkeys(("batch.fold", "batch.top"), "a wait for the whole batch"),
}  # fmt: skip

SECOND = "it reads other tokens than the request's: of the last eight such texts a common beginning is kept"
CHOSEN = "it is computed on a memory that the program chose, so its value is not a function of its place alone"
LEFT_OUT = "without `given =` it would continue its model's own store; that computes something else"


@dataclass(frozen=True)
class Obstacle:
    """why: what keeps a pass from changing a call; change: what in the program would let it ("" where nothing simple would)."""

    why: str
    change: str = ""


def fusion(function: Function, regions: dict[Op, Region], op: Op) -> list[Obstacle]:
    """Why a call is not one with each of the other calls of its model, in the order of the program; [] for an only call."""
    if not is_call(op):
        return [Obstacle("read from what another call computed" if op.opcode == "model.memory" else alone(op))]
    out: dict[Obstacle, None] = {}
    for other in function.body.walk():
        if other is op or not is_call(other) or other.operands[0] is not op.operands[0]:
            continue
        out[pair(regions, op, other)] = None
    return list(out)


def alone(op: Op) -> str:
    """Why a call is none that tree_fusion joins."""
    if op.opcode == "model.read":
        return "a second context is a call of its own"
    return "heads are read from the last state of their model, in a call of their own"


def pair(regions: dict[Op, Region], op: Op, other: Op) -> Obstacle:
    """Why two calls of one model are two."""
    line = other.loc.line
    if regions[op] is not regions[other]:
        return Obstacle(f"not with line {line}: it stands in another loop or branch")
    ops = regions[op].ops
    a, b = sorted((ops.index(op), ops.index(other)))
    graph = Dependences(ops)
    if a in graph.ancestors({b}):
        asks = next((ops[n] for n in sorted(graph.ancestors({b})) if set(used_by(ops[n])) & set(ops[a].results)), None)
        at = asked_at(asks, ops[a]) if asks is not None else line
        through = f", through line {at}" if at not in (line, op.loc.line) else ""
        which = f"it needs the result of line {line}" if ops[b] is op else f"line {line} needs its result"
        return Obstacle(f"not with line {line}: {which}{through}")
    between = next((o for o in ops[a + 1 : b] if writes(o)), None)
    if between is None:
        return Obstacle(f"not with line {line}: the pass tree_fusion did not run")
    what = WRITES.get(between.opcode, "a loop or branch that changes something" if between.regions else between.opcode)
    lines = f"lines {ops[a].loc.line} and {ops[b].loc.line}"
    change = f"with {what} (line {between.loc.line}) after both, tree_fusion would make {lines} one call"
    return Obstacle(f"not with line {line}: {what} stands between them (line {between.loc.line})", change)


def asked_at(op: Op, call: Op) -> int:
    """The line of an op, or of the op inside it, that uses what a call gave."""
    inner = next((o for r in op.regions for o in r.walk() if set(o.operands) & set(call.results)), op)
    return inner.loc.line


def reuse(function: Function, op: Op) -> Obstacle:
    """Why a call computes its context anew or on a memory of its own, in the words of the pass reuse's precondition."""
    stores = Stores(function)
    if second(op):
        each = " (the tokens of .each are computed anew)" if op.attrs.get("each") else ""
        return Obstacle(f"{SECOND}{each}")
    names = (tuple(op.attrs.get("with", ())),) if op.opcode == "model.memory" else parts_of(op)
    kind = str(op.operands[0].type.of[0])
    if any("given" in part for part in names) and not stores.exact(op):
        own = kind != "masked" and stores.name(op.operands[0]) is not None
        return Obstacle(CHOSEN, LEFT_OUT if own else "")
    if op.opcode == "model.memory" and kind != "causal":
        return Obstacle("a masked model's memory is what the call at the same place computed")
    if stores.name(op.operands[0]) is None:
        change = "derived by constants or parameters, it would have a store that every step continues"
        return Obstacle(f"its model is derived by what may change from step to step{derived(stores, op.operands[0])}", change)
    return Obstacle("the pass reuse did not run")


def derived(stores: Stores, model: Value) -> str:
    """Where a model is derived: " (line 7)"."""
    op = stores.producers.get(model)
    return f" (line {op.loc.line})" if op is not None else ""


def batch(function: Function, op: Op) -> Obstacle:
    """Why a call shares no forward with those of other sequences."""
    stores = Stores(function)
    if stores.name(op.operands[0]) is None:
        change = "derived by constants or parameters, it would be one forward for all sequences of a batch"
        return Obstacle(f"its model differs between sequences{derived(stores, op.operands[0])}", change)
    return Obstacle("the pass batching did not run")
