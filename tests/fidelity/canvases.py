"""Masked runs, watched: which cells every call computed, and what was decided between one call and the next.

It is read where a machine asks its models: the canvas that a call is about, and the positions that it computes. What was
decided is what differs between the canvases of two calls, so an edit that no event tells of is seen as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from fidelity import recorded_noise
from fidelity.entry import Case, Outcome
from fidelity.masked_models import MASK, model
from fidelity.recorded_noise import Uniforms

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime import trace
from decgraph.runtime.request import Request

Decided = set[tuple[int, int]]


@dataclass
class Asked:
    """A call: the canvas with its prompt (that of a tree's root), how many canvases were computed and which positions of each;
    `repeated`: its answer was remembered, nothing was computed; `drafts`: it is about a tree of canvases."""

    cells: tuple[int, ...]
    canvases: int
    computed: tuple[int, ...]
    repeated: bool = False
    drafts: bool = False


@dataclass
class Run:
    """A run: the canvas at the end with its prompt, its calls, and its result. unheard: the output once more, of a run that
    nobody listens to: on triton that goes by steps on the device where the program and its model can."""

    output: tuple[int, ...]
    calls: list[Asked]
    result: Any
    events: list[Any]
    unheard: tuple[int, ...] | None = None


def run(
    program: str,
    name: Any,
    prompt: Sequence[int],
    length: int,
    backend: str,
    *,
    cache: str | None = None,
    text: str | None = None,
    shaping: Mapping[str, Any] | None = None,
    noise: Uniforms | None = None,
    externs: Mapping[str, Any] | None = None,
    eos: int | None = None,
    others: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    **params: Any,
) -> Run:
    """Decode a canvas behind a prompt with a program of stdlib (or `text`) on a backend, all passes on. name: a recorded model,
    or a model. shaping: how the request shapes distributions, default greedy. noise: in the place of ours. eos: the token that
    ends a text, where the program reads it; the output is then the canvas, also what is not committed of it. others:
    further models. tokenizer: for programs that read texts."""
    algorithm = decgraph.load(program) if text is None else decgraph.parse(text)
    algorithm = algorithm if cache is None else algorithm.cached(cache)
    asked = model(name) if isinstance(name, str) else name
    models = {"model": asked, **(others or {})}
    if any(p.name == "length" for p in algorithm.module.entry.params):
        params["length"] = length
    session = algorithm.session(models, tokenizer=tokenizer, plan=Plan(backend=backend), externs=externs, **params)
    calls: list[Asked] = []
    events: list[Any] = []
    session.machine = watching(machine(backend), calls, noise)
    request = Request(
        tuple(prompt), max_tokens=length, eos=frozenset(() if eos is None else (eos,)), **(shaping or {"temperature": 0})
    )
    with recorded_noise.given() if noise is not None else nullcontext():
        result = session.run(request, listener=events.append)
    if result.error is not None:
        raise result.error
    made = Run((*prompt, *(result.tokens if eos is None else canvas(events, length))), calls, result, events)
    if backend == "triton" and noise is None and eos is None and externs is None:
        quiet = algorithm.session(models, tokenizer=tokenizer, plan=Plan(backend=backend), **params)
        again = quiet.run(request, keep_events=False)
        assert again.error is None, again.error
        # On a memory a step computes an accepted canvas once more, which the driver's reuse finds in the call that verified it.
        more = program == "freedave" and cache in ("prefix", "dual")
        assert more or again.stats.calls == result.stats.calls, (again.stats, result.stats)
        made.unheard = (*prompt, *again.tokens)
    return made


def canvas(events: Sequence[Any], length: int) -> list[int]:
    """The cells at the end of a run, by its events."""
    cells = [MASK] * length
    for event in events:
        if isinstance(event, trace.Unmasked):
            cells[event.position] = event.token
        if isinstance(event, trace.Remasked):
            cells[event.position] = MASK
    return cells


def watching(kind: Any, calls: list[Asked], noise: Uniforms | None = None) -> Any:
    """A machine's class that also writes down its calls of canvases, and may read recorded noise."""
    if noise is not None:
        kind = _reading(kind, calls, noise)
    if not hasattr(kind, "evaluate_together"):
        return _watched_reference(kind, calls)
    from decgraph.backends.torch.canvases import Canvas
    from decgraph.backends.torch.trees import TorchTree

    class Watched(kind):  # type: ignore[misc]
        def evaluate(self, model: Any, place: Any, *extra: Any, **how: Any) -> Any:
            call = super().evaluate(model, place, *extra, **how)
            root = place.base if isinstance(place, TorchTree) else place
            if not isinstance(root, Canvas):  # a verifier's call, about a tree of tokens
                return call
            ask = call.ask
            length = ask.cells.shape[-1]
            computed = range(length) if ask.fresh is None or ask.memory is None else ask.fresh
            cells = (*root.base.ids(), *np.where(root.token < 0, MASK, root.token).tolist())
            asked = Asked(
                cells, 1 if ask.cells.dim() == 1 else len(ask.cells), tuple(map(int, computed)), drafts=root is not place
            )
            calls.append(asked)
            finish = call.finish

            def finished(answer: Any) -> Any:
                asked.canvases, asked.repeated = answer.computed // max(1, len(asked.computed)), not answer.computed
                return finish(answer)

            call.finish = finished
            return call

        def memory(self, model: Any, place: Any, *extra: Any, **how: Any) -> Any:
            """A memory that no call before computed is a call."""
            call = super().memory(model, place, *extra, **how)
            ask = getattr(call, "ask", None)
            if not isinstance(place, Canvas) or ask is None:
                return call
            length = ask.cells.shape[-1]
            computed = range(length) if ask.fresh is None or ask.memory is None else ask.fresh
            cells = (*place.base.ids(), *np.where(place.token < 0, MASK, place.token).tolist())
            finish = call.finish

            def finished(answer: Any) -> Any:
                if answer.computed:
                    calls.append(Asked(cells, 1, tuple(map(int, computed))))
                return finish(answer)

            call.finish = finished
            return call

    return Watched


def _reading(kind: Any, calls: list[Asked], source: Uniforms) -> Any:
    class Reading(kind):  # type: ignore[misc]
        def key(self, *what: Any, **more: Any) -> Any:
            last = calls[-1] if calls else Asked((), 0, ())
            return recorded_noise.at(super().key(*what, **more), len(calls) - 1, last.cells, last.computed, source)

    return Reading


def _watched_reference(kind: Any, calls: list[Asked]) -> Any:
    from decgraph.backends.reference.canvas_calls import fresh as fresh_of
    from decgraph.backends.reference.values import memory_of
    from decgraph.ir.data.canvas import Canvas
    from decgraph.ir.data.tree import Tree

    class Watched(kind):  # type: ignore[misc]
        before: set[Any] = set()
        remembering: Asked | None = None
        """What the memory that is being made computes, if it is a call of its own."""

        def memory(self, op: Any, model: Any, place: Any, extra: Any) -> Any:
            if isinstance(place, Canvas):
                cells = tuple(MASK if not isinstance(c, int) else c for c in self.cells(place))
                fresh, given = fresh_of(place, extra.get("at"), memory_of(extra.get("given")))
                self.remembering = Asked(cells, 1, tuple(range(len(cells)) if fresh is None or given is None else fresh))
            made = super().memory(op, model, place, extra)
            self.remembering = None
            return made

        def eval_canvases(self, op: Any, model: Any, place: Any, extra: Any) -> Any:
            root = place.base if isinstance(place, Tree) else place
            cells = tuple(MASK if not isinstance(c, int) else c for c in self.cells(root))
            fresh, _ = fresh_of(root, extra.get("at"), memory_of(extra.get("given")))
            given = extra.get("given") is not None and fresh is not None
            asked = Asked(cells, 1, tuple(fresh) if given else tuple(range(len(cells))), drafts=root is not place)
            calls.append(asked)
            canvases = [self.cells(c) for c in self.place_states(place, extra)[0]]
            states = {tuple(x if isinstance(x, int) else MASK for x in c) for c in canvases}
            now = {(c, asked.computed) for c in states}
            asked.repeated = now <= self.before  # the reference computes it again: a memory is no store of its own
            self.before = now
            return super().eval_canvases(op, model, place, extra)

        def count_call(self, model: Any, rows: int, cells: int, computed: int | None = None, **kind: Any) -> Any:
            if self.remembering is not None:
                calls.append(self.remembering)
            if not rows or model.kind != "masked":  # a memory's own call, or one of a causal model beside
                return super().count_call(model, rows, cells, computed, **kind)
            width = max(1, len(calls[-1].computed))
            calls[-1].canvases = (cells if computed is None else computed) // width
            calls[-1].repeated |= computed == 0
            return super().count_call(model, rows, cells, computed, **kind)

    return Watched


def steps(r: Run) -> list[Decided]:
    """By call, the (position, token) decided before the next one."""
    canvases = [*((*c.cells, *[MASK] * (len(r.output) - len(c.cells))) for c in r.calls), r.output]
    return [
        {(i, b) for i, (a, b) in enumerate(zip(x, y, strict=True)) if a != b}
        for x, y in zip(canvases, canvases[1:], strict=False)
    ]


def verified(r: Run) -> list[Decided]:
    """By computed call, what it led to. A draft that needs no verification is decided before the call whose canvases all hold
    it, and belongs to that."""
    out: list[Decided] = []
    first: Decided = set()
    for call, after, found in zip(r.calls, [*r.calls[1:], None], steps(r), strict=True):
        if not call.repeated:
            out.append(first)
            first = set()
        if after is not None and after.drafts:
            first = found
        else:
            out[-1] |= found
    return out


def compared(case: Case, runs: Sequence[Run], *, repeats: bool = True, width: int = 1) -> Outcome:
    """Both sides' columns; a run for every row of the recording's batch. repeats: whether a call on a canvas that was just
    computed counts: published loops make it, decgraph remembers its answer. width: rows that a model computes for a canvas."""
    made = [[c for c in r.calls if repeats or not c.repeated] for r in runs]
    decided = [steps(r) for r in runs] if repeats else [verified(r) for r in runs]
    rows = range(len(runs))
    output = tuple(map(tuple, case["output"]))
    unheard = {"output unheard": tuple(r.unheard for r in runs)} if all(r.unheard for r in runs) else {}
    return Outcome(
        {
            "output": output,
            **dict.fromkeys(unheard, output),
            "forwards": case["forwards"],
            "decided": [[sorted((i, t) for row, i, t in c["decided"] if row == r) for c in case["calls"]] for r in rows],
            "cells computed": [evaluated(c) for c in case["calls"]],
            "tokens evaluated": case["tokens_evaluated"],
        },
        {
            "output": tuple(r.output for r in runs),
            **unheard,
            "forwards": max(map(len, made)),
            "decided": [[sorted(d) for d in row] for row in decided],
            "cells computed": [c.computed for c in max(made, key=len)],
            "tokens evaluated": sum(width * (c.canvases or 1) * len(c.computed) for calls in made for c in calls),
        },
    )


def evaluated(call: dict[str, Any]) -> tuple[int, ...]:
    """The positions that a recorded call evaluated."""
    return tuple(range(*call["range"])) if "range" in call else tuple(call["positions"][0])


__all__ = ["MASK", "Asked", "Run", "compared", "model", "run", "trace"]
