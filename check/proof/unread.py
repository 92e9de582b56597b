"""Draws that a step leaves in a state for the next one, which nothing has read: they may as well be drawn in the next step
(`unread_steps`, proof/Unread.v). There they count as drawn where the state is first read, with the counter of the loop as their
noise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from decgraph.check.proof.invariants import asks_done, memory_of
from decgraph.ir.facts import NONE, Drafts
from decgraph.ir.values import Function, Op

if TYPE_CHECKING:
    from decgraph.check.proof.kernel import Kernel

Left = dict[str, Drafts]
"""What is known of the draws in states, by the names of invariants.py `memory_of`."""


def at_start(function: Function) -> Left:
    """States of a sequence that begin without draws."""
    states = [s for s in function.states if s.scope == "sequence" and s.type.elem == "draw"]
    return {
        f"state {s.name}": Drafts(NONE) for s in states if all(op.opcode == "list" and not op.operands for op in s.init.ops)
    }


def written(op: Op) -> set[str]:
    """The states that are written in the regions of an op."""
    return {memory_of(o) for region in op.regions for o in region.walk() if o.opcode == "state.write"}


def write(k: Kernel, op: Op) -> None:
    """What a state holds after `state.write`."""
    fact = k.of(op.operands[0])
    k.left.pop(memory_of(op), None)
    if isinstance(fact, Drafts) and not fact.race and not fact.one:
        k.left[memory_of(op)] = replace(fact, after=None)


def candidates(k: Kernel, op: Op) -> tuple[str, ...]:
    """The state whose draws the loop of the program may carry unread: one at most, without draws before the loop."""
    whole = asks_done(op) and any(o is op for o in k.function.body.ops)
    return tuple(sorted(name for name in written(op) if whole and k.left.get(name) == Drafts(NONE))[:1])


def begin(k: Kernel, op: Op, carried: tuple[str, ...]) -> None:
    """At the head of a loop: what its states hold."""
    counter = op.regions[-1].args[0]
    for name in written(op):
        k.left.pop(name, None)
    for name in carried:
        drawn = frozenset({(counter, None)})
        k.left[name] = Drafts(drawn)
        k.states[name] = k.states.get(name, NONE) | drawn
        k.loops[counter], k.around[counter] = (counter,), (op,)


def end(k: Kernel, op: Op, carried: tuple[str, ...]) -> tuple[str, ...]:
    """At the end of an iteration: the states whose draws were made in it and read by nothing. They tell of nothing yet."""
    return tuple(name for name in carried if _is_unread(k, op, name))


def _is_unread(k: Kernel, op: Op, name: str) -> bool:
    body, fact = op.regions[-1], k.left.get(name)
    if fact is None:
        return False
    others = [taint for other, taint in k.states.items() if other != name]
    read = k.control | k.told | k.taint(*body.yields) | frozenset().union(*others)
    here = all(
        past is None and k.loops[v] == (body.args[0],) and v is not body.args[0] and v not in k.grown for v, past in fact.noises
    )
    if not here or fact.noises & read:
        return False
    k.states[name] -= fact.noises
    return True
