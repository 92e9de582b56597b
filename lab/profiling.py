"""Where a step's time goes: the costliest functions of an algorithm's run, by their own time and with what they call.

    .venv/bin/python -m lab.profiling speculative eagle2 [--max-tokens 64] [--top 25] [--events] [--set gamma=6]

Seconds of the processor of one run (cProfile on `time.thread_time`, which makes many small calls look dearer than they are:
compare the lines with each other): all functions by their own time, decgraph's with what they call. Before them, without a
profiler: milliseconds a call and the share outside models (shares.py). Greedy, on the shipped models, after one to warm up.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

import decgraph
from decgraph.bench import prompts as texts
from decgraph.bench import shares, weights
from decgraph.bench.contenders import params_for, request_of, session_on
from decgraph.bench.machine import load
from decgraph.models import bind
from decgraph.runtime.session import Session

OURS = f"<decgraph|<captured|{re.escape(str(Path(__file__).resolve().parent.parent))}/(?!.*site-packages)"


def session_for(name: str, given: Mapping[str, Any]) -> Session:
    """An algorithm's session on the shipped models."""
    algorithm = decgraph.load(name)
    params = params_for(algorithm, given)
    if "masked" not in algorithm.models.values():
        return session_on(algorithm, weights.shipped(), params)
    bound = bind(algorithm.function, {})
    made: Session = algorithm.session(bound.models, tokenizer=bound.tokenizer, backend="torch", **params)
    return made


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
    profile = cProfile.Profile(time.thread_time)
    profile.runcall(run)
    stats = pstats.Stats(profile)
    stats.sort_stats("tottime").print_stats(top)
    stats.sort_stats("cumtime").print_stats(OURS, top)


def main(arguments: list[str] | None = None) -> None:
    """Profile the algorithms named."""
    parser = argparse.ArgumentParser(prog="python -m lab.profiling", description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=64)
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
