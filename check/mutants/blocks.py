"""Bugs of rules that verify a block of drafts as one: what the beginning of the block is worth is carried along wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.patching import in_rules, is_call
from decgraph.check.profile import Profile
from decgraph.dsl import syntax as S


def block(f: Profile) -> bool:
    """A rule for whole trees draws what it accepts."""
    return f.whole and "distribution" in f.modes


def is_missing(node: Any) -> bool:
    """Whether an expression is `relu(a * p - q)`."""
    return (
        is_call(node, "relu")
        and isinstance(node.args[0], S.Binary)
        and node.args[0].op == "-"
        and isinstance(node.args[0].left, S.Binary)
        and node.args[0].left.op == "*"
    )


def unweighted(node: Any) -> Any:
    """What is missing is taken from p alone, as if the drafts before were certain."""
    if not is_missing(node):
        return node
    difference = node.args[0]
    return replace(node, args=(replace(difference, left=difference.left.right),))


def is_worth(node: Any) -> bool:
    """Whether a statement is `a = min(1, a * p / q)`."""
    if not (isinstance(node, S.Assign) and len(node.values) == 1):
        return False
    value: Any = node.values[0]
    return is_call(value, "min") and len(value.args) == 2 and isinstance(value.args[1], S.Binary)


def uncapped(node: Any) -> Any:
    """The worth of a beginning is not capped at 1: a likely draft makes up for the next one."""
    return replace(node, values=(node.values[0].args[1],)) if is_worth(node) else node


def alone(node: Any) -> Any:
    """The worth of a beginning is that of its last draft."""

    def without(e: Any) -> Any:
        if isinstance(e, S.Binary) and e.op == "/":
            return replace(e, left=without(e.left))
        return e.right if isinstance(e, S.Binary) and e.op == "*" else e

    if not is_worth(node):
        return node
    least = node.values[0]
    return replace(node, values=(replace(least, args=(least.args[0], without(least.args[1]))),))


def late(node: Any) -> Any:
    """A beginning is accepted with the worth of the next one."""
    if not isinstance(node, S.If) or not any(is_worth(s) for s in node.orelse):
        return node
    worth = tuple(s for s in node.orelse if is_worth(s))
    others = [s for s in node.orelse if not is_worth(s)]
    k = next((i for i, s in enumerate(others) if isinstance(s, S.Assign) and any(is_missing(v) for v in s.values)), len(others))
    return replace(node, orelse=(*others[:k], *worth, *others[k:]))


MUTANTS = (
    Mutant.of(unweighted, "block-residual-of-the-token", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(uncapped, "block-worth-uncapped", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(alone, "block-worth-forgotten", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(late, "block-coin-early", block, "V = 2, two drafts", "M12", where=in_rules),
)
