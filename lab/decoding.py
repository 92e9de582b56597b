"""Measure the runs behind docs/benchmarks.md, and compare speeds with the goals that decgraph sets itself.

Each part is one interleaved run, whose form is what `decgraph bench --results` writes. Printed are its tables and, for each
goal, the geometric mean over prompts of the ratio of processor time per token, in brackets the lower quartile, the median and
the upper quartile over all pairs of runs, the goal, and whether it was reached. A goal that was not reached is no error; the
exit code is 1 where tokens differ by more than near-ties. `python -m lab benchmarks` writes the page's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from typer import Option

from decgraph.bench import baselines, compare, loading, prompts, render, weights
from decgraph.bench.benchmark import Benchmark
from decgraph.bench.compare import THEIRS, candidates
from decgraph.bench.measure import MeasureSettings, OnProgress, Row
from decgraph.bench.prompts import BenchPrompt, Text
from decgraph.bench.weights import BenchWeights
from decgraph.errors import DecError
from lab import pages, runs

GENERATE, ASSISTED, LOOKUP = (THEIRS + name for name in ("generate", "assisted", "prompt_lookup"))
CHAT = "smollm2"
"""The model that chats."""
CONTEXT = 2000
"""Tokens of the prompt of the part `context`."""


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
    """One interleaved run and its goals. target: a name; None for the shipped models. most: prompts of each kind. prompts:
    those that no file has. wanted: baselines; None: the usual ones."""

    algorithms: tuple[str, ...]
    settings: MeasureSettings
    goals: tuple[Goal, ...] = ()
    target: str | None = None
    most: int | None = None
    prompts: Callable[[BenchWeights], Sequence[BenchPrompt]] | None = None
    wanted: tuple[str, ...] | None = None

    def runs(self, chat: str, on_progress: OnProgress) -> list[Row]:
        """The run. chat: the folder or name of the model that chats. Raises DecError where a model is not on this machine."""
        found, target = tuple(candidates(self.algorithms, {})), chat if self.target == CHAT else self.target
        if self.prompts is None:
            chats = self.target == CHAT
            return Benchmark(found, self.settings, target, baselines=self.wanted, chat=chats, most=self.most).runs(on_progress)
        on = loading.loaded(target, None, {}, weights.HOST, eos=True)
        return [compare.prepared(found, on, self.prompts(on), self.settings, wanted=self.wanted)(on_progress)]


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


def ids(count: int, length: int) -> Callable[[BenchWeights], list[BenchPrompt]]:
    """Random tokens, the second half of each prompt like the first."""
    return lambda on: [BenchPrompt("random", tokens) for tokens in prompts.of_ids(on.size, count, length)]


def with_copies(on: BenchWeights) -> list[BenchPrompt]:
    """Random tokens, and the same with the model's own continuation between them, so that lookup finds drafts. Weights that
    were never trained rarely accept them: what is measured is what a draft costs."""
    plain, further = ids(2, 48)(on), baselines.baseline("generate", on, {})
    return [*plain, *(BenchPrompt("copied", (*p.tokens, *further([p.tokens], 48)[0], *p.tokens)) for p in plain)]


USUAL = ("autoregressive", "speculative", "prompt_lookup")
CAUSAL = (
    *USUAL, "kangaroo", "eagle2", "medusa", "medusa_match", "lookahead", "token_recycling", "recursive_sd", "sequoia", "pearl",
)  # fmt: skip
BATCHED = (*USUAL, "eagle2", "sequoia", "medusa", "token_recycling", "kangaroo", "lookahead", "pearl")
# The smallest drafts; most of them `decgraph tune` chose with other prompts than these (docs/benchmarks.md, "Tuned settings").
TUNED = ("eagle2:depth=1,k=1,budget=1", "sequoia:shape=1x1", "medusa:shape=1x1", "token_recycling:shape=1,k=1")
# Settings for batches of 8, chosen by hand on these very prompts: on a CPU a batch is bound by arithmetic, so the
# published trees, made for one sequence on a GPU, compute more than their accepted tokens save. All keep every token.
SHORTER = (
    "prompt_lookup:k=3", "sequoia:shape=1x1x1x1", "token_recycling:shape=1", "eagle2:depth=1,k=1,budget=1", "medusa:shape=1",
    "kangaroo:gamma=1", "lookahead:w=2,n=3,g=1",
)  # fmt: skip
SMALLER = "eagle2:depth=3,k=4,budget=12"  # the published tree has 59 nodes at depth 6, which a 5M target does not repay
LONG = MeasureSettings(rounds=3)

PARTS: dict[str, Part] = {
    "shipped": Part(
        (*CAUSAL, *TUNED, SMALLER), LONG, most=4,
        goals=(
            Goal("speculative", ASSISTED, 2.2),
            Goal("prompt_lookup", LOOKUP, 1.8),
            Goal("eagle2", GENERATE, 1.0),
            Goal(SMALLER, GENERATE, 1.0),
            Goal("sequoia", GENERATE, 1.0),
            Goal("autoregressive", GENERATE, 1.5),
        ),
    ),
    "sampled": Part((*USUAL, "kangaroo", "eagle2"), replace(LONG, temperature=1.0), most=4),
    "batches": Part(
        tuple(dict.fromkeys((*BATCHED, *SHORTER, *TUNED, "prompt_lookup:k=1,reach=1"))), replace(LONG, batch=8),
        goals=tuple(Goal(name, GENERATE, 1.0) for name in (*BATCHED, *SHORTER)),
    ),
    "masked": Part(("fast_dllm", "fast_dllm_prefix"), LONG, most=4),
    "random25": Part(
        USUAL, LONG, target="random-25M", prompts=with_copies,
        goals=(Goal("speculative", ASSISTED, 1.9), Goal("prompt_lookup", LOOKUP, 1.0), Goal("autoregressive", GENERATE, 1.0)),
    ),
    "random135": Part(
        USUAL, MeasureSettings(48, 2), target="random-135M", prompts=with_copies,
        goals=(Goal("speculative", ASSISTED, 2.0), Goal("prompt_lookup", LOOKUP, 1.8), Goal("autoregressive", GENERATE, 1.0)),
    ),
    "chat": Part(
        ("autoregressive", "prompt_lookup", "token_recycling"), MeasureSettings(48, 2), target=CHAT, most=2,
        goals=(
            Goal("autoregressive", GENERATE, 1.4, "chat"),
            Goal("prompt_lookup", LOOKUP, 1.5, "copy-edit"),
            Goal("prompt_lookup", LOOKUP, 1.0, but=("copy-edit",)),
            Goal("prompt_lookup", GENERATE, 1.0),
        ),
    ),
    "context": Part(
        ("autoregressive", "prompt_lookup"), MeasureSettings(32, 1), target=CHAT, prompts=long_context,
        goals=(Goal("autoregressive", GENERATE, 1.0), Goal("prompt_lookup", LOOKUP, 1.0)), wanted=("generate", "prompt_lookup"),
    ),
    "prefill": Part(
        ("autoregressive", "prompt_lookup"), MeasureSettings(16, 3), target="random-25M", prompts=ids(1, 3000),
        goals=(Goal("autoregressive", GENERATE, 1.0), Goal("prompt_lookup", GENERATE, 1.0)), wanted=("generate",),
    ),
    "first_token": Part(
        ("autoregressive",), MeasureSettings(1, 5), target="random-25M", prompts=ids(1, 1500),
        goals=(Goal("autoregressive", GENERATE, 1.0),), wanted=("generate",),
    ),
}  # fmt: skip


def judged(run: Row) -> Iterator[Row]:
    """Every goal of a run's part, with what was measured; a goal whose algorithm was not measured has no figures."""
    for goal in PARTS[run["name"]].goals:
        head = {"part": run["name"], "algorithm": goal.algorithm, "baseline": goal.baseline, "goal": goal.least}
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


