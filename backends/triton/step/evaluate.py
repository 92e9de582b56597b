"""Evaluates a region of the IR once on the device, for a batch of sequences in lockstep, with nothing read back.

Static values (counts, bounds, topologies, the structure of trees that grow by counts) are Python values and decide the control
flow; everything else is a tensor whose axis 0 is the sequence. Since no launch depends on a tensor's values, they can be
captured as a CUDA graph and replayed. An op that does not allow this raises NotCapturable, and the program runs in eager mode,
by the driver of the torch backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor

from decgraph.backends.torch.lowering import TEMPLATES, lower, not_
from decgraph.ir.table import lookup
from decgraph.ir.values import Op, Region, Value

DEVICE: dict[str, Callable[..., Any]] = {}
FILES = ("numbers", "rows", "trees", "models", "effects", "walk")
"""Files of this folder that register ops (canvas programs have a table of their own: canvas_step.py)."""


class NotCapturable(Exception):
    """Raised for what a captured step does not support: the step cannot run on the device as a whole."""

    def __init__(self, why: str, op: Op | None = None) -> None:
        where = f" ({op.loc})" if op is not None and op.loc.line else ""
        super().__init__(f"{why}{where}")
        self.why, self.op = why, op


Implementation = Callable[..., Any]


def registrar(table: dict[str, Implementation]) -> Callable[..., Callable[[Implementation], Implementation]]:
    """A decorator that registers functions in a table, by the ops that they implement. It raises TypeError for an op registered
    before."""

    def names(*opcodes: str) -> Callable[[Implementation], Implementation]:
        def register(f: Implementation) -> Implementation:
            for name in opcodes:
                if name in table:
                    raise TypeError(f"op {name} has two implementations on the device")
                table[name] = f
            return f

        return register

    return names


device = registrar(DEVICE)
"""Register the function below, `f(s, op, *operands)`, as the implementation of ops on the device. `s` is the `DeviceStep`; one
result is returned as it is, several as a tuple."""


def load() -> None:
    """Import the files that register ops."""
    for name in FILES:
        import_module(f"decgraph.backends.triton.step.{name}")


def is_static(value: Any) -> bool:
    """Whether a value is static: numbers, arrays of NumPy, and anything without a tensor."""
    if isinstance(value, Tensor):
        return False
    if isinstance(value, list | tuple):
        return all(is_static(v) for v in value)
    return not getattr(value, "on_device", False)


class Evaluator:
    """Runs regions. `env` maps IR values to their current values; subclasses add the state that ops need.

    implementations: implementations of ops, by opcode; where: "on the device", for messages."""

    implementations, where = DEVICE, "on the device"

    def __init__(self) -> None:
        self.env: dict[Value, Any] = {}

    def region(self, region: Region, args: Sequence[Any]) -> tuple[Any, ...]:
        """The yields of a region for its arguments."""
        self.env.update(zip(region.args, args, strict=True))
        for op in region.ops:
            self.op(op)
        return tuple(self.env[v] for v in region.yields)

    def op(self, op: Op) -> None:
        """Run one op and keep its results."""
        special = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if special is not None:
            out = special(op)
        else:
            operands = [self.env[v] for v in op.operands]
            if op.opcode in self.implementations:
                out = self.implementations[op.opcode](self, op, *operands)
            elif all(self.is_static(v) for v in operands):
                out = self.hosted(op, operands)
            else:
                raise NotCapturable(f"`{op.opcode}` is not implemented {self.where}", op)
        if len(op.results) == 1:
            self.env[op.result] = out
        elif op.results:
            self.env.update(zip(op.results, out, strict=True))

    def is_static(self, value: Any) -> bool:
        """Whether a value is static."""
        return is_static(value)

    def hosted(self, op: Op, operands: Sequence[Any]) -> Any:
        """An op over static values: its NumPy meaning. Implementations call this too where all operands are static."""
        if op.regions or lookup(op.opcode).batch == "host":
            raise NotCapturable(f"`{op.opcode}` is the host's", op)
        low = lower(op)
        if low.fn in TEMPLATES or low.fn is not_:
            return low.fn(*operands)
        out = lookup(op.opcode).meaning(self, op, *operands)
        return out[0] if len(op.results) == 1 else tuple(out)

    def truth(self, value: Any, op: Op) -> bool:
        """A condition that decides the control flow. Raises NotCapturable where it is not static."""
        if not is_static(value):
            raise NotCapturable("the control flow depends on data", op)
        return bool(value)

    # -- control flow
    def op_const(self, op: Op) -> Any:
        v = op.attrs["value"]
        if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
            return float(v)
        if isinstance(v, list | tuple):
            return np.array([float(x) if hasattr(x, "numerator") and not isinstance(x, int) else x for x in v]) if v else []
        return float(v) if hasattr(v, "numerator") and not isinstance(v, bool | int) else v

    def op_unfailing(self, op: Op) -> bool:
        """True: an error in a draft makes the step one for the driver, as any other error does."""
        return True

    def op_segment(self, op: Op) -> Any:
        """A segment is its region: values from outside keep their names."""
        out = self.region(op.regions[0], ())
        return out[0] if len(op.results) == 1 else out

    def op_for(self, op: Op) -> Any:
        lo, hi, *carried = (self.env[v] for v in op.operands)
        region, stops = op.regions[0], bool(op.attrs.get("stops"))
        if op.attrs.get("lanes") or not (is_static(lo) and is_static(hi)):
            raise NotCapturable("the number of iterations depends on data", op)
        for i in range(int(lo), int(hi)):
            out = self.region(region, [i, *carried])
            carried = list(out[1:] if stops else out)
            if stops and self.truth(out[0], op):
                break
        return carried[0] if len(op.results) == 1 else tuple(carried)

    def op_if(self, op: Op) -> Any:
        taken = op.regions[0 if self.truth(self.env[op.operands[0]], op) else 1]
        out = self.region(taken, ())
        return out[0] if len(op.results) == 1 else out
