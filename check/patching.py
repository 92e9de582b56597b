"""Patches of syntax trees, as mutants write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from decgraph.check.planting import Rewrite, rewrite
from decgraph.dsl import syntax as S


def in_rules(f: Rewrite) -> Rewrite:
    """A patch of what stands inside rules."""
    return lambda node: replace(node, body=rewrite(node.body, f)) if isinstance(node, S.Rule) else node


def in_algorithm(f: Rewrite) -> Rewrite:
    """A patch of what stands inside the algorithm, claims left out."""

    def g(node: Any) -> Any:
        if not isinstance(node, S.Algorithm):
            return node
        claims = (S.Refines, S.Ensures, S.KeepsSupport)
        body: list[Any] = []
        for s in node.body:
            body += [s] if isinstance(s, claims) else list(rewrite((s,), f))
        return replace(node, body=tuple(body))

    return g


def call(name: str, *args: S.Expr) -> S.Call:
    """The expression `name(args)`."""
    return S.Call(S.Name(name), tuple(args))


def is_call(node: Any, name: str) -> bool:
    """Whether a node is a call of `name`."""
    return isinstance(node, S.Call) and isinstance(node.func, S.Name) and node.func.name == name


def accepts(node: Any) -> bool:
    """Whether a statement is `if condition:` with an accept in its suite."""
    return isinstance(node, S.If) and any(isinstance(s, S.Accept) for s in node.branches[0].body)


def condition(change: Callable[[S.Expr], S.Expr | None]) -> Rewrite:
    """A patch of the conditions under which rules accept; None from `change` leaves one as it is."""

    def f(node: Any) -> Any:
        if not accepts(node):
            return node
        first = node.branches[0]
        new = change(first.cond)
        return node if new is None else replace(node, branches=(replace(first, cond=new), *node.branches[1:]))

    return in_rules(f)


def ratio(change: Callable[[S.Expr, S.Expr], S.Expr]) -> Rewrite:
    """A patch of `bernoulli(p / q)` where a rule accepts: `change` takes p and q and returns the condition."""

    def f(cond: S.Expr) -> S.Expr | None:
        if is_call(cond, "bernoulli"):
            assert isinstance(cond, S.Call)
            arg = cond.args[0]
            if isinstance(arg, S.Binary) and arg.op == "/":
                return change(arg.left, arg.right)
        return None

    return condition(f)


def is_residual(node: Any) -> bool:
    """Whether a statement is `p = normalize(relu(p - q))`."""
    if not (isinstance(node, S.Assign) and node.op == "=" and len(node.values) == 1):
        return False
    value: Any = node.values[0]
    return is_call(value, "normalize") and is_call(value.args[0], "relu") and isinstance(value.args[0].args[0], S.Binary)


def residual(change: Callable[[S.Expr, S.Expr], S.Expr | None]) -> Rewrite:
    """A patch of the residual in rules: `change` takes p and q and returns what p becomes (None: unchanged)."""

    def f(node: Any) -> Any:
        if not is_residual(node):
            return node
        difference = node.values[0].args[0].args[0]
        new = change(difference.left, difference.right)
        return () if new is None else replace(node, values=(new,))

    return in_rules(f)
