"""Decoding with a large Llama on the device: against transformers, against the floor, in a batch, and where a step goes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import decgraph
from decgraph.bench import baselines
from decgraph.bench.contenders import params_for, request_of, run, session_on
from decgraph.bench.prompts import of_ids
from decgraph.bench.timing import Spread, Times, alternated
from decgraph.bench.weights import Weights
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row
from lab.gpu.sides import counted, profiled

Prompt = tuple[int, ...]


def stage(lab: Lab) -> Items:
    """The items of the stage `speed`."""
    yield "autoregressive", partial(compared, lab, "autoregressive", "generate")
    yield "speculative", partial(compared, lab, "speculative", "assisted", gamma=4)
    yield "prompt_lookup", partial(compared, lab, "prompt_lookup", "prompt_lookup", k=8)
    for name in ("autoregressive", "speculative"):
        yield f"batch, {name}", partial(batch, lab, name)
    for name in ("autoregressive", "speculative"):
        yield f"a step of {name}", partial(step, lab, name)
    yield "autoregressive, sampled", partial(compared, lab, "autoregressive", "generate", sampled=True)
    yield "a step of sampled speculative", partial(step, lab, "speculative", sampled=True)


def prompt_of(lab: Lab, name: str) -> Prompt:
    """Random tokens; for lookup, what follows them is put in front, so that there is something to find."""
    made = lab.weights()
    (prompt,) = of_ids(made.size, 1, lab.sizes.prompt)
    if name != "prompt_lookup":
        return prompt
    session = session_on(decgraph.load("autoregressive"), made, {})
    follows = run(session, request_of(prompt, lab.sizes.limit)).tokens
    return (*prompt[len(follows) + 1 :], *follows, prompt[-1])


def common(one: Any, other: Any) -> int:
    """How many tokens are the same before the first that is not."""
    return next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def compared(lab: Lab, name: str, against: str, *, backend: str = "torch", sampled: bool = False, **given: Any) -> Row:
    """One request, long and short, of ours and of transformers' alternately. A step's time is the difference of long and short.
    against: one of `baselines.NAMES`, or "static"."""
    made, sizes = lab.weights(), lab.sizes
    algorithm = decgraph.load(name)
    params = params_for(algorithm, given)
    session = session_on(algorithm, made, params, backend)
    theirs = static(made) if against == "static" else baselines.baseline(against, made, params)
    prompt = prompt_of(lab, name)
    long, short = (request_of(prompt, limit, sampled=sampled) for limit in (sizes.limit, sizes.short))
    first = lab.seconds(lambda: run(session, short), 1, 0).median
    # The long one first: a cache of fixed size is made for it, and what is compiled is compiled for that size.
    theirs_first = lab.seconds(lambda: theirs([prompt], sizes.limit, sampled=sampled), 1, 0).median
    times = alternated({
        "ours": lambda _: run(session, long), "ours short": lambda _: run(session, short),
        "theirs": lambda _: theirs([prompt], sizes.limit, sampled=sampled),
        "theirs short": lambda _: theirs([prompt], sizes.short, sampled=sampled),
    }, 1, sizes.rounds)  # fmt: skip
    result = run(session, long)
    tokens = sizes.limit - sizes.short
    ours, other = token_ms(times, "ours", tokens), token_ms(times, "theirs", tokens)
    each = result.stats.tokens_per_call
    floor = lab.floor(made.target, sizes.prompt + sizes.limit // 2)
    if name == "speculative":
        floor += (int(params["gamma"])) * lab.floor(made.drafter, sizes.prompt + sizes.limit // 2)
    row: Row = {
        "params": {n: str(v) for n, v in params.items()},
        "prompt": len(prompt),
        "limit": sizes.limit,
        "backend": backend,
        "against": against,
        "first_run_s": first,
        "theirs_first_run_s": theirs_first,
        "ratio": times.ratio("theirs", "ours").to_json(),
        "token_ratio": round(other.median / ours.median, 3),
        "ms_per_token": ours.to_json(),
        "theirs_ms_per_token": other.to_json(),
        "tokens_per_call": round(each, 3),
        "floor_ms_per_call": floor,
        "call_over_floor": round(ours.median * each / floor, 3),
        "tokens_per_second": {
            "ours": sizes.limit / times.seconds("ours").median,
            "theirs": sizes.limit / times.seconds("theirs").median,
        },
    }
    if not sampled:
        row["calls"] = result.stats.target_calls
        # Counting hooks a module, which would have a compiled one compiled again.
        calls = sizes.limit if against == "static" else theirs.calls(prompt, sizes.limit)
        row["theirs_tokens_per_call"] = round(sizes.limit / calls, 3)
        row["same_tokens_first"] = common(result.tokens, theirs([prompt], sizes.limit)[0])
    row["says"] = (
        f"{ours.median:.2f} ms a token, theirs {other.median:.2f}: {row['token_ratio']:.2f} times as fast (whole "
        f"request {row['ratio']['median']:.2f}); a call {row['call_over_floor']:.2f} floors; {each:.2f} tokens a "
        f"call, theirs {row.get('theirs_tokens_per_call', '-')}; first {row.get('same_tokens_first', '-')} the same"
    )
    return row


def static(weights: Weights) -> baselines.Baseline:
    """`generate` with a cache of fixed size, which transformers compiles by itself on a GPU."""
    made = baselines.baseline("generate", weights, {})
    for mode in ("greedy", "sampled"):
        made.given[mode].cache_implementation = "static"
    return replace(made, name="static", settings={**made.settings, "cache": "static, compiled"})


def token_ms(times: Times, name: str, tokens: int) -> Spread:
    """Milliseconds of each additional token of the long run."""
    pairs = zip(times.wall[name], times.wall[f"{name} short"], strict=True)
    return Spread.of([1000 * (long - short) / tokens for long, short in pairs])


def batch(lab: Lab, name: str) -> Row:
    """The same requests all at once and one at a time; generate's own batch."""
    made, sizes = lab.weights(), lab.sizes
    algorithm = decgraph.load(name)
    params = params_for(algorithm, {"gamma": 4})
    session, theirs = session_on(algorithm, made, params), baselines.baseline("generate", made, params)
    prompts = of_ids(made.size, sizes.batch, sizes.batch_prompt)
    requests = [request_of(p, sizes.batch_limit, number=n) for n, p in enumerate(prompts)]

    def at_a_time(width: int) -> list[tuple[int, ...]]:
        results = session.generate(requests, batch=width, keep_events=False)
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.tokens for result in results]

    together, alone = at_a_time(sizes.batch), at_a_time(1)
    same = [common(a, b) for a, b in zip(together, alone)]
    times = alternated(
        {
            "together": lambda _: at_a_time(sizes.batch),
            "alone": lambda _: at_a_time(1),
            "generate": lambda _: theirs(prompts, sizes.batch_limit),
        },
        1,
        max(1, sizes.rounds - 1),
        warm=0,
    )
    up, over = times.ratio("alone", "together"), times.ratio("generate", "together")
    return {"batch": sizes.batch, "prompt": sizes.batch_prompt, "limit": sizes.batch_limit, "throughput": up.to_json(),
            "against_generate": over.to_json(), "same_tokens_first": same,
            "says": f"{up.median:.2f} times the throughput of one at a time, {over.median:.2f} times generate's batch; "
                    f"{sum(n == sizes.batch_limit for n in same)}/{len(same)} the same as alone"}  # fmt: skip


def step(lab: Lab, name: str, *, sampled: bool = False) -> Row:
    """Where a run's time goes: waits and forwards a call, the host's time in forwards, the device's time, a profile."""
    made, sizes = lab.weights(), lab.sizes
    algorithm = decgraph.load(name)
    session = session_on(algorithm, made, params_for(algorithm, {"gamma": 4}))
    prompt = prompt_of(lab, name)[-64:]  # so that the prefill hides nothing
    row = counted(lab, session, request_of(prompt, sizes.limit, sampled=sampled))
    few = request_of(prompt, sizes.short, sampled=sampled)
    table = profiled(lab, lambda: run(session, few))
    waits = row["waits_of_machine"] + row["waits_of_engines"]
    return {**row, "profile": table,
            "says": f"a call {row['ms_per_call']:.2f} ms, {row['host_ms_in_forwards']:.2f} ms of the host in "
                    f"{row['forwards']:.2f} forwards and read-outs; {waits:.2f} waits, CUDA saw "
                    f"{row.get('waits_seen_by_cuda', '-')}; device busy {table['device_seconds']:.3f} of "
                    f"{table['seconds']:.3f} s"}  # fmt: skip
