"""Cache policies: which positions a call recomputes and which it reuses, carried from call to call as a memory value."""

from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.flow import branch
from decgraph.dsl.lower.state import Lowering
from decgraph.ir.types import INT
from decgraph.ir.values import Value


def declare(lw: Lowering, s: S.CachePolicy) -> None:
    """`cache model by policy`."""
    name = s.model.name if isinstance(s.model, S.Name) else ""
    model = lw.env.get(name)
    if model is None or model.type.elem != "model":
        lw.fail(s.model.span, "cache names a model: cache model by dual", code="E380")
    if model.type.of[0] != "masked":
        lw.fail(
            s.model.span,
            "a cache policy is for a masked model: a causal model's reuse is exact and the compiler's",
            code="E380",
        )
    p = s.policy.func if isinstance(s.policy, S.Call) else s.policy
    policy = lw.items.get(p.name) if isinstance(p, S.Name) else None
    if not isinstance(policy, S.Policy):
        have = [n for n in lw.items if isinstance(lw.items.get(n), S.Policy)]
        lw.fail(
            s.policy.span,
            f"no cache policy called `{getattr(p, 'name', '?')}`",
            f"policies in reach: {', '.join(have)}",
            code="E230",
        )
    written = s.policy if isinstance(s.policy, S.Call) else S.Call(s.policy, span=s.policy.span)
    spans = [q for q in policy.params if q.type is not None and q.type.name == "span"]
    others = [q for q in policy.params if q not in spans]
    args = dict(zip([q.name for q in others], written.args, strict=False))
    args.update({k.name: k.value for k in written.kwargs})
    unknown = set(args) - {q.name for q in others}
    if len(written.args) > len(others) or unknown or len(spans) > 1:
        lw.fail(
            s.policy.span,
            f"policy {policy.name} takes {', '.join(q.name for q in others) or 'no arguments'}",
            "its span is the positions that a call computes",
            code="E380",
        )
    for q in others:
        if q.name not in args and q.default is None:
            lw.fail(s.policy.span, f"policy {policy.name} needs `{q.name}`", code="E380")
    lw.policies[name] = (policy, args)
    start_memory(lw, name, model, lags(policy))


def lags(policy: S.Policy) -> int:
    """How many calls back the policy reads with settled(c, n)."""
    most = 0
    for c in S.walk(policy):
        if isinstance(c, S.Call) and isinstance(c.func, S.Name) and c.func.name == "settled" and len(c.args) == 2:
            n = c.args[1]
            most = max(most, int(n.value) if isinstance(n, S.Number) else 0)
    return min(most, MOST_LAGS)


MOST_LAGS = 8


def start_memory(lw: Lowering, name: str, model: Value, back: int) -> None:
    """The empty memory and the counts that a policy starts with."""
    canvas = next((v for v in lw.env.values() if v.type.elem == "canvas"), None)
    if canvas is None:
        lw.fail(
            lw.span,
            "a cache policy comes after the canvas it serves",
            "canvas c: length, then cache model by dual",
            code="E380",
        )
    nothing = none_of(lw, lw.one("canvas.get", canvas, field="all"))
    lw.env[f"%mem.{name}"] = empty_memory(lw, model, canvas, nothing)
    lw.env[f"%entered.{name}"] = lw.const(-1, INT)
    lw.env[f"%calls.{name}"] = lw.const(0, INT)
    lw.env[f"%calls.in.{name}"] = lw.const(0, INT)
    for n in range(back):
        lw.env[f"%mem.past{n}.{name}"] = nothing


