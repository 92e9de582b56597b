"""Trees back to text: one line for every expression, type and statement head. `format.py` makes pages of
them.
"""

from __future__ import annotations

from collections.abc import Callable

from decgraph.dsl import syntax as s

# How tightly an expression binds, by the rule of grammar.lark that makes it.
_RUN, _COND, _FILT, _OR, _AND, _NOT, _CMP, _RANGE, _ARITH, _TERM, _FACTOR, _POWER, _POSTFIX = range(13)
_BINARY = {"+": _ARITH, "-": _ARITH, "++": _ARITH, "*": _TERM, "/": _TERM, "%": _TERM, "^": _POWER}
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def expression(node: s.Expr) -> str:
    """An expression on one line, with the brackets it needs and no others."""
    return _at(node, _RUN)


def _at(node: s.Expr, least: int) -> str:
    """An expression where the grammar wants one that binds at least so tightly."""
    level, text = _EXPRESSIONS[type(node)](node)
    return text if level >= least else f"({text})"


Printed = tuple[int, str]


def _binary(node: s.Binary) -> Printed:
    level = _BINARY[node.op]
    if level == _POWER:
        return level, f"{_at(node.left, _POSTFIX)} ^ {_at(node.right, _FACTOR)}"
    return level, f"{_at(node.left, level)} {node.op} {_at(node.right, level + 1)}"


def _unary(node: s.Unary) -> Printed:
    if node.op == "not":
        return _NOT, f"not {_at(node.operand, _NOT)}"
    return _FACTOR, f"-{_at(node.operand, _FACTOR)}"


def _bool_op(node: s.BoolOp) -> Printed:
    if node.op == "and":
        return _AND, " and ".join(_at(v, _NOT) for v in node.values)
    # `and` inside `or` gets brackets that the grammar does not need: readers do
    return _OR, " or ".join(_at(v, _NOT) for v in node.values)


def _slice(node: s.Slice) -> Printed:
    return (_POSTFIX, f"{'' if node.lo is None else expression(node.lo)}:{'' if node.hi is None else expression(node.hi)}")


def _call(node: s.Call) -> Printed:
    given = [expression(a) for a in node.args] + [keyword(k) for k in node.kwargs]
    return _POSTFIX, f"{_at(node.func, _POSTFIX)}({', '.join(given)})"


def _comprehension(node: s.Comprehension) -> Printed:
    cond = "" if node.cond is None else f" if {_at(node.cond, _FILT)}"
    names = ", ".join(n.name for n in node.names)
    return _POSTFIX, f"[{expression(node.element)} for {names} in {_at(node.iter, _FILT)}{cond}]"


def _run(node: s.Run) -> Printed:
    start = "" if node.start is None else f" from {_at(node.start, _POSTFIX)}"
    until, most = _at(node.until, _OR), _at(node.at_most, _POSTFIX)
    return _RUN, f"run {expression(node.call)}{start} until {until} at most {most}"


def keyword(node: s.Keyword) -> str:
    """`name = value`."""
    return f"{node.name} = {expression(node.value)}"


def string(value: str) -> str:
    """A string literal on one line."""
    return '"' + "".join(_escape(c) for c in value) + '"'


