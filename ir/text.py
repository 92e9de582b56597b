"""One text form of a module: printed, read back, and compared."""

from __future__ import annotations

import difflib

from decgraph.ir.parsing import IRTextError, Parser
from decgraph.ir.printing import Printer, print_op
from decgraph.ir.values import Module

__all__ = ["IRTextError", "difference", "equal", "parse_module", "print_module", "print_op"]


def print_module(module: Module, locs: bool = False) -> str:
    """The text of a module (`ir.printing` says how it looks); with `locs`, every op's source place after it.

    Raises InternalError where an attribute is not plain data.
    """
    return Printer(locs=locs).module(module)


def parse_module(text: str) -> Module:
    """The module that `text` prints: `print_module(parse_module(text))` is `text` again where that printed it.

    The result is not verified. Raises IRTextError: line, column, what was expected, what would do.
    """
    parser = Parser(text)
    try:
        return parser.module()
    except RecursionError:
        parser.fail("this is nested too deeply to be read")


def equal(a: Module, b: Module) -> bool:
    """Whether two modules are the same op for op.

    Names of values, source places, paths, docstrings and the wording of claims do not count; names of
    parameters, states, functions and externs do.
    """
    return not difference(a, b)


def difference(a: Module, b: Module) -> str:
    """What `equal` finds different, as a unified diff of both texts with values numbered ('' if nothing)."""
    left, right = (Printer(plain=True).module(m) for m in (a, b))
    if left == right:
        return ""
    return "\n".join(difflib.unified_diff(left.splitlines(), right.splitlines(), "a", "b", lineterm=""))
