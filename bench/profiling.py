"""Where a step's time goes: the costliest functions of an algorithm's run, by their own time and with what they call.

    .venv/bin/python -m decgraph.bench.profiling speculative eagle2 [--max-new 64] [--top 25] [--events] [--set gamma=6]

Microseconds of the processor a target call (cProfile on `time.thread_time`, which makes many small calls look dearer than
they are: compare the lines with each other). Before them, without a profiler: milliseconds a call and the share outside
models (shares.py). Greedy, on the shipped models, one request after one to warm up.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

import decgraph
from decgraph.bench import prompts as texts
from decgraph.bench import shares, weights
from decgraph.bench.contenders import params_for, request_of, session_on
from decgraph.bench.decoding import kind_of
from decgraph.bench.machine import load
from decgraph.models import bind
from decgraph.runtime.session import Session

ROOT = Path(__file__).resolve().parent.parent


def session_for(name: str, given: Mapping[str, Any]) -> Session:
    """An algorithm's session on the shipped models."""
    algorithm = decgraph.load(name)
    params = params_for(algorithm, given)
    if kind_of(name) == "causal":
        return session_on(algorithm, weights.shipped(), params)
    bound = bind(algorithm.function, {})
    made: Session = algorithm.session(bound.models, tokenizer=bound.tokenizer, backend="torch", **params)
    return made


def profiled(run: Callable[[], object], times: int = 2) -> pstats.Stats:
    """The profile of several runs."""
    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    for _ in range(times):
        run()
    profile.disable()
    return pstats.Stats(profile)


def lines(stats: pstats.Stats, calls: float, top: int, *, own: bool, ours: bool = False) -> list[str]:
    """The costliest functions by own or by cumulative time, a line each; `ours`: decgraph's only."""
    found: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    rows = [(where, cost) for where, cost in found.items() if not ours or _ours(where[0])]
    rows.sort(key=lambda row: -row[1][2 if own else 3])
    out = []
    for (file, line, name), (_, count, alone, whole, _) in rows[:top]:
        place = "" if file == "~" else f"{_short(file)}:{line} "
        costs = f"{1e6 * alone / calls:9.0f} own {1e6 * whole / calls:9.0f} with callees {count / calls:8.1f} x"
        out.append(f"{costs}  {place}{name}")
    return out


def _ours(file: str) -> bool:
    return file.startswith(("<decgraph", "<captured")) or (file.startswith(str(ROOT)) and "site-packages" not in file)


def _short(file: str) -> str:
    return file.removeprefix(f"{ROOT}/").rpartition("site-packages/")[2]


def show(name: str, session: Session, limit: int, top: int, *, events: bool = False) -> None:
    """Print all of it for one algorithm."""
    (prompt,) = texts.of_text(session.tokenizer, 1)
    request = request_of(prompt, limit)
    run = partial(session.run, request, keep_events=events)
    result = run()
    if result.error is not None:
        raise result.error
    run()
    calls = max(result.stats.target_calls, 1)
    took = []
    for _ in range(5):
        started = time.thread_time()
        run()
        took.append(time.thread_time() - started)
    share, seconds, entered = shares.outside(session, run)
    print(
        f"== {name}: {len(result.tokens)} tokens, {calls} target calls, {1000 * statistics.median(took) / calls:.2f} ms a "
        f"call; outside models {share:.0%}, {1e6 * seconds / calls:.0f} us; {entered / calls:.1f} forwards and read-outs; "
        f"load {load()}"
    )
    stats = profiled(run)
    print("-- by own time")
    print("\n".join(lines(stats, 2 * calls, top, own=True)))
    print("-- decgraph's, with what they call")
    print("\n".join(lines(stats, 2 * calls, top, own=False, ours=True)), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Profile the algorithms named."""
    parser = argparse.ArgumentParser(prog="python -m decgraph.bench.profiling", description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--max-new", type=int, default=64)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--events", action="store_true", help="with the events of a listener")
    parser.add_argument("--set", action="append", default=[], help="a parameter: gamma=5")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    given = dict(item.split("=", 1) for item in options.set)
    for name in options.names:
        show(name, session_for(name, given), options.max_new, options.top, events=options.events)


if __name__ == "__main__":
    main()
