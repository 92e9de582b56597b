"""What each grammar rule builds: parts to syntax tree, with the checks that a grammar cannot make.

A function here has the name of a rule (or alias) of grammar.lark and gets the rule's span and parts: tokens,
nodes, None for absent optional parts, lists for repeated ones. `refuse` stops with a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from decgraph.dsl import syntax as s
from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lexer import Token
from decgraph.dsl.source import Span

Parts = list[Any]
Build = Callable[[Span, Parts], Any]

BUILD: dict[str, Build] = {}
"""Rule name -> function."""

SCOPES = ("sequence", "session", "batch")
MODES = ("tokens", "distribution")
EVENTS = ("enter", "leave", "every")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


class Refused(Exception):
    """A part that is grammatical and still not allowed."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@dataclass(frozen=True, slots=True)
class Doc(s.Stmt):
    """A string as a statement: the first of a definition becomes its docstring, any other is refused."""

    text: str


def refuse(code: str, message: str, span: Span, *, label: str = "", help: str = "", why: str = "") -> NoReturn:
    """Stops the parse with a diagnostic."""
    raise Refused(Diagnostic(code, message, span, label=label, help=help, why=why))


def _rule(function: Build) -> Build:
    BUILD[function.__name__] = function
    return function


def one_of(word: Token, allowed: tuple[str, ...], what: str) -> str:
    """The text of a word that must be one of a few; refuses others, with the nearest as a suggestion."""
    if word.text in allowed:
        return word.text
    near = get_close_matches(word.text, allowed, 1, 0.6)
    listed = ", ".join(f"`{a}`" for a in allowed)
    refuse(
        "E011",
        f"`{word.text}` is not {what}",
        word.span,
        help=f"did you mean `{near[0]}`?" if near else f"{'use' if len(allowed) == 1 else 'one of'} {listed}",
    )


# ------------------------------------------------------------ definitions


@_rule
def start(span: Span, parts: Parts) -> s.File:
    return s.File(tuple(parts), span=span)


def _body(suite: Parts) -> tuple[str | None, tuple[s.Stmt, ...]]:
    """The docstring and the statements of a definition."""
    doc = suite[0].text if suite and isinstance(suite[0], Doc) else None
    return doc, _block(suite[1:] if doc is not None else suite)


def _block(suite: Parts) -> tuple[s.Stmt, ...]:
    for statement in suite:
        if isinstance(statement, Doc):
            refuse(
                "E012",
                "a string is not a statement",
                statement.span,
                help="only the first line of a definition may be one; elsewhere write a # comment",
            )
    return tuple(suite)


@_rule
def algorithm(span: Span, parts: Parts) -> s.Algorithm:
    name, params, suite = parts
    doc, body = _body(suite)
    return s.Algorithm(name.text, params, body, doc, name_span=name.span, span=span)


@_rule
def rule(span: Span, parts: Parts) -> s.Rule:
    name, params, suite = parts
    doc, body = _body(suite)
    return s.Rule(name.text, params, body, doc, name_span=name.span, span=span)


@_rule
def def_(span: Span, parts: Parts) -> s.Def:
    name, params, returns, suite = parts
    doc, body = _body(suite)
    return s.Def(name.text, params, returns, body, doc, name_span=name.span, span=span)


@_rule
def policy(span: Span, parts: Parts) -> s.Policy:
    name, params, (doc, clauses) = parts
    return s.Policy(name.text, params, clauses, doc, name_span=name.span, span=span)


@_rule
def extern(span: Span, parts: Parts) -> s.Extern:
    name, params, returns, where = parts
    place = None if where is None else where.text
    return s.Extern(name.text, params or (), returns, place, name_span=name.span, span=span)


@_rule
def import_(span: Span, parts: Parts) -> s.Import:
    module, names_ = parts
    return s.Import(".".join(t.text for t in module), names_, span=span)


@_rule
def dotted(span: Span, parts: Parts) -> Parts:
    return parts


@_rule
def names(span: Span, parts: Parts) -> tuple[s.Name, ...]:
    return tuple(s.Name(t.text, span=t.span) for t in parts)


# ------------------------------------------------------------ parameters and types


@_rule
def params(span: Span, parts: Parts) -> tuple[s.Param, ...]:
    found = tuple(p for p in parts if p is not None)
    seen: set[str] = set()
    for parameter in found:
        if parameter.name and parameter.name in seen:
            refuse(
                "E013",
                f"the parameter `{parameter.name}` is there twice",
                parameter.name_span,
                help="give one of them another name",
            )
        seen.add(parameter.name)
    return found


