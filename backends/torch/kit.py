"""The lowering table of a backend: what it uses in the place of the torch lowerings, such as kernels for ops, segments and
rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.lowering import Lowered, lower
from decgraph.backends.torch.trees import TorchPath
from decgraph.ir.values import Function, Op, Value


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
