"""Statements to IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower import builtins
from decgraph.dsl.lower.access import tree_value
from decgraph.dsl.lower.builtins import SEVERAL
from decgraph.dsl.lower.calls import bind
from decgraph.dsl.lower.declare import canvas_decl, model_decl, noise_decl
from decgraph.dsl.lower.expr import element_type, iterable, plain_int
from decgraph.dsl.lower.flow import EXIT, STOP, VERDICT, assigned, branch, loop, set_left, suite
from decgraph.dsl.lower.progress import check_rule, is_done, waits_for_cells
from decgraph.dsl.lower.sizes import size
from decgraph.dsl.lower.state import RULE, Lowering, show
from decgraph.dsl.lower.targets import assign_to, grow_value, remask, set_name, unmask
from decgraph.dsl.source import Span
from decgraph.ir.types import INT, NONE, Dim, Type
from decgraph.ir.values import Value


def statement(lw: Lowering, s: S.Stmt) -> None:
    """Lower one statement."""
    handler = TABLE.get(type(s))
    if handler is None:
        lw.fail(s.span, f"{type(s).__name__.lower()} does not stand here", code="E300")
    handler(lw, s)


def condition(lw: Lowering, e: S.Expr, what: str) -> Value:
    """One condition; an error at the expression where it is something else."""
    v = lw.expr(e)
    if v.type.elem != "bool" or v.type.dims:
        lw.fail(
            e.span,
            f"{what} must be one condition, got {show(v.type)}",
            "say any(...) or all(...)" if v.type.elem == "bool" else "compare it with something",
            code="E210",
        )
    return v


def number(lw: Lowering, e: S.Expr, what: str) -> Value:
    """One number; an error at the expression where it is something else."""
    v = lw.expr(e)
    if not v.type.is_number or v.type.dims:
        lw.fail(e.span, f"{what} must be a number, got {show(v.type)}", code="E210")
    return v


def bounded(lw: Lowering, s: S.While | S.Loop) -> tuple[list[Value], dict[str, Any]]:
    """The operands and attributes of a `while` that say why it ends."""
    if s.at_most is None:
        done = isinstance(s, S.While) and is_done(s.cond)
        return [], {"bound": "done" if done else "cells" if waits_for_cells(s) else "progress"}
    most = size(lw, number(lw, s.at_most, "a bound"), s.at_most.span, "the loop's bound")
    return [most], {"bound": "limit", "limited": True}


def while_(lw: Lowering, s: S.While) -> None:
    """`while cond at most k:`."""
    operands, attrs = bounded(lw, s)
    loop(lw, "while", operands, s.body, s.span, cond=lambda: condition(lw, s.cond, "a loop condition"), **attrs)


def loop_(lw: Lowering, s: S.Loop) -> None:
    """`loop at most k:`."""
    operands, attrs = bounded(lw, s)
    loop(lw, "while", operands, s.body, s.span, cond=lambda: lw.const(True), **attrs)


def repeat(lw: Lowering, s: S.Repeat) -> None:
    """`repeat n:` is a counted loop, with `while cond` a bounded one."""
    n = size(lw, number(lw, s.count, "repeat"), s.count.span, "the count of repeat")
    if s.cond is None:
        loop(lw, "for", [lw.const(0), n], s.body, s.span, bound=builtins.static(n, lw))
        return
    cond = s.cond
    loop(lw, "while", [n], s.body, s.span, cond=lambda: condition(lw, cond, "a loop condition"), bound="limit", limited=True)


def for_(lw: Lowering, s: S.For) -> None:
    """`for x in lo..hi:` and `for x in xs:`."""
    if len(s.names) != 1:
        lw.fail(s.span, "for runs over one thing", code="E300")
    var = s.names[0].name
    saved = lw.env.get(var)
    if isinstance(s.iter, S.Range):
        lo, hi = (size(lw, number(lw, e, "a range"), e.span, "an end of the range") for e in (s.iter.lo, s.iter.hi))
        loop(lw, "for", [lo, hi], s.body, s.span, enter=lambda i: set_name(lw, var, i), bound=builtins.static(hi, lw))
    else:
        xs = iterable(lw, s.iter)
        element_type(lw, xs, s.iter)
        n = lw.one("len", xs, span=s.iter.span)

        def enter(i: Value) -> None:
            lw.env[var] = lw.one("gather", xs, i, span=s.iter.span, name=var)

        loop(lw, "for", [lw.const(0), n], s.body, s.span, enter=enter, bound=xs.type.dims[0].bound if xs.type.dims else None)
    if saved is not None:
        lw.env[var] = saved


def lanes(lw: Lowering, s: S.Lanes) -> None:
    """Independent copies: a `for` whose iterations may not see each other; `name[i] = value` collects a value of each."""
    collected = [
        n.value.name
        for a in s.body
        for n in S.walk(a)
        if isinstance(n, S.Index)
        and isinstance(n.value, S.Name)
        and len(n.subs) == 1
        and isinstance(n.subs[0], S.Name)
        and n.subs[0].name == s.name
        and n.value.name not in lw.env
    ]
    for n in dict.fromkeys(collected):
        lw.env[n] = lw.emit("list", span=s.span)[0]
    for n in assigned(s.body):
        if n in lw.env and n not in collected and lw.env[n].type.elem not in ("tree",) and not n.startswith("%"):
            lw.fail(
                s.span,
                f"lanes are independent: `{n}` is carried from one to the next",
                f"collect with {n}[{s.name}] = value, or use a for loop",
                code="E304",
            )
    v = lw.expr(s.count)
    vector = bool(v.type.dims) or v.type.elem == "list"
    n_ = lw.one("len", v, span=s.count.span) if vector else v
    saved = lw.lane_var, lw.lane_names
    lw.lane_var, lw.lane_names = s.name, set(collected)

    def enter(i: Value) -> None:
        lw.env[s.name] = lw.one("gather", v, i, span=s.count.span, name=s.name) if vector else i

    loop(lw, "for", [lw.const(0), n_], s.body, s.span, enter=enter, lanes=True, bound=builtins.static(n_, lw))
    lw.lane_var, lw.lane_names = saved


def if_(lw: Lowering, s: S.If, at: int = 0) -> None:
    """The branches of an `if`, from one on."""
    b = s.branches[at]
    cond = condition(lw, b.cond, "a condition")
    rest = [c for x in s.branches[at + 1 :] for c in x.body] + list(s.orelse)
    orelse = None
    if at + 1 < len(s.branches):
        orelse = lambda: if_(lw, s, at + 1)
    elif s.orelse:
        orelse = lambda: suite(lw, s.orelse)
    branch(lw, cond, lambda: suite(lw, b.body), orelse, assigned([*b.body, *rest]), s.span)


def draft(lw: Lowering, s: S.Draft) -> None:
    """`draft t:`: a new tree, or the one a state carries, and what grows it; a carried one is stored where another block of the
    program may go on with it."""
    n, old = s.tree, s.tree in lw.env
    if n in lw.states:
        lw.env[n] = lw.one(
            "tree.continue", lw.one("state.read", span=s.span, type=lw.states[n].type, state=n), span=s.span, tree=n
        )
    elif s.of is not None:
        c = lw.expr(s.of)
        lw.env[n] = lw.one("tree.new", c, span=s.name_span or s.span, tree=n, name=n, vocab=lw.vocab)
    else:
        lw.env[n] = lw.one(
            "tree.new",
            lw.one("context", span=s.span),
            span=s.name_span or s.span,
            tree=n,
            name=n,
            vocab=lw.vocab,
            edge="step" if s.over else "token",
        )
    if old and n not in lw.states:
        outdated(lw, n, "this block of it", ("node", "dist"))
    lw.env.pop(n + ".accepted", None)
    lw.trees.append(n)
    lw.drafting.append(n)
    before, first = lw.env[n], lw.b.length
    suite(lw, s.body)
    from decgraph.ir.draft_ends import Block

    lw.module.drafts.append(Block(n, before, lw.env[n], lw.b.since(first)))
    lw.drafting.pop()
    if n in lw.continued:
        lw.emit("state.write", lw.env[n], span=s.span, state=n, type=lw.states[n].type)


def draw(lw: Lowering, s: S.Draw) -> None:
    """`x ~ q`, with the noise of the place, of `output` or of a name."""
    if len(s.targets) != 1:
        lw.fail(s.span, "a draw gives one value", code="E300")
    if isinstance(s.dist, S.Call) and isinstance(s.dist.func, S.Name) and s.dist.func.name == "beta":
        if len(s.dist.args) != 2 or s.dist.kwargs or s.stream is not None or s.using is not None:
            lw.fail(s.dist.span, "beta takes two numbers, and noise of its own", "theta ~ beta(a, b)", code="E260")
        a, b = (lw.expr(x) for x in s.dist.args)
        v = lw.one("beta", a, b, lw.noise("race", s.span), span=s.span)
        assign_to(lw, s.targets[0], v, "=")
        return
    q = lw.expr(s.dist)
    if q.type.elem not in ("dist",) and not (q.type.is_number and q.type.dims and q.type.dims[-1].kind == "vocab"):
        lw.fail(
            s.dist.span,
            f"`~` draws from a distribution, got {show(q.type)}",
            "use = to give a name to a value" if q.type.elem != "model" else "evaluate the model: target(ctx)",
            code="E210",
        )
    if s.using is not None:
        noise = lw.expr(s.using)
        if noise.type.elem != "noise":
            lw.fail(
                s.using.span, f"using needs a noise, got {show(noise.type)}", "noise g[positions, vocab]: race", code="E210"
            )
    elif s.stream is not None:
        name = s.stream.func if isinstance(s.stream, S.Call) else s.stream
        if not (isinstance(name, S.Name) and name.name == "output"):
            lw.fail(s.stream.span, "the one named stream is `output`", "x ~ p as output", code="E308")
        index = lw.expr(s.stream.args[0]) if isinstance(s.stream, S.Call) and s.stream.args else None
        if index is not None and (not index.type.is_number or len(index.type.dims) > len(q.type.dims)):
            lw.fail(
                s.stream.span,
                f"output takes the number of the draw, or one for each row, got {show(index.type)}",
                "x ~ p as output(count(c.decided))",
                code="E210",
            )
        one = len(q.type.dims) == int(q.type.is_number)
        if index is None and one and (q in lw.nowhere or q.type.is_number) and not (lw.drafting or lw.calls):
            q, index = _after_context(lw, q, s.span)
        noise = lw.noise("output", s.span, index)
    else:
        noise = lw.noise("race", s.span)
    hint = s.targets[0].name if isinstance(s.targets[0], S.Name) else ""
    assign_to(lw, s.targets[0], lw.one("draw", q, noise, span=s.span, name=hint), "=")


def _after_context(lw: Lowering, q: Value, span: Span) -> tuple[Value, Value | None]:
    """A mixture that has no place in the text, and the number of the token after the committed context as its index. One that
    is a model's own distribution on some ways gives its place up first: the index is then the same on all ways."""
    if not any(v.type.elem == "model" and v.type.of[0] == "causal" for v in lw.env.values()):
        return q, None
    if not lw.nowhere.get(q, True):
        q = lw.one("normalize", lw.one("map", q, lw.const(1.0), span=span, fn="mul"), span=span)
    return q, lw.one("ctx.get", lw.one("context", span=span), span=span, field="length", vocab=lw.vocab)


