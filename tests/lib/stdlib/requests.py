"""Every algorithm of stdlib/ with small models, requests of every sort, and what the reference does with them: what a backend
is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from decgraph.api import Algorithm
from decgraph.api import load as load_algorithm
from decgraph.check.worlds import models_for, params_for
from decgraph.ir.values import Function
from decgraph.passes.batching import distribution_only, meets
from decgraph.passes.plan import Plan
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import ModelCall
from decgraph.runtime.unshaped import unread
from lib.stdlib.sessions import session_of

V = 7
GRAMMAR = Automaton(tuple(tuple((s + t) % 3 if (s + t) % 4 else -1 for t in range(V)) for s in range(3)), frozenset({0, 1, 2}))
"""Every state forbids one or two tokens; nothing may follow a forbidden one."""


FIELDS = {f.name: f.default for f in fields(Request)}


def not_next(generated: tuple[int, ...]) -> list[int]:
    """Every token but the one after the last; also where the last is a mask, or one that was forbidden itself."""
    return [t for t in range(V) if not generated or t != (generated[-1] + 1) % V]


def requests(seed: int) -> list[Request]:
    """Eight requests, one of every sort, of different lengths."""

    def made(i: int, prompt: tuple[int, ...], max_tokens: int, **more: Any) -> Request:
        return Request(
            prompt=tuple((t + seed) % V for t in prompt), max_tokens=max_tokens, seed=100 + seed, request_id=i, **more
        )

    return [
        made(0, (1, 2, 3, 1, 2), 12),
        made(1, (5, 6, 5), 9, temperature=0),
        made(2, (2, 4), 6, temperature=0.7, top_k=4, repetition_penalty=1.3),
        made(3, (0, 1, 0, 1), 11, top_p=0.9, min_p=0.05, presence_penalty=0.5, frequency_penalty=0.2, temperature=1.2),
        made(4, (6, 3, 1), 14, eos={0, 4}, min_length=3, bias={2: 1.5, 5: -1.0}, bans={6}),
        made(5, (1, 1, 2), 8, allow=not_next),
        made(6, (3, 0, 2, 2), 12, stop=("ba", "ed", "c")),
        made(7, (4, 4), 1, temperature=0.5, eos={1}),
    ]


def heard(function: Function, request: Request) -> Request:
    """A request without what the program never reads, which would be refused."""
    return replace(request, **{name: FIELDS[name] for name in unread(function)})


MORE_CALLS = {"dpad"}
"""Programs that call a model more often on torch: DPad makes the last call of a block on a memory once more."""


class World:
    """One algorithm with small models and parameters, and what the reference does with the requests."""

    def __init__(self, name: str, seed: int, free: bool) -> None:
        self.algorithm: Algorithm = load_algorithm(name)
        f = self.algorithm.function
        self.params = params_for(f, seed)
        self.models = models_for(f, V, seed, free=free)
        self.requests = [heard(f, r) for r in requests(seed)]
        self.shares = meets(f)
        self.wanted = [self.session("reference").run(r) for r in self.requests]

    def session(self, backend: str, plan: Plan | None = None) -> Session:
        return session_of(self.algorithm, self.models, self.params, backend, plan or Plan(passes=()))

    def compare(
        self, got: Sequence[Result], how: str, *, passes: bool, together: bool = False, of: Sequence[Request] | None = None
    ) -> None:
        """`got` are the results of all requests, or of those in `of`."""
        wanted = {r.request_id: w for r, w in zip(self.requests, self.wanted, strict=True)}
        for request, have in zip(of or self.requests, got, strict=True):
            want = wanted[request.request_id]
            where = f"{self.algorithm.name} {how}, request {request.request_id}, {self.params}"
            assert have.error is None, f"{where}: {have.error}"
            if together and distribution_only(self.algorithm.function):  # what is drafted is drawn at other places
                assert have.tokens, where
                continue
            assert (have.tokens, have.reason, have.results) == (want.tokens, want.reason, want.results), where
            assert have.text == want.text
            if together and self.shares:  # what is drafted depends on what other requests wrote before
                continue
            assert done(have) == done(want), where
            calls, asked = Counter(models(have)), Counter(models(want))
            if self.algorithm.name in MORE_CALLS:
                assert calls > asked, f"{where}: as many calls as on the reference"
                continue
            assert calls == asked if not passes else calls <= asked, f"{where}: {calls} calls, not {asked}"


def done(result: Result) -> list[Any]:
    """What happened, without the model calls."""
    return [e for e in result.events if not isinstance(e, ModelCall)]


def models(result: Result) -> list[str]:
    return [e.model for e in result.events if isinstance(e, ModelCall)]


WORLDS = [(0, False), (3, True)]


@cache
def world(name: str, seed: int, free: bool) -> World:
    return World(name, seed, free)


ENTER_DEAD_ENDS = {"gs_jacobi", "jacobi", "lookahead", "speculative_jacobi", "token_recycling"}
"""They read what follows drafts that a grammar may forbid, where it allows nothing: refused on every backend."""
