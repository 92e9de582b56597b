"""The lines of a generated module, and the op of the program that each of them is for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from decgraph.backends.torch.texts import closing
from decgraph.ir.values import Op

LONGEST = 110


class Lines:
    """A text that grows line by line. text: the lines so far; ops: by the number of a line the op that it was written for."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.ops: dict[int, Op] = {}
        self.depth = 0
        self.marked = ("", 0)
        """The line of the source that the last mark names."""

    def add(self, text: str, op: Op | None = None) -> None:
        """A statement, marked with the source line of the op that it is for where that is another than before."""
        mark = ""
        if op is not None and op.loc.line:
            here = (op.loc.path, op.loc.line)
            if here != self.marked:
                mark = f"  # {op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}"
                self.marked = here
        for n, part in enumerate(self._wrapped(text)):
            self.text.append("    " * self.depth + part + (mark if n == 0 else ""))
            if op is not None:
                self.ops[len(self.text)] = op

    def _wrapped(self, text: str) -> list[str]:
        """A statement; where it is long and ends with a call, the arguments on a line of their own."""
        if 4 * self.depth + len(text) <= LONGEST or not text.endswith(")"):
            return [text]
        for at in (n for n, c in enumerate(text) if c == "("):
            if closing(text, at) == len(text) - 1:
                return [text[: at + 1], "    " + text[at + 1 : -1], ")"]
        return [text]

    @contextmanager
    def block(self) -> Iterator[None]:
        """What is written inside stands one level deeper."""
        self.depth += 1
        yield
        self.depth -= 1

    def assign(self, targets: list[str], values: list[str], op: Op | None = None) -> None:
        """An assignment of those variables that change."""
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        if pairs:
            self.add(f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", op)

    def docstring(self, text: str) -> None:
        """The docstring of a function."""
        lines = textwrap.wrap(text.replace("\\", "\\\\").replace('"""', "''"), LONGEST, break_long_words=False)
        self.add('"""' + lines[0] + ('"""' if len(lines) == 1 and not lines[0].endswith('"') else ""))
        for line in lines[1:]:
            self.add(line)
        if len(lines) > 1 or lines[0].endswith('"'):
            self.add('"""')
