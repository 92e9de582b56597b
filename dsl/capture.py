"""Algorithms as Python functions: `@decgraph.algorithm` reads the function's source and makes the same IR as .dec text.

The function is never called: its body is translated statement by statement to the syntax tree (`capture_statements.py`,
`capture_expressions.py`), with spans into the Python file, so that every message points there.

    from decgraph.dsl.prelude import *

    @decgraph.algorithm
    def speculative(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 32] = 4) -> None:
        refines(autoregressive(target), in_="distribution")
        while not done():
            with draft() as t:
                for _ in repeat(gamma):
                    t.grow(sample(drafter(t.leaves)))
            verify(t, by=rejection, against=target(t))
            commit(t.accepted)
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from decgraph.dsl import syntax as S
from decgraph.dsl.capture_expressions import PythonReader
from decgraph.dsl.capture_statements import definition
from decgraph.dsl.format import format_tree
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.lower.module import lower_file, settings_taken
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.values import Module

if TYPE_CHECKING:
    from decgraph.dsl.prelude import Rule

F = TypeVar("F", bound=Callable[..., object])


class Captured:
    """A function that was read as an algorithm, a rule or a helper.

    `item` is its definition as a syntax tree, `source` the Python file, `module` the IR (of an algorithm).
    """

    def __init__(self, function: Callable[..., object], kind: str) -> None:
        self.kind, self._function = kind, function
        node, self.source = source_of(function)
        self.item: S.Algorithm | S.Rule | S.Def = definition(PythonReader(self.source), node, kind)

    @property
    def name(self) -> str:
        return self.item.name

    def _others(self) -> dict[str, Captured]:
        """What this one names that was captured too, and what those name; itself last."""
        found: dict[str, Captured] = {}
        todo: list[Captured] = [self]
        while todo:
            one = todo.pop()
            found = {one.name: one, **found}
            cells = inspect.getclosurevars(one._function)
            around = {**one._function.__globals__, **cells.nonlocals}
            for name in sorted({n.name for n in S.walk(one.item) if isinstance(n, S.Name)} - found.keys()):
                other = around.get(name)
                other = getattr(other, "__dict__", {}).get("definition", other)  # a decgraph.Algorithm keeps it there
                if isinstance(other, Captured):
                    todo.append(other)
        return found

    @cached_property
    def module(self) -> Module:
        """The IR. Raises DecError with places in the Python file."""
        if not isinstance(self.item, S.Algorithm):
            raise DecError(f"`{self.name}` is a {self.kind}: it has no IR of its own", hint="use it in an algorithm")
        if taken := settings_taken(self.item, self.source):
            raise DecError(taken)
        file = S.File((self.item,))
        names = ItemsInReach(file, self.source)
        names.definitions.update({n: (c.item, c.source) for n, c in self._others().items()})
        return lower_file(file, self.source, names=names)

    @cached_property
    def written(self) -> str:
        """The same as text of a .dec file, with the captured rules, helpers and algorithms that it names."""
        return format_tree(S.File(tuple(c.item for c in self._others().values())))

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise DecError(
            f"`{self.name}` is a {self.kind} of decgraph, not a Python function", hint="name it in a function under @algorithm"
        )

    def __repr__(self) -> str:
        return f"<decgraph {self.kind} {self.name}>"


def algorithm(function: Callable[..., object]) -> Captured:
    """Read a function as an algorithm. Raises DecError where it says something that the language has not."""
    return Captured(function, "algorithm")


def rule(function: Callable[..., object]) -> Rule:
    """Read a function as a verification rule. For type checkers it is what `verify(t, by=...)` takes."""
    return cast("Rule", Captured(function, "rule"))


def helper(function: F) -> F:
    """Read a function as a pure helper (`def` in .dec text). For type checkers it stays the function that it was."""
    return cast(F, Captured(function, "helper"))


@lru_cache(maxsize=32)
def _tree(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


def source_of(function: Callable[..., object]) -> tuple[ast.FunctionDef, Source]:
    """The syntax tree of a function and the file it stands in. Raises DecError where there is no text to read."""
    if not inspect.isfunction(function):
        raise DecError(f"@decgraph.algorithm reads functions, got {type(function).__name__}")
    path = inspect.getsourcefile(function) or function.__code__.co_filename
    text = "".join(linecache.getlines(path))
    if not text:
        raise DecError(
            f"the source of `{function.__name__}` cannot be read ({path})",
            hint="put the function into a file: @decgraph.algorithm reads its text",
        )
    line = function.__code__.co_firstlineno
    for node in ast.walk(_tree(path, text)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= line <= node.lineno:
                return node, Source(text, path)
    raise DecError(f"`{function.__name__}` is no longer at {path}:{line}", hint="import the file again")


__all__ = ["Captured", "algorithm", "helper", "rule"]
