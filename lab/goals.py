"""Measure the speeds that decgraph sets itself, and compare them with their goals.

Ratios of processor time per token in one interleaved run for every part, one thread, float32, transformers on its own copy of
the weights. Printed for each goal: the geometric mean over prompts, in brackets the lower quartile, the median and the upper
quartile over all pairs of runs, the goal, and whether it was reached. About ten minutes on a quiet machine for all parts. The
exit code is 1 where tokens differ by more than near-ties; a goal that was not reached is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from typer import Option

from decgraph.bench import baselines, compare, loading, prompts, weights
from decgraph.bench.compare import THEIRS, asked
from decgraph.bench.machine import facts, load
from decgraph.bench.measure import MeasureSettings, Row
from decgraph.bench.prompts import BenchPrompt, Text
from decgraph.bench.weights import BenchWeights
from decgraph.errors import DecError
from lab import pages, runs

GENERATE, ASSISTED, LOOKUP = (THEIRS + name for name in ("generate", "assisted", "prompt_lookup"))
CONTEXT = 2000  # tokens of the long prompt of the part `context`


@dataclass(frozen=True)
class Goal:
    """An algorithm is to be so many times as fast as a baseline on a kind of prompt (None: on each kind but those in `but`)."""

    algorithm: str
    baseline: str
    least: float
    kind: str | None = None
    but: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One interleaved run and its goals."""

    algorithms: tuple[str, ...]
    goals: tuple[Goal, ...]
    settings: MeasureSettings
    weights: Callable[[str], BenchWeights]  # given the name of the model that chats
    prompts: Callable[[BenchWeights], Sequence[BenchPrompt]]
    wanted: tuple[str, ...] | None = None  # baselines; None: the usual ones


def chat_model(name: str) -> BenchWeights:
    """The model that chats."""
    return loading.loaded(name, None, {}, weights.HOST, eos=True)


def by_kind(on: BenchWeights) -> list[BenchPrompt]:
    """Two of the built-in prompts of each kind."""
    texts = prompts.taken(prompts.built_in().texts, 2)
    return prompts.encoded(texts, Path(on.folders["target"]), chat=True)


def long_context(on: BenchWeights) -> list[BenchPrompt]:
    """A prompt of at least `CONTEXT` tokens: the built-in texts one after the other. Raises DecError where they are
    too short."""
    folder, content = Path(on.folders["target"]), "Read these notes and answer the last one."
    for _ in range(3):
        for text in prompts.built_in().texts:
            content += f"\n\n{text.text}"
            (made,) = prompts.encoded([Text("context", content)], folder, chat=True)
            if len(made.tokens) >= CONTEXT:
                return [made]
    raise DecError(f"the built-in texts are shorter than {CONTEXT} tokens")


def code(count: int) -> Callable[[BenchWeights], list[BenchPrompt]]:
    """The beginnings of code for the shipped models."""
    return lambda on: prompts.encoded(prompts.code().texts[:count], Path(on.folders["target"]), chat=False)


def ids(count: int, length: int) -> Callable[[BenchWeights], list[BenchPrompt]]:
    """Random tokens, the second half of each prompt like the first."""
    return lambda on: [BenchPrompt("random", tokens) for tokens in prompts.of_ids(on.size, count, length)]


def with_copies(on: BenchWeights) -> list[BenchPrompt]:
    """Random tokens, and the same with the model's own continuation between them, so that lookup finds drafts. Weights that
    were never trained rarely accept them: what is measured is what a draft costs."""
    plain, further = ids(2, 48)(on), baselines.baseline("generate", on, {})
    copied = [BenchPrompt("copied", (*p.tokens, *further([p.tokens], 48)[0], *p.tokens)) for p in plain]
    return [*plain, *copied]


USUAL = ("autoregressive", "speculative", "prompt_lookup")
SHIPPED = (*USUAL, "eagle2", "sequoia")
BATCHED = (*SHIPPED, "medusa", "token_recycling", "kangaroo", "lookahead", "pearl")
# Settings for batches of 8, chosen by hand on these very prompts: on a CPU a batch is bound by arithmetic, so the
# published trees, made for one sequence on a GPU, compute more than their accepted tokens save. All keep every token.
SHORTER = (
    "prompt_lookup:k=3", "sequoia:shape=1x1x1x1", "token_recycling:shape=1", "eagle2:depth=1,k=1,budget=1", "medusa:shape=1",
    "kangaroo:gamma=1", "lookahead:w=2,n=3,g=1",
)  # fmt: skip
SMALLER = "eagle2:depth=3,k=4,budget=12"  # the published tree has 59 nodes at depth 6, which a 5M target does not repay
SHORT = MeasureSettings(limit=48, rounds=2)

