"""Bugs of rules and of what stands around them, as patches of a program's syntax tree: which draft is accepted and what is left
of p after one was not, what the beginning of a block is worth, whether the specification's own choice is followed, which bound
a lossy rule keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from decgraph.check.mutant import Mutant
from decgraph.check.planting import CLAIMS, Rewrite, Rewritten, rewrite
from decgraph.check.profile import AlgorithmProfile
from decgraph.dsl import syntax as S


def in_rules(f: Rewrite) -> Rewrite:
    """A patch of what stands inside rules."""
    return lambda node: replace(node, body=rewrite(node.body, f)) if isinstance(node, S.Rule) else node


def in_algorithm(f: Rewrite) -> Rewrite:
    """A patch of what stands inside the algorithm, claims left out."""

    def g(node: S.Node) -> Rewritten:
        if not isinstance(node, S.Algorithm):
            return node
        body = ((s,) if isinstance(s, CLAIMS) else rewrite((s,), f) for s in node.body)
        return replace(node, body=tuple(x for part in body for x in part))

    return g


def call(name: str, *args: S.Expr) -> S.Call:
    """The expression `name(args)`."""
    return S.Call(S.Name(name), tuple(args))


def accepts(node: S.Node) -> TypeGuard[S.If]:
    """Whether a statement is `if condition:` with an accept in its suite."""
    return isinstance(node, S.If) and any(isinstance(s, S.Accept) for s in node.branches[0].body)


def condition(change: Callable[[S.Expr], S.Expr | None]) -> Rewrite:
    """A patch of the conditions under which rules accept; None from `change` leaves one as it is."""

    def f(node: S.Node) -> Rewritten:
        if not accepts(node):
            return node
        first = node.branches[0]
        new = change(first.cond)
        return node if new is None else replace(node, branches=(replace(first, cond=new), *node.branches[1:]))

    return in_rules(f)


def ratio(change: Callable[[S.Expr, S.Expr], S.Expr]) -> Rewrite:
    """A patch of `bernoulli(p / q)` where a rule accepts: `change` takes p and q and returns the condition."""

    def f(cond: S.Expr) -> S.Expr | None:
        match cond:
            case S.Call(S.Name("bernoulli"), (S.Binary("/", p, q), *_)):
                return change(p, q)
        return None

    return condition(f)


def is_residual(node: S.Node) -> bool:
    """Whether a statement is `p = normalize(relu(p - q))`."""
    match node:
        case S.Assign(_, "=", (S.Call(S.Name("normalize"), (S.Call(S.Name("relu"), (S.Binary(), *_)), *_)),)):
            return True
    return False


def residual(change: Callable[[S.Expr, S.Expr], S.Expr | None]) -> Rewrite:
    """A patch of the residual in rules: `change` takes p and q and returns what p becomes (None: unchanged)."""

    def f(node: S.Node) -> Rewritten:
        match node:
            case S.Assign(_, "=", (S.Call(S.Name("normalize"), (S.Call(S.Name("relu"), (S.Binary(_, p, q), *_)), *_)),)):
                new = change(p, q)
                return () if new is None else replace(node, values=(new,))
        return node

    return in_rules(f)


def rejects(f: AlgorithmProfile) -> bool:
    """A rule tests drafts by their distributions and rejects some."""
    return f.reads_rows and f.rejected and "distribution" in f.modes


def wide(f: AlgorithmProfile) -> bool:
    """... with two drafts or more at a node: with one, what happens to p between two drafts is never seen."""
    return rejects(f) and f.width >= 2


def late(node: S.Node) -> Rewritten:
    """All siblings are tested against the same p, as if none had been rejected before."""
    if isinstance(node, S.For) and any(is_residual(s) for s in node.body):
        tests = tuple(s for s in node.body if not is_residual(s))
        return (replace(node, body=tests), replace(node, body=tuple(s for s in node.body if is_residual(s))))
    return node


def from_before(node: S.Node) -> Rewritten:
    """After a rejection the token is drawn from p, not from the residual."""
    if not isinstance(node, S.Rule):
        return node
    if not any(is_residual(s) for loop in node.body if isinstance(loop, S.For) for s in loop.body):
        return node
    p = node.params[0].name

    def draw(inner: S.Node) -> Rewritten:
        if isinstance(inner, S.Draw) and inner.dist == S.Name(p):
            return replace(inner, dist=S.Name("before"))
        return inner

    return replace(node, body=(S.Assign((S.Name("before"),), "=", (S.Name(p),)), *rewrite(node.body, draw)))


def argmax(node: S.Node) -> Rewritten:
    """The emitted token is the likeliest one where it should be drawn."""
    if isinstance(node, S.Draw):
        return S.Assign(node.targets, "=", (call("argmax", node.dist),))
    return node


def block(f: AlgorithmProfile) -> bool:
    """A rule for whole trees draws what it accepts."""
    return f.whole and "distribution" in f.modes


def is_missing(node: S.Node) -> bool:
    """Whether an expression is `relu(a * p - q)`."""
    match node:
        case S.Call(S.Name("relu"), (S.Binary("-", S.Binary("*")), *_)):
            return True
    return False


def unweighted(node: S.Node) -> Rewritten:
    """What is missing is taken from p alone, as if the drafts before were certain."""
    match node:
        case S.Call(S.Name("relu"), (S.Binary("-", S.Binary("*", _, p)) as difference, *_)):
            return replace(node, args=(replace(difference, left=p),))
    return node


def is_worth(node: S.Node) -> bool:
    """Whether a statement is `a = min(1, a * p / q)`."""
    match node:
        case S.Assign(values=(S.Call(S.Name("min"), (_, S.Binary())),)):
            return True
    return False


def uncapped(node: S.Node) -> Rewritten:
    """The worth of a beginning is not capped at 1: a likely draft makes up for the next one."""
    match node:
        case S.Assign(values=(S.Call(S.Name("min"), (_, S.Binary() as worth)),)):
            return replace(node, values=(worth,))
    return node


def alone(node: S.Node) -> Rewritten:
    """The worth of a beginning is that of its last draft."""

    def without(e: S.Expr) -> S.Expr:
        if isinstance(e, S.Binary) and e.op == "/":
            return replace(e, left=without(e.left))
        return e.right if isinstance(e, S.Binary) and e.op == "*" else e

    match node:
        case S.Assign(values=(S.Call(S.Name("min"), (one, S.Binary() as worth)) as least,)):
            return replace(node, values=(replace(least, args=(one, without(worth))),))
    return node


def coin_early(node: S.Node) -> Rewritten:
    """A beginning is accepted with the worth of the next one."""
    if not isinstance(node, S.If) or not any(is_worth(s) for s in node.orelse):
        return node
    worth = tuple(s for s in node.orelse if is_worth(s))
    others = [s for s in node.orelse if not is_worth(s)]
    k = next((i for i, s in enumerate(others) if isinstance(s, S.Assign) and any(is_missing(v) for v in s.values)), len(others))
    return replace(node, orelse=(*others[:k], *worth, *others[k:]))


def fresh(node: S.Node) -> Rewritten:
    """The token is drawn with noise of its own."""
    return replace(node, stream=None) if isinstance(node, S.Draw) and node.stream is not None else node


def blind(node: S.Node) -> Rewritten:
    """A draft is accepted without being compared with the specification's choice."""
    match node:
        case S.If((S.Branch(S.Compare("=="), body), *_)) if accepts(node):
            return body
    return node


