"""Calls: by what a name stands for, methods, helpers (`def`, inlined), externs, sub-runs."""

from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower import builtins
from decgraph.dsl.lower.access import called, tree_value
from decgraph.dsl.lower.declare import at_most, type_of
from decgraph.dsl.lower.flow import EXIT, suite
from decgraph.dsl.lower.model_calls import (
    memory_call,
    merged,
    model_call,
    place_of,
    second_context,
    skipped,
    states_call,
    with_norm,
)
from decgraph.dsl.lower.state import MAX_CALL_DEPTH, UNTIL, Lowering, show
from decgraph.dsl.source import Span
from decgraph.ir.types import NONE, Type
from decgraph.ir.values import Value


def call(lw: Lowering, e: S.Call) -> Value:
    """`f(args)`: a model, an index, a helper, an extern or a builtin, by what the name stands for."""
    f = e.func
    if isinstance(f, S.Name):
        v = lw.env.get(f.name)
        if v is None and f.name in lw.states:
            v = lw.expr(f)
        if v is not None:
            if v.type.elem == "model":
                return model_call(lw, v, e)
            if v.type.elem == "index":
                args = [tokens_to(lw, lw.expr(a), e.span) for a in e.args]
                return lw.one("index.ask", v, *args, span=e.span, what="score", named=())
            lw.fail(f.span, f"`{f.name}` is {show(v.type)} and cannot be called", code="E231")
        item = lw.items.get(f.name)
        if isinstance(item, S.Def):
            return inline(lw, item, e)
        if isinstance(item, S.Extern):
            return extern(lw, item, e)
        if f.name in builtins.TABLE:
            return builtins.TABLE[f.name](lw, e)
        if item is not None:
            lw.fail(
                f.span,
                f"`{f.name}` is {'an algorithm' if isinstance(item, S.Algorithm) else 'a rule or policy'}",
                f"run an algorithm with: run {f.name}(...) from ctx until done at most n"
                if isinstance(item, S.Algorithm)
                else f"use a rule with: verify t by {f.name} against target(t)",
                code="E231",
            )
        lw.fail(
            f.span,
            f"nothing called `{f.name}` can be called here",
            did_you_mean(f.name, [*builtins.TABLE, *lw.items, *lw.env], "define it with `def`, or hand it over with `extern`"),
            code="E230",
        )
    if isinstance(f, S.Attr):
        return method(lw, f, e)
    v = lw.expr(f)
    if v.type.elem == "model":
        return model_call(lw, v, e)
    lw.fail(e.span, "only names and methods can be called", code="E231")


