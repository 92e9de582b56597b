"""What `decgraph tune` does between its options and its table: models, requests, and a race for every load."""

from __future__ import annotations

import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import decgraph
from decgraph.bench.compare import Candidate, first_line
from decgraph.bench.contenders import Ours, promised
from decgraph.bench.measure import ALL, BenchWork
from decgraph.bench.prompts import BenchPrompt, Text
from decgraph.bench.race import AlgorithmRace
from decgraph.bench.search import HOPELESS, fastest
from decgraph.bench.tuner import Tuner, TuningOutcome
from decgraph.cli.profiled import contents_of
from decgraph.models import request_for, shipped
from decgraph.passes.plan import Plan
from decgraph.runtime.placement import Placement, placement_of_all
from decgraph.runtime.request import DEFAULT_TEMPERATURE, Request
from decgraph.runtime.session import Session
from decgraph.runtime.tune import facts, space
from decgraph.runtime.tune.space import Axis, Entrant

SESSIONS = 64  # kept open at most: each has generated code, the models are shared
GROUPS = 8  # of prompts that are decoded together: of fewer nothing would be sure
FEWEST = 6  # algorithms that go on from one load to the next


class TuningJob:
    """candidates: the algorithms in question. plain: what they are compared with; None: of the one candidate, its own default.
    texts: prompts, as `said` makes them. models: what there is for an algorithm's models. fields: those of an algorithm's
    requests. batches: loads, each so many requests that are decoded together. contexts: lengths in tokens to which prompts are
    made longer as well. wishes: of --search.

    Raises DecError for what does not fit, before models are read.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        plain: Candidate | None,
        texts: Sequence[Text],
        *,
        models: Callable[[decgraph.Algorithm], Mapping[str, str]],
        fields: Callable[[decgraph.Algorithm], dict[str, Any]],
        said: Callable[[Text], Any] = Text.prompt,
        wishes: Sequence[str] = (),
        externs: Mapping[str, Any] | None = None,
        backend: str | None = None,
        clock: str = "wall",
        threads: int | None = None,
        batches: Sequence[int] = (1,),
        contexts: Sequence[int] = (),
        placed: Placement | None = None,
    ) -> None:
        self.texts, self.said, self.batches, self.contexts = list(texts), said, list(batches), list(contexts)
        self.of = {one.label: one for one in (*([plain] if plain is not None else []), *candidates)}
        self.externs, self.backend, self.clock, self.threads = dict(externs or {}), backend, clock, threads
        self.placement = placed or Placement()  # once the models are read, theirs
        self.fields = {label: {"temperature": DEFAULT_TEMPERATURE, **fields(one.algorithm)} for label, one in self.of.items()}
        self.temperature = float(next(iter(self.fields.values()))["temperature"])
        if len(self.texts) < max(batches):
            raise decgraph.DecError(f"--batch {max(batches)} needs as many prompts, and there are {len(self.texts)}",
                                    hint=f"more prompts, or --batch {len(self.texts)}")  # fmt: skip
        self.sources = {label: {**shipped(one.algorithm.function), **models(one.algorithm)} for label, one in self.of.items()}
        self.axes: dict[str, list[Axis]] = {}
        for one in candidates:
            function = one.algorithm.function
            try:
                self.axes[one.label] = space.axes(function, one.params, wishes, self.temperature)
            except decgraph.DecError:
                if plain is None:
                    raise
                self.axes[one.label] = []  # there is nothing to tune, and what it is may be the fastest
        self.changing = [axis.name for axes in self.axes.values() for axis in axes if axis.changes]
        self.entrants = [self.default(one) for one in candidates]
        self.base = self.entrants.pop() if plain is None else Entrant(plain.label)
        self.chosen_among = plain is not None
        # The defaults of `session`: all passes, none on the reference
        self.plan = Plan(passes=() if backend == "reference" else None, backend=backend)
        self.device: dict[str, Any] = {}
        self.outcomes: dict[int, TuningOutcome] = {}
        self.seconds = 0.0
        self.opened, self.unfit = set[str](), dict[str, str]()  # by algorithm; why those have no session at all
        self._bound: dict[str, Any] = {}
        self._sessions: OrderedDict[Entrant, Session] = OrderedDict()

    def default(self, one: Candidate) -> Entrant:
        """A candidate with its declared values. Raises DecError for a parameter without one."""
        function = one.algorithm.function
        values = {a.name: a.values[0] if a.default is None else a.default for a in self.axes[one.label]}
        for p in function.params:
            if p.value.type.elem != "model" and not p.has_default and p.name not in {*one.params, *values}:
                raise decgraph.DecError(f"{function.name} needs a value for `{p.name}`", hint=f"--set {p.name}=...")
        return Entrant(one.label, space.setting(function, values))

    def promise(self, label: str) -> str:
        """What a claim says of its output: "tokens", the base's; "distribution", of its distribution; "", nothing."""
        one = self.of[label]
        if any(axis.changes for axis in self.axes.get(label, ())):
            return ""
        if not self.chosen_among:
            return space.guarantee(one.algorithm.function, self.temperature)[0]
        return promised(one.algorithm, one.values, spec=self.base.algorithm, temperature=self.temperature)

    def run(
        self, seconds: float, report_progress: Callable[[str], None], note: Callable[[str], None] = lambda _: None
    ) -> dict[int, TuningOutcome]:
        """Read the models and tune for so many seconds: what came out at each load; after Ctrl-C, at those that it came to.
        note: told once what the user may want to act upon at once. Raises DecError."""
        self.seconds = seconds
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        report_progress("reading the models")
        try:
            first = self.session(self.base)
            self.placement = placement_of_all(first.models)
            self.device = facts.of_placement(self.placement)
            prompts = self.prompts(first)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was measured yet") from None
        entrants, left = self.entrants or [self.base], seconds
        for n, batch in enumerate(self.batches):
            share = 1 + (n == 0)  # the first load is of all that fit
            after = len(self.batches) - n - 1
            tuner = Tuner(
                self.race(batch, prompts),
                entrants,
                lambda one: self.axes.get(one.algorithm, []),
                seconds=left * share / (share + after),
                told=lambda what, batch=batch: report_progress(f"{batch} at a time: {what}"),  # type: ignore[misc]
                short=lambda many, each, times: note(
                    f"{many} algorithms, about {each:.0f} s each for a first look: --seconds "
                    f"{math.ceil(seconds * times / 10) * 10} or more looks at all"
                ),
            )
            self.outcomes[batch] = found = tuner.tune()
            left = max(1.0, left - found.seconds)
            if found.interrupted:
                break
            if self.chosen_among:
                entrants = self.gone_on(found)
        return self.outcomes

    def gone_on(self, found: TuningOutcome) -> list[Entrant]:
        """What a larger load begins with: the algorithms that were not far behind, each with its fastest setting."""
        met = fastest(found.race, len(self.of), each=1)
        best = max([1.0, *map(found.race.ratio, met)])
        near = [one for one in met if found.race.ratio(one) > HOPELESS * best]
        return (near if len(near) > FEWEST else met[:FEWEST]) or self.entrants

    def race(self, batch: int, prompts: Sequence[BenchPrompt]) -> AlgorithmRace:
        """A race on groups of so many prompts, of mixed kinds: where there are more, `GROUPS` at least, which share some."""
        order, mixed = random.Random(1), [*prompts]
        full: list[Sequence[BenchPrompt]] = []
        while not full or (len(full) < GROUPS and 1 < batch < len(prompts)):
            full += [mixed[at : at + batch] for at in range(0, len(mixed) - batch + 1, batch)]
            mixed = order.sample(prompts, len(prompts))
        kinds = tuple(group[0].kind if batch == 1 else ALL for group in full)
        work = BenchWork(tuple(tuple(one.tokens for one in group) for group in full), kinds)
        target = next(iter(self._bound[self.base.algorithm].models.values()))

        def opened(one: Entrant) -> Ours:
            candidate, fields = self.of[one.algorithm], self.fields[one.algorithm]
            values = {**candidate.values, **dict(one.setting)}
            try:
                session = self.session(one)
            except decgraph.DecError as error:
                if one.algorithm not in self.opened:
                    self.unfit[one.algorithm] = f"its models do not fit: {first_line(error)}"
                raise
            self.opened.add(one.algorithm)
            self.unfit.pop(one.algorithm, None)
            return Ours(one.label, candidate.algorithm, values, session, work.groups, limit, fields=fields)

        limit = int(self.fields[self.base.algorithm].get("max_tokens", Request.max_tokens))
        return AlgorithmRace(
            self.base, opened, work, limit=limit, cpu=self.clock == "cpu", target=None if self.temperature else target,
            bound=lambda one: self.promise(one.algorithm) == "tokens", strict=not self.chosen_among,
        )  # fmt: skip

    def session(self, one: Entrant) -> Session:
        """An entrant's session. Raises DecError for one that cannot be opened."""
        from decgraph.models import bind

        found = self._sessions.pop(one, None)
        if found is None:
            candidate = self.of[one.algorithm]
            if one.algorithm not in self._bound:
                self._bound[one.algorithm] = bind(
                    candidate.algorithm.function,
                    self.sources[one.algorithm],
                    device=self.placement.device,
                    dtype=self.placement.dtype,
                )
            bound, values = self._bound[one.algorithm], {**candidate.params, **dict(one.setting)}
            how: dict[str, Any] = {"externs": self.externs, "backend": self.backend, "plan": self.plan}
            found = candidate.algorithm.session(bound.models, tokenizer=bound.tokenizer, **how, **values)
        self._sessions[one] = found
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return found

    def prompts(self, session: Session) -> list[BenchPrompt]:
        """The prompts as tokens, in an order that mixes their kinds; each is followed by itself behind others, for each of the
        contexts."""
        fields = self.fields[self.base.algorithm]
        found = [BenchPrompt(text.kind, request_for(session, self.said(text), **fields).prompt) for text in self.texts]
        random.Random(0).shuffle(found)
        out: list[BenchPrompt] = []
        for n, one in enumerate(found):
            others = [token for other in (*found[n + 1 :], *found[: n + 1]) for token in other.tokens]
            before = itertools.cycle(others)
            longer = [itertools.islice(before, max(0, length - len(one.tokens))) for length in self.contexts]
            out += [one, *(BenchPrompt(f"{n} tokens", (*b, *one.tokens)) for n, b in zip(self.contexts, longer, strict=True))]
        return out

    def contents(self, label: str) -> dict[str, str]:
        """The fingerprints of an algorithm's models by parameter."""
        return contents_of(self.sources[label])
