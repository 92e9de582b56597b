"""Programs at their own sizes: with the declared values of their parameters, long prompts and long texts, a few runs at random.

Worlds that are enumerated are small, and arithmetic may turn wrong beyond them: `floor(ctx.length / 512)` is 0 in all of them.
A claim of equal tokens, or of greedy ones, is compared run by run, so one run of a large world can refute it, though none
proves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely
from decgraph.check.claims import Case, Failure, begun, in_tokens
from decgraph.check.constants import facts
from decgraph.check.starts import NoValue
from decgraph.check.survey import Survey
from decgraph.check.tables import Style
from decgraph.check.worlds import WorldPlan
from decgraph.errors import DecError
from decgraph.ir.values import Function, Op

RUNS = 1  # of each world
CELLS = 64  # of a canvas
PROMPTS = ((1300, 8), (3, 110))  # tokens of the prompt, and new ones
OPS = 300_000  # of one run: one that takes more is given up


class Counting(ExactMachine):
    """A machine that gives up after `OPS` ops."""

    def start_run(self) -> None:
        super().start_run()
        self.applied = 0

    def apply(self, op: Op) -> Any:
        self.applied += 1
        if self.applied > OPS:
            raise TooMany(f"more than {OPS} ops")
        return super().apply(op)


def plans(f: Function, vocab: int, masked: bool, length: str) -> Iterator[WorldPlan]:
    """The worlds. length: the parameter that is the length of a canvas, or ""."""
    declared = {
        p.name: p.default
        for p in f.params
        if p.has_default and p.value.type.elem in ("int", "real", "prob", "bool") and not p.value.type.dims
    }
    if masked:
        cells = declared.get(length)
        span = min(CELLS, cells if isinstance(cells, int) else CELLS)
        params = tuple((name, min(value, span) if name == length else value) for name, value in declared.items())
        yield WorldPlan("large", 9000, vocab, Style("plain"), prompt=3, limit=span, span=span, steps=None, params=params)
        return
    for n, (prompt, limit) in enumerate(PROMPTS):
        style = Style("plain", shared=9001 + n)
        params = tuple(declared.items())
        yield WorldPlan("large", 9001 + n, vocab, style, prompt=prompt, limit=limit, steps=None, params=params)


def counted(case: Case) -> Case:
    """The case on a machine that counts its ops."""
    return replace(case, engine=type("Counted", (Counting, case.engine), {}))


def at_own_sizes(survey: Survey, vocab: int) -> Failure | None:
    """What a few runs at the program's own sizes refute; what cannot be run there says nothing."""
    module, claim = survey.module, survey.claim
    if claim.kind != "refines" or claim.mode not in ("tokens", "greedy"):
        return None
    f = module.entry
    known = facts(module, f)
    for plan in plans(f, vocab, known.masked, known.length):
        case = survey.make(plan)
        if case is None:
            continue
        try:
            failure = in_tokens(counted(replace(begun(case), sampled=RUNS)), survey.tally)
        except (TooMany, Unlikely, NotSeparated, NoValue, DecError):
            continue
        if failure is not None:
            return failure
    return None


__all__ = ["at_own_sizes"]