def method(lw: Lowering, f: S.Attr, e: S.Call) -> Value:
    """`value.name(args)`."""
    v = lw.expr(f.value)
    t, n = v.type, f.name
    if t.elem == "model":
        if n in ("memory", "attention"):
            return memory_call(lw, v, e, n)
        if n == "heads":
            if "heads" not in str(t.of[3]):
                lw.fail(
                    f.name_span or f.span, f"`{v.name}` has no heads", f"declare them: {v.name}: causal with heads", code="E240"
                )
            return model_call(lw, v, e, part="heads")
        if n == "states" and t.of[0] in ("features", "masked") and len(e.args) == 1:
            return states_call(lw, v, *place_of(lw, v, e.args[0]), e)
        if n == "skip" and e.kwargs:
            return skipped(lw, v, e)
        if n in ("head", "upto") and e.kwargs:
            return with_norm(lw, v, _one(lw, e, n), e, n)
        if n == "since":
            if len(e.args) != 2 or e.kwargs:
                lw.fail(e.span, ".since takes a layer and states", "target.since(2, adapter(target.upto(2)))", code="E260")
            return lw.one("model.derive", v, *map(lw.expr, e.args), span=e.span, how="since")
        if n == "each":
            if len(e.args) != 1:
                lw.fail(e.span, ".each takes the tokens of a second context", "target.each(tokens)", code="E260")
            tokens = lw.expr(e.args[0])
            if tokens.type.elem == "node" and tokens.type.of[0] == "ctx":
                tokens = lw.one("ctx.get", tokens, span=e.span, field="path", vocab=lw.vocab)
            if t.of[0] == "trunk":
                return states_call(lw, v, tokens, None, e, each=True)
            return second_context(lw, v, tokens, e, each=True)
    if t.elem == "automaton" and n in ARITY:
        if len(e.args) != ARITY[n] or e.kwargs:
            lw.fail(
                e.span,
                f".{n} takes {ARITY[n]} argument{'s' if ARITY[n] > 1 else ''}",
                builtins.METHODS["automaton"],
                code="E260",
            )
        return lw.one("automaton", v, *[lw.expr(a) for a in e.args], span=e.span, what=n)
    if t.elem == "index" and n in ("has", "matched", "after", "path", "get"):
        return asked(lw, v, e, n)
    if t.elem == "node" and t.of[0] == "ctx" and n == "last":
        return lw.one("ctx.get", v, _one(lw, e, n), span=e.span, field="last", vocab=lw.vocab)
    if t.elem == "memory" and n == "scores":
        (b,), kw = builtins.args(lw, e, 1, kw=("at",))
        return lw.one("memory.scores", v, b, *kw.values(), span=e.span)
    if t.elem == "memory" and n == "merged":
        return merged(lw, v, e)
    if n in ONE.get(t.elem, {}):
        opcode, attribute = ONE[t.elem][n]
        return lw.one(opcode, v, _one(lw, e, n), span=e.span, **({attribute: n} if attribute else {}))
    advice = called(f, v) or builtins.METHODS.get(t.elem, "")
    lw.fail(f.name_span or f.span, f"{show(t)} has no method `{n}`", advice, code="E240")


PICKS = ("first", "last", "likeliest")


def tokens_to(lw: Lowering, place: Value, span: Span) -> Value:
    """The tokens that an index reads: for a node of a tree the text up to it, else the place itself."""
    if place.type.elem != "node" or place.type.of[0] == "ctx" or place.type.dims:
        return place
    tree = tree_value(lw, place, span)
    token = lw.one("tree.get", tree, span=span, column="token")
    way = lw.one("tree.nodes", tree, place, span=span, which="path")
    drafted = lw.one("slice", lw.one("gather", token, way, span=span), lw.const(1), span=span, has_lo=True, has_hi=False)
    text = lw.one("ctx.get", lw.one("context", span=span), span=span, field="path", vocab=lw.vocab)
    return lw.one("concat", text, drafted, span=span)


def asked(lw: Lowering, index: Value, e: S.Call, what: str) -> Value:
    """`seen.path(ctx, at_least = 2, at_most = 8, pick = "first")`, `seen.has(xs)`: an index, looked up."""
    args = [tokens_to(lw, _one(lw, e, what), e.span)]
    for k in e.kwargs:
        if k.name not in {"path": ("at_least", "at_most", "pick"), "after": ("at_most",)}.get(what, ()):
            hint = 'seen.path(ctx, at_least = 2, at_most = 8, pick = "first")'
            lw.fail(k.span, f".{what} does not take {k.name} =", hint, code="E260")
        if k.name == "pick" and not (isinstance(k.value, S.String) and k.value.value in PICKS):
            lw.fail(k.value.span, "pick = is " + " or ".join(f'"{x}"' for x in PICKS), 'pick = "first"', code="E260")
    kw = {k.name: lw.expr(k.value) for k in e.kwargs}
    return lw.emit("index.ask", index, *args, *kw.values(), span=e.span, what=what, named=tuple(kw))[0]


_DERIVED = dict.fromkeys(
    ("exit", "skip", "upto", "quantized", "parallel", "expert", "head", "speaking"), ("model.derive", "how")
)
ONE: dict[str, dict[str, tuple[str, str]]] = {
    "model": {**_DERIVED, "embed": ("model.embed", "")},
    "memory": {
        "only": ("memory.only", "kind"),
        "without": ("memory.only", "kind"),
        "join": ("memory.join", ""),
        "quantized": ("memory.quantized", ""),
    },
    "canvas": {"extend": ("canvas.extend", "")},
}
"""Methods of one argument: the op, and its attribute that is the method's name."""

