"""What each grammar rule builds: parts to syntax tree, with the checks that a grammar cannot make.

A builder gets the span of its rule and the rule's parts: tokens, nodes, None for absent optional parts, lists for suites.
Most rules are the fields of a class of syntax.py and stand in `NODES`; a function here has the name of its rule (or alias)
in grammar.lark. `refuse` stops with a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, NoReturn

from decgraph.dsl import syntax as s
from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lexer import Lexeme
from decgraph.dsl.source import Span

Parts = list[Any]  # Any: a part is a token, a node, None, or a tuple or list of these; each builder knows which
Build = Callable[[Span, Parts], object]
Check = Callable[..., object]

SCOPES = ("sequence", "session", "batch")
MODES = ("tokens", "distribution")
EVENTS = ("enter", "leave", "every")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|[\s\S])")


class NotAllowed(Exception):
    """A part that is grammatical and still not allowed."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class Doc(s.Stmt):
    """A string as a statement: the first of a definition becomes its docstring, any other is refused."""

    text: str


def refuse(code: str, message: str, span: Span, help: str = "") -> NoReturn:
    """Stops the parse with a diagnostic."""
    raise NotAllowed(Diagnostic(code, message, span, help=help))


def _one_of(word: Lexeme, allowed: tuple[str, ...], what: str) -> str:
    """The text of a word that must be one of a few; refuses others, with the nearest as a suggestion."""
    if word.text in allowed:
        return word.text
    near = get_close_matches(word.text, allowed, 1, 0.6)
    listed = ", ".join(f"`{a}`" for a in allowed)
    advice = f"did you mean `{near[0]}`?" if near else f"{'use' if len(allowed) == 1 else 'one of'} {listed}"
    refuse("E011", f"`{word.text}` is not {what}", word.span, advice)


def _word(*allowed: str, what: str) -> Check:
    return lambda word, span: _one_of(word, allowed, what)


def _called(what: str) -> Check:
    def check(expr: s.Expr, span: Span) -> s.Expr:
        inner = expr.func if isinstance(expr, s.Call) else expr
        if not isinstance(inner, s.Name):
            refuse("E014", f"{what} is called by its name here", expr.span, "write its name, with its arguments if any")
        return expr

    return check


def _place(target: s.Expr, span: Span) -> s.Expr:
    inner = target
    while isinstance(inner, (s.Index, s.Attr)):
        inner = inner.value
    if not isinstance(inner, s.Name):
        advice = "assign to a name, or to an index or attribute of one: `x`, `rows[i]`, `t.frontier`"
        refuse("E014", "this cannot be assigned to", target.span, advice)
    return target


def _block(suite: Parts) -> tuple[s.Stmt, ...]:
    for statement in suite:
        if isinstance(statement, Doc):
            advice = "only the first line of a definition may be one; elsewhere write a # comment"
            refuse("E012", "a string is not a statement", statement.span, advice)
    return tuple(suite)


def _ends(cond: s.Expr, span: Span) -> s.Expr:
    if isinstance(cond, s.Name) and cond.name in ("True", "true", "yes"):
        advice = "a decoder is an `algorithm` and runs `while not done:`; else `loop at most n:` and `break if ...`"
        refuse("E015", "a loop needs an end", span._replace(end=cond.span.end), advice)
    return cond


def _no_range_call(over: s.Expr, span: Span) -> s.Expr:
    if isinstance(over, s.Call) and over.func == s.Name("range"):
        refuse("E015", "`range` is not a function here", over.span, "`for i in 0..n:` goes from 0 to n - 1")
    return over


def unquote(token: Lexeme) -> str:
    """The value of a string token; refuses escapes that mean nothing."""
    skip = 3 if token.text.startswith('"""') else 1
    text = token.text[skip:-skip].replace("\r\n", "\n").replace("\r", "\n")

    def value(match: re.Match[str]) -> str:
        what = match[1]
        if what in ESCAPES:
            return ESCAPES[what]
        if len(what) == 5 and not 0xD800 <= int(what[1:], 16) <= 0xDFFF:
            return chr(int(what[1:], 16))
        at = token.span.start + skip + match.start()
        inside = Span(at, at + 2, token.span.line, token.span.column + skip + match.start())
        advice = r"they are \n \t \r \\ \" and \u with four hexadecimal digits"
        refuse("E004", f"`\\{what[0]}` is not an escape that strings know", inside if skip == 1 else token.span, advice)

    return _ESCAPE.sub(value, text) if "\\" in text else text


# ------------------------------------------------------------ rules that are the fields of a class

