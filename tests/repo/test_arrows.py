"""Imports between rooms go one way, and heavy libraries load when used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest
from lib.repository import ROOMS, ROOT, may_be_heavy, module_name, room_files

FLOORS: tuple[set[str], ...] = (
    {"errors"},
    {"cache", "extras", "html", "version"},
    {"ir"},
    {"dsl", "passes", "runtime"},
    {"backends", "stdlib"},
    {"check", "zoo"},
    {"models", "views"},
    {"api"},  # `Algorithm`: what the rooms above take from a user and give back
    {"hf", "editor", "strategies"},
    {"serve", "evals", "testing"},
    {"bench", "scale"},
    {"decgraph"},  # decgraph/__init__.py: the names that users import
    {"cli"},
    {"__main__"},
)
"""Rooms, and files of decgraph/ that are in none, from the ground up. A file imports of its own room or of floors below."""
ARROWS: dict[str, set[str]] = {
    "ir": set(),
    "dsl": {"ir"},
    "passes": {"ir"},
    "runtime": {"ir"},
    "backends": {"ir", "runtime"},
    "stdlib": {"dsl", "ir"},
    "check": {"backends", "runtime", "passes", "stdlib", "dsl", "ir"},
    "zoo": {"runtime"},
    "views": {"runtime", "ir", "check"},
    "hf": {"api", "zoo", "backends", "runtime", "passes", "ir"},
    "editor": {"api", "runtime", "passes", "stdlib", "dsl", "ir", "check", "views"},
    "serve": {"api", "runtime", "passes", "stdlib", "dsl", "ir", "zoo", "hf", "backends"},
    # backends and check: tasks whose runs are enumerated
    "bench": {"api", "models", "runtime", "stdlib", "ir", "zoo", "hf", "backends", "check"},
    "scale": {"api", "serve", "runtime", "passes", "stdlib", "dsl", "ir", "zoo", "hf", "backends"},
}
"""Of the rooms below the command line, what each may import of floors below it; the floors up to `version` are everyone's."""
EVERYONES = FLOORS[0] | FLOORS[1]
HEAVY = {"torch", "transformers", "tokenizers", "safetensors", "triton", "huggingface_hub"}
TERMINAL = {"typer", "rich", "click"}


def floor(name: str) -> int:
    """The number of the floor on which a room, or a file of decgraph/, stands."""
    return next(n for n, names in enumerate(FLOORS) if name in names)


def unit(module: str) -> str:
    """The room of a module of decgraph, or the file of decgraph/ that it is; "decgraph" for the package itself."""
    return [*module.split("."), "decgraph"][1]


def imported(path: Path, tree: ast.AST) -> Iterator[tuple[ast.stmt, str, bool]]:
    """(statement, absolute module, whether importing the file runs it)."""

    def visit(node: ast.AST, at_import: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield child, alias.name, at_import
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    package = module_name(path).split(".")
                    keep = len(package) - child.level + (path.name == "__init__.py")
                    base = ".".join([*package[:keep], *([base] if base else [])])
                if base in {"decgraph", *(f"decgraph.{room}" for room in ROOMS)}:
                    for alias in child.names:
                        yield child, f"{base}.{alias.name}", at_import
                else:
                    yield child, base, at_import
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for n, other in enumerate((*child.body, *child.orelse)):
                    yield from visit(ast.Module([other], []), at_import and n >= len(child.body))
            else:
                lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, at_import and not lazy)

    yield from visit(tree, True)


def faults_of(path: Path, text: str) -> list[str]:
    room, mine = path.relative_to(ROOT).parts[0], unit(module_name(path))
    faults = []
    for node, module, at_import in imported(path, ast.parse(text)):
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        top, _, rest = module.partition(".")
        if top in ROOMS:
            faults.append(f"{where}: `{module}` loads the room a second time; its name is decgraph.{module}")
        elif top == "lab":
            faults.append(f"{where}: lab/ is not packaged; nothing of the package may import it")
        elif top == "decgraph":
            other = unit(module)
            if other != mine and (other not in EVERYONES | ARROWS.get(mine, {other}) or floor(other) >= floor(mine)):
                faults.append(f"{where}: {mine} may not import {other}")
        elif top in HEAVY and at_import and not may_be_heavy(path):
            faults.append(f"{where}: import {top} in the function that uses it")
        elif top in TERMINAL and at_import and room != "cli" and not may_be_heavy(path):
            faults.append(f"{where}: {top} belongs to cli")
    return faults


