"""Structured control: carried variables, early exits, loops, branches and lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.sizes import nested
from decgraph.dsl.lower.state import Lowering, show
from decgraph.dsl.source import Span
from decgraph.ir.types import INT, Type, join
from decgraph.ir.values import Region, Value

T = TypeVar("T")
STOP, EXIT = "%stop", "%exit"


LEAVES: dict[type[S.Node], tuple[str, ...]] = {
    S.Accept: ("%acc", "%has_acc", EXIT, STOP),
    S.Emit: ("%emit", "%has_emit", EXIT, STOP),
    S.Return: ("%ret", EXIT, STOP),
    S.Break: (STOP,),
}
"""What a statement that leaves its suite sets."""
VERDICT = ("%has_acc", "%acc", "%has_emit", "%emit")
"""What a rule yields."""


def assigned(body: Iterable[S.Node], drafting: str = "%tree") -> list[str]:
    """Names that a suite may give a new value, in order of first appearance (trees that grow and canvases included).
    drafting: the tree that is being drafted around it."""
    out: dict[str, None] = {}
    for n in body:
        found: list[str] = []
        match n:
            case S.Draw():
                found = [_root(t) for t in n.targets]
            case S.Assign():
                found = [*(_root(t) for t in n.targets), *(drafting for v in n.values if isinstance(v, S.Grow))]
            case S.Grow():
                found = [drafting]
            case S.Verify():
                found = [_root(n.tree), *([n.tree.name + ".accepted"] if isinstance(n.tree, S.Name) else [])]
            case S.Prune():
                found = [_root(n.tree)]
            case S.Unmask() | S.Remask():
                found = [_root(n.target)]
            case S.Canvas() | S.ModelDecl() | S.NoiseDecl():
                found = [n.name]
            case S.Do(call=S.Call(func=S.Attr(value=value))):
                found = [_root(value)]
            case S.Draft():
                found = [n.tree, *assigned(n.body, n.tree)]
            case S.While() | S.Loop() | S.Repeat() | S.For() | S.Lanes() | S.Across():
                found = [name for name in assigned(n.body, drafting) if name != STOP]
            case S.If():
                found = assigned([c for suite in (*(b.body for b in n.branches), n.orelse) for c in suite], drafting)
            case _:
                found = list(LEAVES.get(type(n), ()))
        out.update(dict.fromkeys(name for name in found if name))
    return list(out)


def _root(e: S.Node) -> str:
    """The name that an assignment to a part of it changes."""
    while isinstance(e, (S.Attr, S.Index)):
        e = e.value
    return e.name if isinstance(e, S.Name) else ""


def may_exit(n: S.Node) -> bool:
    """Whether a statement may leave the suite it stands in (break, accept, emit, return), not counting inner loops' breaks."""
    if isinstance(n, (S.Break, S.Accept, S.Emit, S.Return)):
        return True
    if isinstance(n, S.If):
        return any(may_exit(c) for b in n.branches for c in b.body) or any(may_exit(c) for c in n.orelse)
    if isinstance(n, (S.While, S.Loop, S.Repeat, S.For, S.Lanes, S.Across, S.Draft)):
        return any(_leaves(c) for c in n.body)
    return False


def _leaves(n: S.Node) -> bool:
    return any(isinstance(c, (S.Accept, S.Emit, S.Return)) for c in S.walk(n)) or (
        isinstance(n, S.Draft) and any(may_exit(c) for c in n.body)
    )


def carried_names(lw: Lowering, names: Iterable[str]) -> list[str]:
    """Of the names that a suite assigns, those that have a value before it; memories of cache policies too."""
    out = [n for n in lw.env if n.startswith(("%mem.", "%entered.", "%calls."))]
    for n in names:
        n = lw.drafting[-1] if n == "%tree" and lw.drafting else n
        if n in lw.env and n not in out and n not in lw.states:
            out.append(n)
        if n in lw.trees and n in lw.states and n in lw.env and n not in out:
            out.append(n)
    return out


def region(
    lw: Lowering, args: list[Value], names: list[str], types: list[Type], fill: Callable[[list[Value]], list[Value]]
) -> tuple[Region, dict[str, Value]]:
    """Lower a region whose carried variables are `names`: `fill` gets the fresh arguments and returns what to yield first."""
    saved, counters = dict(lw.env), list(lw.counters)
    fresh = [Value(t, n) for n, t in zip(names, types)]
    lw.b.open([*args, *fresh])
    lw.env.update(zip(names, fresh))
    first = fill(fresh)
    region_ = lw.b.close([*first, *(lw.env[n] for n in names)])
    inner = lw.env
    lw.env, lw.counters = saved, counters
    return region_, inner


