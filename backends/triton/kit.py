"""The lowering table of the triton backend: one call for every vocabulary segment, every op on rows outside of one, and every
verification rule."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from decgraph.backends.torch.kit import Kit, Walker
from decgraph.backends.torch.lowering import Lowered, lower
from decgraph.backends.triton.rows.segment import VocabularyCall, vocabulary
from decgraph.backends.triton.rows.shown import kernel_texts
from decgraph.backends.triton.rules.walk import CompiledRule, called, rule_of
from decgraph.ir.values import Function, Module, Op
from decgraph.ir.vocabulary import on_rows
from decgraph.ir.walk import functions_of


def call_of(op: Op) -> VocabularyCall:
    """The kernels of a vocabulary segment, or of a single op on rows."""
    return op.memo.once("call", lambda: vocabulary(op))


def compiled_rule(op: Op, function: Function) -> CompiledRule:
    """The kernels of a `tree.walk` of a function."""
    return op.memo.once("rule", lambda: rule_of(op, function.body))


class Kernels(Kit):
    """Kernels where an op has a vocabulary axis or is a rule; torch's lowerings for all else."""

    draft_loops = False  # the draws of a draft loop are kernels of their own

    def lower(self, op: Op) -> Lowered:
        if not on_rows(op):
            return lower(op)
        made = call_of(op)
        return Lowered(made.call, made.name, {})

    def fused(self, op: Op) -> Lowered | None:
        if op.opcode != "segment" or op.attrs["kind"] != "vocabulary":
            return None
        made = call_of(op)
        return Lowered(made.call, made.name, {})

    def walk(self, op: Op, function: Function) -> Walker | None:
        made = compiled_rule(op, function)
        return Walker(made.name, partial(called, made), made.captured) if made.supported else None


KERNELS = Kernels()


def sources(module: Module) -> dict[str, str]:
    """The Triton text of every kernel of a module, by name, in the order of the program."""
    out: dict[str, str] = {}
    for function in functions_of(module):
        for op in outermost(function):
            if op.opcode == "tree.walk":
                out.update(compiled_rule(op, function).sources)
            elif KERNELS.fused(op) is not None or on_rows(op):
                out.update(kernel_texts(call_of(op)))
    return out


def outermost(function: Function) -> Iterator[Op]:
    """Every op that becomes a call: not those inside vocabulary segments and rules, which are parts of one."""

    def visit(ops: Any) -> Iterator[Op]:
        for op in ops:
            yield op
            whole = op.opcode == "segment" and op.attrs["kind"] == "vocabulary" or op.opcode == "tree.walk"
            if not whole:
                for region in op.regions:
                    yield from visit(region.ops)

    yield from visit(function.body.ops)
    for state in function.states:
        yield from visit(state.init.ops)