def governed_call(lw: Lowering, model: Value, place: Value, extra: dict[str, Value], e: S.Call) -> Value:
    """A call at positions b of a model with a policy. The first clause that applies says what is recomputed and reused. A call
    on a tree of canvases sees what its canvas's next call would, and leaves the memory and the counts as they are: its
    canvases are tried, and the program goes on from one of them."""
    name = model.name
    policy, args = lw.policies[name]
    tried = place.type.elem == "tree"
    canvas = canvas_of(lw, place) if tried else place
    if "given" in extra:
        lw.fail(e.span, "this call says given =, and the model has a cache policy", "use one or the other", code="E380")
    every = lw.one("canvas.get", canvas, span=e.span, field="all")
    spans = [q.name for q in policy.params if q.type is not None and q.type.name == "span"]
    if spans and "at" not in extra:
        lw.fail(
            e.span,
            f"policy `{policy.name}` is about a span `{spans[0]}`, and this call does not say which",
            f"say where scores are wanted: {name}(..., at = b); for a whole canvas take a policy without a span",
            code="E380",
        )
    b = extra.get("at", every)
    mem, entered, calls = (lw.env[f"%{k}.{name}"] for k in ("mem", "entered", "calls"))
    start = lw.one("as_int", lw.one("positions", b, span=e.span, kind="start"), span=e.span)

    entering = lw.one("map", start, entered, span=e.span, fn="ne")
    inside = lw.one("map", entering, lw.const(0), lw.env[f"%calls.in.{name}"], span=e.span, fn="select")
    env: dict[str, Value] = {"all": every, "%here": inside}
    for q in policy.params:
        if q.type is not None and q.type.name == "span":
            env[q.name] = b
        elif q.name in args:
            env[q.name] = lw.expr(args[q.name])
    past = [lw.env[f"%mem.past{n}.{name}"] for n in range(lags(policy))]

    def clauses(at: int) -> None:
        if at >= len(policy.clauses):
            lw.env["%R"], lw.env["%G"] = every, empty_memory(lw, model, canvas, none_of(lw, every))
            return
        c = policy.clauses[at]
        lw.span = c.span
        if c.event == "otherwise":
            act(c)
            return
        cond = applies(c)
        branch(lw, cond, lambda: act(c), lambda: clauses(at + 1), ["%R", "%G"], c.span)

    def applies(c: S.Clause) -> Value:
        if c.event == "enter":
            return entering
        if c.event == "every":
            assert c.subject is not None
            n = lw.expr(c.subject)
            return lw.one("map", lw.one("map", calls, n, span=c.span, fn="mod"), lw.const(0), span=c.span, fn="eq")
        if c.event == "when":
            assert c.subject is not None
            return lw.expr(c.subject)
        lw.fail(
            c.span,
            f"`on {c.event}` is not an event a call can see",
            "on enter b, on every n, when condition, otherwise",
            code="E380",
        )

    def act(c: S.Clause) -> None:
        whole = any(a.verb == "recompute" and isinstance(a.what, S.Name) and a.what.name == "all" for a in c.actions)
        recompute: Value | None = None
        rest: S.Action | None = None
        given: Value | None = None
        for a in c.actions:
            if isinstance(a.what, S.Rest):
                rest = a
                continue
            ps = cells(a.what)
            if a.verb == "recompute":
                recompute = ps if recompute is None else lw.one("positions", recompute, ps, span=c.span, kind="union")
            elif a.verb == "reuse":
                given = ps if given is None else lw.one("positions", given, ps, span=c.span, kind="union")
        if recompute is None:
            taken = given if given is not None else none_of(lw, every)
            recompute = lw.one("positions", every, taken, span=c.span, kind="minus")
        if given is None:
            given = (
                lw.one("positions", every, recompute, span=c.span, kind="minus")
                if rest is None or (rest.verb == "reuse")
                else none_of(lw, every)
            )
        lw.env["%R"] = recompute
        # `all` is the context too. Whatever else is recomputed, be it every cell, keeps what is cached of the context.
        lw.env["%G"] = (
            empty_memory(lw, model, canvas, none_of(lw, every))
            if whole
            else lw.one("memory.only", mem, given, span=c.span, kind="only")
        )

    def cells(w: S.Expr) -> Value:
        if isinstance(w, S.FromStart):
            s = lw.expr(w.start)
            return lw.one("positions", canvas, lw.one("as_int", s, span=w.span), span=w.span, kind="from")
        return lw.expr(w)

    saved, source, history, span = lw.env, lw.source, lw.history, lw.span
    lw.env = {**env, "%R": every, "%G": mem}
    lw.history = past
    lw.source = lw.items.source(policy.name) or lw.source
    lw.callers.append((source, e.span))
    try:
        for q in policy.params:
            if q.name not in env and q.default is not None:
                lw.env[q.name] = lw.expr(q.default)
        clauses(0)
        recomputed, given = lw.env["%R"], lw.env["%G"]
    finally:
        lw.callers.pop()
        lw.env, lw.source, lw.history, lw.span = saved, source, history, span
    p = lw.emit("model.eval", model, place, recomputed, given, span=e.span, **{"with": ("at", "given")})[0]
    if tried:
        return lw.one("gather", p, b, span=e.span, axis=1) if "at" in extra else p
    lw.env[f"%mem.{name}"] = lw.emit(
        "model.memory", model, canvas, recomputed, given, span=e.span, **{"with": ("at", "given")}
    )[0]
    lw.env[f"%entered.{name}"] = start
    lw.env[f"%calls.in.{name}"] = lw.one("map", inside, lw.const(1), span=e.span, fn="add")
    if past:
        decided = lw.one("compact", every, lw.one("canvas.get", canvas, span=e.span, field="decided"), span=e.span)
        for n, v in enumerate([decided, *past[:-1]]):
            lw.env[f"%mem.past{n}.{name}"] = v
    lw.env[f"%calls.{name}"] = lw.one("map", calls, lw.const(1), span=e.span, fn="add")
    return lw.one("gather", p, b, span=e.span) if "at" in extra else p


def empty_memory(lw: Lowering, model: Value, canvas: Value, nothing: Value) -> Value:
    """The memory that holds nothing, of the context neither."""
    return lw.emit("model.memory", model, canvas, nothing, span=lw.span, **{"with": ("at",)})[0]


def canvas_of(lw: Lowering, tree: Value) -> Value:
    """The canvas that a tree of edits starts from, by its name."""
    return next(v for v in reversed(lw.env.values()) if v.type.elem == "canvas" and v.type.of[0] == tree.type.of[2])


def none_of(lw: Lowering, every: Value) -> Value:
    """No positions, of the canvas whose positions are given."""
    return lw.one("take_first", every, lw.const(0))