def stable(lw: Lowering, names: list[str], build: Callable[[list[Type]], tuple[T, list[Type]]], span: Span) -> T:
    """Types of carried variables that hold before and after the body: widen until they do."""
    types = [lw.env[n].type for n in names]
    for attempt in range(6):
        depth = lw.b.depth
        built, after = build(types)
        wider = []
        for name, a, b in zip(names, types, after):
            j = join(a, b)
            if j is None:
                lw.fail(
                    span,
                    f"`{name}` is {show(a)} before the loop and {show(b)} after its body",
                    "give it one type: start it with a value like the ones assigned in the loop",
                    code="E220",
                )
            wider.append(_unbounded(a, j) if attempt >= 2 else j)
        if wider == types:
            return built
        types = wider
        lw.b.unwind(depth)
    lw.fail(span, "the types of the variables carried through this loop never become stable", code="E220")


def _unbounded(a: Type, b: Type) -> Type:
    """b, without the bounds that keep growing from iteration to iteration."""
    if len(a.dims) != len(b.dims):
        return b
    return b.with_dims(tuple(y if x.bound == y.bound else replace(y, bound=None) for x, y in zip(a.dims, b.dims, strict=True)))


def suite(lw: Lowering, body: tuple[S.Stmt, ...]) -> None:
    """Lower statements in order; what follows one that may leave the suite runs only if it did not. What follows a decision
    of a rule runs: `accept n`, `y ~ p[n]`, `emit y` is how rules are written, and the rule ends with this suite."""
    for i, stmt in enumerate(body):
        rest = body[i + 1 :]
        lw.span = stmt.span
        if decides(stmt) and (rest or lw.decided):
            _after_decision(lw, stmt, rest)
            return
        lw.statement(stmt)
        if isinstance(stmt, (S.Accept, S.Emit)):
            set_left(lw, EXIT)
        if not rest or not may_exit(stmt):
            continue
        _unless_left(lw, stmt, rest)
        return


def _after_decision(lw: Lowering, stmt: S.Stmt, rest: tuple[S.Stmt, ...]) -> None:
    """A statement that decides on every way, and the rest of its suite. A later accept replaces the first one and does not end
    the rule by itself; an emit does, wherever it stands below."""
    outer, lw.decided = lw.decided, True
    lw.statement(stmt)
    if rest and isinstance(stmt, S.If) and may_exit(stmt):
        _unless_left(lw, stmt, rest)
    elif rest:
        suite(lw, rest)
    lw.decided = outer
    if not outer or isinstance(stmt, S.Emit):
        set_left(lw, EXIT)


def _unless_left(lw: Lowering, stmt: S.Stmt, rest: tuple[S.Stmt, ...]) -> None:
    flags = [lw.env[f] for f in (STOP, EXIT) if f in lw.env]
    left = flags[0] if len(flags) == 1 else lw.one("map", *flags, fn="or", span=stmt.span)
    go_on = lw.one("map", left, fn="not", span=stmt.span)
    in_loop = bool(lw.exits) and lw.exits[-1] != VERDICT
    otherwise = partial(_break, lw) if in_loop and _by_flag(stmt) else None
    branch(lw, go_on, partial(suite, lw, rest), otherwise, assigned(rest), stmt.span)


def set_left(lw: Lowering, flag: str) -> None:
    """Say by a flag that this way leaves its loop (STOP), or its rule or helper (EXIT)."""
    lw.env[flag] = lw.const(True)
    lw.exited.add(lw.env[flag])


def _end_if_left(lw: Lowering) -> None:
    """At the end of a branch: if all of it leaves, the op that ends the rule or the loop around it."""
    exits, stops = (lw.env.get(flag) in lw.exited for flag in (EXIT, STOP))
    if exits and lw.exits[:1] == [VERDICT]:
        lw.emit("verdict", *(lw.env[n] for n in VERDICT))
    elif (exits or stops) and lw.exits:
        _break(lw)


def _break(lw: Lowering) -> None:
    lw.emit("break", *(lw.env[n] for n in lw.exits[-1]))


def _by_flag(n: S.Node) -> bool:
    """Whether a statement that may leave its suite does so on a way that is no branch of its own."""
    if isinstance(n, S.If):
        return any(_by_flag(c) for part in (*(b.body for b in n.branches), n.orelse) for c in part)
    return not isinstance(n, (S.Accept, S.Emit, S.Return)) and not (isinstance(n, S.Break) and n.cond is None) and may_exit(n)


