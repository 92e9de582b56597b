"""Translation validation: a module before and after a pass, run on the same small worlds, must commit the same tokens.

Every world is run by the reference interpreter: a table model or a free model for each parameter, small parameters, two
requests in one session (states per session are carried from one to the other). Compared are the committed tokens, n-best
results, why the run ended, and everything that was computed on the way: the rows of distributions and the memories of the run
after the pass must all have been computed by the run before it, bit for bit. On free models a row is a hash of exactly what it
was computed from, so a wrong reuse of keys, values or features shows even where the tokens happen to be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decgraph.backends.run import Stop
from decgraph.check.batches import side_by_side
from decgraph.check.observing import Seen, Watched
from decgraph.check.worlds import models_for, params_for, request_for
from decgraph.errors import DecError, InternalError
from decgraph.ir.text import difference, print_module
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module
from decgraph.passes.batching import distribution_only, meets
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.parameters import shown
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

WORLDS = 12
TOKENS = 10
REQUESTS = 2


@dataclass(frozen=True)
class World:
    """Models, parameters and requests of one comparison, all generated from `seed`."""

    seed: int
    free: bool
    models: Mapping[str, Model]
    params: Mapping[str, ParamValue]
    requests: tuple[Request, ...]

    def __str__(self) -> str:
        params = ", ".join(f"{k} = {shown(v)}" for k, v in self.params.items()) or "none"
        return f"world {self.seed} of {'free' if self.free else 'table'} models; parameters: {params}"


def worlds(function: Function, count: int = WORLDS, params: Mapping[str, ParamValue] | None = None) -> Iterator[World]:
    """`count` worlds, tables and free models alternating. Raises DecError for a function without small worlds."""
    for seed in range(count):
        free = seed % 2 == 1
        size = 3 + seed % 3
        span = 4 + seed % 3 if "masked" in str(next((p.value.type for p in function.params), "")) else 0
        given = params_for(function, seed, deeper(function, seed) | dict(params or {}), span)
        requests = tuple(
            replace(request_for(size, seed + 2 * n, span or TOKENS, greedy=seed % 4 == 2), seed=seed + 10 * n, request_id=n)
            for n in range(REQUESTS)
        )
        yield World(seed, free, models_for(function, size, seed, free=free), check_params(function, given), requests)


def deeper(function: Function, seed: int) -> dict[str, Any]:
    """In half of the worlds trees three levels deep: what hangs below two different parents shows there only."""
    return {
        p.name: 3
        for p in function.params
        if p.name == "depth" and seed % 4 in (1, 2) and p.value.type.elem == "int" and (p.low or 0) <= 3 <= (p.high or 3)
    }


def answer(name: str, returns: Any) -> Any:
    """A function to stand for an extern: an arbitrary result that depends on the arguments alone."""

    several = isinstance(returns, Type) and returns.is_token and bool(returns.dims)

    def judge(*args: Any) -> Any:
        word = hashlib.blake2b(repr((name, [str(a) for a in args])).encode(), digest_size=2).digest()
        if several:  # some of the tokens that every vocabulary has
            return np.array([v for v in range(3) if word[0] >> v & 1], dtype=np.int64)
        return bool(word[0] & 1) if str(returns) == "bool" else word[0] / 256 if str(returns) in ("real", "prob") else word[0]

    return judge


def outside(module: Module) -> dict[str, Any]:
    """What a machine is handed besides models and parameters: functions for externs, and a text for every token."""
    from decgraph.runtime.text import detokenizer_of

    return {
        "externs": {name: answer(name, returns) for name, (_, returns) in module.externs.items()},
        "detokenizer": detokenizer_of([f"t{i}" for i in range(8)]),
    }


def observe(module: Module, world: World, machine: type[Watched] = Watched, *, apart: bool = False) -> Seen:
    """Run a world's requests one after the other in one session, or each in its own (`apart`)."""
    seen = Seen()
    shared: dict[Any, Any] = {}
    engine = type("Watching", (machine,), {"seen": seen})
    for request in world.requests:
        m = engine(module, module.main, world.models, world.params, request, shared={} if apart else shared, **outside(module))
        try:
            m.run()
            end: Any = m.reason
        except Stop:
            end = "stopped"
        except DecError as error:
            end = f"error: {error}".split(": ")[-1]
        seen.runs.append((m.committed_tokens(), tuple(map(tuple, m.results)), end))
    return seen