NODES: dict[str, tuple[type[s.Node], str]] = {
    "name": (s.Name, "name"), "number": (s.Number, "text"), "list": (s.ListExpr, "items"), "index": (s.Index, "value subs"),
    "attr": (s.Attr, "value name"), "slice": (s.Slice, "lo hi"), "up_to": (s.UpTo, "bound"),
    "comprehension": (s.Comprehension, "element names iter cond"), "column": (s.Keyword, "name value"),
    "binary": (s.Binary, "left op right"), "compare": (s.Compare, "left op right"), "where": (s.Where, "value cond"),
    "if_exp": (s.IfExp, "then cond orelse"), "range": (s.Range, "lo hi"), "run": (s.Run, "call start until at_most"),
    "from_start": (s.FromStart, "start"), "core": (s.TypeExpr, "name args dims with_"),
    "param": (s.Param, "name type scope default"), "extern_param": (s.Param, "name type"),
    "extern": (s.Extern, "name params returns where"), "import": (s.Import, "module names"),
    "refines": (s.Refines, "spec mode when"), "ensures": (s.Ensures, "expr when"), "state": (s.State, "name type scope init"),
    "canvas": (s.Canvas, "name length grow_to"), "cache": (s.CachePolicy, "model policy"),
    "model": (s.ModelDecl, "name value"), "noise": (s.NoiseDecl, "name dims kind"), "note": (s.Note, "name value"),
    "verify": (s.Verify, "tree rule against"), "prune": (s.Prune, "tree to"), "commit": (s.Commit, "value"),
    "accept": (s.Accept, "value"), "emit": (s.Emit, "value"), "return": (s.Return, "values"), "break": (s.Break, "cond"),
    "draw": (s.Draw, "targets dist stream using"), "grow": (s.Grow, "what at columns"),
    "unmask": (s.Unmask, "target where with_"), "remask": (s.Remask, "target where"), "do": (s.Do, "call"),
    "while": (s.While, "cond at_most body"), "loop": (s.Loop, "at_most body"),
    "repeat": (s.Repeat, "count cond body"), "for": (s.For, "names iter body"), "lanes": (s.Lanes, "name count body"),
    "elif": (s.Branch, "cond body"), "draft": (s.Draft, "tree of over body"), "across": (s.Across, "name body"),
    "action": (s.Action, "verb what"), "on": (s.Clause, "event subject actions"),
}  # fmt: skip
"""Rule -> the class that it makes, and the class's fields in the order of the rule's parts."""

CHECKS: dict[tuple[type[s.Node], str], Check] = {
    (s.Param, "scope"): _word(*SCOPES, what="a scope"),
    (s.State, "scope"): _word(*SCOPES, what="a scope"),
    (s.Refines, "mode"): _word(*MODES, what="a kind of refinement"),
    (s.Clause, "event"): _word(*EVENTS, what="an event of a policy"),
    (s.Draft, "over"): _word("steps", what="a kind of edge"),
    (s.Across, "name"): _word("batch", what="something to run across"),
    (s.CachePolicy, "policy"): _called("a policy"),
    (s.Verify, "rule"): _called("a rule"),
    (s.Draw, "stream"): _called("a stream"),
    (s.Unmask, "target"): _place,
    (s.Remask, "target"): _place,
    (s.Compare, "op"): lambda word, span: " ".join(word.text.split()),
    (s.While, "cond"): _ends,
    (s.For, "iter"): _no_range_call,
}
"""What a field may hold beyond what the grammar says: a check gets the part and the span of the rule."""


def _node(cls: type[s.Node], order: str) -> Build:
    """Makes a node of parts: a word is its text, a suite its statements, an absent list an empty one."""
    names = order.split()
    declared = [f.name for f in fields(cls) if not f.kw_only]
    many = {names.index(f.name) for f in fields(cls) if f.name in names and str(f.type).startswith("tuple")}
    checks = {i: CHECKS[cls, name] for i, name in enumerate(names) if (cls, name) in CHECKS}
    named, straight = issubclass(cls, s.Named), names == declared[: len(names)]

    def build(span: Span, parts: Parts) -> s.Node:
        word: Lexeme | None = None
        for i, part in enumerate(parts):
            kind = type(part)
            if kind is Lexeme:
                word = word or part
                parts[i] = checks[i](part, span) if i in checks else part.text
            elif part is None:
                if i in many:
                    parts[i] = ()
            elif kind is list:
                parts[i] = _block(part)
            elif i in checks:
                parts[i] = checks[i](part, span)
        more: dict[str, Any] = {"name_span": word.span, "span": span} if named and word else {"span": span}
        return cls(*parts, **more) if straight else cls(**dict(zip(names, parts, strict=True)), **more)

    return build


BUILD: dict[str, Build] = {rule: _node(*made) for rule, made in NODES.items()}
"""Rule -> builder."""


# ------------------------------------------------------------ the others


def _items(span: Span, parts: Parts) -> tuple[object, ...]:
    return tuple(part for part in parts if part is not None)


def _bool(op: str) -> Build:
    return lambda span, parts: s.BoolOp(op, tuple(parts), span=span)