ARITY = {"allowed": 1, "step": 2, "state": 1, "run": 2, "weights": 1}


def _one(lw: Lowering, e: S.Call, what: str) -> Value:
    """The single argument of a method."""
    if len(e.args) != 1:
        lw.fail(e.span, f".{what} takes 1 argument, got {len(e.args)}", code="E260")
    return lw.expr(e.args[0])


def bind(
    lw: Lowering, item: S.Def | S.Rule, params: tuple[S.Param, ...], args: list[Value], kwargs: dict[str, Value], span: Span
) -> dict[str, Value]:
    """Arguments by parameter name; defaults for what is missing."""
    if len(args) > len(params):
        lw.fail(span, f"{item.name} takes {len(params)} arguments, got {len(args)}", code="E260")
    out: dict[str, Value] = {}
    for p, v in zip(params, args):
        out[p.name] = v
    for k, v in kwargs.items():
        if k not in {p.name for p in params} or k in out:
            lw.fail(span, f"{item.name} has no parameter `{k}` left to set", code="E260")
        out[k] = v
    for p in params:
        if p.name in out:
            out[p.name] = check_arg(lw, item, p, out[p.name], span)
        elif p.default is not None:
            out[p.name] = lw.expr(p.default)
        else:
            lw.fail(span, f"{item.name} needs `{p.name}`", f"it takes {', '.join(x.name for x in params)}", code="E260")
    return out


ACCEPTS: dict[str, tuple[str, ...]] = {
    "prob": ("prob", "real", "int"),
    "float": ("prob", "real", "int"),
    "int": ("int", "position"),
    "bool": ("bool",),
    "dist": ("dist", "prob", "real"),
    "token": ("token", "draw", "int"),
    "draws": ("draw", "edit"),
    "tree": ("tree",),
    "node": ("node",),
    "nodes": ("node",),
    "positions": ("position",),
    "span": ("position",),
    "canvas": ("canvas",),
    "text": ("text",),
    "edit": ("edit",),
    "edits": ("edit", "list"),
    "path": ("path", "list"),
    "memory": ("memory",),
    "causal": ("model",),
    "masked": ("model",),
    "features": ("model",),
    "suffixes": ("index",),
    "ngrams": ("index",),
    "set": ("set", "int"),
    "automaton": ("automaton",),
    "topology": ("topology",),
}


def check_arg(lw: Lowering, item: S.Item, p: S.Param, v: Value, span: Span) -> Value:
    """An argument, a text for a token as the token. Refuses one of another kind than its parameter's."""
    if p.type is None:
        return v
    v = lw.token(v) if p.type.name == "token" else v
    want = ACCEPTS.get(p.type.name)
    if v.type.elem == "model" and p.type.name in ("causal", "masked", "features") and v.type.of[0] != p.type.name:
        lw.fail(span, f"{item.name}: `{p.name}` is a {p.type.name} model, got a {v.type.of[0]} model", code="E210")
    if want is not None and v.type.elem not in (*want, "any"):
        lw.fail(span, f"{item.name}: `{p.name}` is {p.type.name}, got {show(v.type)}", code="E210")
    return v


def inline(lw: Lowering, item: S.Def, e: S.Call) -> Value:
    """A call of a `def`: its body, lowered here with its parameters bound."""
    if item.name in lw.calls or len(lw.calls) >= MAX_CALL_DEPTH:
        lw.fail(e.span, f"`{item.name}` calls itself", "helpers are unrolled where they are used; use a loop", code="E390")
    args = [lw.expr(a) for a in e.args]
    kwargs = {k.name: lw.expr(k.value) for k in e.kwargs}
    env = bind(lw, item, item.params, args, kwargs, e.span)
    hidden = {k: v for k, v in lw.env.items() if v.type.elem == "tree" and k not in env}
    with lw.called(item.name, {**hidden, **env}, e.span):
        lw.env["%ret"] = lw.const(None, NONE)
        lw.env[EXIT] = lw.const(False)
        suite(lw, item.body)
        out = lw.env["%ret"]
        if out.type == NONE:
            lw.fail(e.span, f"`{item.name}` returns nothing", "end it with: return value", code="E390")
        return out


