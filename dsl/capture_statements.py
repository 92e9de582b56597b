"""Python statements to statements of the language."""

from __future__ import annotations

import ast
from collections.abc import Callable

from decgraph.dsl import syntax as S
from decgraph.dsl.capture_expressions import PythonReader, named
from decgraph.dsl.prelude import FORMS
from decgraph.dsl.source import Span

AUGMENTED: dict[type[ast.operator], str] = {ast.Add: "+=", ast.Sub: "-="}


def definition(r: PythonReader, node: ast.FunctionDef, kind: str) -> S.Algorithm | S.Rule | S.Def:
    """A function as an algorithm, a rule or a helper. Raises DecError."""
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
        r.fail(node, f"{kind}s take plain parameters", "name: Type, or name: Type = default")
    missing = len(a.args) - len(a.defaults)
    params = tuple(param(r, arg, a.defaults[i - missing] if i >= missing else None) for i, arg in enumerate(a.args))
    body, doc = list(node.body), ast.get_docstring(node)
    if doc is not None:
        body = body[1:]
    stmts = suite(r, body, ())
    span, start = r.span(node), r.offset(node.lineno, node.col_offset) + len("def ")
    name = Span(start, start + len(node.name), node.lineno, node.col_offset + 5)
    if kind == "algorithm":
        return S.Algorithm(node.name, params, stmts, doc, span=span, name_span=name)
    if kind == "rule":
        return S.Rule(node.name, params, stmts, doc, span=span, name_span=name)
    returns = None
    unsaid = isinstance(node.returns, ast.Name) and node.returns.id == "Value"  # a type checker's word for whatever it is
    if node.returns is not None and not unsaid and not (isinstance(node.returns, ast.Constant) and node.returns.value is None):
        returns = r.type(node.returns)
    return S.Def(node.name, params, returns, stmts, doc, span=span, name_span=name)


def param(r: PythonReader, arg: ast.arg, default: ast.expr | None) -> S.Param:
    """A parameter, with what its annotation and default say."""
    span = r.span(arg)
    kind, scope = r.scoped(arg.annotation) if arg.annotation is not None else (None, None)
    value = r.expr(default) if default is not None else None
    name = Span(span.start, span.start + len(arg.arg), span.line, span.column)
    return S.Param(arg.arg, kind, value, scope, span=span, name_span=name)


def suite(r: PythonReader, body: list[ast.stmt], drafts: tuple[str, ...]) -> tuple[S.Stmt, ...]:
    """The statements of a body. `drafts` names the trees being drafted, outermost first."""
    out: list[S.Stmt] = []
    for node in body:
        saved, r.lifted = r.lifted, []
        found = statement(r, node, drafts)
        out += r.lifted
        r.lifted = saved
        if found is not None:
            out.append(found)
    return tuple(out)


def statement(r: PythonReader, node: ast.stmt, drafts: tuple[str, ...]) -> S.Stmt | None:
    """One statement; None for `pass` and what needs no line in the language."""
    span = r.span(node)
    if isinstance(node, ast.Pass):
        return None
    if isinstance(node, ast.Expr):
        return effect(r, node.value, drafts)
    if isinstance(node, ast.Assign):
        return assign(r, node, drafts)
    if isinstance(node, ast.AnnAssign):
        return declare(r, node)
    if isinstance(node, ast.AugAssign):
        op = AUGMENTED.get(type(node.op))
        if op is None:
            r.fail(node, "of the augmented assignments there are += and -=", "xs = cat(xs, ys) appends")
        return S.Assign((r.expr(node.target),), op, (r.expr(node.value),), span=span)
    if isinstance(node, ast.While):
        return while_(r, node, drafts)
    if isinstance(node, ast.For):
        return for_(r, node, drafts)
    if isinstance(node, ast.If):
        return if_(r, node, drafts)
    if isinstance(node, ast.With):
        return with_(r, node, drafts)
    if isinstance(node, ast.Break):
        return S.Break(None, span=span)
    if isinstance(node, ast.Return):
        if node.value is None:
            r.fail(node, "return gives a value back")
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return S.Return(tuple(r.expr(p) for p in parts), span=span)
    r.fail(
        node,
        f"`{type(node).__name__.lower()}` has no meaning in an algorithm",
        "there are assignments, calls, while, for, if, with draft() as t, break and return",
    )


# ------------------------------------------------------------ blocks


def no_draws(r: PythonReader, node: ast.AST, before: int) -> None:
    """A condition that is evaluated many times cannot contain a draw that is lifted out before it."""
    if len(r.lifted) != before:
        r.fail(node, "a draw does not stand in a loop's head", "draw first, then test: x = sample(q)")