def assign(lw: Lowering, s: S.Assign) -> None:
    """Names and their values; `best` and `relax` give several."""
    if len(s.values) == 1 and isinstance(s.values[0], S.Grow):
        new = grow_value(lw, s.values[0])
        assign_to(lw, s.targets[0], new, s.op)
        return
    if len(s.targets) > 1 and len(s.values) == 1:
        v = s.values[0]
        if isinstance(v, S.Call) and isinstance(v.func, S.Name) and v.func.name in SEVERAL:
            give, usage = SEVERAL[v.func.name]
            outs = give(lw, v)
            if len(outs) != len(s.targets):
                lw.fail(s.span, f"{v.func.name}(...) gives {len(outs)} values, not {len(s.targets)}", usage, code="E260")
            for t, o in zip(s.targets, outs, strict=True):
                assign_to(lw, t, o, "=")
            return
        if isinstance(v, S.ListExpr) and len(v.items) == len(s.targets):
            for t, o in zip(s.targets, [lw.expr(i) for i in v.items]):
                assign_to(lw, t, o, "=")
            return
        lw.fail(s.span, f"{len(s.targets)} names and one value", code="E300")
    if len(s.targets) != len(s.values):
        lw.fail(s.span, f"{len(s.targets)} names and {len(s.values)} values", code="E300")
    values = [lw.expr(v) for v in s.values]
    for target, value in zip(s.targets, values, strict=True):
        assign_to(lw, target, value, s.op)


