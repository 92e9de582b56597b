"""Values are frozen: nothing is written into one behind its class's back."""

from __future__ import annotations

import ast
from pathlib import Path

from lib.repository import ROOT, room_files

MAKERS = {"__init__", "__post_init__", "__setstate__"}
NAMED_ONCE = {"dsl/lower/declare.py", "dsl/lower/targets.py"}
"""An IR value gets its source name when it is first bound."""


def faults_of(path: Path, text: str) -> list[str]:
    """Writes through `__dict__`, and `object.__setattr__` outside of a class's own making."""
    faults: list[str] = []

    def visit(node: ast.AST, making: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = making
            if isinstance(child, ast.FunctionDef):
                inside = child.name in MAKERS or making
            if isinstance(child, ast.Attribute) and child.attr == "__dict__":
                parent = ast.unparse(node)
                reads = isinstance(node, ast.Attribute) and node.attr == "get" or isinstance(node, ast.Call | ast.Dict)
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                    reads = True
                if not reads:
                    faults.append(f"{path.name}:{child.lineno}: {parent}")
            if isinstance(child, ast.Call) and ast.unparse(child.func) == "object.__setattr__" and not inside:
                faults.append(f"{path.name}:{child.lineno}: {ast.unparse(child)}")
            visit(child, inside)

    visit(ast.parse(text), False)
    return faults


def test_nothing_is_written_into_frozen_values() -> None:
    found = [
        fault
        for path in room_files()
        if path.relative_to(ROOT).as_posix() not in NAMED_ONCE
        for fault in faults_of(path, path.read_text(encoding="utf-8"))
    ]
    assert not found, "keep it in a memo (ir/memo.py) or in a declared field:\n" + "\n".join(found)


WRONG = """
op.__dict__["_rule"] = 1
x = model.__dict__.setdefault("_steps", {})
object.__setattr__(t, "a", 1)
m.__dict__.pop("x")
"""
RIGHT = """
x = cls.__dict__.get("a")
y = cls.__dict__["b"]
class A:
    def __post_init__(self):
        object.__setattr__(self, "a", 1)
"""


def test_writes_are_seen() -> None:
    assert len(faults_of(Path("wrong.py"), WRONG)) == 4
    assert not faults_of(Path("right.py"), RIGHT)
