"""The lowering table of a backend: what it uses in the place of the torch lowerings, such as kernels for ops, segments and
rules."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType, GeneratorType

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.lowering import Lowered, lower
from decgraph.backends.torch.pending import Steps
from decgraph.backends.torch.trees import TorchPath
from decgraph.ir.values import Function, Op, Value


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


@dataclass(frozen=True)
class Walker:
    """A verification as one call, `call(m, tree, evidence, *captured)`; `captured`: the outside values that the rule reads."""

    name: str
    call: Callable[..., TorchPath | Canvas]
    captured: tuple[Value, ...] = ()


class Kit:
    """The torch backend's own: every op by its lowering. `draft_loops`: whether autoregressive draft loops become one model
    call (draft_loops.py)."""

    draft_loops = True

    def program(self, function: Function) -> Driver | None:
        """The driver of a function, where it is not generated."""
        return None

    def lower(self, op: Op) -> Lowered:
        """The call that computes an op. Raises DecError for one that the backend does not implement."""
        return lower(op)

    def fused(self, op: Op) -> Lowered | None:
        """One call for a whole `segment` op, where the backend has one."""
        return None

    def walk(self, op: Op, function: Function) -> Walker | None:
        """One call for a `tree.walk` of a function, where the backend has one; else torch's walk calls the rule."""
        return None


TORCH = Kit()
