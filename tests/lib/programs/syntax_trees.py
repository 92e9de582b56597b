"""Hypothesis strategies for syntax trees: every construct, every nesting that the grammar allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from decgraph.dsl import syntax as s
from decgraph.dsl.lexer import CLAUSES, ITEMS, RESERVED, STATEMENTS

# Words that mean something elsewhere are names where the grammar wants names: `at`, `state`, `where`, `the`, ...
_SOFT = "at by to with until as using of over against per growing where import state model canvas run the rest steps"
_TAKEN = {*RESERVED, *CLAUSES, *ITEMS, *STATEMENTS, "most"} - set(_SOFT.split())
names = st.sampled_from(["x", "y", "t", "ctx", "p2", "_a", "Longer_Name", *_SOFT.split()]) | st.from_regex(
    r"[a-z_]{1,4}[0-9]?", fullmatch=True
).filter(lambda word: word not in _TAKEN)
numbers = st.sampled_from(["0", "4", "17", "0.5", "12.250", "1e-3", "2.5E+10"]).map(s.Number)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
strings = texts.map(s.String)
name_nodes = names.map(s.Name)


def some(strategy: st.SearchStrategy[Any], least: int = 0, most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """A tuple of a few."""
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Present or None."""
    return st.none() | strategy


def _keywords(inner: st.SearchStrategy[s.Expr], least: int = 0) -> st.SearchStrategy[tuple[s.Keyword, ...]]:
    pairs = st.lists(st.tuples(names, inner), min_size=least, max_size=2, unique_by=lambda pair: pair[0])
    return pairs.map(lambda found: tuple(s.Keyword(name, value) for name, value in found))