def prune(lw: Lowering, s: S.Prune) -> None:
    """`prune t to nodes`: what belongs to the tree as it was has no value afterwards."""
    t = lw.expr(s.tree)
    if t.type.elem != "tree" or not isinstance(s.tree, S.Name):
        lw.fail(s.tree.span, "prune takes a tree by its name", "prune t to nodes", code="E300")
    name = s.tree.name
    ns = lw.expr(s.to)
    lw.env[name] = lw.one("tree.keep", t, ns, span=s.span, name=name)
    outdated(lw, name, "`prune`")


def outdated(lw: Lowering, name: str, event: str, kinds: tuple[str, ...] = ()) -> None:
    """What belongs to a tree as it was has no value after an event. kinds: of its elements; () is all but trees."""
    tree = str(lw.env[name].type.of[0])
    for k, v in list(lw.env.items()):
        if k != name and v.type.elem != "tree" and (not kinds or v.type.elem in kinds) and _mentions(v.type, tree):
            del lw.env[k]
            lw.gone[k] = f"it belongs to tree `{name}` as it was before {event}; compute it again from the tree as it is now"


def _mentions(t: Type, tree: str) -> bool:
    return (t.elem == "node" and t.of[0] == tree) or any(d.of == tree and d.kind in ("nodes", "part") for d in t.dims)