def differences(before: Module, after: Module, world: World, machine: type[Watched] = Watched) -> str:
    """What differs in one world, in a line; "" if nothing does."""
    return compared(observe(before, world), observe(after, world, machine))


def compared(old: Seen, new: Seen) -> str:
    """What differs in what two sessions did, in a line; "" if nothing does."""
    for n, (a, b) in enumerate(zip(old.runs, new.runs, strict=True)):
        for what, x, y in zip(("tokens", "results", "end"), a, b, strict=True):
            if x != y:
                return f"request {n}: {what} {x} before, {y} after"
    for key, words in new.rows.items():
        if key not in old.rows:
            return f"computed from something else: {words}"
    return ""


TIMINGS = (1, 2, 3)


def batch_differences(before: Module, after: Module, world: World) -> str:
    """What a batch of a world's requests does otherwise than the requests alone, or in another timing; "" if nothing."""
    if not any("joint" in op.attrs for op in after.entry.body.walk()):
        return ""
    alone = observe(before, world, apart=True)
    first: tuple[Seen, str] | None = None
    for seed in TIMINGS:
        seen, states = side_by_side(after, world.models, world.params, world.requests, seed, **outside(after))
        first = first or (seen, states)
        if seen.runs != first[0].runs or states != first[1] or set(seen.rows) != set(first[0].rows):
            return "a batch: what it does depends on which of its requests comes first to a call"
        for n, (a, b) in enumerate(zip(alone.runs, seen.runs, strict=True)):
            if a != b and not distribution_only(after.entry):
                return f"request {n}: {a} alone, {b} in a batch"
        for key, words in seen.rows.items():
            if key not in alone.rows and not meets(after.entry):
                return f"a batch computed from something else: {words}"
    return ""


class NotTheSame(InternalError):
    """A pass that changed what a program does. The text is a reproducer: the world, the request, both modules."""


class Validation:
    """Raises NotTheSame, with a reproducer, where a pass changes what a program does in one of `count` worlds. It is called for
    every pass in order; the results of the pass before are not computed again."""

    def __init__(self, params: Mapping[str, ParamValue] | None = None, count: int | None = None) -> None:
        self.params, self.count = dict(params or {}), WORLDS if count is None else count
        self.known: tuple[Module, dict[int, Seen]] | None = None

    def __call__(self, before: Module, after: Module, name: str) -> None:
        old = self.known[1] if self.known is not None and self.known[0] is before else {}
        new: dict[int, Seen] = {}
        for world in worlds(before.entry, self.count, self.params):
            first = old.get(world.seed) or observe(before, world)
            new[world.seed] = observe(after, world)
            found = compared(first, new[world.seed]) or batch_differences(before, after, world)
            if found:
                raise NotTheSame(reproducer(before, after, world, name, found))
        self.known = (after, new)


def reproducer(before: Module, after: Module, world: World, name: str, found: str) -> str:
    """Everything that is needed to see a difference again."""
    requests = "\n".join(f"  request {n}: {r}" for n, r in enumerate(world.requests))
    return (
        f"pass {name} changed what {before.main} does\n  {found}\n  {world}\n{requests}\n"
        f"  again: check.validation.differences(before, after, list(worlds(before.entry, {world.seed + 1}))[-1])\n\n"
        f"difference of the two modules\n{difference(before, after)}\n\nbefore\n{print_module(before)}\n"
        f"after\n{print_module(after)}"
    )
