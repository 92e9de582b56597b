"""The progress check: every turn of `while not done` commits a token or decides something; other loops have a bound."""
from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import Lowering


def check_progress(lw: Lowering, item: S.Algorithm) -> None:
    """Raise DecError at a loop that may turn for ever."""
    for n in S.walk(item):
        if isinstance(n, (S.While, S.Loop)) and n.at_most is None:
            body = n.body
            if isinstance(n, S.While) and not _is_done(n.cond):
                if not _may(body, (S.Commit, S.Unmask)) and not _assigns_seen(n):
                    lw.fail(n.span, "nothing in this loop changes its condition", "bound it: while condition at most n:",
                            code="E420")
            elif isinstance(n, S.While) and not _always(lw, body):
                lw.fail(n.span, "a turn of this loop may commit nothing, and then it never ends",
                        "commit a token, or decide a cell, on every way through the body", code="E421")
            elif isinstance(n, S.Loop) and not any(isinstance(c, S.Break) for c in S.walk(n)):
                lw.fail(n.span, "nothing leaves this loop", "say break if condition, or loop at most n:", code="E422")


def _is_done(e: S.Expr) -> bool:
    return isinstance(e, S.Unary) and e.op == "not" and isinstance(e.operand, S.Name) and e.operand.name == "done"


def _may(body: tuple[S.Stmt, ...], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(c, kinds) for s in body for c in S.walk(s))


def _assigns_seen(n: S.While) -> bool:
    from decgraph.dsl.lower.flow import assigned
    seen = {c.name for c in S.walk(n.cond) if isinstance(c, S.Name)}
    return bool(seen & set(assigned(n.body)))


def _always(lw: Lowering, body: tuple[S.Stmt, ...]) -> bool:
    """Whether every way through a suite commits."""
    for s in body:
        if isinstance(s, S.Commit):
            return True
        if isinstance(s, S.If) and s.orelse and all(_always(lw, b.body) for b in s.branches) and _always(lw, s.orelse):
            return True
        if isinstance(s, (S.Repeat, S.For, S.Loop, S.Draft, S.Lanes)) and _always(lw, s.body):
            return True
        if isinstance(s, (S.While,)) and _always(lw, s.body):
            return True
    return False
