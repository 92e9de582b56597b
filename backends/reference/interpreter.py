"""The interpreter's loop: a region's operations one after the other, each by its meaning in the op table.

Draws, model calls, verification, commits and indexes are in the files beside this one, each a class on top of `Interpreter`;
`machine.ReferenceMachine` has all of them. They are classes and not functions because the exact checker and its mutants replace
single methods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from decgraph.backends.drafting import CALLS
from decgraph.backends.reference.cells import Sequences
from decgraph.backends.run import Run, Stop
from decgraph.errors import DecError, InternalError
from decgraph.ir.table import TABLE, lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Loc, Op, Region, Value
from decgraph.runtime.faults import fault
from decgraph.runtime.recording import Timing


class Interpreter(Run):
    """A run that is interpreted, operation by operation."""

    name = "reference"
    faults: tuple[type[Exception], ...] = (Exception,)
    """The exceptions of an op that become an error of the run; other machines use more exceptions for control flow."""

    def start_run(self) -> None:
        super().start_run()
        self.env: dict[Value, Any] = {}
        self.table = TABLE
        self.kept: Sequences = Sequences(self.parent.kept if self.parent is not None else None)
        self.op: Op | None = None

    @classmethod
    def supports(cls, opcode: str) -> str | None:
        """None: every operation runs by its meaning, except those that no model supports. Raises OpError for an opcode that
        is not in the op table."""
        return lookup(opcode).unavailable or None

    def run(self) -> tuple[int, ...]:
        f = self.function
        try:
            values = self.arguments()
            self.env.update((p.value, v) for p, v in zip(f.params, values, strict=True))
            self.start_states(values)
            self.region(f.body, values)
            self.finish()
        except (InternalError, Stop):
            raise
        except self.faults as error:
            told = fault(error, request=self.title)
            if not self.ended_by(told):
                raise told from told.__cause__
        finally:
            self.release()
        return self.committed_tokens()

    def release(self) -> None:
        """Let go of the run's values: they are in NumPy arrays, which the garbage collector does not traverse, and they refer
        back to the run, so that nothing of it would ever be freed."""
        self.env = {p.value: self.env[p.value] for p in self.function.params if p.value in self.env}

    def initial_states(self, values: Sequence[Any]) -> Mapping[str, Callable[[], Any]]:
        return {s.name: lambda init=s.init: self.region(init, ())[0] for s in self.function.states}  # type: ignore[misc]

    def record(self, recorder: Timing) -> None:
        super().record(recorder)
        self.apply = recorder.timed(self.apply)  # type: ignore[method-assign, assignment]  # of this run alone

    def places(self) -> Iterator[Loc]:
        """The operations that are being applied, read from the stack: a run that nobody records keeps no list of them."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is Interpreter.region.__code__ and frame.f_locals["self"] is self:
                op = frame.f_locals.get("op")
                if op is not None:
                    yield op.loc
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop

    def context(self) -> tuple[Any, ...]:
        """The prompt and the committed tokens."""
        return tuple(self.tokens)

    def region(self, region: Region, args: Sequence[Any]) -> list[Any]:
        """Run a region's ops with its arguments; returns what it yields."""
        env, apply = self.env, self.apply
        env.update(zip(region.args, args))
        for op in region.ops:
            self.op = op
            try:
                out = apply(op)
            except (InternalError, Stop):
                raise
            except self.faults as error:
                told = self.failure_at(op, error)
                told.outside = told.outside or op.opcode in CALLS
                raise told from told.__cause__
            for value, result in zip(op.results, out):
                env[value] = result
            if (self.open_drafts or self.recorder is not None) and op.results and op.results[0].type.elem == "tree":
                self.now(out[0])
        return [env[v] for v in region.yields]

    def apply(self, op: Op) -> Any:
        """The results of one op, its operands taken from the environment."""
        env = self.env
        return self.table[op.opcode].meaning(self, op, *[env[v] for v in op.operands])

    def draft_block(self, op: Op) -> Any:
        """The tree after the block that drafts it: as the block leaves it, or as it was when an error ended the block."""
        block, before = op.regions
        with self.drafting(op.attrs["draft"], self.region(before, ())[0]) as draft:
            draft.tree = self.region(block, ())[0]
        return draft.tree

    def failure(self, error: Exception) -> DecError:
        return fault(error, request=self.title)

    def failure_at(self, op: Op, error: Exception) -> DecError:
        """An exception of an op as an error of this request at the op's line."""
        return fault(error, request=self.title, place=op.loc.told if op.loc.line else "", op=op.opcode)

    # -- loops
    def turn(self, op: Op, i: int, values: tuple[Any, ...] = ()) -> None:
        """Called before every iteration of a while loop, to notice one that makes no progress."""
        checks = {"done": self.check_progress, "cells": self.check_waiting}
        checks.get(str(op.attrs.get("bound")), self.check_bound)(str(op.loc), i)

    def iteration(self, op: Op, i: int, values: tuple[Any, ...]) -> None:
        """Called before every iteration of a for loop; the checker overrides this to follow equal states once."""

    def carried(self, op: Op, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values with which a while loop is entered; the checker overrides this to start from another state."""
        return values

    def decide(self, op: Op, cond: Any) -> bool:
        """Whether a condition of the program holds."""
        return bool(self.num.truth(cond))

    # -- numbers
    def reals(self, values: Sequence[Any]) -> Any:
        """A vector of numbers."""
        if self.num.exact:
            out = np.empty(len(values), dtype=object)
            out[:] = values
            return out
        return np.array(values, dtype=np.float64)

    def column(self, values: list[Any], type: Type) -> Any:
        """An author's column over all nodes; where it was never set it is zero."""
        from decgraph.ir.ops.common import array

        zero = next((np.zeros_like(np.asarray(array(self, v))) for v in values if v is not None), 0)
        filled = [zero if v is None else array(self, v) for v in values]
        if type.elem == "astate":
            out = np.empty(len(values), dtype=object)
            out[:] = values
            return out
        if self.num.exact and type.elem in ("real", "prob"):
            return self.reals([x.item() if isinstance(x, np.ndarray) and x.shape == () else x for x in filled])
        return np.array(filled)

    def no_mass(self, op: Op, weights: Any) -> Any:
        """normalize of zeros: the result stays zeros, and drawing from it is an error (randomness.py): a residual without mass
        is reached with probability 0."""
        return np.zeros_like(weights)
