"""Masked models: a program with an approximate KV cache against the same program without one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import decgraph
from decgraph.bench import prompts as texts
from decgraph.bench.contenders import params_for, request_of, run
from decgraph.bench.machine import load
from decgraph.bench.measure import Row, Settings, compared, digits, outside_models, plain
from decgraph.bench.timing import alternated
from decgraph.errors import DecError
from decgraph.models import bind
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

USUAL = "fast_dllm_uncached"


def against_another(name: str, settings: Settings, *, given: Mapping[str, Any] | None = None, usual: str | None = None) -> Row:
    """A masked algorithm against another one on the shipped masked model, both compiled, canvases of the same size.

    A canvas takes seconds, so there are fewer of them than requests elsewhere. Also counts the model calls of the torch run
    and of the reference interpreter's on one request: they must be equal. Raises DecError for a baseline of another kind.
    """
    algorithm, other = decgraph.load(name), decgraph.load(usual or USUAL)
    if set(algorithm.models.values()) != {"masked"} or set(other.models.values()) != {"masked"}:
        raise DecError(
            f"{algorithm.name} and {other.name} do not decode with the same kind of model",
            hint=f"--baseline {USUAL}, or another algorithm for masked models",
        )
    few, rounds = max(1, settings.requests // 2), max(1, settings.rounds // 2)
    bound = bind(algorithm.function, {})
    model = next(iter(bound.models.values()))
    asked = dict(given or {})
    sessions: dict[str, Session] = {}
    params = params_for(algorithm, asked)
    for who, one in (("ours", algorithm), ("theirs", other)):
        known = params_for(one, {**params, **asked})
        sessions[who] = one.session(dict.fromkeys(one.models, model), tokenizer=bound.tokenizer, backend="torch", **known)
    prompts = texts.of_text(bound.tokenizer, few)
    cells = int(params.get("length", settings.limit))
    requests = [request_of(prompt, cells, number=n) for n, prompt in enumerate(prompts)]

    contenders = {who: partial(_run_number, session, requests) for who, session in sessions.items()}
    times = alternated(contenders, len(prompts), rounds, warm=settings.warm, seed=settings.seed)
    calls = {who: sum(run(s, r).stats.target_calls for r in requests) / len(requests) for who, s in sessions.items()}
    row: Row = {
        "kind": "masked",
        "algorithm": algorithm.name,
        "baseline": other.name,
        "models": model.name,
        "mode": "greedy",
        "params": plain(params),
    }
    row |= compared(times, cells)
    row["calls"] = {"ours": digits(calls["ours"]), "baseline": digits(calls["theirs"])}
    row["tokens_per_call"] = digits(cells / calls["ours"])
    row["baseline_tokens_per_call"] = digits(cells / calls["theirs"])
    row["ms_per_call"] = digits(1000 * times.seconds("ours").median / calls["ours"])
    row["baseline_ms_per_call"] = digits(1000 * times.seconds("theirs").median / calls["theirs"])
    row |= outside_models(sessions["ours"], prompts, cells, calls["ours"])
    row["interpreter"] = by_the_interpreter(algorithm, model, bound.tokenizer, sessions["ours"], requests[0], params)
    row["load"] = load()
    return row


def _run_number(session: Session, requests: list[Request], n: int) -> object:
    return run(session, requests[n])


def by_the_interpreter(algorithm: Any, model: Any, tokenizer: Any, compiled: Session, request: Any, params: Any) -> Row:
    """Calls and tokens of one request, compiled and interpreted, and the forwards of the engine."""
    engine = engine_of(model)
    forwards, computed = engine.counted.calls, engine.counted.computed
    mine = run(compiled, request)
    forwards, computed = engine.counted.calls - forwards, engine.counted.computed - computed
    models = dict.fromkeys(algorithm.models, model)
    reference = algorithm.session(models, tokenizer=tokenizer, backend="reference", **params)
    meant = run(reference, request)
    return {
        "calls": mine.stats.target_calls,
        "interpreter_calls": meant.stats.target_calls,
        "forwards": forwards,
        "cells_computed": computed,
        "tokens_equal": mine.tokens == meant.tokens,
    }