def while_(r: PythonReader, node: ast.While, drafts: tuple[str, ...]) -> S.Stmt:
    """`while condition:`, `while bounded(condition, at_most=n):` and `while True:`."""
    if node.orelse:
        r.fail(node.orelse[0], "while has no else here")
    before, bound = len(r.lifted), None
    test: ast.expr = node.test
    call = named_call(test)
    if call is not None and call[0] == "bounded":
        test, bound = only(r, call[1], "bounded(condition, at_most=n)"), keyword(r, call[1], "at_most")
    cond = r.expr(test)
    no_draws(r, node.test, before)
    if isinstance(cond, S.Name) and cond.name == "yes":
        return S.Loop(suite(r, node.body, drafts), bound, span=r.span(node))
    return S.While(cond, suite(r, node.body, drafts), bound, span=r.span(node))


def for_(r: PythonReader, node: ast.For, drafts: tuple[str, ...]) -> S.Stmt:
    """`for` over repeat, loop, lanes, a range or a vector."""
    if node.orelse:
        r.fail(node.orelse[0], "for has no else here")
    if not isinstance(node.target, ast.Name):
        r.fail(node.target, "for gives one name to each element")
    span, name, before = r.span(node), node.target.id, len(r.lifted)
    call = named_call(node.iter)
    if call is not None and call[0] == "repeat":
        count, cond = r.expr(only(r, call[1], "repeat(n)", ("while_",))), keyword(r, call[1], "while_")
        no_draws(r, node.iter, before)
        return S.Repeat(count, cond, suite(r, node.body, drafts), span=span)
    if call is not None and call[0] == "loop":
        return S.Loop(suite(r, node.body, drafts), keyword(r, call[1], "at_most"), span=span)
    if call is not None and call[0] == "lanes":
        return S.Lanes(
            name, r.expr(only(r, call[1], "lanes(n)")), suite(r, node.body, drafts), span=span, name_span=r.span(node.target)
        )
    var = S.Name(name, span=r.span(node.target))
    return S.For((var,), r.iterable(node.iter), suite(r, node.body, drafts), span=span)


def if_(r: PythonReader, node: ast.If, drafts: tuple[str, ...]) -> S.Stmt:
    """`if` with its `elif` and `else`; `if condition: break` is one statement."""
    if len(node.body) == 1 and isinstance(node.body[0], ast.Break) and not node.orelse:
        return S.Break(r.expr(node.test), span=r.span(node))
    branches: list[S.Branch] = []
    rest = [node]
    orelse: list[ast.stmt] = []
    while rest:
        one = rest.pop()
        before = len(r.lifted)
        cond = r.expr(one.test)
        if branches:
            no_draws(r, one.test, before)
        branches.append(S.Branch(cond, suite(r, one.body, drafts), span=r.span(one)))
        if len(one.orelse) == 1 and isinstance(one.orelse[0], ast.If):
            rest = [one.orelse[0]]
        else:
            orelse = one.orelse
    return S.If(tuple(branches), suite(r, orelse, drafts), span=r.span(node))


def with_(r: PythonReader, node: ast.With, drafts: tuple[str, ...]) -> S.Stmt:
    """`with draft() as t:` and `with across_batch():`."""
    span = r.span(node)
    call = named_call(node.items[0].context_expr) if len(node.items) == 1 else None
    if call is None or call[0] not in ("draft", "across_batch"):
        r.fail(node, "with stands before draft() as t, and across_batch()", "with draft() as t:")
    name, what = call
    if name == "across_batch":
        return S.Across("batch", suite(r, node.body, drafts), span=span)
    var = node.items[0].optional_vars
    if not isinstance(var, ast.Name):
        r.fail(node, "a draft needs a name", "with draft() as t:")
    of = r.expr(only(r, what, "draft(c)", ("over",))) if what.args else None
    over = keyword(r, what, "over")
    steps = over.value if isinstance(over, S.String) else None
    return S.Draft(var.id, of, steps, suite(r, node.body, (*drafts, var.id)), span=span, name_span=r.span(var))


# ------------------------------------------------------------ calls for their effect


