"""What the rules of statements build. `build.py` says how these functions are called."""

from __future__ import annotations

from typing import Any

from decgraph.dsl import syntax as s
from decgraph.dsl.build import BUILD, MODES, SCOPES, Parts, _block, _rule, one_of, refuse
from decgraph.dsl.source import Span

# ------------------------------------------------------------ claims and declarations


@_rule
def refines(span: Span, parts: Parts) -> s.Refines:
    spec, mode, when = parts
    return s.Refines(spec, None if mode is None else one_of(mode, MODES, "a kind of refinement"), when, span=span)


@_rule
def ensures(span: Span, parts: Parts) -> s.Ensures:
    return s.Ensures(parts[0], span=span)


@_rule
def keeps(span: Span, parts: Parts) -> s.KeepsSupport:
    one_of(parts[0], ("support",), "something that `keeps ... of` knows")
    models = parts[1]
    several = isinstance(models, s.BoolOp) and models.op == "or"
    return s.KeepsSupport(models.values if several else (models,), span=span)


@_rule
def state(span: Span, parts: Parts) -> s.State:
    name, kind, scope, init = parts
    place = None if scope is None else one_of(scope, SCOPES, "a scope")
    return s.State(name.text, kind, place, init, name_span=name.span, span=span)


@_rule
def canvas(span: Span, parts: Parts) -> s.Canvas:
    return s.Canvas(parts[0].text, parts[1], parts[2], name_span=parts[0].span, span=span)


@_rule
def cache(span: Span, parts: Parts) -> s.CachePolicy:
    model, policy = parts
    _rule_or_policy(policy, "a policy")
    return s.CachePolicy(model, policy, span=span)


@_rule
def model_(span: Span, parts: Parts) -> s.ModelDecl:
    return s.ModelDecl(parts[0].text, parts[1], name_span=parts[0].span, span=span)


@_rule
def noise(span: Span, parts: Parts) -> s.Noise:
    name, *dims, kind = parts
    return s.Noise(name.text, tuple(dims), kind.text, name_span=name.span, span=span)


def _rule_or_policy(found: s.Expr, what: str) -> None:
    inner = found.func if isinstance(found, s.Call) else found
    if not isinstance(inner, s.Name):
        refuse(
            "E014",
            f"{what} is called by its name here",
            found.span,
            help="write its name, with its arguments if any",
        )


# ------------------------------------------------------------ simple statements


@_rule
def verify(span: Span, parts: Parts) -> s.Verify:
    tree, by, against = parts
    _rule_or_policy(by, "a rule")
    return s.Verify(tree, by, against, span=span)


@_rule
def prune(span: Span, parts: Parts) -> s.Prune:
    return s.Prune(parts[0], parts[1], span=span)


@_rule
def commit(span: Span, parts: Parts) -> s.Commit:
    return s.Commit(parts[0], span=span)


@_rule
def accept(span: Span, parts: Parts) -> s.Accept:
    return s.Accept(parts[0], span=span)


@_rule
def emit(span: Span, parts: Parts) -> s.Emit:
    return s.Emit(parts[0], span=span)


@_rule
def return_(span: Span, parts: Parts) -> s.Return:
    return s.Return(tuple(parts), span=span)


@_rule
def break_(span: Span, parts: Parts) -> s.Break:
    return s.Break(parts[0], span=span)


def _place(target: s.Expr) -> None:
    """Refuses what cannot be assigned to."""
    inner = target
    while isinstance(inner, (s.Index, s.Attr)):
        inner = inner.value
    if not isinstance(inner, s.Name):
        refuse(
            "E014",
            "this cannot be assigned to",
            target.span,
            help="assign to a name, or to an index or attribute of one: `x`, `rows[i]`, `t.frontier`",
        )


@_rule
def targets(span: Span, parts: Parts) -> tuple[s.Expr, ...]:
    for target in parts:
        _place(target)
    return tuple(parts)


@_rule
def draw(span: Span, parts: Parts) -> s.Draw:
    where, dist, stream, using = parts
    if stream is not None:
        _rule_or_policy(stream, "a stream")
    return s.Draw(where, dist, stream, using, span=span)


