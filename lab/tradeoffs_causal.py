"""The trade-offs of lossy programs of causal models, by counts: every program swept over its own knob.

    python -m lab.tradeoffs_causal [PROGRAM ...]   # measure all, or some again, and write the page
    python -m lab.tradeoffs_causal --page          # the page alone, from the results

A shape is shown if every measure it names goes the stated way: from the first value of the knob to the last by the stated
amount, with a rank correlation of at least 0.5 on the way. Nothing here is timed.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import decgraph
from decgraph.bench.prompts import CODE
from decgraph.zoo import tasks
from lab import tradeoffs_causal_page as page
from lab.tradeoffs_causal_entries import Entry, Setting, Shape, entries
from lab.tradeoffs_causal_measures import MEASURES, Ids, Point, Ran, mean

RESULTS = Path(__file__).parent / "results" / "tradeoffs-causal.json"
CORRELATION = 0.5
SEED = 11
LAYERS = {"target": 6, "smollm2": 30}
PROSE = ("The history of the bicycle began", "Last winter our village decided that")
EVIDENCE = (
    ("In this story the capital of France is the city of Oslo. The capital of France is", "Oslo"),
    ("In this tale grass is always as red as blood. The colour of grass is", "red"),
    ("In our play the author of Hamlet is named Jane Austen. The author of Hamlet is", "Austen"),
    ("In this dream the sun rises slowly in the far west. The sun rises in the", "west"),
)


def _lines() -> list[tuple[str, str]]:
    return [(CODE[i], "") for i in (0, 2, 4, 6)]


def _tasks() -> list[tuple[str, str]]:
    kinds = ("copy", "sort", "reverse", "add")
    return [(t.prompt, t.answer) for t in islice(tasks.stream(3, held=True, kinds=kinds), 8)]


PROMPTS: dict[str, Any] = {
    "code": _lines,
    "lines": _lines,
    "long": lambda: [("\n\n".join(CODE[i:] + CODE[:i]), "") for i in (0, 3)],
    "tasks": _tasks,
    "prose": lambda: [(text, "") for text in PROSE],
    "evidence": lambda: list(EVIDENCE),
}
"""Prompts with the answers of those that have one."""


@functools.cache
def _tokenizer(folder: str) -> Any:
    from decgraph.runtime.text import Tokenizer
    from decgraph.zoo import folder_of

    return Tokenizer(folder_of(folder))


@functools.cache
def _line_ends(folder: str) -> frozenset[int]:
    """The tokens that begin a new line: where texts end in sweeps whose texts have to."""
    tokenizer = _tokenizer(folder)
    return frozenset(t for t in range(2048) if tokenizer.decode([t]).startswith("\n"))


def _session(program: str, entry: Entry, setting: Setting, answer: str) -> Any:
    algorithm = decgraph.load(program)
    externs = {**setting.externs, **(entry.answers(answer) if entry.answers else {})}
    if program == "mbr":
        externs.setdefault("utility", lambda a, b: 0.0)
    models = {} if entry.model == "target" else {"target": entry.model}
    session = algorithm.session(models, externs=externs, **setting.params)
    if not setting.heads:
        return session
    bound = dict(session.models)
    bound.update({name: make({**bound, "target": bound["target"]}) for name, make in setting.heads.items()})
    return algorithm.session(bound, tokenizer=session.tokenizer, externs=externs, **setting.params)


def _runs(program: str, entry: Entry, setting: Setting) -> tuple[list[Ran], Mapping[str, Any]]:
    """Every prompt with every seed at one setting, and the parameters with their defaults."""
    import torch

    from decgraph.runtime.trace import Committed, ModelCall

    torch.set_num_threads(1)
    out, session = [], None
    for prompt, answer in PROMPTS[entry.prompts]():
        if session is None or entry.answers:
            session = _session(program, entry, setting, answer)
        ids = tuple(_tokenizer(entry.model).encode(prompt))
        for seed in range(entry.seeds):
            eos = _line_ends(entry.model) if entry.eos else frozenset()
            request = decgraph.Request(ids, max_tokens=entry.limit, temperature=entry.temperature, seed=SEED + seed, eos=eos)
            result = session.run(request)
            if result.error is not None:
                raise result.error
            rows = sum(e.rows for e in result.events if isinstance(e, ModelCall))
            commits = sum(isinstance(e, Committed) for e in result.events)
            tokens = tuple(int(t) for t in result.tokens)
            results = tuple(tuple(int(t) for t in r) for r in result.results or () if not isinstance(r, int))
            out.append(Ran(ids, tokens, result.text or "", results, result.stats, rows, commits, answer))
    assert session is not None
    return out, session.params


def measured(entry: Entry, value: Any) -> dict[str, float]:
    """The measures of an entry at one value of its knob."""
    setting = entry.setting(value)
    runs, params = _runs(entry.program, entry, setting)
    beside = 0.0
    if entry.beside:
        others, _ = _runs(entry.beside, entry, setting)
        beside = MEASURES["apart"][1](Point(others, params, entry.model))
    views = entry.views

    def encode(text: str) -> Ids:
        return tuple(_tokenizer(entry.model).encode(text))

    def seen(run: Ran) -> tuple[Ids, Ids]:
        assert views is not None
        return views(run, encode)

    point = Point(
        runs,
        params,
        entry.model,
        score=entry.score,
        views=seen,
        stored=entry.stored,
        green=entry.green(value) if entry.green else None,
        layers=LAYERS[entry.model],
        beside=beside,
    )
    names = dict.fromkeys([m for m, _, _ in entry.shape] + list(entry.also))
    return {name: round(MEASURES[name][1](point), 4) for name in names}


def correlation(values: Sequence[float]) -> float:
    """Spearman's rank correlation of values with their places, ties by their mean rank; 0 where all are equal."""
    n = len(values)
    ranks = [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
    middle = (n - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks) * sum((i - middle) ** 2 for i in range(n))
    return sum((r - middle) * (i - middle) for i, r in enumerate(ranks)) / spread**0.5 if spread else 0.0


def holds(shape: Shape, points: Sequence[Mapping[str, float]]) -> bool:
    """Whether a measure goes the way that a shape says."""
    name, way, amount = shape
    values = [p[name] for p in points]
    if way == "stays":
        return max(values) - min(values) <= amount
    if way == "exceeds":
        return min(values) > amount
    sign = 1 if way == "rises" else -1
    return sign * (values[-1] - values[0]) >= amount and sign * correlation(values) >= CORRELATION


def judged(entry: Entry, points: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """A row of the results: an entry's points, and whether they have its shape."""
    failed = [name for name, way, amount in entry.shape if not holds((name, way, amount), points)]
    return {
        "program": entry.program,
        "model": entry.model,
        "family": entry.family,
        "knob": entry.knob,
        "values": list(entry.values),
        "points": points,
        "shown": not failed,
        "failed": failed,
    }


def swept(entry: Entry) -> dict[str, Any]:
    """A whole sweep, as a row of the results."""
    return judged(entry, [measured(entry, value) for value in entry.values])


def sweep(chosen: Iterable[Entry], old: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all entries: those of `chosen` measured now, the others' points judged again by their entry's shape."""
    have = {(row["program"], row["model"]): row["points"] for row in old}
    for entry in chosen:
        print(entry.name, end=" ", flush=True)
        row = swept(entry)
        have[entry.program, entry.model] = row["points"]
        print("shown" if row["shown"] else f"not shown: {row['failed']}", json.dumps(row["points"]), flush=True)
    return [judged(e, have[e.program, e.model]) for e in entries() if (e.program, e.model) in have]


def load() -> list[dict[str, Any]]:
    """The rows of the last sweep."""
    return json.loads(RESULTS.read_text())["rows"] if RESULTS.is_file() else []


def main(words: Sequence[str]) -> None:
    """Measure the sweeps of the programs named, or all of them, and write the page; with `--page`, the page alone."""
    if "--page" not in words:
        chosen = [e for e in entries() if not words or e.program in words or e.name in words]
        rows = sweep(chosen, load())
        text = ",\n".join(json.dumps(row) for row in rows)
        RESULTS.write_text(f'{{"rows": [\n{text}\n]}}\n')
    page.write(load(), entries(), CORRELATION)


if __name__ == "__main__":
    main(sys.argv[1:])


__all__ = ["correlation", "holds", "load", "main", "mean", "measured", "sweep", "swept"]
