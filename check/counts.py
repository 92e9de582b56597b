"""Claims about cost in one world: how often a request calls a model, and how many decided cells it masks again.

A call is what a program asks of a model at once, at all nodes of a tree or cells of a canvas together, whether or not an engine
knows the answer already; a memory or attention weights are what such calls leave, and no call. Calls are the events of the
reference, by the model's name, as statistics count them: a derived model, and a model that drafts for itself on a memory, has
another name. Calls of algorithms that are run count.

Both counts are of one request. What is claimed of a request must be so at any time. What is claimed for each token must be so
whenever tokens were committed and when the program has come to its end, so that a request that ends inside an iteration, by an
error or a full context, is counted to its last commit.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import cast

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.case import Case
from decgraph.check.settings import sizes_of
from decgraph.errors import DecError
from decgraph.ir.settings import evaluate
from decgraph.runtime.trace import Committed, Event, ModelCall, Remasked


class Exceeded(Exception):
    """Ends a run that has spent more than is claimed."""


class SpentCounts:
    """What a request has spent, by the line that did. name: of the model whose calls are counted, "" for masked cells."""

    def __init__(self, case: Case) -> None:
        self.claim, self.lines = case.claim, Counter[int]()
        self.name = case.models[case.claim.models[0]].name if case.claim.models else ""
        self.tokens = 0
        try:
            known = {**case.params, **sizes_of(case.request)}
            self.bound = cast("int | Fraction", evaluate(case.claim.bound, known))
        except (TypeError, ZeroDivisionError):
            raise DecError(f"`{case.claim.text}` is no number here", hint="it may divide by 0: add when k > 0") from None

    def hear(self, m: ExactMachine, event: Event) -> None:
        """An event of the run. Raises Exceeded."""
        line = 0 if m.whole.op is None else (m.whole.op.loc.called or m.whole.op.loc).line
        match event:
            case ModelCall() if event.model == self.name:
                self.lines[line] += 1
            case Remasked() if not self.name and m.parent is None:
                self.lines[line] += 1
            case Committed() if m.parent is None:
                self.tokens += len(event.tokens)
                if event.tokens and self.claim.mode:
                    self.judge()
        if not self.claim.mode:
            self.judge()

    def judge(self) -> None:
        """Raises Exceeded."""
        most = self.bound * self.tokens if self.claim.mode else self.bound
        if self.lines.total() > most:
            raise Exceeded(self.words(most))

    def state(self) -> tuple[int, int]:
        """What is left to be spent depends on."""
        return self.lines.total(), self.tokens

    def words(self, most: int | Fraction) -> str:
        """What was spent, where, and how much may be."""
        n = self.lines.total()
        s = "s" * (n != 1)
        what = f"{n} call{s} of {self.name}" if self.name else f"{n} cell{s} masked again"
        where = ", ".join(f"{times} in line {line}" for line, times in sorted(self.lines.items()))
        tokens = f" for {self.tokens} committed token{'s' * (self.tokens != 1)}" if self.claim.mode else ""
        return f"{what}{tokens} ({where}), and at most {most} are claimed"
