"""What a derivation consists of: invariants of loops and the steps that were concluded; and what of facts outlives a commit
or an iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from decgraph.ir.facts import NONE, Certainty, Fact, Tree, joined
from decgraph.ir.labels import Labels
from decgraph.ir.values import Op, Value


class DerivationStopped(Exception):
    """The derivation ends here: nothing can be concluded, and why."""

    def __init__(self, op: Op | None, why: str) -> None:
        super().__init__(why)
        self.op, self.why = op, why

    @property
    def line(self) -> int:
        return self.op.loc.line if self.op is not None else 0


@dataclass(frozen=True)
class Invariant:
    """What holds at the head of a loop in every iteration: of carried values, of states, and of what draws decide; and which
    states hold draws of the iteration before that nothing has read."""

    facts: tuple[Fact | None, ...]
    taints: tuple[Labels, ...]
    states: tuple[tuple[str, Labels], ...] = ()
    control: Labels = NONE
    unread: tuple[str, ...] = ()


class NotKept(Exception):
    """A loop has no invariant, or the body does not keep it; `weaker` is one that it may keep. op: the loop; None: what all
    sequences and requests write to the memories that they share."""

    def __init__(self, op: Op | None, weaker: Invariant) -> None:
        super().__init__("a loop without an invariant")
        self.op, self.weaker = op, weaker


@dataclass(frozen=True)
class Step:
    """A line of a derivation: where, what is concluded, and by which rule (docs/proof.md)."""

    line: int
    text: str
    rule: str


def asks_done(op: Op) -> bool:
    """Whether an op is the loop `while not done`."""
    if op.opcode != "while" or op.attrs.get("bound") != "done":
        return False
    ops, (condition,) = op.regions[0].ops, op.regions[0].yields
    return len(ops) == 2 and ops[0].opcode == "done" and ops[1].attrs.get("fn") == "not" and ops[1].result is condition


def contains(op: Op, opcode: str) -> bool:
    """Whether an op of this kind stands in the regions of another."""
    return any(o.opcode == opcode for r in op.regions for o in r.walk())


def memory_of(op: Op) -> str:
    """Where an op leaves what it was told: a state by name; externs share theirs, also with sub-runs; a commit the context;
    what is asked across a batch the memories of its sequences."""
    if op.opcode in ("extern", "run"):
        return "extern"
    if op.opcode in ("batch.fold", "batch.top"):
        return "batch"
    return "context" if op.opcode == "commit" else f"state {op.attrs['state']}"


def as_wide(v: Value, operand: Value) -> bool:
    """Whether a result has the operand's shape: a row plus a number is a row of its own only where both have its length."""
    return len(v.type.dims) == len(operand.type.dims) or operand.type.elem in ("dist", "scores")


def moved(fact: Fact | None, old: int, new: int) -> Fact | None:
    """A fact about the context `old`, as one about the context `new`."""
    return None if fact is None else fact.moved(old, new)


def placed(fact: Fact | None, v: Value) -> Fact | None:
    """A fact about a tree that is another value now."""
    return replace(fact, tree=v, grown=fact.grown | {v}) if isinstance(fact, Tree) else fact


def weakest(a: Fact | None, b: Fact | None, v: Value) -> Fact | None:
    """What follows from either of two facts about a value that a loop carries."""
    return a if a == b else joined(a, b, v, NONE)


WORDS: dict[Certainty, str] = {
    "own": "the own draw of `{}`",
    "drawn": "distributed as `{}`",
    "inside": "a token that `{}` gives mass to",
}
COMMITS: dict[Certainty, str] = {"own": "commit-own", "drawn": "commit-drawn", "inside": "commit-inside"}
"""How a commit is concluded (docs/proof.md)."""
