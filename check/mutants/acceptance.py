"""Bugs of rejection rules: which draft is accepted, and what is left of p after one was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.patching import call, in_rules, is_residual, ratio, residual
from decgraph.check.planting import rewrite
from decgraph.check.profile import Profile
from decgraph.dsl import syntax as S


def rejects(f: Profile) -> bool:
    """A rule tests drafts by their distributions and rejects some."""
    return f.law and f.rejected and "distribution" in f.modes


def wide(f: Profile) -> bool:
    """... with two drafts or more at a node: with one, what happens to p between two drafts is never seen."""
    return rejects(f) and f.width >= 2


def late(node: Any) -> Any:
    """All siblings are tested against the same p, as if none had been rejected before."""
    if isinstance(node, S.For) and any(is_residual(s) for s in node.body):
        tests = tuple(s for s in node.body if not is_residual(s))
        return (replace(node, body=tests), replace(node, body=tuple(s for s in node.body if is_residual(s))))
    return node


def from_before(node: Any) -> Any:
    """After a rejection the token is drawn from p, not from the residual."""
    if not isinstance(node, S.Rule):
        return node
    if not any(is_residual(s) for loop in node.body if isinstance(loop, S.For) for s in loop.body):
        return node
    p = node.params[0].name

    def draw(inner: Any) -> Any:
        if isinstance(inner, S.Draw) and inner.dist == S.Name(p):
            return replace(inner, dist=S.Name("before"))
        return inner

    return replace(node, body=(S.Assign((S.Name("before"),), "=", (S.Name(p),)), *rewrite(node.body, draw)))


def argmax(node: Any) -> Any:
    """The emitted token is the likeliest one where it should be drawn."""
    if isinstance(node, S.Draw):
        return S.Assign(node.targets, "=", (call("argmax", node.dist),))
    return node


MUTANTS = (
    Mutant(
        "accept-always",
        "every draft is accepted: tokens of the drafter's distribution are committed",
        rejects,
        "V = 2, one draft",
        "M10",
        rewrite=ratio(lambda p, q: S.Name("yes")),
    ),
    Mutant(
        "accept-inverse",
        "accepts with q/p where it should be p/q",
        rejects,
        "V = 2, one draft",
        rewrite=ratio(lambda p, q: call("bernoulli", S.Binary("/", q, p))),
    ),
    Mutant(
        "accept-where-p-exceeds-q",
        "accepts only where p >= q, without the coin for the rest",
        rejects,
        "V = 2, one draft",
        "M11",
        rewrite=ratio(lambda p, q: S.Compare(">=", p, q)),
    ),
    Mutant(
        "accept-p-alone",
        "accepts with p where it should be p/q",
        lambda f: rejects(f) and f.sampled,
        "V = 2, one draft",
        "M12",
        rewrite=ratio(lambda p, q: call("bernoulli", p)),
    ),
    Mutant(
        "residual-skipped",
        "after a rejection p is used as it was: what was rejected can come back",
        rejects,
        "V = 2, one draft",
        "M01",
        rewrite=residual(lambda p, q: None),
    ),
    Mutant(
        "residual-reversed",
        "the residual is q - p where it should be p - q",
        rejects,
        "V = 2, one draft",
        rewrite=residual(lambda p, q: call("normalize", call("relu", S.Binary("-", q, p)))),
    ),
    Mutant(
        "residual-absolute",
        "the residual is the absolute difference: the tokens that the drafter likes too much come back",
        rejects,
        "V = 2, one draft",
        rewrite=residual(lambda p, q: call("normalize", call("abs", S.Binary("-", p, q)))),
    ),
    # Where q is one-hot, p - onehot(x) is p - q: the same thing, so it does not apply.
    Mutant(
        "residual-of-the-token",
        "only the drafted token is taken out of p, not the drafter's whole distribution",
        lambda f: rejects(f) and f.sampled,
        "V = 3, one draft",
        "M04",
        rewrite=residual(lambda p, q: call("normalize", call("relu", S.Binary("-", p, call("onehot", S.Name("x")))))),
    ),
    Mutant(
        "residual-not-normalised",
        "the next sibling is tested against a residual that does not sum to one; a draw from it "
        "alone is a race and cannot tell",
        wide,
        "V = 3, two siblings",
        rewrite=residual(lambda p, q: call("relu", S.Binary("-", p, q))),
    ),
    Mutant.of(late, "residual-after-all", wide, "V = 3, two siblings", "M13, M14", where=in_rules),
    Mutant.of(from_before, "emit-from-p", rejects, "V = 2, one draft", "M01"),
    Mutant.of(
        argmax, "emit-argmax", lambda f: f.walks and bool({"distribution", "tokens"} & f.modes), "V = 2", "M18", where=in_rules
    ),
)
