"""What may cross what: which parts of the world an op reads and writes, and which ops may be merged, moved or dropped.

The op table says which ops have effects. Some that have none still read what commits and state writes change (where a
canvas begins, what a carried tree continues); this file says so once, for all passes. Noise is a function of its key, so a
draw reads nothing, but a draw is an edge: equal draws stay two (DESIGN.md, commitment 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from decgraph.ir.table import lookup
from decgraph.ir.values import Op, Region, Value

Parts = frozenset[str]
"""Parts of the world: "context" (tokens and the stop machine), "state:<name>", "learned" (indexes, which learn on commit),
"host" (what Python functions of the caller see), "returned"."""

NOTHING: Parts = frozenset()
CONTEXT = frozenset({"context"})

READS_CONTEXT = frozenset({"context", "done", "ended", "canvas.new", "tree.continue", "tree.reroot", "run"})
"""Ops that read the committed context or the stop machine besides their operands."""

REQUEST_CONSTANT = frozenset({"prompt", "limit", "eos", "pad", "mask", "greedy"})
"""Fields of the request that stay as they are while it runs (`room` shrinks)."""

LOOPS = ("for", "while", "each", "tree.walk")
EDGES = frozenset(
    {
        "draw",
        "draw.many",
        "draw.race",
        "draw.point",
        "topk",
        "beta",
        "edit",
        "index.ask",
        "tree.best_first",
        "run",
    }
)
"""Ops that make draws or edits: two equal ones are still two edges of a tree."""

CALLS = frozenset({"model.eval", "model.evals", "model.memory", "model.read"})
HOST = frozenset({"extern", "completes", "text_of"})


def reads(op: Op) -> Parts:
    """What an op, with all inside it, reads besides its operands."""
    found = set(_own_reads(op))
    for region in op.regions:
        for inner in region.ops:
            found |= reads(inner)
    return frozenset(found)


def writes(op: Op) -> Parts:
    """What an op, with all inside it, changes."""
    found = set(_own_writes(op))
    for region in op.regions:
        for inner in region.ops:
            found |= writes(inner)
    return frozenset(found)


def _own_reads(op: Op) -> Parts:
    match op.opcode:
        case "request":
            return NOTHING if op.attrs["field"] in REQUEST_CONSTANT else CONTEXT
        case "state.read":
            own = f"state:{op.attrs['state']}"
            return frozenset({own, "batch", "learned"}) if op.result.type.elem == "index" else frozenset({own, "batch"})
        case "index.ask":  # "after" a number of tokens reads the context's end
            return CONTEXT if op.attrs.get("what") == "after" else NOTHING
        case "tree.new":
            return NOTHING if op.operands else CONTEXT
        case "warp" | "adjust":  # a row that stands nowhere stands after the context
            return NOTHING if len(op.operands) > 1 else CONTEXT
        case "model.read" | "head.score":  # what it reads is an operand; the request shapes it as after the context
            return CONTEXT
        case "model.eval" | "model.evals" | "model.memory" | "model.states" | "head.read":  # a path stands after the context
            return CONTEXT if any(v.type.elem == "path" for v in op.operands) else NOTHING
        case "extern" | "completes" | "text_of":
            return frozenset({"host"})
        case "state.write":
            return frozenset({"batch"})
    return CONTEXT if op.opcode in READS_CONTEXT else NOTHING


def _own_writes(op: Op) -> Parts:
    match op.opcode:
        case "commit":
            return frozenset({"context", "learned"})
        case "state.write":
            return frozenset({f"state:{op.attrs['state']}"})
        case "return":
            return frozenset({"returned"})
        case "batch.fold" | "batch.top":  # while a sequence waits for the others, these may write states that they share
            return frozenset({"host", "batch"})
        case "run":  # the callee may have state per session
            return frozenset({"host"})
    return frozenset({"host"}) if op.opcode in HOST else NOTHING


def fixed(op: Op) -> bool:
    """Whether an op must stay: it or something inside it changes something, or is a note, which moves past all else."""
    return bool(writes(op)) or op.opcode == "note" or any(fixed(inner) for r in op.regions for inner in r.ops)


def mergeable(op: Op) -> bool:
    """Whether two equal ones of this op may become one."""
    return (
        bool(op.results) and not op.regions and op.opcode not in EDGES and not writes(op) and lookup(op.opcode).exact == "same"
    )


CHEAP = frozenset(
    {
        "const",
        "noise",
        "request",
        "topology",
        "vocab_size",
        "token",
        "len",
        "as_int",
        "face",
        "draw.get",
        "tree.nodes",
        "tree.get",
        "canvas.get",
        "state.read",
        "context",
        "tree.size",
        "path.get",
        "level.get",
        "ctx.get",
        "model.layers",
        "model.derive",
    }
)
"""Ops that may run though the loop that they stood in would not have reached them: they cannot fail and cost little."""

SAFE_MAPS = frozenset(
    {"add", "sub", "mul", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select", "minimum", "maximum"}
)


def speculable(op: Op) -> bool:
    """Whether an op may run where it might not have: it cannot fail, costs little and changes nothing."""
    if op.opcode == "map":
        return op.attrs["fn"] in SAFE_MAPS and not any(v.type.dims for v in op.operands)
    if op.opcode in ("path.get", "ctx.get"):
        return op.attrs["field"] in ("length", "depth", "path")
    if op.opcode == "draw.get":
        return op.attrs["field"] in ("law", "point")
    return op.opcode in CHEAP


def within(regions: Iterable[Region]) -> Iterator[Value]:
    """Every value that is defined in some regions: their arguments and the results of their ops, at any depth."""
    for region in regions:
        yield from region.args
        for op in region.ops:
            yield from op.results
            yield from within(op.regions)