def decides(n: S.Node) -> bool:
    """Whether a statement of a rule accepts or emits on every way through it, without a loop."""
    if isinstance(n, (S.Accept, S.Emit)):
        return True
    return (
        isinstance(n, S.If)
        and bool(n.orelse)
        and all(any(decides(c) for c in body) for body in (*(b.body for b in n.branches), n.orelse))
    )


def branch(
    lw: Lowering, cond: Value, then: Callable[[], None], orelse: Callable[[], None] | None, names: list[str], span: Span
) -> None:
    """An `if`: variables that exist before, or that both branches define, have a value after it."""
    before = carried_names(lw, names)
    saved = lw.env
    parts: list[Region] = []
    inner: list[dict[str, Value]] = []
    for body in (then, orelse or (lambda: None)):
        lw.env = dict(saved)
        lw.b.open()
        body()
        _end_if_left(lw)
        inner.append(lw.env)
        parts.append(lw.b.close())
    lw.env = saved
    for n in inner[0]:
        if n in inner[1] and inner[0][n].type.is_token != inner[1][n].type.is_token:
            for way in inner:
                way[n] = lw.token(way[n])
    new: list[str] = []
    for n in dict.fromkeys([*inner[0], *inner[1]]):
        if n in saved or n.startswith("%"):
            continue
        if n not in inner[0] or n not in inner[1]:
            lw.gone[n] = "it is defined in one branch only; give it a value before the `if`"
        elif join(inner[0][n].type, inner[1][n].type) is None:
            lw.gone[n] = f"it is {show(inner[0][n].type)} in one branch and {show(inner[1][n].type)} in the other"
        else:
            new.append(n)
    for n in before:
        if join(inner[0][n].type, inner[1][n].type) is None:
            lw.fail(
                span,
                f"`{n}` is {show(inner[0][n].type)} in one branch and {show(inner[1][n].type)} in the other",
                "give it one type in both",
                code="E220",
            )
    keep = before + new
    regions = tuple(Region(r.args, r.ops, tuple(e[n] for n in keep)) for r, e in zip(parts, inner))
    values = lw.emit("if", cond, regions=regions, span=span, names=tuple(keep))
    lw.env.update(zip(keep, values))


def loop(
    lw: Lowering,
    opcode: str,
    operands: list[Value],
    body: tuple[S.Stmt, ...],
    span: Span,
    *,
    enter: Callable[[Value], object] = lambda i: None,
    cond: Callable[[], Value] | None = None,
    **attrs: object,
) -> None:
    """A `for` or `while` over a suite. `enter` binds what the body sees of the counter; `cond` lowers a while's condition."""
    names = carried_names(lw, assigned(body))
    names = [n for n in names if n not in (STOP,)]
    stops = any(may_exit(s) for s in body)
    site = lw.site(span, "loop")

    def build(types: list[Type]) -> tuple[list[Region], list[Type]]:
        regions = []
        if cond is not None:
            test = cond
            region_, _ = region(lw, [Value(INT, "i")], names, types, lambda fresh: [test()])
            regions.append(Region(region_.args, region_.ops, region_.yields[:1]))
        i = Value(INT, "i")

        def fill(fresh: list[Value]) -> list[Value]:
            lw.counters.append(i)
            if stops:
                lw.env[STOP] = lw.const(False)
            enter(i)
            lw.exits.append(tuple(names))
            suite(lw, body)
            lw.exits.pop()
            if not stops:
                return []
            flags = [lw.env[f] for f in (STOP, EXIT) if f in lw.env]
            return [flags[0] if len(flags) == 1 else lw.one("map", *flags, fn="or", span=span)]

        region_, _ = region(lw, [i], names, types, fill)
        regions.append(region_)
        after = [v.type for v in region_.yields[1 if stops else 0 :]]
        return regions, after

    outer_stop = lw.env.get(STOP)
    if opcode == "for":
        operands = [operands[0], nested(lw, operands[1], span)]
        lw.counts.append(operands[1])
    regions = stable(lw, names, build, span)
    if opcode == "for":
        lw.counts.pop()
    if outer_stop is not None:
        lw.env[STOP] = outer_stop
    inits = [lw.env[n] for n in names]
    finals = lw.emit(
        opcode, *operands, *inits, regions=tuple(regions), span=span, names=tuple(names), stops=stops, site=site, **attrs
    )
    lw.env.update(zip(names, finals))
