"""What a verification rule is: `matching`, `lossless`, `support`, or nothing that is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from decgraph.check.proof.environment import Environment, Judged
from decgraph.check.proof.lossless import Lossless
from decgraph.check.proof.masses import between
from decgraph.check.proof.matching import UNKNOWN, NoRule, Paths, RuleValue
from decgraph.ir.facts import Tree
from decgraph.ir.values import Constant, Op, Region, Value
from decgraph.ir.walk import EXITS

LEMMAS: dict[str, str] = {
    "fabc886301c00b0b376bdfe92e5d679aeee01f1bfc0ceb45f6e1d6145eaf8d2b": "block_rejection",
    "107132d5bb748f6afde2ae964f6d059c0c3822fba3e53cd849ceaa038a794084": "traverse",
}
"""Rules of whole trees that theorems of proof/Traversal.v say are lossless, by the hash of their IR."""


def judge(kernel: Environment, op: Op) -> Judged:
    """The judgment on the rule of a `tree.walk`, and why it is not more."""
    if digest(op) in LEMMAS:
        return "lossless", ""
    kind, why = "", []
    try:
        tree = kernel.of(op.operands[0])
        drafted = isinstance(tree, Tree) and not tree.fault
        kind = Paths(op, lambda v: _outside(kernel, v), kernel.greedy, drafted=drafted).judge()
        if kind == "matching":
            return kind, ""
        why.append("it may accept or emit other tokens than the target's own draws")
    except NoRule as no:
        why.append(str(no))
    try:
        Lossless(op, lambda v: _share(kernel, v)).judge()
        return "lossless", ""
    except NoRule as no:
        why.append(str(no))
    return "lossless" if _matches_one_draw(op) else kind, "; ".join(why)


def _matches_one_draw(op: Op) -> bool:
    """Whether a rule accepts and emits nothing but one draw of the evidence, with noise of its own: `match` without the output
    stream (`matching_lossless`)."""
    region = op.regions[0]
    draws = [o for o in region.walk() if o.opcode in ("draw", "draw.many", "draw.race")]
    if len(draws) != 1 or draws[0] not in region.ops or draws[0].operands[0] is not region.args[1]:
        return False
    try:
        Lossless(op).noises(region, (region.args[0],), {})
        return op.attrs["scope"] == "node" and Paths(op, lambda v: UNKNOWN, fresh=True).judge() == "matching"
    except NoRule:
        return False


def _outside(kernel: Environment, v: Value) -> RuleValue:
    """What a rule may know of values that it is given."""
    known = kernel.const(v)
    if known is not None:
        return known
    if not v.type.is_number:
        return UNKNOWN
    low, high = kernel.limits(v)
    return between(low, high, finite=any(p.value is v for p in kernel.function.params))


def _share(kernel: Environment, v: Value) -> Constant | bool:
    """The constant that a value from outside of a rule is; or whether it is a parameter between 0 and 1."""
    known = kernel.const(v)
    low, high = kernel.limits(v)
    return known if known is not None else any(p.value is v for p in kernel.function.params) and low >= 0 and high <= 1


def digest(op: Op) -> str:
    """The hash of a rule's IR without names of values, sites and lines, and without the ops that say again by `verdict` and
    `break` what its regions yield."""
    number: dict[Value, int] = {}

    def defined(values: Iterable[Value]) -> list[int]:
        return [number.setdefault(v, len(number)) for v in values]

    def used(values: Iterable[Value]) -> list[int | str]:
        return [number.get(v, "outside") for v in values]

    def text(region: Region) -> tuple[object, ...]:
        args = defined(region.args)
        ops = []
        for o in (o for o in region.ops if o.opcode not in EXITS):
            attrs = sorted((k, str(v)) for k, v in o.attrs.items() if k not in ("site", "reads"))
            ops.append((o.opcode, attrs, used(o.operands), [text(r) for r in o.regions], defined(o.results)))
        return args, ops, used(region.yields)

    return hashlib.sha256(repr((op.attrs["scope"], text(op.regions[0]))).encode()).hexdigest()
