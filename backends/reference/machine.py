"""The reference backend: runs an IR function op by op, in NumPy float64. Slow, obvious, and the meaning.

The exact checker runs the same machine over rationals, with another source of choices (backends/exact).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from decgraph.backends.reference.stores import Stores
from decgraph.backends.reference.together import run_together
from decgraph.backends.reference.walk import Walk
from decgraph.ir.ops.host import ACROSS
from decgraph.runtime.backend import Backend


class ReferenceMachine(Walk, Stores):
    """One request running one function of a module; its arguments are `Backend`'s."""

    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """One after the other; side by side where the program reads the other sequences of its batch."""
        first = next(waiting, None)
        if first is None:
            return
        run: Any = first[1]
        meets = any(op.opcode in ACROSS for f in run.module.functions.values() for op in f.body.walk())
        (run_together if meets else super().run_many)(chain([first], waiting), width, ended)
