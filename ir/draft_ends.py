"""Where an error ends a draft and not the run: blocks `draft t:` in which something may fail become an `if`
with attribute draft.

Drafts only save calls, so an error in what chooses them need not end a run: the block ends, and what was grown until then is
verified. That is so for a block of which nothing but its tree is read afterwards, and in which no sampled draw decides
whether an error occurs: else the error would decide by what was drawn whether it is a draft, and a draft would not have the
distribution that it states. An error in any other block ends the run, as everywhere else (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from decgraph.ir.failing import Failing
from decgraph.ir.types import BOOL
from decgraph.ir.values import Function, Module, Op, Region, Value

SAMPLED = frozenset({"draw", "draw.many", "draw.race", "draw.stated"})
"""Ops that make draws that are not certain."""


@dataclass(frozen=True)
class Block:
    """A block that drafts the tree of a name: the tree before it and after it, and its ops in order."""

    tree: str
    before: Value
    after: Value
    ops: tuple[Op, ...]


def end_drafts(module: Module, blocks: Sequence[Block]) -> None:
    """Wrap the blocks in which an error ends the draft (in place: for modules just created)."""
    for name, function in module.functions.items():
        ops = set(function.body.walk())
        mine = [b for b in blocks if b.ops and b.ops[0] in ops and _ends(function, b)]
        if mine:
            module.functions[name] = replace(function, body=_wrapped(function.body, mine))


def _all(ops: Iterable[Op]) -> list[Op]:
    return [o for op in ops for o in (op, *(inner for r in op.regions for inner in r.walk()))]


def _ends(function: Function, block: Block) -> bool:
    """Whether something in a block may fail, and its end by an error would tell of nothing but the tree."""
    inside = _all(block.ops)
    within = set(inside)
    failing = Failing(function)
    may_fail = [op for op in inside if failing.why(op)]
    if block.before.type != block.after.type or not may_fail:
        return False
    trees = [v for op in inside for v in op.results if v.type.elem == "tree"]
    if any(v.type.of[0] != block.tree for v in trees) or not trees:
        return False
    made = {v for op in block.ops for v in op.results} - {block.after}
    for op in function.body.walk():
        if op not in within and (made & {*op.operands} or any(made & {*r.yields} for r in op.regions)):
            return False
    return not made & {*function.body.yields} and not _sampled(inside, may_fail)


def _sampled(ops: Sequence[Op], may_fail: Sequence[Op]) -> bool:
    """Whether the token of a sampled draw of a block may decide that an op of it fails, before the draw is a part of the tree.
    ops: of the block; may_fail: those of them that may fail."""
    told: set[Value] = set()
    reached: set[Op] = set()  # by what was drawn
    made = {v: op for op in ops for v in op.results}
    before = -1
    while len(told) + len(reached) != before:  # loops hand values back
        before = len(told) + len(reached)
        for op in ops:
            tells = op.opcode in SAMPLED or op in reached or any(v in told for v in op.operands)
            if tells:
                told.update(v for v in (*op.results, *(a for r in op.regions for a in r.args)) if v.type.elem != "tree")
            ends = any(v in told for r in op.regions for v in r.yields)
            if ends:
                told.update(v for v in op.results if v.type.elem != "tree")
            if op.regions and (tells or ends):
                reached.update(_all(o for r in op.regions for o in r.ops))
    return any(op in reached or any(v in told for v in decisive(op, made)) for op in may_fail)


def decisive(op: Op, producers: Mapping[Value, Op]) -> tuple[Value, ...]:
    """The operands of an op that decide whether it fails: an index does, and not the draws among which it chooses, of which
    there are as many whatever they are; where something is grown does, and not what."""
    if op.opcode == "tree.grow":
        return op.operands[2:]
    return op.operands[op.opcode == "gather" and _counted(op.operands[0], producers) :]


def _counted(v: Value, producers: Mapping[Value, Op]) -> bool:
    """Whether a value is draws, as many as there are whatever they are; a race has as many as have mass."""
    op = producers.get(v)
    if op is not None and op.opcode == "if":
        return all(_counted(r.yields[op.results.index(v)], producers) for r in op.regions)
    return op is not None and op.opcode in ("draw", "draw.many", "topk")


def _wrapped(region: Region, blocks: Sequence[Block]) -> Region:
    """The region with its blocks, and those inside it, in an `if` each."""
    ops: list[Op] = []
    n = 0
    while n < len(region.ops):
        op = region.ops[n]
        block = next((b for b in blocks if b.ops[0] is op), None)
        if block is None or region.ops[n : n + len(block.ops)] != block.ops:
            ops.append(replace(op, regions=tuple(_wrapped(r, blocks) for r in op.regions)) if op.regions else op)
            n += 1
            continue
        ops += _attempt(block, blocks.index(block))
        n += len(block.ops)
    return Region(region.args, tuple(ops), region.yields)


def _attempt(block: Block, number: int) -> list[Op]:
    """The block as the first region of an `if`, whose result takes the place of the tree."""
    inner = replace(block.after, name=block.after.name)
    known = {block.after: inner}

    def renamed(region: Region) -> Region:
        return Region(region.args, tuple(map(one, region.ops)), tuple(known.get(v, v) for v in region.yields))

    def one(op: Op) -> Op:
        return replace(
            op,
            operands=tuple(known.get(v, v) for v in op.operands),
            regions=tuple(map(renamed, op.regions)),
            results=tuple(known.get(v, v) for v in op.results),
        )

    first = block.ops[0].loc
    goes_on = Op("unfailing", (), {"site": f"{block.tree}.{number}"}, (), (Value(BOOL),), first)
    block_region = Region((), tuple(map(one, block.ops)), (inner,))
    made = Op(
        "if", (goes_on.result,), {"draft": block.tree}, (block_region, Region((), (), (block.before,))), (block.after,), first
    )
    return [goes_on, made]