def files_imported(path: Path, text: str, modules: dict[str, Path]) -> set[Path]:
    """The files of the repository that a file imports, in functions too; `from package import x` may mean package/x.py."""
    found: set[Path] = set()
    tree = ast.parse(text)
    names = {
        f"{node.module}.{alias.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for _, module, _ in imported(path, tree):
        inner = [modules[name] for name in names if name.rpartition(".")[0] == module and name in modules]
        found.update(inner or [modules[module]] if module in modules else inner)
    return found - {path}


def circles(arrows: dict[Path, set[Path]]) -> list[list[str]]:
    """Files that import each other, directly or through others."""
    parts = networkx.strongly_connected_components(networkx.DiGraph(arrows))
    return sorted(sorted(module_name(path).removeprefix("decgraph.") for path in part) for part in parts if len(part) > 1)


def test_no_file_imports_what_imports_it() -> None:
    modules = {module_name(path): path for path in room_files()}
    found = circles({path: files_imported(path, path.read_text("utf-8"), modules) for path in room_files()})
    assert not found, "\n".join(" <-> ".join(c) for c in found)


def test_a_circle_is_seen_in_functions_and_in_type_checking_blocks() -> None:
    a, b, c = (ROOT / f"dsl/{name}.py" for name in "abc")
    modules = {f"decgraph.dsl.{name}": path for name, path in (("a", a), ("b", b), ("c", c))}
    texts = {
        a: "from decgraph.dsl import b",
        b: "def f():\n    from decgraph.dsl.c import g",
        c: "if TYPE_CHECKING:\n    from decgraph.dsl.a import g",
    }
    assert circles({path: files_imported(path, text, modules) for path, text in texts.items()}) == [["dsl.a", "dsl.b", "dsl.c"]]


def test_arrows() -> None:
    faults = [fault for path in room_files() for fault in faults_of(path, path.read_text("utf-8"))]
    assert not faults, "\n".join(faults)


def test_arrows_lead_to_lower_floors() -> None:
    assert all(floor(other) < floor(room) for room, allowed in ARROWS.items() for other in allowed)
    assert set().union(*FLOORS) >= set(ROOMS) | {path.stem for path in (ROOT / "decgraph").glob("*.py")} - {"__init__"}


@pytest.mark.parametrize(
    ("file", "line", "word"),
    [
        ("ir/x.py", "from decgraph.dsl import parse", "may not import dsl"),
        ("ir/ops/x.py", "from ...passes import fold", "may not import passes"),
        ("dsl/x.py", "def f():\n    from decgraph import backends", "may not import backends"),
        ("check/x.py", "import decgraph.cli.main", "may not import cli"),
        ("dsl/x.py", "from ir import types", "second time"),
        ("dsl/x.py", "import decgraph", "may not import decgraph"),
        ("ir/x.py", "if TYPE_CHECKING:\n    from decgraph.runtime.trace import Event", "may not import runtime"),
        ("editor/x.py", "import decgraph", "may not import decgraph"),
        ("decgraph/models.py", "from decgraph.api import Algorithm", "may not import api"),
        ("dsl/x.py", "import torch", "function that uses it"),
        ("zoo/__init__.py", "import transformers", "function that uses it"),
        ("runtime/models/__init__.py", "import torch.nn", "function that uses it"),
        ("backends/reference/x.py", "class A:\n    import torch", "function that uses it"),
        ("check/x.py", "from rich.console import Console", "belongs to cli"),
        ("cli/x.py", "def f():\n    from lab import gallery", "lab/ is not packaged"),
    ],
)
def test_the_check_sees_wrong_imports(file: str, line: str, word: str) -> None:
    (fault,) = faults_of(ROOT / file, line)
    assert word in fault


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("runtime/models/hf.py", "import torch"),
        ("zoo/modeling.py", "import torch, rich.progress"),
        ("dsl/x.py", "def f():\n    import torch"),
        ("dsl/x.py", "if TYPE_CHECKING:\n    import torch"),
        ("dsl/x.py", "from .source import Source\nfrom ..ir import types\nimport decgraph.errors"),
        ("cli/main.py", "import typer, decgraph.check"),
        ("decgraph/__init__.py", "from decgraph.errors import DecError"),
    ],
)
def test_the_check_lets_right_imports_pass(file: str, line: str) -> None:
    assert faults_of(ROOT / file, line) == []
