"""`python -m lab` lists the entries of this folder; `python -m lab NAME [options]` runs one.

An entry is a file, or a package, with a function `command` that returns None; its typer annotations are the options.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

from decgraph.errors import DecError


def entries() -> dict[str, str]:
    """The first line of what each entry says of itself, by name; nothing is imported for it."""
    found, here = {}, Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "command" and _ends(node) for node in tree.body):
            name = path.parent if path.stem == "__init__" else path.with_suffix("")
            found[".".join(name.relative_to(here).parts)] = (ast.get_docstring(tree) or "").splitlines()[0]
    return found


def _ends(node: ast.FunctionDef) -> bool:
    return isinstance(node.returns, ast.Constant) and node.returns.value is None


def main(words: list[str]) -> int:
    """Run an entry, or list all; the exit code."""
    import typer

    if not words or words[0] in ("--help", "-h"):
        print("python -m lab NAME [options]; --help behind a name shows them.\n")
        print("\n".join(f"{name:16} {about}" for name, about in sorted(entries().items())))
        return 0
    if words[0] not in entries():
        print(f"lab has no {words[0]!r}; there are {', '.join(sorted(entries()))}", file=sys.stderr)
        return 2
    module = import_module(f"lab.{words[0]}")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(help=module.__doc__)(module.command)
    try:
        app(args=words[1:], prog_name=f"python -m lab {words[0]}")
    except DecError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