def commit(lw: Lowering, s: S.Commit) -> None:
    """`commit value`; a tree that a state carries goes on from the accepted node."""
    e = s.value
    v = lw.expr(e)
    if v.type.is_token and v.type.vocab not in ("", lw.vocab):
        lw.fail(
            s.span,
            f"the text is of `{lw.vocab}`, and these are tokens of `{v.type.vocab}`",
            "retokenize(tokens, target) makes them the target's",
            code="E240",
        )
    extra: list[Value] = []
    if v.type.elem == "node" and v.type.of[0] != "ctx":
        extra = [tree_value(lw, v, s.span)]
    lw.emit("commit", v, *extra, span=s.span)
    if isinstance(e, S.Attr) and e.name == "accepted" and isinstance(e.value, S.Name):
        name = e.value.name
        if name in lw.states and lw.states[name].type.elem == "tree":
            carried = lw.env[name] if name in lw.env else lw.expr(e.value)  # a step may verify what others drafted
            t = lw.one("tree.reroot", carried, v, span=s.span, name=name)
            lw.emit("state.write", t, span=s.span, state=name, type=lw.states[name].type)


def accept(lw: Lowering, s: S.Accept) -> None:
    """`accept n`, in a rule."""
    if "%has_acc" not in lw.env:
        lw.fail(s.span, "accept stands in a rule", code="E300")
    lw.env["%acc"] = lw.expr(s.value)
    lw.env["%has_acc"] = lw.const(True)


def emit(lw: Lowering, s: S.Emit) -> None:
    """`emit y`, in a rule."""
    if "%has_emit" not in lw.env:
        lw.fail(s.span, "emit stands in a rule", code="E300")
    lw.env["%emit"] = lw.token(lw.expr(s.value))
    lw.env["%has_emit"] = lw.const(True)


def return_(lw: Lowering, s: S.Return) -> None:
    """`return values`: of a helper its value, of an algorithm its results."""
    values = [lw.expr(v) for v in s.values]
    if lw.calls and "%ret" in lw.env:
        if len(values) != 1:
            values = [lw.one("list", *values, span=s.span)]
        lw.env["%ret"] = values[0]
        set_left(lw, EXIT)
        return
    extra: list[Value] = []
    values = [lw.token(v) for v in values]
    for v in values:
        inner = v.type
        while inner.elem == "list" and isinstance(inner.of[0], Type):
            inner = inner.of[0]
        if not (inner.is_token or inner.elem in ("int", "path", "node", "any", "list")):
            lw.fail(
                s.span,
                f"return takes tokens, paths or nodes, the best first, got {show(v.type)}",
                "return best, second",
                code="E210",
            )
        if v.type.elem == "node" and v.type.of[0] != "ctx" and not extra:
            extra = [tree_value(lw, v, s.span)]
    lw.emit("return", *values, *extra, span=s.span, has_tree=bool(extra))
    if EXIT in lw.env:
        set_left(lw, EXIT)