def named_call(node: ast.expr) -> tuple[str, ast.Call] | None:
    """The name and the call, where a call is of a plain name."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id, node
    return None


def only(r: PythonReader, call: ast.Call, usage: str, more: tuple[str, ...] = ("at_most",)) -> ast.expr:
    """The one positional argument of a call."""
    if len(call.args) != 1 or any(k.arg not in more for k in call.keywords):
        r.fail(call, f"this is written {usage}")
    return call.args[0]


def keyword(r: PythonReader, call: ast.Call, name: str) -> S.Expr | None:
    """The value of a keyword argument, or None."""
    return next((r.expr(k.value) for k in call.keywords if k.arg == name), None)


def needed(r: PythonReader, call: ast.Call, name: str, usage: str) -> S.Expr:
    """The value of a keyword argument that must be there."""
    found = keyword(r, call, name)
    if found is None:
        r.fail(call, f"this needs {name} =", usage)
    return found


def effect(r: PythonReader, node: ast.expr, drafts: tuple[str, ...]) -> S.Stmt | None:
    """A call that stands alone."""
    span = r.span(node)
    if not isinstance(node, ast.Call):
        r.fail(node, "this does nothing on its own", "give it a name, or grow, commit or return it")
    if isinstance(node.func, ast.Attribute) and node.func.attr == "grow":
        return grow(r, node, drafts)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "prune":
        return S.Prune(r.expr(node.func.value), needed(r, node, "to", "t.prune(to=nodes)"), span=span)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    found = EFFECTS.get(name)
    if found is not None:
        return found(r, node, span)
    call = r.expr(node)
    if not isinstance(call, S.Call):
        r.fail(node, "this does nothing on its own", "give it a name, or grow, commit or return it")
    return S.Do(call, span=span)


def grow(r: PythonReader, node: ast.Call, drafts: tuple[str, ...]) -> S.Grow:
    """`t.grow(x, at=ns, column=value)`; `with_=dict(at=...)` for columns whose names are taken."""
    assert isinstance(node.func, ast.Attribute)
    tree = node.func.value
    if not isinstance(tree, ast.Name) or not drafts or tree.id != drafts[-1]:
        r.fail(node, "grow is for the tree that is being drafted", f"{drafts[-1]}.grow(x)" if drafts else "with draft() as t:")
    if len(node.args) != 1:
        r.fail(node, "grow takes what grows: draws, edits, a chain", f"{tree.id}.grow(x)")
    at, columns = None, []
    for k in node.keywords:
        if k.arg == "at":
            at = r.expr(k.value)
        elif k.arg == "with_" and isinstance(k.value, ast.Call):
            columns += [S.Keyword(c.arg or "", r.expr(c.value), span=r.span(c.value)) for c in k.value.keywords]
        else:
            columns.append(S.Keyword(k.arg or "", r.expr(k.value), span=r.span(k.value)))
    return S.Grow(r.expr(node.args[0]), at, tuple(columns), span=r.span(node))


def _refines(r: PythonReader, node: ast.Call, span: Span) -> S.Stmt:
    spec = r.expr(node.args[0]) if len(node.args) == 1 else None
    mode = keyword(r, node, "in_")
    if not isinstance(spec, S.Call) or (mode is not None and not isinstance(mode, S.String)):
        r.fail(node, "refines names a specification", 'refines(autoregressive(target), in_="distribution")')
    return S.Refines(spec, mode.value if isinstance(mode, S.String) else None, keyword(r, node, "when"), span=span)


def _keeps(r: PythonReader, node: ast.Call, span: Span) -> S.Stmt:
    return S.KeepsSupport(tuple(r.expr(a) for a in node.args), keyword(r, node, "when"), span=span)


def _note(r: PythonReader, node: ast.Call, span: Span) -> S.Stmt:
    if node.args or len(node.keywords) != 1 or not (name := node.keywords[0].arg):
        r.fail(node, "a note is one figure with a name", "note(accepted=len(t.accepted))")
    return S.Note(name, r.expr(node.keywords[0].value), span=span, name_span=span)


def _at_most(r: PythonReader, node: ast.Call, span: Span) -> S.Stmt:
    usage = 'at_most(k, "calls", of=target, a="token"), at_most(n, "remasked")'
    values, model, per = [r.expr(a) for a in node.args], keyword(r, node, "of"), keyword(r, node, "a")
    per_token = "token" if isinstance(per, S.String) and per.value == "token" else None
    what = values[1].value if len(values) == 2 and isinstance(values[1], S.String) else ""
    counted = what == "calls" or what == "remasked" and model is per is None
    if not counted or not isinstance(model, S.Name | None) or per is not None and per_token is None:
        r.fail(node, "at_most counts calls, or cells that are masked again", usage)
    return S.AtMost(values[0], what, model, per_token, keyword(r, node, "when"), span=span)


def _effect(kind: Callable[..., S.Stmt], usage: str, *options: str) -> Callable[[PythonReader, ast.Call, Span], S.Stmt]:
    """A call whose argument and options are the fields of a statement, in order; an option with `?` may be left out."""

    def read(r: PythonReader, node: ast.Call, span: Span) -> S.Stmt:
        subject = r.expr(only(r, node, usage, tuple(o.rstrip("?") for o in options)))
        rest = [keyword(r, node, o[:-1]) if o.endswith("?") else needed(r, node, o, usage) for o in options]
        return kind(subject, *rest, span=span)

    return read


EFFECTS: dict[str, Callable[[PythonReader, ast.Call, Span], S.Stmt]] = {
    "refines": _refines,
    "keeps_support": _keeps,
    "note": _note,
    "at_most": _at_most,
    "verify": _effect(S.Verify, "verify(t, by=rejection, against=target(t))", "by", "against"),
    "prune": _effect(S.Prune, "prune(t, to=nodes)", "to"),
    "unmask": _effect(S.Unmask, "unmask(c[b], where=sure(s, tau), with_=x)", "where?", "with_"),
    "remask": _effect(S.Remask, "remask(c[ps], where=condition)", "where?"),
    "cache": _effect(S.CachePolicy, "cache(model, by=dual)", "by"),
    "commit": _effect(S.Commit, "commit(x)"),
    "accept": _effect(S.Accept, "accept(x)"),
    "emit": _effect(S.Emit, "emit(x)"),
    "ensures": _effect(S.Ensures, "ensures(x)", "when?"),
}


# ------------------------------------------------------------ assignments and declarations


def assign(r: PythonReader, node: ast.Assign, drafts: tuple[str, ...]) -> S.Stmt:
    """`x = value`: an assignment, a draw, a canvas or what a tree grew."""
    span = r.span(node)
    if len(node.targets) != 1:
        r.fail(node, "one assignment gives one value", "write a line for each name")
    target = node.targets[0]
    targets = tuple(r.expr(t) for t in (target.elts if isinstance(target, ast.Tuple) else [target]))
    value = node.value
    call = named_call(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "grow":
        return S.Assign(targets, "=", (grow(r, value, drafts),), span=span)
    if call is not None and call[0] == "sample" and len(call[1].args) == 1 and len(targets) == 1:
        drawn = r.draw(targets[0], call[1])
        return S.Draw(drawn.targets, drawn.dist, drawn.stream, drawn.using, span=span)
    if call is not None and call[0] == "canvas":
        if len(targets) != 1 or not isinstance(targets[0], S.Name):
            r.fail(node, "a canvas has one name", "c = canvas(length)")
        length = r.expr(only(r, call[1], "canvas(length, growing_to=n)", ("growing_to",)))
        return S.Canvas(targets[0].name, length, keyword(r, call[1], "growing_to"), span=span, name_span=targets[0].span)
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return S.Assign(targets, "=", tuple(r.expr(v) for v in values), span=span)


def declare(r: PythonReader, node: ast.AnnAssign) -> S.Stmt | None:
    """`a: State[int] = 1`, `past: State[PerSession[Annotated[Suffixes, 64]]] = fresh`, `small: Model = ...`."""
    span, kind = r.span(node), node.annotation
    base, parts = kind, list[ast.expr]()
    if isinstance(kind, ast.Subscript):
        base, parts = kind.value, list(kind.slice.elts) if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        if named(base) == "Annotated":
            base, *parts = parts
    given = node.value if node.value is not None and named(node.value) != "fresh" else None
    if named(base) == "Listing" and given is None:
        return None  # what lanes collect in needs no line in the language; Python's type checkers want to see it
    if named(base) not in FORMS or not isinstance(node.target, ast.Name):
        r.fail(node, f"a declaration is one of {', '.join(FORMS)}", 'next: State[PerSession[Annotated[Token, "k"]]] = 0')
    name, name_span = node.target.id, r.span(node.target)
    value = r.expr(given) if given is not None else None
    if named(base) == "Model":
        if value is None:
            r.fail(node, "a model is derived from another", "small: Model = target.exit(2)")
        return S.ModelDecl(name, value, span=span, name_span=name_span)
    if named(base) == "Noise":
        return S.NoiseDecl(name, tuple(r.dim(p) for p in parts), "race", span=span, name_span=name_span)
    if len(parts) != 1:
        r.fail(node, "a state has a type, with a scope around it", "next: State[PerSession[int]] = 0")
    kind_, scope = r.scoped(parts[0])
    return S.State(name, kind_, scope, value, span=span, name_span=name_span)