@_rule
def assign(span: Span, parts: Parts) -> s.Assign:
    where, op, *values = parts
    return _assign(span, where, op, tuple(values))


BUILD["assign_grow"] = assign


def _assign(span: Span, where: tuple[s.Expr, ...], op: str, values: tuple[Any, ...]) -> s.Assign:
    if op != "=" and len(where) + len(values) > 2:
        refuse("E014", f"`{op}` changes one thing by one value", span, help="write one line for each")
    if len(values) not in (1, len(where)):
        refuse(
            "E014",
            f"{len(where)} name{'s' * (len(where) > 1)} cannot take {len(values)} values",
            span,
            help="give one value for each name, or a list: `[a, b]`",
        )
    return s.Assign(where, op, values, span=span)


def _word(span: Span, parts: Parts) -> str:
    text: str = parts[0].text
    return " ".join(text.split())


BUILD.update(op_assign=_word, op_cmp=_word, op_add=_word, op_mul=_word)


@_rule
def grow(span: Span, parts: Parts) -> s.Grow:
    what, at, *columns = parts
    return s.Grow(what, at, tuple(c for c in columns if c is not None), span=span)


@_rule
def unmask(span: Span, parts: Parts) -> s.Unmask:
    _place(parts[0])
    return s.Unmask(parts[0], parts[1], parts[2], span=span)


@_rule
def remask(span: Span, parts: Parts) -> s.Remask:
    _place(parts[0])
    return s.Remask(parts[0], parts[1], span=span)


@_rule
def do(span: Span, parts: Parts) -> s.Do:
    return s.Do(parts[0], span=span)


# ------------------------------------------------------------ compound statements


@_rule
def while_(span: Span, parts: Parts) -> s.While:
    cond, most, suite = parts
    if isinstance(cond, s.Name) and cond.name in ("True", "true", "yes"):
        refuse(
            "E015",
            "a loop needs an end",
            span._replace(end=cond.span.end),
            help="write `loop at most n:` and `break if ...`",
        )
    return s.While(cond, _block(suite), most, span=span)


@_rule
def loop(span: Span, parts: Parts) -> s.Loop:
    return s.Loop(_block(parts[1]), parts[0], span=span)


@_rule
def bound(span: Span, parts: Parts) -> s.Expr:
    most: s.Expr = parts[0]
    return most


@_rule
def repeat(span: Span, parts: Parts) -> s.Repeat:
    return s.Repeat(parts[0], parts[1], _block(parts[2]), span=span)


@_rule
def for_(span: Span, parts: Parts) -> s.For:
    names, over, suite = parts
    if isinstance(over, s.Call) and over.func == s.Name("range"):
        refuse(
            "E015",
            "`range` is not a function here",
            over.span,
            help="write a range as `0..n`: `for i in 0..n:`",
        )
    return s.For(names, over, _block(suite), span=span)


@_rule
def lanes(span: Span, parts: Parts) -> s.Lanes:
    name, count, suite = parts
    return s.Lanes(name.text, count, _block(suite), name_span=name.span, span=span)


@_rule
def if_(span: Span, parts: Parts) -> s.If:
    cond, suite, *others, orelse = parts
    body = _block(suite)
    end = body[-1].span.end if body else span.end
    first = s.Branch(cond, body, span=span._replace(end=end))
    return s.If((first, *others), orelse or (), span=span)


@_rule
def elif_(span: Span, parts: Parts) -> s.Branch:
    return s.Branch(parts[0], _block(parts[1]), span=span)


@_rule
def else_(span: Span, parts: Parts) -> tuple[s.Stmt, ...]:
    return _block(parts[0])


@_rule
def draft(span: Span, parts: Parts) -> s.Draft:
    name, of, over, suite = parts
    steps = None if over is None else one_of(over, ("steps",), "a kind of edge")
    return s.Draft(name.text, of, steps, _block(suite), name_span=name.span, span=span)


@_rule
def across(span: Span, parts: Parts) -> s.Across:
    return s.Across(one_of(parts[0], ("batch",), "something to run across"), _block(parts[1]), span=span)