def extern(lw: Lowering, item: S.Extern, e: S.Call) -> Value:
    """A call of a function that the caller supplies: arguments and result are checked by its declaration."""
    args = [lw.expr(a) for a in e.args]
    params = tuple(type_of(lw, p.type, p.name) for p in item.params if p.type is not None)
    returns = at_most(type_of(lw, item.returns, item.name), item.returns)
    args = [lw.token(v) if want.elem == "token" else v for v, want in zip(args, params)] + args[len(params) :]
    if len(args) != len(params) or e.kwargs:
        lw.fail(e.span, f"{item.name} takes {len(params)} arguments, got {len(args)}", code="E210")
    for want, got in zip(params, args, strict=True):
        if want.elem != got.type.elem and not (want.is_number and got.type.is_number):
            lw.fail(
                e.span,
                f"{item.name} takes {show(want)}, got {show(got.type)}",
                "make text with text_of(...)" if want.elem == "text" else "",
                code="E210",
            )
    lw.used.add(item.name)
    return lw.emit("extern", *args, span=e.span, extern=item.name, params=params, returns=returns)[0]


def run_arguments(lw: Lowering, callee: S.Algorithm, e: S.Call) -> tuple[list[Value], list[str]]:
    """The values that a sub-run is given, and the names of its parameters that they are for."""
    if len(e.args) > len(callee.params):
        lw.fail(e.span, f"{callee.name} takes {len(callee.params)} arguments, got {len(e.args)}", code="E260")
    given = [(p.name, a) for p, a in zip(callee.params, e.args)] + [(k.name, k.value) for k in e.kwargs]
    params, names = {p.name: p for p in callee.params}, [name for name, _ in given]
    args = []
    for i, (name, a) in enumerate(given):
        if name not in params or name in names[:i]:
            takes = f"it takes {', '.join(params)}"
            lw.fail(e.span, f"{callee.name} has no parameter `{name}` left to set", takes, code="E260")
        args.append(check_arg(lw, callee, params[name], lw.expr(a), a.span))
    for p in callee.params:
        if p.name not in names and p.default is None:
            lw.fail(e.span, f"{callee.name} needs `{p.name}`", f"it takes {', '.join(params)}", code="E260")
    return args, names


def run(lw: Lowering, e: S.Run) -> Value:
    """`run A(args) from n until cond at most k`."""
    if not isinstance(e.call.func, S.Name):
        lw.fail(e.span, "run needs the name of an algorithm", code="E230")
    callee = lw.items.get(e.call.func.name)
    if not isinstance(callee, S.Algorithm):
        lw.fail(
            e.call.span,
            f"`{e.call.func.name}` is not an algorithm in reach",
            lw.items.near(e.call.func.name, S.Algorithm, "import it: from autoregressive import autoregressive"),
            code="E230",
        )
    start = lw.expr(e.start) if e.start is not None else lw.one("context", span=e.span)
    bound = lw.expr(e.at_most)
    args, names = run_arguments(lw, callee, e.call)
    for given in args:
        if given.type.elem == "model" and given.type.of[0] in ("causal", "masked") and given.type.vocab != lw.vocab:
            lw.fail(
                e.span,
                f"`{given.name}` has the vocabulary `{given.type.vocab}`, and the path that is run is of `{lw.vocab}`",
                f"run it as a model of the target's tokens: {given.name}.speaking(target)",
                code="E240",
            )
    lw.module.need(callee.name, lw, e.span)
    path = Value(Type("path", (lw.vocab,)), "path")
    lw.path_scope.append(path)
    with lw.effectless(UNTIL):
        region = lw.region([path], e.until, path=path, **{"%path": path})
    lw.path_scope.pop()
    operands = [start, bound, *args]
    if start.type.elem == "node" and start.type.of[0] != "ctx":
        operands.append(tree_value(lw, start, e.span))
    return lw.emit(
        "run",
        *operands,
        *lw.counters,
        regions=(region,),
        span=e.span,
        callee=callee.name,
        args=tuple(names),
        has_tree=len(operands) > 2 + len(args),
        site=lw.site(e.span, "run"),
        vocab=lw.vocab,
    )[0]
