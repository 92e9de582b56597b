"""Python expressions to expressions of the language, with spans into the Python text."""

from __future__ import annotations

import ast
from typing import NoReturn

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import failure
from decgraph.dsl.prelude import FORMS, SCOPES, TYPES
from decgraph.dsl.source import Source, Span

BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "^"}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "==",
    ast.IsNot: "!=",
}
CONSTANTS = {True: "yes", False: "no", None: "none"}
NULLARY = ("done", "greedy")


class PythonReader:
    """Reads expressions of one Python text. Draws inside expressions (`grow(sample(q))`) are lifted out before them:
    `lifted` gathers those of the statement being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lifted: list[S.Stmt] = []
        self.count = 0

    # -- places and errors
    def offset(self, line: int, column: int) -> int:
        """The offset of a Python position (1-based line, UTF-8 column)."""
        text = self.source.line(line)
        return self.source.line_start(line) + len(text.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> Span:
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self.source.span(start, end)

    def fail(self, node: ast.AST, message: str, help: str = "", code: str = "E600") -> NoReturn:
        raise failure(self.source, self.span(node), message, help, code)

    # -- expressions
    def expr(self, node: ast.expr) -> S.Expr:
        """The expression that a Python expression stands for. Raises DecError where the language has none."""
        read = getattr(self, "_" + type(node).__name__.lower(), None)
        if read is None:
            self.fail(
                node,
                f"{WORDS.get(type(node), 'this Python')} has no meaning in an algorithm",
                "give intermediate values names, and keep to arithmetic, comparisons, indexing and calls",
            )
        found = read(node)
        assert isinstance(found, S.Expr)
        return found

    def _name(self, node: ast.Name) -> S.Expr:
        return S.Name(node.id, span=self.span(node))

    def _constant(self, node: ast.Constant) -> S.Expr:
        span, v = self.span(node), node.value
        if v is None or isinstance(v, bool):
            return S.Name(CONSTANTS[v], span=span)
        if isinstance(v, str):
            return S.String(v, span=span)
        if isinstance(v, (int, float)):
            text = self.source.text[span.start : span.end].replace("_", "")
            plain = text.isdigit() or not text.lower().startswith(("0x", "0o", "0b"))
            return S.Number(text if plain else str(v), span=span)
        self.fail(node, f"a {type(v).__name__} has no meaning in an algorithm")

    def _attribute(self, node: ast.Attribute) -> S.Expr:
        span = self.span(node)
        name = Span(span.end - len(node.attr), span.end, *self.source.locate(span.end - len(node.attr)))
        return S.Attr(self.expr(node.value), node.attr, span=span, name_span=name)

    def _subscript(self, node: ast.Subscript) -> S.Expr:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        subs = tuple(self.slice(p) if isinstance(p, ast.Slice) else self.expr(p) for p in parts)
        return S.Index(self.expr(node.value), subs, span=self.span(node))

    def slice(self, node: ast.Slice) -> S.Slice:
        if node.step is not None:
            self.fail(node, "slices have no step here")
        return S.Slice(
            self.expr(node.lower) if node.lower else None, self.expr(node.upper) if node.upper else None, span=self.span(node)
        )

    def _unaryop(self, node: ast.UnaryOp) -> S.Expr:
        if not isinstance(node.op, (ast.USub, ast.Not)):
            self.fail(node, "of the operators with one operand there are - and not")
        return S.Unary("-" if isinstance(node.op, ast.USub) else "not", self.expr(node.operand), span=self.span(node))

    def _binop(self, node: ast.BinOp) -> S.Expr:
        op = BINARY.get(type(node.op))
        if op is None:
            self.fail(
                node, "this operator has no meaning in an algorithm", "there are + - * / % and **; int(a / b) rounds down"
            )
        return S.Binary(op, self.expr(node.left), self.expr(node.right), span=self.span(node))

    def _boolop(self, node: ast.BoolOp) -> S.Expr:
        op = "and" if isinstance(node.op, ast.And) else "or"
        self.no_draws(*node.values)
        return S.BoolOp(op, tuple(self.expr(v) for v in node.values), span=self.span(node))

    def _compare(self, node: ast.Compare) -> S.Expr:
        if len(node.ops) != 1:
            self.fail(node, "comparisons do not chain", "a <= b and b < c")
        return S.Compare(COMPARE[type(node.ops[0])], self.expr(node.left), self.expr(node.comparators[0]), span=self.span(node))

    def no_draws(self, *nodes: ast.expr) -> None:
        """These are evaluated sometimes, or many times: a draw in them cannot be lifted out."""
        for n in (n for node in nodes for n in ast.walk(node)):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "sample" and len(n.args) == 1:
                self.fail(n, "a draw does not stand here", "draw on a line of its own: x = sample(q)", code="E600")

    def _ifexp(self, node: ast.IfExp) -> S.Expr:
        self.no_draws(node.body, node.orelse)
        return S.IfExp(self.expr(node.test), self.expr(node.body), self.expr(node.orelse), span=self.span(node))

    def _list(self, node: ast.List) -> S.Expr:
        return S.ListExpr(tuple(self.expr(i) for i in node.elts), span=self.span(node))

    def _listcomp(self, node: ast.ListComp) -> S.Expr:
        part = node.generators[0]
        self.no_draws(node.elt, *part.ifs)
        if len(node.generators) != 1 or len(part.ifs) > 1 or not isinstance(part.target, ast.Name):
            self.fail(node, "a comprehension runs over one thing, with one name and at most one condition")
        name = S.Name(part.target.id, span=self.span(part.target))
        return S.Comprehension(
            self.expr(node.elt),
            (name,),
            self.iterable(part.iter),
            self.expr(part.ifs[0]) if part.ifs else None,
            span=self.span(node),
        )

    def iterable(self, node: ast.expr) -> S.Expr:
        """What a `for` runs over: `range(a, b)` is a..b."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            if node.keywords or not 1 <= len(node.args) <= 2:
                self.fail(node, "range takes an end, or a start and an end")
            ends = [self.expr(a) for a in node.args]
            lo = ends[0] if len(ends) == 2 else S.Number("0", span=self.span(node))
            return S.Range(lo, ends[-1], span=self.span(node))
        return self.expr(node)

    # -- calls
    def _call(self, node: ast.Call) -> S.Expr:
        span = self.span(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.fail(node, "arguments are written out one by one")
        if name in NULLARY and not node.args and not node.keywords:
            return S.Name(name, span=span)
        if name == "cat" and node.args and not node.keywords:
            out = self.expr(node.args[0])
            for a in node.args[1:]:
                out = S.Binary("++", out, self.expr(a), span=span)
            return out
        if name == "where" and len(node.args) == 2:
            return S.Where(self.expr(node.args[0]), self.expr(node.args[1]), span=span)
        if name == "run":
            return self.run(node)
        if name == "sample" and len(node.args) == 1:
            self.count += 1
            drawn = S.Name(f"drawn_{self.count}", span=span)
            self.lifted.append(self.draw(drawn, node))
            return drawn
        kwargs = tuple(S.Keyword(self.word(k), self.expr(k.value), span=self.span(k.value)) for k in node.keywords)
        return S.Call(self.expr(node.func), tuple(self.expr(a) for a in node.args), kwargs, span=span)

    def word(self, k: ast.keyword) -> str:
        return (k.arg or "").rstrip("_") if k.arg in ("in_", "with_", "from_", "of_", "as_") else k.arg or ""

    def draw(self, target: S.Expr, node: ast.Call) -> S.Draw:
        """`target ~ dist as stream using noise` of `sample(dist, as_ = output, using = noise)`."""
        stream = using = None
        for k in node.keywords:
            if k.arg == "as_":
                stream = self.expr(k.value)
            elif k.arg == "using":
                using = self.expr(k.value)
            else:
                self.fail(
                    k.value,
                    f"sample(dist) has no option `{k.arg}`",
                    "sample(p, as_=output), sample(q, using=noise), sample(q, k, replace=False)",
                )
        return S.Draw((target,), self.expr(node.args[0]), stream, using, span=self.span(node))

    def run(self, node: ast.Call) -> S.Expr:
        kw = {self.word(k): k.value for k in node.keywords}
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Call) or "until" not in kw or "at_most" not in kw:
            self.fail(
                node,
                "run takes a call of an algorithm, until = and at_most =",
                "run(autoregressive(target), from_=ctx, until=done(), at_most=8)",
            )
        call = self.expr(node.args[0])
        assert isinstance(call, S.Call)
        start = self.expr(kw["from"]) if "from" in kw else None
        return S.Run(call, start, self.expr(kw["until"]), self.expr(kw["at_most"]), span=self.span(node))

    # -- types
    def type(self, node: ast.expr) -> S.TypeExpr:
        """The type that an annotation stands for: `Causal`, `Annotated[int, 1, 32]`, `Annotated[Token, "vocab", "k"]`."""
        span = self.span(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.type(ast.copy_location(_placed(ast.parse(node.value, mode="eval").body, node), node))
        if isinstance(node, ast.Attribute):
            return S.TypeExpr(f"{ast.unparse(node)}", span=span)
        base, parts = node, list[ast.expr]()
        if isinstance(base, ast.Subscript) and named(base.value) == "Annotated" and isinstance(base.slice, ast.Tuple):
            base, *parts = base.slice.elts
        if not isinstance(base, ast.Name) or base.id not in TYPES:
            known = ", ".join(TYPES)
            self.fail(
                node,
                f"`{ast.unparse(node)}` is not a type",
                f"types are {known}; declarations are {', '.join(FORMS)}",
                code="E600",
            )
        name = TYPES[base.id]
        inner = tuple(self.dim(p) for p in parts)
        if name in ("int", "float", "prob") and len(inner) == 2:
            return S.TypeExpr(name, low=inner[0], high=inner[1], span=span)
        if name in ("features", "layers", "suffixes", "ngrams"):
            return S.TypeExpr(name, args=inner[:1], dims=inner[1:], span=span)
        if name == "causal" and inner and isinstance(inner[0], S.Name) and inner[0].name == "heads":
            return S.TypeExpr(name, with_=inner, span=span)
        return S.TypeExpr(name, dims=inner, span=span)

    def scoped(self, node: ast.expr) -> tuple[S.TypeExpr, str | None]:
        """A type and how long it lives: `PerSession[int]`."""
        if isinstance(node, ast.Subscript) and (scope := SCOPES.get(named(node.value))):
            return self.type(node.slice), scope
        return self.type(node), None

    def dim(self, node: ast.expr) -> S.Expr:
        """A size, or a name in quotes (`Annotated[Token, "<= 4 * k"]`)."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.strip()
            upto = text.startswith("<=")
            try:
                inner = ast.parse(text.removeprefix("<=").strip(), mode="eval").body
            except SyntaxError:
                self.fail(node, f"`{node.value}` is not a size", code="E600")
            found = self.expr(_placed(inner, node))
            return S.UpTo(found, span=self.span(node)) if upto else found
        return self.expr(node)


def named(node: ast.expr) -> str:
    """The last name of `name` or `module.name`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _placed(node: ast.expr, where: ast.expr) -> ast.expr:
    """A node that was read from a quoted text, with every place that of the quotes."""
    for n in ast.walk(node):
        ast.copy_location(n, where)
    return node


WORDS: dict[type, str] = {
    ast.Lambda: "a lambda",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.Tuple: "a tuple",
    ast.JoinedStr: "an f-string",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.NamedExpr: ":=",
    ast.GeneratorExp: "a generator",
    ast.Starred: "*",
    ast.DictComp: "a dict comprehension",
    ast.SetComp: "a set comprehension",
}
