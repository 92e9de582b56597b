"""The progress check: every iteration of `while not done` commits a token or decides something; other loops have a bound.

What is checked is the shape of a program, so a loop may be refused that would end: say `at most n` where it is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeGuard

from decgraph.dsl import syntax as S
from decgraph.dsl.expressions import children
from decgraph.dsl.lower.flow import assigned, decides
from decgraph.dsl.lower.state import Lowering
from decgraph.dsl.printer import expression
from decgraph.dsl.source import Span

WITNESSES = frozenset(("first_max", "rank", "top", "first", "argmax", "argmin", "by_factor", "sure"))
"""What chooses at least one of what there is."""


def check_progress(lw: Lowering, item: S.Algorithm) -> None:
    """Raise DecError at a loop that may never end."""
    for n in S.walk(item):
        if not isinstance(n, (S.While, S.Loop)) or n.at_most is not None:
            continue
        if isinstance(n, S.Loop):
            if not any(_leaves(c) for c in n.body):
                lw.fail(n.span, "nothing leaves this loop", "say break if condition, or loop at most n:", code="E420")
            _check_cells(lw, n, [c.cond for s in n.body for c in S.walk(s) if isinstance(c, S.Break) and c.cond is not None])
        elif is_done(n.cond):
            if not _always(lw, n.body):
                lw.fail(
                    n.span,
                    "an iteration of this loop may commit nothing, and then it never ends",
                    "commit a token, or decide a cell, on every way through the body",
                    code="E420",
                )
        else:
            if not _may(n.body, (S.Commit, S.Unmask)) and not _assigns_seen(n):
                lw.fail(
                    n.span, "nothing in this loop changes its condition", "bound it: while condition at most n:", code="E420"
                )
            _check_cells(lw, n, [n.cond])


def check_drafts(lw: Lowering, body: tuple[S.Stmt, ...], drafted: Mapping[str, Span] | None = None) -> dict[str, Span]:
    """The trees that a suite leaves drafted and unread, with the places of their blocks. drafted: those before it.

    Raises DecError at a second block of such a tree: it starts a new one, and the drafts of the first would be lost without a
    word. A tree that a state carries goes on instead.
    """
    now = dict(drafted or {})
    for s in body:
        if isinstance(s, S.If):
            ways = [check_drafts(lw, way, now) for way in (*(branch.body for branch in s.branches), s.orelse)]
            now = {name: span for way in ways for name, span in way.items() if all(name in other for other in ways)}
        elif isinstance(s, (S.While, S.Loop, S.Repeat, S.For, S.Lanes, S.Across)):
            now = check_drafts(lw, s.body, now)
        elif isinstance(s, S.Draft):
            if s.tree in now and s.tree not in lw.states:
                lw.fail(
                    s.name_span or s.span,
                    f"a second block of the tree `{s.tree}`: it starts a new tree, and what the block of line "
                    f"{now[s.tree].line} drafted is lost",
                    f"grow in one block, name the second tree otherwise, or carry it: state {s.tree}: tree",
                    code="E016",
                )
            now = {**check_drafts(lw, s.body, now), s.tree: s.span}
        else:
            read = {node.name for node in S.walk(s) if isinstance(node, S.Name)}
            now = {name: span for name, span in now.items() if name not in read}
    return now


def is_done(e: S.Expr) -> bool:
    """Whether a condition is `not done`."""
    return isinstance(e, S.Unary) and e.op == "not" and isinstance(e.operand, S.Name) and e.operand.name == "done"


def _leaves(s: S.Node) -> bool:
    """Whether a statement may leave the loop that it stands in."""
    if isinstance(s, (S.Break, S.Return)):
        return True
    if isinstance(s, S.If):
        return any(_leaves(c) for b in s.branches for c in b.body) or any(_leaves(c) for c in s.orelse)
    if isinstance(s, (S.Draft, S.Across)):
        return any(_leaves(c) for c in s.body)
    return any(isinstance(c, S.Return) for c in S.walk(s))


def _may(body: tuple[S.Stmt, ...], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(c, kinds) for s in body for c in S.walk(s))


def _assigns_seen(n: S.While) -> bool:
    seen = {c.name for c in S.walk(n.cond) if isinstance(c, S.Name)}
    return bool(seen & set(assigned(n.body)))


def _always(lw: Lowering, body: tuple[S.Stmt, ...]) -> bool:
    """Whether every way through a suite commits (or leaves the loop)."""
    for s in body:
        if isinstance(s, (S.Commit, S.Return)) or (isinstance(s, S.Break) and s.cond is None):
            return True
        if isinstance(s, S.If) and s.orelse and all(_always(lw, b.body) for b in s.branches) and _always(lw, s.orelse):
            return True
        if isinstance(s, S.Repeat) and s.cond is None and _at_least_one(lw, s.count) and _always(lw, s.body):
            return True
        if isinstance(s, (S.For, S.Loop, S.Draft, S.Lanes, S.Across)) and _always(lw, s.body):
            return True
        if isinstance(s, S.While) and is_done(s.cond) and _always(lw, s.body):
            return True
    return False


def _at_least_one(lw: Lowering, e: S.Expr) -> bool:
    """Whether a count is known to be 1 or more; what is not known gets the benefit of the doubt."""
    if isinstance(e, S.Number):
        return e.value >= 1
    low = lw.lows.get(e.name) if isinstance(e, S.Name) else None
    return low is None or low >= 1


# ------------------------------------------------------------ canvases


def waits_for_cells(s: S.While | S.Loop) -> bool:
    """Whether a loop without a bound of its own ends when cells are decided."""
    conds: list[S.Node] = (
        [s.cond]
        if isinstance(s, S.While)
        else [c.cond for t in s.body for c in S.walk(t) if isinstance(c, S.Break) and c.cond is not None]
    )
    fields = {c.name for e in conds for c in S.walk(e) if isinstance(c, S.Attr)}
    return s.at_most is None and not fields.isdisjoint(("masked", "decided"))


def _check_cells(lw: Lowering, loop: S.While | S.Loop, conds: list[S.Expr]) -> None:
    """A loop until no cell is masked decides at least one cell an iteration: unconditionally, or by a choice that is never
    empty."""
    canvases = {
        c.value.name
        for e in conds
        for c in S.walk(e)
        if isinstance(c, S.Attr) and c.name == "masked" and isinstance(c.value, S.Name)
    }
    for name in sorted(canvases):
        picks = _decisions(loop.body, name)
        waits = {expression(c.args[0]) for c in conds if _is_any(c) and not _names(c) & set(assigned(loop.body)) - {name}}
        if picks and all(p is not None and expression(p) not in waits and not _witness(lw, p, loop.body) for p in picks):
            where = next(p for p in picks if p is not None)
            lw.fail(
                where.span,
                f"an iteration of this loop may decide no cell of `{name}`, and then it never ends",
                "let the surest be chosen too: where sure(s, tau), which is s >= tau or first_max(s)",
                code="E420",
            )


def _is_any(e: S.Expr) -> TypeGuard[S.Call]:
    """Whether a condition is `any(cells)`: while it holds, to decide all of `cells` is to decide one."""
    return isinstance(e, S.Call) and isinstance(e.func, S.Name) and e.func.name == "any" and len(e.args) == 1


def _names(e: S.Expr) -> set[str]:
    return {c.name for c in S.walk(e) if isinstance(c, S.Name)}


def _decisions(body: Iterable[S.Stmt], canvas: str) -> list[S.Expr | None]:
    """The conditions under which cells are decided; None where there is none."""
    out: list[S.Expr | None] = []
    for n in (n for s in body for n in S.walk(s)):
        if isinstance(n, S.Unmask):
            target = n.target.value if isinstance(n.target, S.Index) else n.target
            if isinstance(target, S.Name) and target.name == canvas:
                out.append(n.where)
        elif isinstance(n, S.Assign):
            for t in n.targets:
                if isinstance(t, S.Name) and t.name == canvas:
                    out.append(None)
                if isinstance(t, S.Index) and isinstance(t.value, S.Name) and t.value.name == canvas:
                    sub = t.subs[0]
                    out.append(sub.cond if isinstance(sub, S.Where) else None)
    return out


def _witness(lw: Lowering, cond: S.Node, body: tuple[S.Stmt, ...], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a condition holds somewhere whatever the numbers are: a choice that is never empty, through helpers and names set
    in the loop. A comparison of two numbers is none, however they were found; a rank below n is one where n is at least 1."""
    again = partial(_witness, lw, body=body, seen=seen)
    match cond:
        case S.Compare(op="<" | "<=", left=S.Call(func=S.Name("rank")), right=n):
            return cond.op == "<=" or _at_least_one(lw, n)
        case S.Compare(op=">" | ">=", left=n, right=S.Call(func=S.Name("rank"))):
            return cond.op == ">=" or _at_least_one(lw, n)
        case S.Compare(op="==" | "in"):
            return _chooses(lw, cond, body)
        case S.Compare(op=">=", right=S.Number() as least) | S.Compare(op="<=", left=S.Number() as least):
            return least.value <= 0  # what is compared are probabilities, and the like
        case S.Compare():
            return False
        case S.Call(func=S.Name(name)) if name in WITNESSES:
            return name != "rank"
        case S.Call(func=S.Name(name)) if isinstance(item := lw.items.get(name), S.Def) and name not in seen:
            given = [r.values for n in item.body for r in S.walk(n) if isinstance(r, S.Return)]
            return any(_witness(lw, v, item.body, seen | {name}) for values in given for v in values)
        case S.Name(name) if name not in seen:
            return any(_witness(lw, v, body, seen | {name}) for v in _values(body, name))
    return any(map(again, children(cond)))


