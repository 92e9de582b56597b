"""What the rules of expressions build. `build.py` says how these functions are called."""

from __future__ import annotations

from decgraph.dsl import syntax as s
from decgraph.dsl.build import BUILD, Parts, _rule, refuse, unquote
from decgraph.dsl.source import Span


@_rule
def name(span: Span, parts: Parts) -> s.Name:
    return s.Name(parts[0].text, span=span)


@_rule
def number(span: Span, parts: Parts) -> s.Number:
    return s.Number(parts[0].text, span=span)


@_rule
def string(span: Span, parts: Parts) -> s.String:
    return s.String(unquote(parts[0]), span=span)


def _list(span: Span, parts: Parts) -> s.ListExpr:
    return s.ListExpr(tuple(p for p in parts if p is not None), span=span)


BUILD["list"] = _list


@_rule
def comprehension(span: Span, parts: Parts) -> s.Comprehension:
    return s.Comprehension(parts[0], parts[1], parts[2], parts[3], span=span)


@_rule
def column(span: Span, parts: Parts) -> s.Keyword:
    return s.Keyword(parts[0].text, parts[1], name_span=parts[0].span, span=span)


@_rule
def keyword(span: Span, parts: Parts) -> s.Keyword:
    found: s.Keyword = parts[0]
    return found


@_rule
def call(span: Span, parts: Parts) -> s.Call:
    func, *given = parts
    args: list[s.Expr] = []
    kwargs: list[s.Keyword] = []
    for argument in given:
        if argument is None:
            continue
        if isinstance(argument, s.Keyword):
            if any(k.name == argument.name for k in kwargs):
                refuse("E013", f"the argument `{argument.name}` is given twice", argument.name_span)
            kwargs.append(argument)
        elif kwargs:
            refuse(
                "E013",
                "an argument without a name follows one with a name",
                argument.span,
                help=f"put it before `{kwargs[0].name} = ...`, or name it too",
            )
        else:
            args.append(argument)
    return s.Call(func, tuple(args), tuple(kwargs), span=span)


@_rule
def index(span: Span, parts: Parts) -> s.Index:
    return s.Index(parts[0], tuple(parts[1:]), span=span)


@_rule
def attr(span: Span, parts: Parts) -> s.Attr:
    return s.Attr(parts[0], parts[1].text, name_span=parts[1].span, span=span)


def _slice(span: Span, parts: Parts) -> s.Slice:
    return s.Slice(parts[0], parts[1], span=span)


BUILD["slice"] = _slice


@_rule
def up_to(span: Span, parts: Parts) -> s.UpTo:
    return s.UpTo(parts[0], span=span)


@_rule
def negative(span: Span, parts: Parts) -> s.Unary:
    return s.Unary("-", parts[0], span=span)


@_rule
def not_op(span: Span, parts: Parts) -> s.Unary:
    return s.Unary("not", parts[0], span=span)


@_rule
def binary(span: Span, parts: Parts) -> s.Binary:
    return s.Binary(parts[1], parts[0], parts[2], span=span)


@_rule
def power(span: Span, parts: Parts) -> s.Binary:
    return s.Binary("^", parts[0], parts[1], span=span)


@_rule
def compare(span: Span, parts: Parts) -> s.Compare:
    return s.Compare(parts[1], parts[0], parts[2], span=span)


@_rule
def and_op(span: Span, parts: Parts) -> s.BoolOp:
    return s.BoolOp("and", tuple(parts), span=span)


@_rule
def or_op(span: Span, parts: Parts) -> s.BoolOp:
    return s.BoolOp("or", tuple(parts), span=span)


@_rule
def where(span: Span, parts: Parts) -> s.Where:
    return s.Where(parts[0], parts[1], span=span)


@_rule
def if_exp(span: Span, parts: Parts) -> s.IfExp:
    return s.IfExp(parts[1], parts[0], parts[2], span=span)


@_rule
def range_(span: Span, parts: Parts) -> s.Range:
    return s.Range(parts[0], parts[1], span=span)


@_rule
def run(span: Span, parts: Parts) -> s.Run:
    return s.Run(parts[0], parts[1], parts[2], parts[3], span=span)
