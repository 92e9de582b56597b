"""The seconds that a recorded run's model calls take; drivers with something called between their statements: a profile's
clock, a recording's lines."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from decgraph.backends.run import loops_of
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.pending import Call, DraftLoopCall, MeetingCall
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, TorchDist
from decgraph.backends.torch.trees import TorchTree
from decgraph.ir.values import Op
from decgraph.runtime.trace import Timing

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


def timed_call(recorder: Timing, call: Call) -> object:
    """The value of a call, computed by itself, with the recorder told when it was computed. On a GPU the call is waited for."""
    if isinstance(call, MeetingCall):
        return call.compute_alone()
    start = time.perf_counter()
    try:
        value = call.compute_alone()
        if torch.cuda.is_initialized():  # something of this process lies on a GPU
            torch.cuda.synchronize()
        return value
    finally:
        recorder.computed(start, max(0, len(call.chosen) - 1) if isinstance(call, DraftLoopCall) else 0)


def recorded(driver: Driver, recorder: Timing) -> Driver:
    """A driver that tells a recorder the lines that run, of each statement and of what it computes within, and the iterations
    of loops that call models."""
    loops = loops_of(driver.lines.values())
    parts = {n: tuple(dict.fromkeys(part.loc for part in parts_of(op) if part.loc.line)) for n, op in driver.lines.items()}

    def at(line: int) -> None:
        for loc in parts.get(line, ()):
            recorder.ran(loc)
        if driver.lines.get(line) in loops:
            recorder.turn(outermost=loops[driver.lines[line]])

    return watched(driver, at)


def parts_of(op: Op) -> Iterable[Op]:
    """The operations that a statement computes whenever it runs."""
    return (op, *op.regions[0].walk()) if op.opcode == "segment" else (op,)


def offer(m: Machine, t: TorchTree, row: object, children: Ids, draws: Draws | np.ndarray | tuple[()]) -> None:
    """Tell the recorder of a run the probabilities of the drafts, children int64[n] of one node, that a rule tests."""
    assert m.recorder is not None
    for i, c in enumerate(children):
        token = int(t.token[c])
        p, raw = probabilities(row, token)
        m.recorder.offer(int(c), p, law_of(m, draws, i, token), raw)


def law_of(m: Machine, draws: Draws | np.ndarray | tuple[()], i: int, token: int) -> float | None:
    """The probability of draft i of several [n] under the distribution that it was drawn from."""
    return float(draws.pick(i).law_prob(m.request, m.vocab_size)) if isinstance(draws, TorchDraws | Mixed) else None


def probabilities(row: object, token: int) -> tuple[float | None, float | None]:
    """The probability of a token where the evidence at a node is a distribution, and that before the request's shaping."""
    if not isinstance(row, TorchDist) or row.shape != () or not 0 <= token < row.rows.size:
        return None, None
    return float(row.probability(np.asarray(token))), float(row.raw.probability(np.asarray(token)))