def _values(body: tuple[S.Stmt, ...], name: str) -> list[S.Node]:
    """What a name is set to in a body."""
    return [
        v
        for s in body
        for a in S.walk(s)
        if isinstance(a, S.Assign)
        for t, v in zip(a.targets, a.values, strict=False)
        if isinstance(t, S.Name) and t.name == name
    ]


def _chooses(lw: Lowering, cond: S.Node, body: tuple[S.Stmt, ...]) -> bool:
    """Whether cells are compared with ones that were chosen: `i == argmax(cells, by = s)`, `c.all in top(...)`."""
    todo: list[S.Node] = [cond]
    seen: set[str] = set()
    while todo:
        for n in S.walk(todo.pop()):
            if isinstance(n, S.Call) and isinstance(n.func, S.Name) and n.func.name in WITNESSES:
                return True
            if isinstance(n, S.Name) and n.name not in seen:
                seen.add(n.name)
                todo += _values(body, n.name)
    return False


# ------------------------------------------------------------ rules


Way = tuple[bool, bool]
"""What has happened on a way through a rule: accepted, emitted."""


def check_rule(lw: Lowering, rule: S.Rule, whole: bool, at: S.Verify) -> None:
    """A rule for tokens accepts or emits on every way through it; a rule for whole trees, which may accept the root, emits."""
    ended: dict[Way, S.Stmt] = {}
    left = _ways(rule.body, {(False, False)}, False, ended)
    if any(not emitted and (whole or not accepted) for accepted, emitted in left):
        what = "emit nothing" if whole else "neither accept nor emit"
        lw.fail(
            at.rule.span, f"rule `{rule.name}` may {what}, and then nothing is committed", "end it with: emit y", code="E423"
        )
    silent = next((s for (_, emitted), s in ended.items() if not emitted), None)
    if whole and silent is not None:
        lw.source = lw.items.source(rule.name) or lw.source
        lw.fail(
            silent.span,
            f"rule `{rule.name}` ends with this suite, and on this way it emits nothing",
            "draw and emit in the same suite, after the accept: y ~ p[n], emit y",
            code="E423",
        )


