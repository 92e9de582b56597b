"""Bugs of lossy rules: a token that the stated bound forbids is committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.patching import in_rules, is_call
from decgraph.check.profile import Profile
from decgraph.dsl import syntax as S


def own(node: Any) -> Any:
    """`down(t, ok, all)` becomes `ok`."""
    return node.args[1] if is_call(node, "down") and len(node.args) == 3 and node.args[2] == S.Name("all") else node


def lower(node: Any) -> Any:
    """Thresholds are a quarter of what they should be."""
    if isinstance(node, S.Compare) and node.op in (">", ">="):
        return replace(node, right=S.Binary("/", node.right, S.Number("4")))
    return node


def bounded(f: Profile) -> bool:
    """Whether a program bounds what it accepts (`ensures`) by a rule over whole trees."""
    return f.whole and "ensures" in f.modes


MUTANTS = (
    Mutant(
        "ancestors-unchecked",
        "a node is accepted for its own token though one above it is not acceptable",
        bounded,
        "V = 3, two drafts",
        "ar.md L9",
        rewrite=in_rules(own),
    ),
    Mutant(
        "threshold-too-low",
        "the acceptance threshold is a quarter of what is claimed",
        bounded,
        "V = 3, one draft",
        rewrite=in_rules(lower),
    ),
)
