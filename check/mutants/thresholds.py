"""Bugs of lossy rules: a token that the stated bound forbids is committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.patching import in_rules, is_call
from decgraph.check.profile import Profile
from decgraph.dsl import syntax as S


def own(node: Any) -> Any:
    """A node is accepted for its own token though one above it is not acceptable."""
    return node.args[1] if is_call(node, "down") and len(node.args) == 3 and node.args[2] == S.Name("all") else node


def lower(node: Any) -> Any:
    """The acceptance threshold is a quarter of what is claimed."""
    if isinstance(node, S.Compare) and node.op in (">", ">="):
        return replace(node, right=S.Binary("/", node.right, S.Number("4")))
    return node


def bounded(f: Profile) -> bool:
    """Whether a program bounds what it accepts (`ensures`) by a rule over whole trees."""
    return f.whole and "ensures" in f.modes


MUTANTS = (
    Mutant.of(own, "ancestors-unchecked", bounded, "V = 3, two drafts", "ar.md L9", where=in_rules),
    Mutant.of(lower, "threshold-too-low", bounded, "V = 3, one draft", where=in_rules),
)
