"""A compiled function: what runs it, and where a run of it is."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType, GeneratorType

from decgraph.backends.torch.pending import Steps
from decgraph.ir.values import Op


@dataclass
class Driver:
    """A compiled function. `driver(m, *parameters)` is a generator of model calls; `starts` give states their first values;
    `source` is the text of the module that they are in."""

    name: str
    source: str
    filename: str
    driver: Callable[..., Steps[None]]
    starts: dict[str, Callable[..., object]]
    lines: dict[int, Op] = field(repr=False, default_factory=dict)

    def place(self, error: BaseException) -> tuple[str, str] | None:
        """(source place, opcode) of the line of this program that an error came through last."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            op = self.lines.get(frame.lineno or 0) if frame.filename == self.filename else None
            if op is not None:
                return (op.loc.told if op.loc.line else "", op.opcode)
        return None

    def ops(self, waiting: Steps[None] | None = None) -> Iterator[Op]:
        """The operations of this program's lines that are being run, the innermost first. waiting: the run, which waits
        for a model call while nothing of it is on the stack.

        Only generators that are suspended are asked what they wait for: CPython 3.11 reads `gi_yieldfrom` of a running one
        from the inline cache after its call instruction, and where those bits look like an instruction, follows a wild pointer.
        """
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        suspended: list[FrameType] = []
        inner: object = waiting
        while isinstance(inner, GeneratorType) and inner.gi_frame is not None and not inner.gi_running:
            suspended.insert(0, inner.gi_frame)
            inner = inner.gi_yieldfrom
        for frame in (*frames, *suspended):
            if frame.f_code.co_filename == self.filename:
                above = range(frame.f_lineno, frame.f_code.co_firstlineno, -1)  # a line may be a part of a statement
                op = next((self.lines[n] for n in above if n in self.lines and self.lines[n].loc.line), None)
                if op is not None:
                    yield op