def _ways(body: tuple[S.Stmt, ...], ways: set[Way], decided: bool, ended: dict[Way, S.Stmt]) -> set[Way]:
    """The ways through a suite that reach its end, of those that reach its beginning; `ended` collects those that end the rule.
    decided: an accept around it has run, so that another does not end the rule (see flow.suite)."""
    for i, s in enumerate(body):
        if not ways:
            return ways
        if decides(s) and (decided or i + 1 < len(body)):
            after = _ways(body[i + 1 :], _way(s, ways, True, ended), True, ended)
            if not decided or isinstance(s, S.Emit):
                ended.update({w: s for w in after if w not in ended})
                return set()
            return after
        ways = _way(s, ways, decided, ended)
        if isinstance(s, (S.Accept, S.Emit)):
            ended.update({w: s for w in ways if w not in ended})
            return set()
    return ways


def _way(s: S.Stmt, ways: set[Way], decided: bool, ended: dict[Way, S.Stmt]) -> set[Way]:
    if isinstance(s, S.Accept):
        return {(True, emitted) for _, emitted in ways}
    if isinstance(s, S.Emit):
        return {(accepted, True) for accepted, _ in ways}
    if isinstance(s, S.If):
        out: set[Way] = set()
        for body in (*(b.body for b in s.branches), s.orelse):
            out |= _ways(body, ways, decided, ended)
        return out
    inner = getattr(s, "body", None)
    if isinstance(inner, tuple):  # a loop, which may have no iterations
        return ways | _ways(inner, ways, decided, ended)
    return ways
