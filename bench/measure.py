"""One row of the table: an algorithm against a baseline on the same modules, greedy or sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import decgraph
from decgraph.bench import baselines, shares
from decgraph.bench.contenders import Agreement, Other, greedy_is_exact, params_for, request_of, run, session_on
from decgraph.bench.machine import load
from decgraph.bench.timing import Spread, Times, alternated
from decgraph.bench.weights import Weights
from decgraph.errors import DecError

Row = dict[str, Any]  # what one comparison gave, as JSON


@dataclass(frozen=True)
class Settings:
    """How long and how often. requests: prompts. limit: new tokens of each. rounds: timed runs of each request."""

    requests: int = 4
    limit: int = 64
    rounds: int = 5
    warm: int = 1
    batch: int = 8
    seed: int = 0


def against_transformers(
    name: str,
    weights: Weights,
    settings: Settings,
    *,
    given: Mapping[str, Any] | None = None,
    usual: str | None = None,
    sampled: bool = False,
) -> Row:
    """An algorithm against a loop of transformers, or another algorithm. Raises DecError for what there is not, and for what
    these weights lack."""
    algorithm = decgraph.load(name)
    params = params_for(algorithm, given or {})
    session = session_on(algorithm, weights, params)
    against = usual or baselines.USUAL.get(algorithm.name, "generate")
    made = baselines.baseline if against in baselines.NAMES else rival
    theirs: Any = made(against, weights, params)
    prompts, limit = weights.prompts(settings.requests), settings.limit
    count = [0]

    def ours(n: int) -> None:
        made = run(session, request_of(prompts[n], limit, sampled=sampled, seed=count[0], number=n))
        assert len(made.tokens) == limit, f"{algorithm.name} made {len(made.tokens)} tokens of {limit}"
        count[0] += 1

    def other(n: int) -> None:
        (made,) = theirs([prompts[n]], limit, sampled=sampled, seed=count[0])
        assert len(made) == limit, f"{theirs.name} made {len(made)} tokens of {limit}"

    row: Row = {
        "kind": "transformers",
        "algorithm": algorithm.name,
        "baseline": theirs.name,
        "models": weights.name,
        "mode": "sampled" if sampled else "greedy",
        "params": plain(params),
        "baseline_settings": theirs.settings,
    }
    if not sampled and greedy_is_exact(algorithm) and (against in baselines.NAMES or greedy_is_exact(decgraph.load(against))):
        agreement = Agreement(weights)
        for prompt in prompts:
            agreement.compare(prompt, run(session, request_of(prompt, limit)).tokens, theirs([prompt], limit)[0])
        row["tokens_equal"] = agreement.to_json()
    times = alternated({"ours": ours, "theirs": other}, len(prompts), settings.rounds, warm=settings.warm, seed=settings.seed)
    row |= compared(times, limit)
    calls = [run(session, request_of(prompt, limit, sampled=sampled)).stats for prompt in prompts]
    row["tokens_per_call"] = digits(sum(s.tokens for s in calls) / sum(s.target_calls for s in calls))
    row["draft_calls_per_call"] = digits(sum(s.draft_calls for s in calls) / sum(s.target_calls for s in calls))
    if not sampled:
        row["baseline_tokens_per_call"] = digits(limit * len(prompts) / sum(theirs.calls(p, limit) for p in prompts))
    steps = sum(s.target_calls for s in calls) / len(prompts)
    row["ms_per_call"] = digits(1000 * times.seconds("ours").median / steps)
    row |= outside_models(session, prompts, limit, steps, sampled)
    row["load"] = load()
    return row


def rival(name: str, weights: Weights, params: Mapping[str, Any]) -> Other:
    """An algorithm as a baseline. Raises DecError for a name that is neither an algorithm's nor a loop's of transformers."""
    try:
        algorithm = decgraph.load(name)
    except DecError as error:
        raise DecError(f"there is no baseline {name!r}", hint=f"{', '.join(baselines.NAMES)}, or an algorithm") from error
    return Other(algorithm, weights, params)


def outside_models(session: Any, prompts: Sequence[Sequence[int]], limit: int, steps: float, sampled: bool = False) -> Row:
    """The share of the time outside models over requests, and microseconds of it a target call."""
    seen = [shares.outside(session, partial(run, session, request_of(p, limit, sampled=sampled))) for p in prompts]
    return {
        "outside_models": {
            **Spread.of([share for share, _, _ in seen]).to_json(),
            "us_per_call": digits(1e6 * Spread.of([s for _, s, _ in seen]).median / steps),
            "entered_per_call": digits(Spread.of([float(n) for _, _, n in seen]).median / steps),
        }
    }


def compared(times: Times, tokens: float, ours: str = "ours", theirs: str = "theirs") -> Row:
    """Tokens a second of both, and how many times faster ours is by the wall clock and by the processor's."""
    return {
        "tokens_per_second": {
            "ours": digits(tokens / times.seconds(ours).median),
            "baseline": digits(tokens / times.seconds(theirs).median),
        },
        "ratio": times.ratio(theirs, ours).to_json(),
        "cpu_ratio": times.ratio(theirs, ours, cpu=True).to_json(),
        "timed": len(times.wall[ours]),
    }


def batched(name: str, weights: Weights, settings: Settings, *, given: Mapping[str, Any] | None = None) -> Row:
    """The same requests, `batch` at a time and one at a time; with autoregressive also generate's own batch."""
    algorithm = decgraph.load(name)
    params = params_for(algorithm, given or {})
    session = session_on(algorithm, weights, params)
    prompts, limit = weights.prompts(settings.batch), settings.limit
    requests = [request_of(prompt, limit, number=n) for n, prompt in enumerate(prompts)]

    def at_a_time(width: int) -> list[tuple[int, ...]]:
        results = session.generate(requests, batch=width, keep_events=False)
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.tokens for result in results]

    agreement = Agreement(weights)
    for prompt, alone, together in zip(prompts, at_a_time(1), at_a_time(settings.batch), strict=True):
        agreement.compare(prompt, together, alone)
    contenders: dict[str, Any] = {"alone": lambda _: at_a_time(1), "ours": lambda _: at_a_time(settings.batch)}
    row: Row = {
        "kind": "batch",
        "algorithm": algorithm.name,
        "baseline": "batch 1",
        "models": weights.name,
        "mode": "greedy",
        "params": plain(params),
        "batch": settings.batch,
        "tokens_equal": agreement.to_json(),
    }
    theirs = baselines.baseline("generate", weights, params)
    if algorithm.name == "autoregressive":
        contenders["theirs"] = lambda _: theirs(prompts, limit)
    times = alternated(contenders, 1, settings.rounds, warm=settings.warm, seed=settings.seed)
    row |= compared(times, limit * len(prompts), "ours", "alone")
    if "theirs" in contenders:
        row["generate_batched"] = compared(times, limit * len(prompts))
    row["load"] = load()
    return row


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON values."""
    return {n: v if isinstance(v, bool | int) else str(getattr(v, "name", "") or v) for n, v in params.items()}


def digits(value: float) -> float:
    """Four of them."""
    return float(f"{value:.4g}")
