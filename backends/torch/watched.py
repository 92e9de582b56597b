"""Generated drivers with something called between their statements: a profile's clock, a recording's lines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from decgraph.backends.torch.driver import Driver

T = TypeVar("T")
Item = TypeVar("Item")


def watched(
    driver: Driver,
    at: Callable[[int], None],
    *,
    now: Callable[[], T | None] = lambda: None,
    back: Callable[[T | None], None] = lambda before: None,
) -> Driver:
    """The driver with `at(n)` called before every statement, where n is its line in the generated text, which does not show the
    calls. now, back: what a rule or a condition, which the walk calls, begins and ends with: back(what now() gave)."""

    def over(line: int, items: Iterable[Item]) -> Iterator[Item]:
        at(line)
        for item in items:
            yield item
            at(line)

    tree = ast.fix_missing_locations(_Between().visit(ast.parse(driver.source)))
    scope: dict[str, Any] = dict(driver.driver.__globals__)
    scope.update(_at=at, _over=over, _now=now, _back=back)
    exec(compile(tree, driver.filename, "exec"), scope)  # our own text, with calls between its statements
    starts = {name: scope[start.__name__] for name, start in driver.starts.items()}
    return replace(driver, driver=scope[driver.driver.__name__], starts=starts)


class _Between(ast.NodeTransformer):
    """Puts the calls between the statements of functions."""

    depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        node.body = self.block(node.body)
        if self.depth:  # a rule or a condition, called by the walk
            before = ast.parse("_before = _now()").body
            after = ast.parse("_back(_before)").body
            node.body = [*before, ast.Try(body=node.body, handlers=[], orelse=[], finalbody=after)]
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = ast.Call(ast.Name("_over", ast.Load()), [ast.Constant(node.lineno), node.iter], [])
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.test = ast.BoolOp(ast.Or(), [_at(node.lineno), node.test])
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> ast.With:
        self.generic_visit(node)
        node.body = self.block(node.body)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for n, statement in enumerate(body):
            doc = n == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not doc and not isinstance(statement, ast.FunctionDef | ast.Global | ast.Nonlocal):
                out.append(ast.Expr(_at(statement.lineno)))
            out.append(statement)
        return out


def _at(line: int) -> ast.Call:
    return ast.Call(ast.Name("_at", ast.Load()), [ast.Constant(line)], [])