def break_(lw: Lowering, s: S.Break) -> None:
    """`break` or `break if cond`."""
    if STOP not in lw.env:
        lw.fail(s.span, "break stands in a loop", code="E300")
    if s.cond is not None:
        lw.env[STOP] = condition(lw, s.cond, "break if")
    else:
        set_left(lw, STOP)


CLAIMS = {
    "keep": "claim that it `keeps support of target`; in Python keeps_support(target)",
    "refine": 'claim that it `refines autoregressive(target) in tokens`; in Python refines(..., in_="tokens")',
    "ensure": "claim that it `ensures p[x] > 0`; in Python ensures(p[x] > 0)",
    "note": "a note has a name: `note taken = len(t.accepted)`",
    "print": "note it: `note name = value`, in Python note(name=value); `decgraph run` and `decgraph trace` show it",
    "at_most": 'claim `at most 1 calls a token` or `at most n remasked`; in Python at_most(1, "calls", a="token")',
}
"""What to try where a call seems to be meant as a claim, or as a note, by how its name begins."""


def do(lw: Lowering, s: S.Do) -> None:
    """A call for its effect: `c.extend(k)`, `index.learn(tokens)`."""
    f = s.call.func
    if isinstance(f, S.Attr) and f.name == "extend" and isinstance(f.value, S.Name):
        lw.env[f.value.name] = lw.expr(s.call)
        return
    if isinstance(f, S.Attr) and f.name == "learn" and isinstance(f.value, S.Name):
        values = [lw.expr(a) for a in s.call.args]
        v = lw.one("index.learn", lw.expr(f.value), *values, span=s.span)
        assign_to(lw, f.value, v, "=")
        return
    advice = next((text for word, text in CLAIMS.items() if isinstance(f, S.Name) and f.name.startswith(word)), "")
    other = "give its value a name, or grow, commit or return it"
    lw.fail(s.span, "this call does nothing on its own", advice or other, code="E300")


def note(lw: Lowering, s: S.Note) -> None:
    """`note name = value`. Its draws and calls have sites of their own, so that those of the program stay what they are."""
    sites, prefix = lw.sites, lw.prefix
    lw.sites, lw.prefix = {}, [*prefix, f"{s.name}@{s.span.start}"]
    v = plain_int(lw, lw.expr(s.value))
    token: dict[str, Any] = {"token": True} if v.type.is_token else {}
    lw.emit("note", v, span=s.value.span, name=s.name, **token)
    lw.sites, lw.prefix = sites, prefix


def across(lw: Lowering, s: S.Across) -> None:
    """`across batch:`, for which the sequences of a batch wait for each other."""
    if s.name != "batch":
        lw.fail(s.span, "across what? The one barrier is `across batch:`", code="E300")
    saved, lw.in_batch = lw.in_batch, True
    suite(lw, s.body)
    lw.in_batch = saved


