"""Generated Triton source: written line by line, loaded under a name that tracebacks, Triton's errors and profilers show."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from decgraph.ir.values import Op

HEARD: list[Callable[[str, str], None]] = []
"""Called at every launch with the kernel's name, and its text where it was generated (step/listing.py)."""
HEADER = "import triton\nimport triton.language as tl\n"


class Text:
    """Builder of a text. `mark` sets the source line of the next lines, written at the end of the first of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._mark, self._marked = "", ""

    def line(self, text: str = "") -> None:
        mark = ""
        if text and self._mark and self._mark != self._marked:
            mark, self._marked = f"  # {self._mark}", self._mark
        self.lines.append(("    " * self.depth + text + mark) if text else "")

    def mark(self, op: Op | None) -> None:
        self._mark = f"{op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}" if op is not None and op.loc.line else ""

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under a line that ends in a colon."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


_LOADED: dict[str, dict[str, Any]] = {}


def load(name: str, text: str, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The names that a generated text defines: kernels, decorated with triton.jit. Equal texts are loaded once.

    The text has its imports; `scope` has other names that it uses.
    """
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    if scope is None and key in _LOADED:
        return _LOADED[key]
    filename = f"<decgraph {name} {key}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"__name__": "decgraph.generated", **(scope or {})}
    exec(compile(text, filename, "exec"), space)  # our own text over our own functions
    if scope is None:
        _LOADED[key] = space
    return space
