"""The reference backend: runs an IR function op by op, in NumPy float64. Slow, obvious, and the meaning.

What its ops call is written as functions of the machine, by topic, in the files beside this one; `ReferenceMachine` names them.
They are its methods because the exact checker, which runs the same machine over rationals with another source of choices
(backends/exact), replaces single ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import cast

from decgraph.backends.reference import (
    calls,
    canvas_calls,
    effects,
    numbers,
    places,
    randomness,
    rows,
    stores,
    trees,
)
from decgraph.backends.reference import walk as verification
from decgraph.backends.reference.cells import LastCanvases, Sequences
from decgraph.backends.reference.together import Meeting, run_together
from decgraph.backends.run import CALLS, Run, Stop, loops_of
from decgraph.errors import DecError, InternalError
from decgraph.ir import machine
from decgraph.ir.data.dist import Draw
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum
from decgraph.ir.ops.host import ACROSS
from decgraph.ir.table import TABLE, lookup
from decgraph.ir.values import Loc, Op, Region, Value
from decgraph.ir.walk import EXITS, regions_ended
from decgraph.runtime.backend import Backend
from decgraph.runtime.faults import fault
from decgraph.runtime.trace import Timing


class ReferenceMachine(Run):
    """One request running one function of a module; its arguments are `Backend`'s."""

    name = "reference"
    faults: tuple[type[Exception], ...] = (Exception,)
    """The exceptions of an op that become an error of the run; other machines use more exceptions for control flow."""
    joined: list[tuple[int, int, int | None]] | None = None
    """Rows, positions and computed positions of the parts of a combined call; None outside of one."""
    meeting: Meeting | None = None
    """Where the sequences of a batch wait for one another (together.py); None: this one is alone."""

    def start_run(self) -> None:
        super().start_run()
        self.env: dict[Value, Datum] = {}
        self.table = TABLE
        self.caches: Sequences = Sequences(self.parent.caches if self.parent is not None else None)
        self.last_canvases = LastCanvases()
        self.op: Op | None = None
        self.ending: list[tuple[Op, Sequence[Datum]]] = []
        """The ops that have ended a loop or a rule whose region has not yielded yet, innermost last, with their values."""

    # -- numbers and noise
    reals = numbers.reals
    vector = numbers.vector
    column = numbers.column
    no_mass = numbers.no_mass
    key = randomness.key
    draw = randomness.draw
    draw_many = randomness.draw_many
    draw_race = randomness.draw_race
    select_race = randomness.select_race
    stated = randomness.stated
    flip = randomness.flip
    beta = randomness.beta
    group = randomness.group
    less = randomness.less

    # -- models
    place_states = places.place_states
    paths = places.paths
    score_paths = rows.score_paths
    model_row = rows.model_row
    scores_of_values = rows.scores_of_values
    warp_row = rows.warp_row
    adjusted_row = rows.adjusted_row
    count_call = calls.count_call
    evaluate = calls.evaluate
    evaluate_parts = calls.evaluate_parts
    read_tokens = calls.read_tokens
    states = calls.states
    read_head = calls.read_head
    head_values = calls.head_values
    read_states = calls.read_states
    state_values = calls.state_values
    score_states = calls.score_states
    memory = calls.memory
    restrict = calls.restrict
    attention = calls.attention
    derive = calls.derive
    cells = canvas_calls.cells
    eval_canvases = canvas_calls.eval_canvases

    # -- trees and canvases
    fits = trees.fits
    full = trees.full
    grew = trees.grew
    pruned = trees.pruned
    add_log = trees.add_log
    lazy_log = trees.lazy_log
    last_token = trees.last_token
    root_draw = trees.root_draw
    level_field = trees.level_field
    unmasked = trees.unmasked
    masked_again = trees.masked_again
    walk = verification.walk
    walked = verification.walked
    walked_enough = verification.walked_enough
    evidence_at = verification.evidence_at

    # -- effects
    commit = effects.commit
    commit_tokens = effects.commit_tokens
    ended = effects.ended
    returned = effects.returned
    check_end = effects.check_end
    sub_run = effects.sub_run
    adopt = effects.adopt

    # -- stores, the batch and the host
    new_index = stores.new_index
    ask = stores.ask
    learn = stores.learn
    automaton = stores.automaton
    meet = stores.meet
    batch_top = stores.batch_top
    batch_fold = stores.batch_fold
    text = stores.text
    retokenize = stores.retokenize
    host = stores.host

    # -- the backend
    @classmethod
    def supports(cls, opcode: str) -> str | None:
        """None: every operation runs by its meaning, except those that no model supports. Raises OpError for an opcode that
        is not in the op table."""
        return lookup(opcode).unavailable or None

    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """One after the other; side by side where the program reads the other sequences of its batch."""
        first = next(waiting, None)
        if first is None:
            return
        module = cast(ReferenceMachine, first[1]).module
        meets = any(op.opcode in ACROSS for f in module.functions.values() for op in f.body.walk())
        (run_together if meets else super().run_many)(chain([first], waiting), width, ended)

    # -- running
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

    def initial_states(self, values: Sequence[Datum]) -> Mapping[str, Callable[[], Datum]]:
        return {s.name: lambda init=s.init: self.region(init, ())[0] for s in self.function.states}  # type: ignore[misc]

    def record(self, recorder: Timing) -> None:
        super().record(recorder)
        self.loops = loops_of(self.function.body.walk())
        self.apply = recorder.timed(self.apply, self.loops)  # type: ignore[method-assign, assignment]  # of this run alone

    def places(self) -> Iterator[Loc]:
        """The operations that are being applied, read from the stack: a run that nobody records keeps no list of them."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is ReferenceMachine.region.__code__ and frame.f_locals["self"] is self:
                op = frame.f_locals.get("op")
                if op is not None:
                    yield op.loc
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop

    def context(self) -> tuple[int | Draw, ...]:
        """The prompt and the committed tokens."""
        return tuple(self.tokens)

    def region(self, region: Region, args: Sequence[Datum]) -> list[Datum]:
        """Run a region's ops with its arguments; returns what it yields."""
        env, apply = self.env, self.apply
        env.update(zip(region.args, args))
        for op in region.ops:
            self.op = op
            if op.opcode in EXITS:
                self.ending.append((op, [env[v] for v in op.operands]))
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
        yielded = [env[v] for v in region.yields]
        if self.ending and self.ends[self.ending[-1][0]] is region:
            self.check_end(*self.ending.pop(), yielded)
        return yielded

    @cached_property
    def ends(self) -> dict[Op, Region]:
        """The region that each `break` and `verdict` of the function ends."""
        return regions_ended(self.function.body)

    def apply(self, op: Op) -> Sequence[Datum]:
        """The results of one op, its operands taken from the environment."""
        env = self.env
        return self.table[op.opcode].meaning(self, op, *[env[v] for v in op.operands])

    def draft_block(self, op: Op) -> Tree:
        """The tree after the block that drafts it: as the block leaves it, or as it was when an error ended the block."""
        block, before = op.regions
        with self.drafting(op.attrs["draft"], self.region(before, ())[0]) as draft:
            draft.tree = self.region(block, ())[0]
        assert isinstance(draft.tree, Tree)
        return draft.tree

    def failure(self, error: Exception) -> DecError:
        return fault(error, request=self.title)

    def failure_at(self, op: Op, error: Exception) -> DecError:
        """An exception of an op as an error of this request at the op's line."""
        return fault(error, request=self.title, place=op.loc.told if op.loc.line else "", op=op.opcode)

    def columns_of(self, tree: Tree) -> Mapping[str, Sequence[Datum]]:
        return trees.columns_of(tree)

    # -- loops
    def while_iteration(self, op: Op, i: int, values: tuple[Datum, ...] = ()) -> None:
        """Called before every iteration of a while loop, to notice one that makes no progress."""
        self.for_iteration(op, i, values)
        checks = {"done": self.check_progress, "cells": self.check_waiting}
        checks.get(str(op.attrs.get("bound")), self.check_bound)(str(op.loc), i)

    def for_iteration(self, op: Op, i: int, values: tuple[Datum, ...]) -> None:
        """Called before every iteration of a for loop; the checker overrides this to follow equal states once."""
        if self.recorder is not None and op in self.loops:
            self.recorder.turn(outermost=self.loops[op])

    def carried(self, op: Op, values: tuple[Datum, ...]) -> tuple[Datum, ...]:
        """The values with which a while loop is entered; the checker overrides this to start from another state."""
        return values

    def decide(self, op: Op, cond: Datum) -> bool:
        """Whether a condition of the program holds."""
        return bool(self.num.truth(cond))


def for_meanings(run: ReferenceMachine) -> machine.Machine:
    """The run as the ops' meanings see it: it has all that they call."""
    return run