def verify(lw: Lowering, s: S.Verify) -> None:
    """`verify t by rule against evidence`: the rule's body becomes the region of a `tree.walk`."""
    tree = lw.expr(s.tree)
    if tree.type.elem != "tree":
        lw.fail(s.tree.span, f"verify takes a tree, got {show(tree.type)}", code="E210")
    evidence = lw.expr(s.against)
    rule_name = s.rule.func if isinstance(s.rule, S.Call) else s.rule
    rule = lw.items.get(rule_name.name) if isinstance(rule_name, S.Name) else None
    if not isinstance(rule, S.Rule):
        known = [n for n in lw.items if isinstance(lw.items.get(n), S.Rule)]
        lw.fail(
            s.rule.span,
            f"no rule called `{getattr(rule_name, 'name', '?')}`",
            did_you_mean(getattr(rule_name, "name", ""), known, f"rules in reach: {', '.join(sorted(known))}"),
            code="E230",
        )
    given = [lw.expr(a) for a in s.rule.args] if isinstance(s.rule, S.Call) else []
    kwargs = {k.name: lw.expr(k.value) for k in s.rule.kwargs} if isinstance(s.rule, S.Call) else {}
    if len(rule.params) < 2:
        lw.fail(
            s.rule.span, f"rule `{rule.name}` takes no evidence and children", "rule r(p: dist, children: draws):", code="E260"
        )
    whole = rule.params[0].type is not None and rule.params[0].type.name == "tree"
    if tree.type.of[1] != "edit":
        check_rule(lw, rule, whole, s)
    if whole:
        _needs_every_node(lw, rule, s)
    tree_name = str(tree.type.of[0])
    i = Value(INT, "depth")
    if whole:
        first = Value(tree.type, rule.params[0].name)
        second = Value(evidence.type, rule.params[1].name)
    else:
        t = evidence.type
        row = t.of[0] if t.elem == "list" else (t.drop() if t.dims else None)
        if not isinstance(row, Type):
            lw.fail(
                s.against.span,
                f"verify ... against needs evidence at every node, got {show(t)}",
                "evaluate the model at the tree: target(t)",
                code="E210",
            )
        first = Value(row, rule.params[0].name)
        edge = "edit" if tree.type.of[1] == "edit" else "draw"
        second = Value(Type(edge, (tree.type.of[2],), (Dim("k"),)), rule.params[1].name)
    extra = bind(lw, rule, rule.params[2:], given, kwargs, s.rule.span)
    seen = {rule.params[0].name: first, rule.params[1].name: second, **extra}
    with lw.effectless(RULE), lw.called(rule.name, seen, s.span):
        if whole:
            lw.trees.append(rule.params[0].name)
            lw.env[tree_name] = first
            for (t_, c), ty in list(lw.columns.items()):
                if t_ == tree_name:
                    lw.columns[(rule.params[0].name, c)] = ty
        lw.b.open([i, first, second])
        lw.counters.append(i)
        for flag in ("%has_acc", "%has_emit", EXIT):
            lw.env[flag] = lw.const(False)
        for value in ("%acc", "%emit"):
            lw.env[value] = lw.const(None, NONE)
        lw.exits = [VERDICT]
        suite(lw, rule.body)
        region = lw.b.close([lw.env[n] for n in VERDICT])
    path = lw.emit(
        "tree.walk",
        tree,
        evidence,
        regions=(region,),
        span=s.span,
        names=("accepted",),
        scope="tree" if whole else "node",
        rule=rule.name,
        vocab=lw.vocab,
    )[0]
    key = s.tree.name if isinstance(s.tree, S.Name) else tree_name
    lw.env[key + ".accepted"] = path


def _needs_every_node(lw: Lowering, rule: S.Rule, s: S.Verify) -> None:
    """A rule of whole trees reads the evidence of any node, so a call on named nodes, which leaves those out that were grown
    since, does not serve it. A rule of one node's children ends where there is no evidence."""
    asked = s.against.args[0] if isinstance(s.against, S.Call) and s.against.args else None
    if asked is None or asked == s.tree or lw.expr(asked).type.elem != "node":
        return
    lw.fail(
        asked.span,
        f"rule `{rule.name}` reads the evidence after every node, and this call gives it after some nodes alone",
        "evaluate the whole tree, target(t), or take a rule of one node's children, as `rejection` and `match` are",
        code="E210",
    )


def cache_policy(lw: Lowering, s: S.CachePolicy) -> None:
    """Name the policy of a model's memory, which few programs have."""
    from decgraph.dsl.lower.policies import declare

    declare(lw, s)


TABLE: dict[type, Callable[..., object]] = {
    S.While: while_,
    S.Loop: loop_,
    S.Repeat: repeat,
    S.For: for_,
    S.Lanes: lanes,
    S.If: if_,
    S.Draft: draft,
    S.Draw: draw,
    S.Assign: assign,
    S.Grow: grow_value,
    S.Verify: verify,
    S.Prune: prune,
    S.Commit: commit,
    S.Accept: accept,
    S.Emit: emit,
    S.Return: return_,
    S.Break: break_,
    S.Unmask: unmask,
    S.Remask: remask,
    S.Do: do,
    S.Across: across,
    S.Note: note,
    S.Canvas: canvas_decl,
    S.ModelDecl: model_decl,
    S.NoiseDecl: noise_decl,
    S.CachePolicy: cache_policy,
}