BUILD["extern_params"] = params


@_rule
def param(span: Span, parts: Parts) -> s.Param:
    name, type_, scope, default = parts
    place = None if scope is None else one_of(scope, SCOPES, "a scope")
    return s.Param(name.text, type_, default, place, name_span=name.span, span=span)


@_rule
def extern_param(span: Span, parts: Parts) -> s.Param:
    return s.Param(parts[0].text, parts[1], name_span=parts[0].span, span=span)


@_rule
def bare_param(span: Span, parts: Parts) -> s.Param:
    return s.Param("", parts[0], name_span=span, span=span)


@_rule
def result(span: Span, parts: Parts) -> s.TypeExpr:
    kind: s.TypeExpr = parts[0]
    return kind


@_rule
def type_(span: Span, parts: Parts) -> s.TypeExpr:
    core_, returns, bounds_, optional = parts
    name, args, dims, caps_, _ = core_
    low, high = bounds_ or (None, None)
    inner = None
    if returns is not None:
        inner = s.TypeExpr(*returns[:4], span=returns[4])
    return s.TypeExpr(name, args, dims, caps_, inner, low, high, optional is not None, span=span)


BUILD["type"] = BUILD.pop("type_")


@_rule
def core(span: Span, parts: Parts) -> tuple[str, Any, Any, Any, Span]:
    name, args, dims, caps_ = parts
    return ".".join(t.text for t in name), args or (), dims or (), caps_ or (), span


def _tuple(span: Span, parts: Parts) -> tuple[Any, ...]:
    return tuple(parts)


BUILD.update(type_args=_tuple, type_dims=_tuple, caps=_tuple, bounds=_tuple)


@_rule
def cap(span: Span, parts: Parts) -> s.Expr:
    name, args = parts
    word = s.Name(name.text, span=name.span)
    return word if args is None else s.Call(word, args, span=span)


# ------------------------------------------------------------ policies


@_rule
def clauses(span: Span, parts: Parts) -> tuple[str | None, tuple[s.Clause, ...]]:
    return (None if parts[0] is None else parts[0].text), tuple(parts[1:])


@_rule
def on(span: Span, parts: Parts) -> s.Clause:
    word, subject, doing = parts
    return s.Clause(one_of(word, EVENTS, "an event of a policy"), subject, doing, span=span)


@_rule
def clause(span: Span, parts: Parts) -> s.Clause:
    return s.Clause("when", parts[0], parts[1], span=span)


@_rule
def otherwise(span: Span, parts: Parts) -> s.Clause:
    return s.Clause("otherwise", None, parts[0], span=span)


BUILD["actions"] = _tuple


@_rule
def action(span: Span, parts: Parts) -> s.Action:
    return s.Action(parts[0].text, parts[1], span=span)


@_rule
def the_rest(span: Span, parts: Parts) -> s.Rest:
    return s.Rest(span=span)


@_rule
def onward(span: Span, parts: Parts) -> s.Onward:
    return s.Onward(parts[0], span=span)


# ------------------------------------------------------------ strings


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|[\s\S])")


def unquote(token: Token) -> str:
    """The value of a string token; refuses escapes that mean nothing."""
    text = token.text[3:-3] if token.text.startswith('"""') else token.text[1:-1]
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\\" not in text:
        return text
    skip = 3 if token.text.startswith('"""') else 1

    def value(found: re.Match[str]) -> str:
        what = found[1]
        if what in ESCAPES:
            return ESCAPES[what]
        if len(what) == 5 and not 0xD800 <= int(what[1:], 16) <= 0xDFFF:
            return chr(int(what[1:], 16))
        at = token.span.start + skip + found.start()
        inside = Span(at, at + 2, token.span.line, token.span.column + skip + found.start())
        refuse(
            "E004",
            f"`\\{what[0]}` is not an escape that strings know",
            inside if skip == 1 else token.span,
            help=r"they are \n \t \r \\ \" and \u with four hexadecimal digits",
        )

    return _ESCAPE.sub(value, text)


@_rule
def doc(span: Span, parts: Parts) -> Doc:
    return Doc(unquote(parts[0]), span=span)


@_rule
def suite(span: Span, parts: Parts) -> Parts:
    return parts
