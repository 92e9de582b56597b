"""Draws that a step leaves in a state for the next one, which nothing has read: they may as well be drawn in the next step
(`unread_steps`, proof/Unread.v). There they count as drawn where the state is first read, with the counter of the loop as their
noise."""

from __future__ import annotations

from dataclasses import replace

from decgraph.check.proof.environment import Environment
from decgraph.check.proof.invariants import asks_done, memory_of
from decgraph.ir.facts import NONE, Drafts
from decgraph.ir.values import Op


def written(op: Op) -> set[str]:
    """The states that are written in the regions of an op."""
    return {memory_of(o) for region in op.regions for o in region.walk() if o.opcode == "state.write"}


def write(k: Environment, op: Op) -> None:
    """What a state holds after `state.write`."""
    fact = k.of(op.operands[0])
    k.unread.pop(memory_of(op), None)
    if isinstance(fact, Drafts) and not fact.race and not fact.one:
        k.unread[memory_of(op)] = replace(fact, after=None)


def candidates(k: Environment, op: Op) -> tuple[str, ...]:
    """The state whose draws the loop of the program may carry unread: one at most, without draws before the loop."""
    whole = asks_done(op) and any(o is op for o in k.function.body.ops)
    return tuple(sorted(name for name in written(op) if whole and k.unread.get(name) == Drafts(NONE))[:1])


def begin(k: Environment, op: Op, carried: tuple[str, ...]) -> None:
    """At the head of a loop: what its states hold."""
    counter = op.regions[-1].args[0]
    for name in written(op):
        k.unread.pop(name, None)
    for name in carried:
        drawn = frozenset({(counter, None)})
        k.unread[name] = Drafts(drawn)
        k.states[name] = k.states.get(name, NONE) | drawn
        k.loops[counter], k.around[counter] = (counter,), (op,)


def end(k: Environment, op: Op, carried: tuple[str, ...]) -> tuple[str, ...]:
    """At the end of an iteration: the states whose draws were made in it and read by nothing. They tell of nothing yet."""
    return tuple(name for name in carried if _is_unread(k, op, name))


def _is_unread(k: Environment, op: Op, name: str) -> bool:
    body, fact = op.regions[-1], k.unread.get(name)
    if fact is None:
        return False
    others = [taint for other, taint in k.states.items() if other != name]
    read = k.control | k.ends_draft | k.taint(*body.yields) | frozenset().union(*others)
    here = all(
        past is None and k.loops[v] == (body.args[0],) and v is not body.args[0] and v not in k.grown for v, past in fact.noises
    )
    if not here or fact.noises & read:
        return False
    k.states[name] -= fact.noises
    return True
