"""A vocabulary segment, or a single op on rows, as one call: kernels for ops over the vocabulary, torch's lowerings for the
rest, one transfer for all numbers and tokens.

Ops are taken in their order. An op that needs numbers which are not on the host yet waits for them; an op without a
kernel runs as on torch and is listed in `torch_ops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.segments import segment_call, segment_name
from decgraph.backends.triton.rows.build import HANDLERS, law
from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.trace import Trace, Waiting
from decgraph.ir.values import Op, Value


class _Later:
    """The result of an op that waits for numbers."""


class VocabularyCall:
    """`call(m, *operands)` returns what torch's segment returns: the result, or a tuple of several.

    name: of the segment. made: the kernels so far, by structure. ops, free, yields: the region.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        if op.opcode == "segment":
            region = op.regions[0]
            self.ops, self.yields, self.name = list(region.ops), list(region.yields), segment_name(str(op.attrs["name"]))
        else:
            self.ops, self.yields = [op], list(op.results)
            self.name = op.opcode.replace(".", "_") + (f"_at_{op.loc.line}" if op.loc.line else "")
        self.free: list[Value] = list(dict.fromkeys(op.operands))
        self.made: dict[Any, Made] = {}
        self.lowered = {id(step): self._torch(step) for step in self.ops if step.opcode != "const"}
        self.torch_ops: set[str] = set()

    def call(self, m: Any, *operands: Any) -> Any:
        """Run it."""
        env: dict[Value, Any] = dict(zip(self.op.operands, operands, strict=True))
        trace, later = self.trace(m), list[Op]()
        for n, step in enumerate(self.ops):
            if step.opcode == "const":
                env[step.result] = constant(step)
                continue
            args = [env[v] for v in step.operands]
            if not any(isinstance(a, _Later) for a in args):
                made = self.traced(trace, step, args)
                if made is not None:
                    self.bind(env, step, made)
                    continue
                if not any(isinstance(a, Waiting) and not a.known for a in args):
                    self.bind(env, step, self.run(m, trace, step, args))
                    continue
                if step.opcode not in HANDLERS or not wide(step):
                    later.append(step)
                    self.bind(env, step, _Later())
                    continue
            elif step.opcode not in HANDLERS or not wide(step):
                later.append(step)
                self.bind(env, step, _Later())
                continue
            self.resolve(m, trace, env, later, self.ops[n:])
            later = []
            args = [env[v] for v in step.operands]
            made = self.traced(trace, step, args)
            self.bind(env, step, self.run(m, trace, step, args) if made is None else made)
        self.resolve(m, trace, env, later, [])
        out = tuple(env[v] for v in self.yields)
        return out[0] if len(out) == 1 else out

    def trace(self, m: Any) -> Trace:
        """The trace of a call."""
        return Trace(m, self.name, self.made)

    def traced(self, trace: Trace, step: Op, args: list[Any]) -> Any:
        """The waiting result of an op, or None where no kernel computes it."""
        f = HANDLERS.get(step.opcode)
        if f is None or any(isinstance(a, Waiting) and not hasattr(a, "dist") and step.opcode != "lookup" for a in args):
            return None
        trace.op, trace.hint = step, identifier(step.results[0].name)
        return f(trace, step, identifier(step.operands[0].name) or "x", *args)

    def run(self, m: Any, trace: Trace, step: Op, args: list[Any]) -> Any:
        """An op by torch's lowering."""
        if step.opcode == "draw.get" and step.attrs["field"] == "law" and hasattr(args[0], "rank"):
            return law(trace, step, args[0])
        if wide(step) and step.opcode in HANDLERS:
            self.torch_ops.add(step.opcode)
        fn, machine, kwargs = self.lowered[id(step)]
        return fn(m, *args, **kwargs) if machine else fn(*args, **kwargs)

    def resolve(self, m: Any, trace: Trace, env: dict[Value, Any], later: list[Op], rest: list[Op]) -> None:
        """Run the kernels, and transfer to the host what the waiting ops, the rest and the results need there."""
        needed = {v for op in (*later, *rest) for v in op.operands} | set(self.yields)
        for v in needed:
            if isinstance(env.get(v), Waiting):
                env[v].wanted = True
        trace.flush()
        for v, x in env.items():
            if isinstance(x, Waiting) and x.known:
                env[v] = x.value
        for op in later:
            self.bind(env, op, self.run(m, trace, op, [env[v] for v in op.operands]))

    @staticmethod
    def bind(env: dict[Value, Any], step: Op, made: Any) -> None:
        if len(step.results) == 1:
            env[step.result] = made
            return
        if isinstance(made, _Later):
            parts: Any = [made] * len(step.results)
        else:
            parts = made if isinstance(made, tuple) else [_Part(made, i) for i in range(len(step.results))]
        for r, x in zip(step.results, parts, strict=True):
            env[r] = x

    @staticmethod
    def _torch(step: Op) -> tuple[Any, bool, dict[str, Any]]:
        if step.opcode == "segment":
            return segment_call(step), True, {}
        low = lower(step)
        return low.fn, low.machine, {k: v for k, v in low.kwargs.items() if v is not None}


class _Part(Waiting):
    """One of several results of an op that a kernel computes."""

    def __init__(self, whole: Any, i: int) -> None:
        self.whole, self.i = whole, i

    @property
    def shape(self) -> Any:
        return ()

    @property
    def known(self) -> bool:  # type: ignore[override]
        return bool(self.whole.known)

    @property
    def value(self) -> Any:
        return self.whole.value[self.i]

    @property
    def wanted(self) -> bool:
        return bool(self.whole.wanted)

    @wanted.setter
    def wanted(self, yes: bool) -> None:
        self.whole.wanted = yes


def identifier(name: str) -> str:
    """A value's name as an identifier of the kernel; "" where it has none."""
    base = name.split(".")[0]
    return base if base.isidentifier() else ""


def wide(step: Op) -> bool:
    """Whether an op reads or returns rows over a vocabulary."""
    from decgraph.ir.vocabulary import on_rows

    return on_rows(step)


def constant(op: Op) -> Any:
    """A constant's host value."""
    from fractions import Fraction

    v = op.attrs["value"]
    if v in ("inf", "-inf") and op.attrs["type"].elem != "text" or isinstance(v, Fraction):
        return float(v)
    if isinstance(v, list | tuple):
        return np.array([float(x) if isinstance(x, Fraction) else x for x in v]) if v else []
    return v


def vocabulary(op: Op) -> VocabularyCall:
    """The call for a `segment` of kind "vocabulary", or for an op on rows."""
    return VocabularyCall(op)