def root_index(node: S.Node) -> Rewritten:
    """Every candidate canvas reads the noise of the root."""
    if not isinstance(node, S.Algorithm):
        return node
    trees = {s.tree: s.of for s in S.walk(node) if isinstance(s, S.Draft) and s.of is not None}

    def stream(inner: S.Node) -> Rewritten:
        if isinstance(inner, S.Attr) and inner.name == "decided" and isinstance(inner.value, S.Name):
            return replace(inner, value=trees.get(inner.value.name, inner.value))
        return inner

    def f(inner: S.Node) -> Rewritten:
        if isinstance(inner, S.Draw) and inner.stream is not None:
            return replace(inner, stream=rewrite(inner.stream, stream))
        return inner

    return in_algorithm(f)(node)


def at_once(node: S.Node) -> Rewritten:
    """An iteration is left before its tokens agree with what they are computed from."""
    return replace(node, cond=None) if isinstance(node, S.Break) and node.cond is not None else node


def tokens(f: AlgorithmProfile) -> bool:
    """Whether a program claims `refines ... in tokens`."""
    return "tokens" in f.modes


def own(node: S.Node) -> Rewritten:
    """A node is accepted for its own token though one above it is not acceptable."""
    match node:
        case S.Call(S.Name("down"), (_, own_token, S.Name("all"))):
            return own_token
    return node


def lower(node: S.Node) -> Rewritten:
    """The acceptance threshold is a quarter of what is claimed."""
    if isinstance(node, S.Compare) and node.op in (">", ">="):
        return replace(node, right=S.Binary("/", node.right, S.Number("4")))
    return node


def bounded(f: AlgorithmProfile) -> bool:
    """Whether a program bounds what it accepts (`ensures`) by a rule over whole trees."""
    return f.whole and "ensures" in f.modes


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
    Mutant.of(unweighted, "block-residual-of-the-token", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(uncapped, "block-worth-uncapped", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(alone, "block-worth-forgotten", block, "V = 2, two drafts", "M12", where=in_rules),
    Mutant.of(coin_early, "block-coin-early", block, "V = 2, two drafts", "M12", where=in_rules),
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
    Mutant.of(own, "ancestors-unchecked", bounded, "V = 3, two drafts", "ar.md L9", where=in_rules),
    Mutant.of(lower, "threshold-too-low", bounded, "V = 3, one draft", where=in_rules),
)