def shown(run: Row) -> None:
    """Print a run's tables and goals."""
    print(f"\n{run['name']}: {render.caption(run)}\n")
    print("\n".join([render.markdown_table(table) for table in render.tables(run)] + list(map(line, judged(run)))), flush=True)


def command(
    only: Annotated[str, Option(help=f"Parts, comma separated: {', '.join(PARTS)}; the others' runs stay.")] = "",
    quick: Annotated[bool, Option("--quick", help="Few and short runs.")] = False,
    threads: int = 1,
    chat: Annotated[str, Option(help="The model that chats: a folder or a name.")] = CHAT,
    keep: Annotated[bool, Option(help="Write lab/results/decoding.json and goals.json.")] = True,
) -> None:
    """Measure, print, write. Raises DecError where tokens or calls are not what they must be."""
    torch.set_num_threads(threads)

    def part(name: str) -> runs.Part:
        settings, one = PARTS[name].settings, PARTS[name]
        if quick:
            one = replace(one, settings=replace(settings, limit=min(settings.limit, 24), rounds=1))

        def measured(on_progress: OnProgress) -> list[Row]:
            try:
                return one.runs(chat, on_progress)
            except DecError as error:
                print(f"{name} is not measured: {compare.first_line(error)}", flush=True)
                return []

        return measured

    names = runs.chosen(PARTS, only)
    found = runs.measured({name: part(name) for name in names}, names, pages.result("decoding") if only else {}, shown)
    goals = [goal for run in found["runs"] if run["name"] in names for goal in judged(run)]
    print(f"{sum(goal['reached'] for goal in goals)} of {len(goals)} goals reached; load {found['machine']['load_after']}")
    if keep:
        pages.keep("decoding", found)
        before = pages.result("goals").get("goals", []) if only else []
        goals = [*(goal for goal in before if goal["part"] not in names), *goals]
        pages.keep("goals", {"machine": found["machine"], "goals": goals})
    runs.judge([run for run in found["runs"] if run["name"] in names])
