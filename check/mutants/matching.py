"""Bugs of rules that follow the specification's own choice (`match`, `agreed`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.patching import accepts, in_algorithm, in_rules
from decgraph.check.profile import Profile
from decgraph.dsl import syntax as S


def fresh(node: Any) -> Any:
    """The token is drawn with noise of its own."""
    return replace(node, stream=None) if isinstance(node, S.Draw) and node.stream is not None else node


def blind(node: Any) -> Any:
    """A draft is accepted without being compared with the specification's choice."""
    if accepts(node) and isinstance(node.branches[0].cond, S.Compare) and node.branches[0].cond.op == "==":
        return node.branches[0].body
    return node


def root_index(node: Any) -> Any:
    """Every candidate canvas reads the noise of the root."""
    if not isinstance(node, S.Algorithm):
        return node
    trees = {s.tree: s.of for s in _drafts(node) if s.of is not None}

    def stream(inner: Any) -> Any:
        if isinstance(inner, S.Attr) and inner.name == "decided" and isinstance(inner.value, S.Name):
            return replace(inner, value=trees.get(inner.value.name, inner.value))
        return inner

    def f(inner: Any) -> Any:
        from decgraph.check.planting import rewrite

        if isinstance(inner, S.Draw) and inner.stream is not None:
            return replace(inner, stream=rewrite(inner.stream, stream))
        return inner

    return in_algorithm(f)(node)


def _drafts(node: Any) -> list[S.Draft]:
    found: list[S.Draft] = []

    def f(inner: Any) -> Any:
        if isinstance(inner, S.Draft):
            found.append(inner)
        return inner

    in_algorithm(f)(node)
    return found


def at_once(node: Any) -> Any:
    """An iteration is left before its tokens agree with what they are computed from."""
    return replace(node, cond=None) if isinstance(node, S.Break) and node.cond is not None else node


def tokens(f: Profile) -> bool:
    """Whether a program claims `refines ... in tokens`."""
    return "tokens" in f.modes


MUTANTS = (
    # In distribution, and at temperature 0, noise of one's own is as good.
    Mutant(
        "match-fresh-noise",
        "the target's token is drawn with fresh noise: right in distribution, another text for the same seed",
        lambda f: tokens(f) and f.output_rule,
        "V = 2",
        "M44",
        rewrite=in_rules(fresh),
    ),
    Mutant.of(
        blind,
        "match-blindly",
        lambda f: (f.walks and f.output_rule and f.rejected) or f.edits,
        "V = 2, one draft",
        "M10",
        where=in_rules,
    ),
    Mutant(
        "edit-fresh-noise",
        "the canvas is drawn with fresh noise: another text for the same seed",
        lambda f: tokens(f) and f.edits,
        "V = 2, two cells",
        "M44",
        rewrite=in_algorithm(fresh),
    ),
    Mutant.of(
        at_once,
        "fixed-point-missed",
        lambda f: tokens(f) and not (f.walks or f.whole or f.edits),
        "V = 2, two tokens",
        where=in_algorithm,
    ),
    Mutant.of(root_index, "edit-index-of-the-root", lambda f: tokens(f) and f.edits, "V = 2, three cells"),
)
