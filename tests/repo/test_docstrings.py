"""Docstrings of public functions: what is raised, the shapes of arrays, units, and the source of what papers publish."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from lib.repository import ROOMS, ROOT, room_files

Function = ast.FunctionDef | ast.AsyncFunctionDef
SHAPE = re.compile(r"\[[^\]]*\]|scalar|shape", re.I)  # [n, vocab], "a scalar", "of the shape of x"
UNITS = {
    re.compile(r"(^|_)(seconds|timeout|duration)$"): re.compile(r"second", re.I),
    re.compile(r"(^|_)(memory|bytes)$"): re.compile(r"bytes|[KMG]iB|memory", re.I),
}


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Public functions and the public methods of public classes, by name."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from ((f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, Function))


def raises(node: Function) -> bool:
    """Whether its own body, not that of a function in it, raises a DecError."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        found = stack.pop()
        if isinstance(found, ast.Raise) and found.exc is not None and ast.unparse(found.exc).startswith("DecError("):
            return True
        if not isinstance(found, Function | ast.Lambda):
            stack += ast.iter_child_nodes(found)
    return False


def faults_of(text: str) -> list[str]:
    faults = []
    for name, node in functions(ast.parse(text)):
        if node.name.startswith("_"):
            continue
        doc = ast.get_docstring(node) or ""
        signature = ast.unparse(node.args) + (ast.unparse(node.returns) if node.returns else "")
        where = f"{node.lineno} {name}"
        if not doc:
            # A method may say nothing where its class does, and an entry of a table (decorated) where its key does.
            if "." not in name and not node.decorator_list:
                faults.append(f"{where}: has no docstring")
            continue
        # The docstring of a verb's `command` is what `--help` prints, for people at a terminal.
        if raises(node) and "Raises" not in doc and name != "command":
            faults.append(f"{where}: raises DecError and does not say when (`Raises DecError ...`)")
        if re.search(r"\b(Tensor|ndarray|NDArray)\b", signature) and not SHAPE.search(doc):
            faults.append(f"{where}: takes or returns arrays and says no shape")
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if re.search(
                r"\b(Memory|Remembered|CanvasMemory)\b", ast.unparse(argument.annotation or argument)
            ):  # a model's, not of bytes
                continue
            faults += [
                f"{where}: {argument.arg} has no unit" for n, u in UNITS.items() if n.search(argument.arg) and not u.search(doc)
            ]
    return faults


@pytest.mark.parametrize("room", ["decgraph", *ROOMS])
def test_public_functions_say_what_they_take_and_raise(room: str) -> None:
    found = {p.relative_to(ROOT).as_posix(): faults_of(p.read_text(encoding="utf-8")) for p in room_files(room)}
    faults = [f"{path}:{fault}" for path, all_of in found.items() for fault in all_of]
    assert not faults, "\n".join(faults)


def test_every_algorithm_names_its_source() -> None:
    from decgraph import stdlib

    assert [name for name in stdlib.names() if not stdlib.published(stdlib.text(name))] == ["autoregressive"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def f():\n    pass", "no docstring"),
        ('def f():\n    """Say."""\n    raise DecError("x")', "does not say when"),
        ('def f(x: Tensor):\n    """Say."""', "no shape"),
        ('class A:\n    def f(self) -> np.ndarray:\n        """Say."""', "no shape"),
        ('def f(seconds: float):\n    """Say."""', "no unit"),
    ],
)
def test_the_check_sees_what_is_missing(text: str, word: str) -> None:
    (fault,) = faults_of(text)
    assert word in fault


@pytest.mark.parametrize(
    "text",
    [
        "def _f():\n    raise DecError('x')",
        'def f(x: Tensor):\n    """float32[n, vocab]."""',
        'class A:\n    """Say."""\n    def f(self): ...',
        'def f():\n    """Say."""\n    def g():\n        raise DecError("x")',
        'def command():\n    """Say."""\n    raise DecError("x")',
    ],
)
def test_the_check_lets_right_docstrings_pass(text: str) -> None:
    assert faults_of(text) == []