def _calls(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[s.Call]:
    return st.builds(s.Call, inner, some(inner), _keywords(inner))


def _runs(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[s.Call]:
    """What `run` runs: a name that no other word could be, or a part of one."""
    plain = st.sampled_from(["x", "autoregressive"]).map(s.Name)
    return st.builds(s.Call, plain | st.builds(s.Attr, plain, names), some(inner), _keywords(inner))


def _dims(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[tuple[s.Expr, ...]]:
    return some(inner | st.builds(s.UpTo, inner), 1)


def _larger(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[s.Expr]:
    subs = some(inner | st.builds(s.UpTo, inner) | st.builds(s.Slice, maybe(inner), maybe(inner)), 1)
    return st.one_of(
        some(inner).map(s.ListExpr),
        st.builds(s.Comprehension, inner, some(name_nodes, 1, 2), inner, maybe(inner)),
        _calls(inner),
        st.builds(s.Index, inner, subs),
        st.builds(s.Attr, inner, names),
        st.builds(s.Unary, st.sampled_from(["-", "not"]), inner),
        st.builds(s.Binary, st.sampled_from(["+", "-", "*", "/", "%", "^", "++"]), inner, inner),
        st.builds(s.Compare, st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "in", "not in"]), inner, inner),
        st.builds(s.BoolOp, st.sampled_from(["and", "or"]), some(inner, 2)),
        st.builds(s.IfExp, inner, inner, inner),
        st.builds(s.Where, inner, inner),
        st.builds(s.Range, inner, inner),
        st.builds(s.Run, _runs(inner), maybe(inner), inner, inner),
    )


_nested: st.SearchStrategy[s.Expr] = st.recursive(name_nodes | numbers | strings, _larger, max_leaves=5)
expressions: st.SearchStrategy[s.Expr] = st.deferred(lambda: _nested)
small = name_nodes | numbers | st.builds(s.Binary, st.sampled_from(["+", "*"]), name_nodes, numbers)
calls = _calls(expressions)
named_calls = name_nodes | st.builds(s.Call, name_nodes, some(expressions), _keywords(expressions))
places = st.recursive(
    name_nodes,
    lambda inner: st.builds(s.Attr, inner, names) | st.builds(s.Index, inner, some(small, 1, 2)),
    max_leaves=3,
)

# ------------------------------------------------------------ types and parameters

_dotted = some(names, 1, 2).map(".".join)
_caps = some(name_nodes | st.builds(s.Call, name_nodes, some(small, 1, 2)), 0, 2)
_cores = st.builds(s.TypeExpr, _dotted, some(expressions, 0, 2), st.just(()) | _dims(expressions), _caps)


@st.composite
def types(draw: st.DrawFn) -> s.TypeExpr:
    """A type with or without a result, bounds and a question mark."""
    core = draw(_cores)
    low, high = draw(st.just((None, None)) | st.tuples(expressions, expressions))
    returns, optional = draw(maybe(_cores)), draw(st.booleans())
    return s.TypeExpr(core.name, core.args, core.dims, core.with_, returns, low, high, optional)


scopes = st.sampled_from([None, "sequence", "session", "batch"])
params = st.lists(
    st.builds(s.Param, names, maybe(types()), maybe(expressions), scopes), max_size=3, unique_by=lambda p: p.name
).map(tuple)

# ------------------------------------------------------------ statements

grows = st.builds(s.Grow, expressions, maybe(expressions), _keywords(expressions))


@st.composite
def assigns(draw: st.DrawFn) -> s.Assign:
    """Assignments whose sides fit each other."""
    targets = draw(some(places, 1, 2))
    if draw(st.booleans()):
        return s.Assign(targets, "=", draw(some(expressions, len(targets), len(targets))))
    op = draw(st.sampled_from(["=", "+=", "-=", "++="]))
    return s.Assign(targets if op == "=" else targets[:1], op, (draw(expressions | grows),))


_claims = st.builds(s.Call, places, some(expressions), _keywords(expressions))
supports = some(expressions, 1).filter(
    lambda models: len(models) > 1 or not (isinstance(models[0], s.BoolOp) and models[0].op == "or")
)
simple = st.one_of(
    st.builds(s.Refines, _claims, st.sampled_from([None, "tokens", "distribution"]), maybe(expressions)),
    st.builds(s.Ensures, expressions, maybe(expressions)),
    st.builds(s.KeepsSupport, supports, maybe(expressions)),
    st.builds(s.AtMost, expressions, st.just("calls"), maybe(name_nodes), maybe(st.just("token")), maybe(expressions)),
    st.builds(s.AtMost, expressions, st.just("remasked"), st.none(), st.none(), maybe(expressions)),
    st.builds(s.State, names, types(), scopes, maybe(expressions)),
    st.builds(s.Canvas, names, expressions, maybe(expressions)),
    st.builds(s.CachePolicy, places, named_calls),
    st.builds(s.ModelDecl, names, expressions),
    st.builds(s.NoiseDecl, names, some(expressions, 1), names),
    st.builds(s.Verify, places, named_calls, expressions),
    st.builds(s.Prune, places, expressions),
    st.builds(s.Commit, expressions),
    st.builds(s.Accept, expressions),
    st.builds(s.Emit, expressions),
    st.builds(s.Return, some(expressions, 1)),
    st.builds(s.Break, maybe(expressions)),
    st.builds(s.Draw, some(places, 1, 2), expressions, maybe(named_calls), maybe(expressions)),
    grows,
    assigns(),
    st.builds(s.Unmask, places, maybe(expressions), expressions),
    st.builds(s.Remask, places, maybe(expressions)),
    st.builds(s.Do, calls),
)


def _blocks(inner: st.SearchStrategy[s.Stmt]) -> st.SearchStrategy[s.Stmt]:
    body = some(inner, 1, 2)
    return st.one_of(
        st.builds(s.While, expressions, body, maybe(expressions)),
        st.builds(s.Loop, body, maybe(expressions)),
        st.builds(s.Repeat, expressions, maybe(expressions), body),
        st.builds(s.For, some(name_nodes, 1, 2), expressions, body),
        st.builds(s.Lanes, names, expressions, body),
        st.builds(s.If, some(st.builds(s.Branch, expressions, body), 1, 2), st.just(()) | body),
        st.builds(s.Draft, names, maybe(expressions), st.sampled_from([None, "steps"]), body),
        st.builds(s.Across, st.just("batch"), body),
    )


_bodies: st.SearchStrategy[s.Stmt] = st.recursive(simple, _blocks, max_leaves=4)
statements: st.SearchStrategy[s.Stmt] = st.deferred(lambda: _bodies)

# ------------------------------------------------------------ files

wholes = expressions | st.just(s.Rest()) | st.builds(s.FromStart, expressions)
actions = st.builds(s.Action, st.sampled_from(["recompute", "reuse", "forget"]), wholes)
clauses = st.one_of(
    st.builds(s.Clause, st.sampled_from(["enter", "leave", "every", "when"]), expressions, some(actions, 1)),
    st.builds(s.Clause, st.just("otherwise"), st.none(), some(actions, 1)),
)
docs = maybe(texts)


def _items(kind: type[s.Item], *more: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Item]:
    body = some(statements, 1)
    return st.builds(kind, names, params, *more, body, docs) | st.builds(kind, names, params, *more, st.just(()), texts)


items = st.one_of(
    _items(s.Algorithm),
    _items(s.Rule),
    _items(s.Def, maybe(types())),
    st.builds(s.Policy, names, params, some(clauses, 1), docs),
    st.builds(
        s.Extern,
        names,
        st.lists(st.builds(s.Param, names | st.just(""), types()), max_size=3, unique_by=lambda p: p.name or id(p)).map(tuple),
        types(),
        maybe(names),
    ),
    st.builds(s.Import, _dotted, some(name_nodes, 1)),
)


def _defined(item: s.Item | s.Import) -> list[str]:
    return [n.name for n in item.names] if isinstance(item, s.Import) else [item.name]


def _apart(found: tuple[s.Item | s.Import, ...]) -> bool:
    defined = [name for item in found for name in _defined(item)]
    return len(set(defined)) == len(defined)


files = st.deferred(lambda: some(items, 0, 2).filter(_apart).map(s.File))