def _escape(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    return character if character.isprintable() or ord(character) > 0xFFFF else f"\\u{ord(character):04x}"


def docstring(value: str) -> str:
    """A docstring in triple quotes, which keeps its line ends."""
    out = []
    for at, character in enumerate(value):
        quote = character == '"' and (at == len(value) - 1 or value[at + 1] == '"' or value[at - 1 : at] == '"')
        keeps = character in "\n\t" or (character == '"' and not quote)
        out.append(character if keeps else _escape(character))
    return f'"""{"".join(out)}"""'


_EXPRESSIONS: dict[type, Callable[..., Printed]] = {
    s.Name: lambda n: (_POSTFIX, n.name),
    s.Number: lambda n: (_POSTFIX, n.text),
    s.String: lambda n: (_POSTFIX, string(n.value)),
    s.ListExpr: lambda n: (_POSTFIX, f"[{', '.join(expression(i) for i in n.items)}]"),
    s.Comprehension: _comprehension,
    s.Call: _call,
    s.Index: lambda n: (_POSTFIX, f"{_at(n.value, _POSTFIX)}[{', '.join(expression(i) for i in n.subs)}]"),
    s.Slice: _slice,
    s.UpTo: lambda n: (_POSTFIX, f"<= {_at(n.bound, _ARITH)}"),
    s.Attr: lambda n: (_POSTFIX, f"{_at(n.value, _POSTFIX)}.{n.name}"),
    s.Unary: _unary,
    s.Binary: _binary,
    s.Compare: lambda n: (_CMP, f"{_at(n.left, _RANGE)} {n.op} {_at(n.right, _RANGE)}"),
    s.BoolOp: _bool_op,
    s.IfExp: lambda n: (_COND, f"{_at(n.then, _FILT)} if {_at(n.cond, _FILT)} else {_at(n.orelse, _COND)}"),
    s.Where: lambda n: (_FILT, f"{_at(n.value, _OR)} where {_at(n.cond, _OR)}"),
    s.Range: lambda n: (_RANGE, f"{_at(n.lo, _ARITH)}..{_at(n.hi, _ARITH)}"),
    s.Run: _run,
    s.Rest: lambda n: (_POSTFIX, "the rest"),
    s.FromStart: lambda n: (_POSTFIX, f"from {expression(n.start)}"),
}


# ------------------------------------------------------------ types and heads


def type_expr(node: s.TypeExpr) -> str:
    """A type on one line."""
    text = _core(node)
    if node.returns is not None:
        text += f" -> {_core(node.returns)}"
    if node.low is not None and node.high is not None:
        text += f" in {_at(node.low, _ARITH)}..{_at(node.high, _ARITH)}"
    return text + ("?" if node.optional else "")


def _core(node: s.TypeExpr) -> str:
    text = node.name
    if node.args:
        text += f"({', '.join(expression(a) for a in node.args)})"
    if node.dims:
        text += f"[{', '.join(expression(d) for d in node.dims)}]"
    if node.with_:
        text += f" with {' and '.join(expression(c) for c in node.with_)}"
    return text


def param(node: s.Param) -> str:
    """A parameter on one line."""
    if not node.name and node.type is not None:
        return type_expr(node.type)
    text = node.name
    if node.type is not None:
        text += f": {type_expr(node.type)}"
    if node.scope is not None:
        text += f" per {node.scope}"
    return text if node.default is None else f"{text} = {expression(node.default)}"


def head(node: s.Item) -> str:
    """The first line of a definition."""
    if isinstance(node, s.Extern):
        place = "" if node.where is None else f" on {node.where}"
        return f"extern {node.name}({_params(node.params)}) -> {type_expr(node.returns)}{place}"
    word = type(node).__name__.lower()
    params: tuple[s.Param, ...] = getattr(node, "params", ())
    returns = f" -> {type_expr(node.returns)}" if isinstance(node, s.Def) and node.returns is not None else ""
    return f"{word} {node.name}({_params(params)}){returns}:"


def _params(params: tuple[s.Param, ...]) -> str:
    return ", ".join(param(p) for p in params)


# ------------------------------------------------------------ statements


def statement(node: s.Stmt) -> str:
    """A simple statement, or the head of a compound one (of an `if`, its first), on one line."""
    return _STATEMENTS[type(node)](node)


def _opt(word: str, node: s.Expr | None, least: int = _RUN) -> str:
    return "" if node is None else f" {word} {_at(node, least)}"


def _list(nodes: tuple[s.Expr, ...]) -> str:
    return ", ".join(expression(n) for n in nodes)


def _targets(nodes: tuple[s.Expr, ...]) -> str:
    return ", ".join(_at(n, _POSTFIX) for n in nodes)


def _state(node: s.State) -> str:
    scope = "" if node.scope is None else f" per {node.scope}"
    return f"state {node.name}: {type_expr(node.type)}{scope}{_opt('=', node.init)}"


def _refines(node: s.Refines) -> str:
    mode = "" if node.mode is None else f" in {node.mode}"
    return f"refines {expression(node.spec)}{mode}{_opt('when', node.when)}"


def _keeps(node: s.KeepsSupport) -> str:
    return f"keeps support of {' or '.join(_at(m, _AND) for m in node.models)}{_opt('when', node.when)}"


def _at_most(node: s.AtMost) -> str:
    of, per = "" if node.model is None else f" of {node.model.name}", "" if node.per is None else f" a {node.per}"
    return f"at most {_at(node.bound, _ARITH)} {node.what}{of}{per}{_opt('when', node.when)}"


def _draw(node: s.Draw) -> str:
    stream = _opt("as", node.stream, _POSTFIX)
    return f"{_targets(node.targets)} ~ {expression(node.dist)}{stream}{_opt('using', node.using)}"


def _grow(node: s.Grow) -> str:
    columns = f" with {', '.join(keyword(c) for c in node.columns)}" if node.columns else ""
    return f"grow {expression(node.what)}{_opt('at', node.at)}{columns}"


def _assign(node: s.Assign) -> str:
    values = [_grow(v) if isinstance(v, s.Grow) else expression(v) for v in node.values]
    return f"{_targets(node.targets)} {node.op} {', '.join(values)}"


def _verify(node: s.Verify) -> str:
    tree, by = _at(node.tree, _POSTFIX), _at(node.rule, _POSTFIX)
    return f"verify {tree} by {by} against {expression(node.against)}"


def _draft(node: s.Draft) -> str:
    return f"draft {node.tree}{_opt('of', node.of)}{'' if node.over is None else f' over {node.over}'}:"


def _names(nodes: tuple[s.Name, ...]) -> str:
    return ", ".join(n.name for n in nodes)


_STATEMENTS: dict[type, Callable[..., str]] = {
    s.Refines: _refines,
    s.Ensures: lambda n: f"ensures {expression(n.expr)}{_opt('when', n.when)}",
    s.KeepsSupport: _keeps,
    s.AtMost: _at_most,
    s.State: _state,
    s.Canvas: lambda n: f"canvas {n.name}: {expression(n.length)}{_opt('growing to', n.grow_to)}",
    s.CachePolicy: lambda n: f"cache {_at(n.model, _POSTFIX)} by {_at(n.policy, _POSTFIX)}",
    s.ModelDecl: lambda n: f"model {n.name} = {expression(n.value)}",
    s.Note: lambda n: f"note {n.name} = {expression(n.value)}",
    s.NoiseDecl: lambda n: f"noise {n.name}[{_list(n.dims)}]: {n.kind}",
    s.Verify: _verify,
    s.Prune: lambda n: f"prune {_at(n.tree, _POSTFIX)} to {expression(n.to)}",
    s.Commit: lambda n: f"commit {expression(n.value)}",
    s.Accept: lambda n: f"accept {expression(n.value)}",
    s.Emit: lambda n: f"emit {expression(n.value)}",
    s.Return: lambda n: f"return {_list(n.values)}",
    s.Break: lambda n: f"break{_opt('if', n.cond)}",
    s.Draw: _draw,
    s.Grow: _grow,
    s.Assign: _assign,
    s.Unmask: lambda n: f"unmask {_at(n.target, _POSTFIX)}{_opt('where', n.where, _OR)} with {expression(n.with_)}",
    s.Remask: lambda n: f"remask {_at(n.target, _POSTFIX)}{_opt('where', n.where, _OR)}",
    s.Do: lambda n: expression(n.call),
    s.While: lambda n: f"while {expression(n.cond)}{_opt('at most', n.at_most)}:",
    s.Loop: lambda n: f"loop{_opt('at most', n.at_most)}:",
    s.Repeat: lambda n: f"repeat {expression(n.count)}{_opt('while', n.cond)}:",
    s.For: lambda n: f"for {_names(n.names)} in {expression(n.iter)}:",
    s.Lanes: lambda n: f"lanes {n.name} in {expression(n.count)}:",
    s.If: lambda n: f"if {expression(n.branches[0].cond)}:",
    s.Draft: _draft,
    s.Across: lambda n: f"across {n.name}:",
}


def clause_head(node: s.Clause) -> str:
    """`on enter b:`, `when cond:` or `otherwise:`."""
    if node.event == "otherwise" or node.subject is None:
        return f"{node.event}:"
    word = "when" if node.event == "when" else f"on {node.event}"
    return f"{word} {expression(node.subject)}:"


def actions(node: s.Clause) -> str:
    """The actions of a clause on one line."""
    return ", ".join(f"{a.verb} {expression(a.what)}" for a in node.actions)