PARTS: dict[str, Part] = {
    "chat": Part(
        ("autoregressive", "prompt_lookup"),
        (
            Goal("autoregressive", GENERATE, 1.4, "chat"),
            Goal("prompt_lookup", LOOKUP, 1.5, "copy-edit"),
            Goal("prompt_lookup", LOOKUP, 1.0, but=("copy-edit",)),
            Goal("prompt_lookup", GENERATE, 1.0),
        ),
        SHORT, chat_model, by_kind,
    ),
    "context": Part(
        ("autoregressive", "prompt_lookup"),
        (Goal("autoregressive", GENERATE, 1.0), Goal("prompt_lookup", LOOKUP, 1.0)),
        MeasureSettings(limit=32, rounds=1), chat_model, long_context, ("generate", "prompt_lookup"),
    ),
    "random135": Part(
        USUAL,
        (Goal("speculative", ASSISTED, 2.0), Goal("prompt_lookup", LOOKUP, 1.8), Goal("autoregressive", GENERATE, 1.0)),
        SHORT, lambda _: weights.random_llama("random-135M"), with_copies,
    ),
    "random25": Part(
        USUAL,
        (Goal("speculative", ASSISTED, 1.9), Goal("prompt_lookup", LOOKUP, 1.0), Goal("autoregressive", GENERATE, 1.0)),
        MeasureSettings(limit=64, rounds=3), lambda _: weights.random_llama("random-25M"), with_copies,
    ),
    "shipped": Part(
        (*SHIPPED, SMALLER),
        (
            Goal("speculative", ASSISTED, 2.2),
            Goal("prompt_lookup", LOOKUP, 1.8),
            Goal("eagle2", GENERATE, 1.0),
            Goal(SMALLER, GENERATE, 1.0),
            Goal("sequoia", GENERATE, 1.0),
            Goal("autoregressive", GENERATE, 1.5),
        ),
        MeasureSettings(limit=64, rounds=3), lambda _: weights.shipped(), code(4),
    ),
    "batch": Part(
        (*BATCHED, *SHORTER),
        tuple(Goal(name, GENERATE, 1.0) for name in (*BATCHED, *SHORTER)),
        MeasureSettings(limit=64, rounds=2, batch=8), lambda _: weights.shipped(), code(8),
    ),
    "prefill": Part(
        ("autoregressive", "prompt_lookup"),
        (Goal("autoregressive", GENERATE, 1.0), Goal("prompt_lookup", GENERATE, 1.0)),
        MeasureSettings(limit=16, rounds=3), lambda _: weights.random_llama("random-25M"), ids(1, 3000), ("generate",),
    ),
    "first_token": Part(
        ("autoregressive",),
        (Goal("autoregressive", GENERATE, 1.0),),
        MeasureSettings(limit=1, rounds=5), lambda _: weights.random_llama("random-25M"), ids(1, 1500), ("generate",),
    ),
}  # fmt: skip


def measured(name: str, chat: str, rounds: int) -> Row:
    """A part's run. Raises DecError where its models are not on this machine."""
    part = PARTS[name]
    on, settings = part.weights(chat), replace(part.settings, rounds=max(1, rounds or part.settings.rounds))
    ready = compare.prepared(asked(part.algorithms, {}), on, part.prompts(on), settings, wanted=part.wanted)
    return ready(lambda what, done: runs.told(f"{name}: {what}", done))


def judged(name: str, run: Row) -> Iterator[Row]:
    """Every goal of a part, with what was measured; a goal whose algorithm was not measured has no figures."""
    for goal in PARTS[name].goals:
        head = {"part": name, "algorithm": goal.algorithm, "baseline": goal.baseline, "goal": goal.least}
        rows = [row for row in run["rows"] if row["algorithm"] == goal.algorithm and goal.baseline in row["ratios"]]
        single = len({row["kind"] for row in rows}) == 1
        wanted = [
            r for r in rows if single or r["kind"] == goal.kind or (goal.kind is None and r["kind"] not in ("all", *goal.but))
        ]
        for row in wanted:
            found = row["ratios"][goal.baseline]["cpu"]
            yield {
                **head,
                "kind": row["kind"],
                "ratio": found["value"],
                "interval": [found["low"], found["high"]],
                "quartiles": [found["quartiles"][key] for key in ("low", "median", "high")],
                "reached": found["value"] >= goal.least,
                "tokens_per_call": row["tokens_per_call"],
                "drafted_per_call": row["drafted_per_call"],
                "tokens_equal": row.get("tokens_equal"),
            }
        if not wanted and goal.algorithm in run["failed"]:
            yield {**head, "reached": False, "failed": run["failed"][goal.algorithm]}


def line(found: Row) -> str:
    """A goal for people."""
    head = f"{found['part']:<12} {found['algorithm']:<16} against {found['baseline'].removeprefix(THEIRS):<14}"
    if "failed" in found:
        return f"{head} not measured: {found['failed']}"
    equal = found["tokens_equal"] or {}
    tokens = ", ".join(f"{equal[key]} {key.replace('_', '-')}" for key in ("same", "near_ties", "different") if equal.get(key))
    quartiles = ", ".join(f"{value:.2f}" for value in found["quartiles"])
    verdict = "reached" if found["reached"] else "NOT reached"
    return (
        f"{head} {found['kind']:<10} {found['ratio']:5.2f} ({quartiles})  goal {found['goal']:.1f}  {verdict:<11}  "
        f"{found['tokens_per_call']:.2f} tokens and {found['drafted_per_call']:.1f} drafts a call; tokens {tokens}"
    )


def command(
    only: Annotated[str, Option(help=f"Parts, comma separated: {', '.join(PARTS)}.")] = "",
    chat: Annotated[str, Option(help="The model that chats: a folder or a name.")] = "smollm2",
    rounds: Annotated[int, Option(help="Timed rounds, where not those of the part.")] = 0,
    out: Annotated[Path | None, Option(help="Write all of it as JSON; the page's file is lab/results/goals.json.")] = None,
) -> None:
    """Measure, print, write. Raises DecError where tokens differ by more than near-ties."""
    torch.set_num_threads(1)
    machine, found, made = facts(), list[Row](), list[Row]()
    for name in runs.chosen(PARTS, only):
        try:
            run = measured(name, chat, rounds)
        except DecError as error:
            print(f"{name:<12} not measured: {compare.first_line(error)}", flush=True)
            continue
        made.append({"name": name, **run})
        for goal in judged(name, run):
            found.append(goal)
            print(line(goal), flush=True)
        if out is not None:
            pages.keep(out, {"machine": machine, "goals": found, "runs": made})
    reached = sum(goal["reached"] for goal in found)
    print(f"{reached} of {len(found)} goals reached; load {machine['load']} before and {load()} after; 1 thread")
    runs.judge(made)
