"""Which algorithms of the standard library fit: the models that are there, what requests ask for, and what may be committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from decgraph import api, stdlib, zoo
from decgraph.bench.compare import Candidate, first_line
from decgraph.bench.contenders import params_for, promised
from decgraph.errors import DecError
from decgraph.runtime.sources import arguments_of

PLAIN = {"causal": "autoregressive", "masked": "static_masked"}
"""By the kind of a model, the algorithm that takes one token or one cell a call, which the others' claims are about."""


def fitting(
    kind: str,
    models: Callable[[api.Algorithm], Mapping[str, Any]],
    *,
    common: Mapping[str, Any],
    externs: Collection[str] = (),
    accepts: Callable[[api.Algorithm], object] = bool,
    temperature: float = 0.0,
    lossy: bool = False,
) -> tuple[list[Candidate], dict[str, str]]:
    """Those that fit but for the plain one, and why each other one of this kind of model does not.

    models: what there is for an algorithm's models. common: parameters for all that have them. externs: the functions that
    there are. accepts: raises DecError for an algorithm that does not do what requests ask for. lossy: also those that may
    commit other tokens than the plain one, or tokens of another distribution.
    """
    out: list[Candidate] = []
    left: dict[str, str] = {}
    for entry in sorted(stdlib.entries(), key=lambda one: one.wave):  # the best known first: time may be short
        if entry.kinds[:1] != (kind,) or entry.name == PLAIN[kind]:
            continue
        if not lossy and f"refines {PLAIN[kind]}(" not in entry.claim:
            left[entry.name] = OTHERS
            continue
        if missing := set(entry.externs) - set(externs):
            left[entry.name] = f"it calls a function that was not given (--extern): {min(missing)}"
            continue
        one = api.load(entry.name)
        try:
            params = {name: value for name, value in common.items() if name in one.params}
            values = params_for(one, params)
            accepts(one)
        except DecError as error:
            left[entry.name] = f"it does not do what is asked for: {first_line(error)}"
            continue
        if not lossy and not promised(one, values, spec=PLAIN[kind], temperature=temperature):
            left[entry.name] = OTHERS
            continue
        try:
            arguments_of(one.function, models(one), zoo.known())
        except DecError as error:
            left[entry.name] = f"it needs a model that was not given: {first_line(error)}"
            continue
        out.append(Candidate(one.name, one, params))
    return out, left


OTHERS = "it may commit other tokens (--lossy)"