BUILD |= dict.fromkeys(
    ("type_args", "type_dims", "caps", "bounds", "actions", "exprs", "items", "subs", "args", "columns"), _items
)
BUILD |= {
    "start": lambda span, parts: s.File(tuple(parts), span=span),
    "suite": lambda span, parts: parts,
    "clauses": lambda span, parts: parts,
    "else": lambda span, parts: _block(parts[0]),
    "doc": lambda span, parts: Doc(unquote(parts[0]), span=span),
    "string": lambda span, parts: s.String(unquote(parts[0]), span=span),
    "dotted": lambda span, parts: ".".join(word.text for word in parts),
    "names": lambda span, parts: tuple(s.Name(word.text, span=word.span) for word in parts),
    "bare_param": lambda span, parts: s.Param("", parts[0], name_span=span, span=span),
    "the_rest": lambda span, parts: s.Rest(span=span),
    "negative": lambda span, parts: s.Unary("-", parts[0], span=span),
    "not_op": lambda span, parts: s.Unary("not", parts[0], span=span),
    "power": lambda span, parts: s.Binary("^", *parts, span=span),
    "and_op": _bool("and"),
    "or_op": _bool("or"),
    "clause": lambda span, parts: s.Clause("when", *parts, span=span),
    "otherwise": lambda span, parts: s.Clause("otherwise", None, *parts, span=span),
    "targets": lambda span, parts: tuple(_place(target, span) for target in parts),
}


def _rule(function: Build) -> Build:
    BUILD[function.__name__.rstrip("_")] = function
    return function


def _definition(cls: Callable[..., s.Item]) -> Build:
    def build(span: Span, parts: Parts) -> s.Item:
        name, *head, suite = parts
        suite = suite[suite[0] is None :]  # a policy's docstring, absent
        doc = suite[0].text if isinstance(suite[0], Doc) else None
        body = _block(suite[doc is not None :])
        return cls(name.text, *head, body, doc, name_span=name.span, span=span)

    return build


BUILD |= {r: _definition(c) for r, c in (("algorithm", s.Algorithm), ("rule", s.Rule), ("def", s.Def), ("policy", s.Policy))}


@_rule
def params(span: Span, parts: Parts) -> tuple[s.Param, ...]:
    found = tuple(p for p in parts if p is not None)
    seen: set[str] = set()
    for parameter in found:
        if parameter.name and parameter.name in seen:
            message = f"the parameter `{parameter.name}` is there twice"
            refuse("E013", message, parameter.name_span, "give one of them another name")
        seen.add(parameter.name)
    return found


BUILD["extern_params"] = params


@_rule
def type_(span: Span, parts: Parts) -> s.TypeExpr:
    core, returns, bounds, optional = parts
    low, high = bounds or (None, None)
    found: s.TypeExpr = replace(core, returns=returns, low=low, high=high, optional=optional is not None, span=span)
    return found


@_rule
def cap(span: Span, parts: Parts) -> s.Expr:
    name, args = parts
    word = s.Name(name.text, span=name.span)
    return word if args is None else s.Call(word, args, span=span)


@_rule
def call(span: Span, parts: Parts) -> s.Call:
    func, given = parts
    args: list[s.Expr] = []
    kwargs: list[s.Keyword] = []
    for argument in given or ():
        if isinstance(argument, s.Keyword):
            if any(k.name == argument.name for k in kwargs):
                refuse("E013", f"the argument `{argument.name}` is given twice", argument.name_span)
            kwargs.append(argument)
        elif kwargs:
            advice = f"put it before `{kwargs[0].name} = ...`, or name it too"
            refuse("E013", "an argument without a name follows one with a name", argument.span, advice)
        else:
            args.append(argument)
    return s.Call(func, tuple(args), tuple(kwargs), span=span)


@_rule
def keeps(span: Span, parts: Parts) -> s.KeepsSupport:
    word, models, when = parts
    _one_of(word, ("support",), "something that `keeps ... of` knows")
    several = isinstance(models, s.BoolOp) and models.op == "or"
    return s.KeepsSupport(models.values if several else (models,), when, span=span)


@_rule
def at_most(span: Span, parts: Parts) -> s.AtMost:
    bound, what, model, article, per, when = parts
    _one_of(what, ("calls", "call", "remasked"), "something that `at most` counts")
    if article is not None:
        _one_of(article, ("a",), "how `at most` goes on")
        _one_of(per, ("token",), "something that calls are counted by")
    if what.text == "remasked" and (word := model or article) is not None:
        refuse("E410", "cells that are masked again are counted of the whole request", word.span, "at most n remasked")
    of = None if model is None else s.Name(model.text, span=model.span)
    return s.AtMost(bound, what.text, of, None if per is None else per.text, when, span=span)


@_rule
def assign(span: Span, parts: Parts) -> s.Assign:
    where, op, value = parts
    values = value if isinstance(value, tuple) else (value,)
    if op.text != "=" and len(where) + len(values) > 2:
        refuse("E014", f"`{op.text}` changes one thing by one value", span, "write one line for each")
    if len(values) not in (1, len(where)):
        message = f"{len(where)} name{'s' * (len(where) > 1)} cannot take {len(values)} values"
        refuse("E014", message, span, "give one value for each name, or a list: `[a, b]`")
    return s.Assign(where, op.text, values, span=span)


@_rule
def if_(span: Span, parts: Parts) -> s.If:
    cond, suite, *others, orelse = parts
    body = _block(suite)
    first = s.Branch(cond, body, span=span._replace(end=body[-1].span.end))
    return s.If((first, *others), orelse or (), span=span)
