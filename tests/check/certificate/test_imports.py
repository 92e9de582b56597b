"""The checker shares with the prover the IR, its text and its reader, and nothing else."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import decgraph.check.certificate

HERE = Path(decgraph.check.certificate.__file__).parent
READER = {
    *("decgraph.ir.values", "decgraph.ir.types", "decgraph.ir.text", "decgraph.ir.parsing"),
    *("decgraph.dsl.lower", "decgraph.errors"),
}
MOST_LINES = 1500


def imports(path: Path) -> set[str]:
    """What of decgraph a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "decgraph"}
    return {name for name in found if name.split(".")[0] == "decgraph"}


def test_each_file_imports_the_reader_and_the_checkers_own_files_alone() -> None:
    own = {f"decgraph.check.certificate.{path.stem}" for path in HERE.glob("*.py")}
    for path in HERE.glob("*.py"):
        assert imports(path) <= READER | own, path.name
        assert "__import__" not in path.read_text(encoding="utf-8") and "importlib" not in path.read_text(encoding="utf-8")


def lines_of_code(path: Path) -> int:
    """The lines of a file that hold code: no blank ones, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    strings = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    words = {line for node in strings for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    held = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in empty]
    return len({line for token in held for line in range(token.start[0], token.end[0] + 1)} - words)


def test_it_is_small_enough_to_be_read() -> None:
    assert sum(map(lines_of_code, HERE.glob("*.py"))) <= MOST_LINES
