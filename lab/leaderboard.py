"""Measure every algorithm that SmolLM2 serves against plain decoding, and write docs/leaderboard.md.

Each takes turns with `autoregressive` on the built-in prompts of five kinds, one prompt at a time and eight at a time; each
prompt once, so that what learns from request to request sees none twice. The result file is written after every algorithm,
and a second start goes on from there: what was measured of another text, other parameters, prompts or versions is measured
again. `decgraph zoo fetch smollm2` comes first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from decgraph import stdlib
from decgraph.bench import baselines, bootstrap, compare, loading, machine, prompts, render
from decgraph.bench.benchmark import causal
from decgraph.bench.compare import THEIRS, Candidate
from decgraph.bench.contenders import Group, Ours, Theirs, greedy_is_exact, session_on
from decgraph.bench.measure import ALL, BenchWork, Measured, MeasureSettings, rows_of
from decgraph.errors import DecError
from decgraph.runtime.placement import Placement
from lab import frontier, gallery, pages, runs
from lab.tradeoffs.masked import BASE, CANVAS, Masked

PAGE = pages.DOCS / "leaderboard.md"
TARGET, HEADS = "smollm2", {"head": "smollm2_eagle"}
PLAIN = "autoregressive"
VARIANTS = ("eagle2:depth=3,k=3,budget=8",)
"""Measured beside the published parameters: the published tree was made for a target fifty times as large."""
KEPT = ("kind", "prompts", "tokens_per_call", "tokens_equal", "drafted_per_call", "acceptance", "draft_errors")
LIMIT = 48
BATCHES = (1, 8)
SLOWEST = 3
"""Times as slow as plain decoding past which an algorithm ends after FEW prompts, or PATIENCE seconds of the processor."""
FEW, PATIENCE = 5, 20.0
WORTH, MORE = 1.05, 10
"""An algorithm that is not so many times as fast by the upper end of its interval, after MORE prompts, ends there."""
Row = dict[str, Any]
One = Candidate | str
"""What is measured: an algorithm, or a loop of transformers by name."""


class Board:
    """Models and prompts of a leaderboard. most: prompts of each kind. Raises DecError where the models are not there."""

    def __init__(self, target: str = TARGET, parts: Mapping[str, str] = HEADS, most: int | None = None) -> None:
        self.weights = loading.loaded(target, None, parts, Placement("cpu", "float32"), eos=True)
        self.theirs = self.weights.copied()
        self.source = prompts.built_in()
        self.prompts = self.encoded(prompts.taken(self.source.texts, most), chat=target == TARGET)
        self.first = self.encoded(prompts.code().texts, chat=False)

    def encoded(self, texts: Sequence[prompts.Text], *, chat: bool) -> list[prompts.BenchPrompt]:
        """Texts as the target's tokens."""
        return prompts.encoded(texts, Path(self.weights.folders["target"]), chat=chat, size=self.weights.size)

    def settings(self) -> Row:
        """What the figures depend on, beside an algorithm."""
        return {
            "limit": LIMIT,
            "batches": list(BATCHES),
            "prompts": [len(self.prompts), self.source.digest],
            "digests": loading.digests(self.weights.folders),
            "versions": machine.facts()["versions"],
            "ends": [SLOWEST, FEW, PATIENCE, WORTH, MORE],
        }

    def served(self) -> tuple[dict[str, One], dict[str, str]]:
        """By label what is measured, first what claims the target's text; and why the others for causal models are not."""
        found: list[Candidate] = []
        absent: dict[str, str] = {}
        for one in compare.candidates([*causal(), *VARIANTS], {}):
            try:
                session_on(one.algorithm, self.weights, one.values)
            except DecError as error:
                absent[one.label] = compare.first_line(error)
            else:
                found.append(one)
        found.sort(key=lambda one: (not exact(one), stdlib.entry(one.algorithm.name).family != "retrieval"))
        loops: dict[str, One] = {THEIRS + name: name for name in ("generate", "prompt_lookup")}
        return loops | {one.label: one for one in found if one.label != PLAIN}, absent

    def contender(self, one: One, groups: Sequence[Group]) -> Ours | Theirs:
        """An algorithm with a session of its own, or a loop of transformers, that has run."""
        made: Ours | Theirs
        if isinstance(one, str):
            made = Theirs(THEIRS + one, baselines.baseline(one, self.theirs, {}), groups, LIMIT)
        else:
            session = session_on(one.algorithm, self.weights, one.values)
            made = Ours(one.label, one.algorithm, one.values, session, groups, LIMIT, eos=self.weights.eos)
        replace(made, groups=[[prompt.tokens for prompt in self.first[: len(groups[0])]]], limit=8).observed(0)
        return made

    def measured(self, one: One) -> Row:
        """The entry of an algorithm: at every batch size the rows of all prompts and of each kind, or why there are none."""
        made: Row = {"started": time.strftime("%Y-%m-%d %H:%M"), "processor": machine.named(machine.facts()), "batches": {}}
        load, spent = machine.load(), time.process_time()
        for batch in BATCHES if one != "prompt_lookup" else (1,):  # transformers' own takes one prompt at a time
            try:
                made["batches"][str(batch)] = rows = self.rows(one, batch)
            except DecError as error:
                made["failed"] = compare.first_line(error)
                break
            if rows[0]["ratio"]["value"] * SLOWEST < 1:
                break
        return {**made, "load": [load, machine.load()], "cpu_seconds": round(time.process_time() - spent)}

    def rows(self, one: One, batch: int) -> list[Row]:
        """Those of one batch size, until there is nothing more to see. Raises DecError as the algorithm does."""
        work, (plain,) = in_turns(compare.work_of(self.prompts, batch)), compare.candidates([PLAIN], {})
        sides, order = [self.contender(plain, work.groups), self.contender(one, work.groups)], random.Random(0)
        made, label = Measured(work, {side.label: side for side in sides}), sides[1].label
        for n in range(len(work.groups)):
            made.times.turn({side.label: made.noted(side.label) for side in sides}, 0, n, order)
            for error in made.times.failed.values():
                raise error
            ratios = [ratio for (ratio,) in made.ratios(PLAIN, label, ALL, cpu=True)]
            if ratios and enough(ratios, batch, sum(made.times.of("cpu")[label])):
                break
        if not ratios:
            raise DecError(f"{label} made no token")
        whole, settings = len(made.times.groups) == len(work.groups), MeasureSettings(LIMIT, 1, batch)
        rows = rows_of(made, {PLAIN: [], label: [PLAIN]}, settings, self.theirs.target, shares_too=False)
        return [
            {"whole": whole, "ratio": row["ratios"][PLAIN]["cpu"], **{key: row[key] for key in KEPT if key in row}}
            for row in rows
            if row["algorithm"] == label and row["ratios"]
        ]


def in_turns(work: BenchWork) -> BenchWork:
    """The same groups, a kind after the other: the first ones are of all kinds."""
    order = sorted(range(len(work.groups)), key=lambda n: work.kinds[:n].count(work.kinds[n]))
    return BenchWork(tuple(work.groups[n] for n in order), tuple(work.kinds[n] for n in order))


def enough(ratios: Sequence[float], batch: int, seconds: float) -> bool:
    """Whether an algorithm ends here. ratios: of every group of `batch` prompts so far. seconds: what it has taken."""
    found, seen = bootstrap.ratio([[ratio] for ratio in ratios]), batch * len(ratios)
    if (seen >= FEW or seconds > PATIENCE) and found.value * SLOWEST < 1:
        return True
    most = found.high if len(ratios) >= bootstrap.FEWEST else max(ratios)
    return seen - batch < MORE <= seen and most < WORTH


def exact(one: One) -> bool:
    """Whether its greedy text is to be the target's own."""
    return isinstance(one, str) or greedy_is_exact(one.algorithm, one.values)


def measure(board: Board, document: Row, only: Sequence[str] = ()) -> Iterator[Row]:
    """The document with each algorithm that it lacks. only: labels; these are measured whatever it has. Raises DecError for
    a label that there is not."""
    settings, (served, absent) = board.settings(), board.served()
    if unknown := set(only) - served.keys():
        raise DecError(f"{unknown.pop()} is not measured here", hint=f"one of {', '.join(served)}")
    entries = document.get("entries", {}) if document.get("settings") == settings else {}
    facts = {label: {} if isinstance(one, str) else one.facts() for label, one in served.items()}
    entries = {label: entry for label, entry in entries.items() if label in facts}
    left = only or [label for label in served if entries.get(label, {}).get("of") != facts[label]]
    for n, label in enumerate(left):
        runs.on_progress(label, n / len(left))
        entries[label] = {"of": facts[label], "exact": exact(served[label]), **board.measured(served[label])}
        yield {**document, "settings": settings, "models": board.weights.facts(), "absent": absent, "entries": entries}


def page(document: Row) -> str:
    """The page, from the result file."""
    entries: dict[str, Row] = document["entries"]
    there = {label: entry for label, entry in entries.items() if "1" in entry["batches"]}
    ranked = sorted(there, key=lambda label: -there[label]["batches"]["1"][0]["ratio"]["value"])
    same, other = ({label: there[label] for label in ranked if there[label]["exact"] is which} for which in (True, False))
    masked = document["frontier"]
    absent = document["absent"]
    drafters = sorted(name for name, why in absent.items() if "needs a drafter" in why)
    later = [name for name in causal() if name not in (PLAIN, *entries, *absent)]
    notes = [
        *([f"not yet, `python -m lab leaderboard` goes on with them: {', '.join(map(linked, later))}"] if later else []),
        *(f"{linked(label)}: {entry['failed']}" for label, entry in sorted(entries.items()) if "failed" in entry),
        f"SmolLM2 has no smaller model of its vocabulary to draft: {', '.join(map(linked, drafters))}",
        f"nobody trained the heads for it: {', '.join(linked(name) for name in sorted(absent) if name not in drafters)}",
        *(f"{linked(name)}: {row['failed']}" for name, row in masked.items() if "failed" in row),
    ]
    pieces = {
        "facts": facts(document) + (SO_FAR.format(done=len(entries), all=len(entries) + len(later)) if later else ""),
        "same": ranking(same, "tokens a call", lambda row: render.number(row["tokens_per_call"])),
        "kinds": by_kind(same),
        "other": ranking(other, "same text", lambda row: render.equal(row).partition(",")[0]) if other else "(none yet)\n",
        "masked": render.markdown_table(frontier.table(masked, linked)),
        "absent": "".join(f"- {note}\n" for note in notes),
        "unequal": unequal(same),
    }
    return PAGE_TEXT.format(**pieces, slowest=SLOWEST, few=FEW, more=MORE, base=BASE, canvas=CANVAS)


def facts(document: Row) -> str:
    """On what it was measured, and how long that took."""
    entries, settings = document["entries"].values(), document["settings"]
    loads, days = [load for one in entries for load in one["load"]], {one["started"][:10] for one in entries}
    processors, minutes = {one["processor"] for one in entries}, sum(one["cpu_seconds"] for one in entries) / 60
    count, digest = settings["prompts"]
    return (
        f"SmolLM2-135M-Instruct ({document['models']['target'] / 1e6:.1f}M parameters), float32, one thread, greedy, at most "
        f"{settings['limit']} new tokens; {count} prompts of five kinds (sha256 {digest[:16]}) through its chat template. "
        f"{', '.join(sorted(processors))}; {' to '.join(sorted({min(days), max(days)}))}, {minutes:.0f} minutes of CPU; "
        f"load {min(loads):.1f} to {max(loads):.1f}; "
        f"{', '.join(f'{name} {version}' for name, version in settings['versions'].items())}."
    )


def linked(label: str) -> str:
    """An algorithm's label with a link to its page."""
    name, _, own = label.partition(":")
    text = f"[{name}](gallery/{name}.md)" if name in stdlib.names() else name
    return f"{text} {own.replace(',', ', ')}" if own else text


def times(rows: Sequence[Row] | None) -> str:
    """The ratio of all prompts, with its interval where all were measured; a dash for none."""
    if not rows:
        return "-"
    ratio = rows[0]["ratio"]
    return f"{ratio['value']:.2f}" + (f" ({ratio['low']:.2f}–{ratio['high']:.2f})" if rows[0]["whole"] else "")


def ranking(entries: Mapping[str, Row], heading: str, last: Callable[[Row], str]) -> str:
    """A table of entries in their order; the last column has a figure of the rows of all prompts, one at a time."""
    rows = [
        [linked(label), times(one := entry["batches"]["1"]), times(entry["batches"].get(str(BATCHES[-1]))), last(one[0])]
        for label, entry in entries.items()
    ]
    return render.markdown_table((["algorithm", "alone", f"{BATCHES[-1]} at a time", heading], rows))


def by_kind(entries: Mapping[str, Row]) -> str:
    """A table of those that ran all prompts: the ratios of each kind, one prompt at a time."""
    found = {label: entry["batches"]["1"] for label, entry in entries.items() if entry["batches"]["1"][0]["whole"]}
    kinds: list[str] = [row["kind"] for row in next(iter(found.values()), list[Row]())[1:]]
    rows = [[linked(label), *(f"{row['ratio']['value']:.2f}" for row in rows[1:])] for label, rows in found.items()]
    return render.markdown_table((["algorithm", *kinds], rows)) if rows else ""


def unequal(entries: Mapping[str, Row]) -> str:
    """How often a text was not plain decoding's, though it is to be."""
    rows = {label: [rows[0]["tokens_equal"] for rows in entry["batches"].values()] for label, entry in entries.items()}
    ties = sum(one["near_ties"] for found in rows.values() for one in found)
    wrong = [linked(label) for label, found in rows.items() if any(one["different"] for one in found)]
    near = f"their texts are the same, but for {ties} that differ from a near-tie of two tokens on"
    return (near if ties else "their texts are the same") + (f", and those of {', '.join(wrong)}" if wrong else "")


SO_FAR = """

**{done} of {all} are measured so far.** The others are named [at the end](#not-measured); the command goes on with them."""
PAGE_TEXT = """# Leaderboard

*Generated by `python -m lab leaderboard`; `lab/results/leaderboard.json` has all figures.*

What an algorithm of stdlib/ gains over plain decoding (`autoregressive`) on one model, with published parameters. A figure
is how many times as fast it makes a token, by processor time, with its 95% interval over prompts; above 1 it is faster. Plain
decoding itself is compared with transformers' `generate` in [benchmarks](benchmarks.md).

Each algorithm takes turns with plain decoding, prompt by prompt, and reads every prompt once. One that is {slowest} times as
slow ends after {few} prompts, one that cannot be 5% faster after {more}: a figure without an interval ended so, and a dash
stands where it was too slow to go on. There is one head for this model, EAGLE-3's: the program of another head shows what it
does with these drafts, not what its own head would give.

{facts}

## The same text

Algorithms that claim the target's own greedy text: {unequal}. A tree of 60 nodes was made for a GPU, where a call reads
gigabytes: on a CPU its nodes cost arithmetic, and chains and small trees are faster. Eight
prompts at a time leave little arithmetic for drafts.

{same}
## By kind of prompt

The same ratios, one prompt at a time, of those that ran all prompts: most of a `copy-edit` stands in its prompt, hardly
anything of a `chat`.

{kinds}
## Other texts

Algorithms that choose otherwise: samplers, searches, caches that drop entries. Speed is not their aim. *Same text* counts the
prompts on which they write what plain decoding writes.

{other}
## Masked models

The shipped masked model, canvases of {canvas} positions, greedy, by counts. Kept positions a call are those of one token
a call (`{base}`) on tasks with more digits than the model was trained on; `*`: no other decoder beats it in both agreement and
calls. [Trade-offs](tradeoffs.md) have each over its own knob.

{masked}
## Not measured

{absent}"""


def command(
    only: Annotated[str, Option(help="Labels, comma separated, that are measured again; nothing else is.")] = "",
    page_only: Annotated[bool, Option(help="Write the page from the result file.")] = False,
) -> None:
    """Measure what the file lacks; write the page and the gallery's figures. Raises DecError as `decgraph bench` does."""
    import torch

    found = pages.result("leaderboard")
    if not page_only:
        torch.set_num_threads(1)
        for document in measure(Board(), found, list(filter(None, only.split(",")))):
            pages.keep("leaderboard", found := document)
        for rows in frontier.measured(found.get("frontier", {}), Masked(), runs.on_progress):
            pages.keep("leaderboard", found := {**found, "frontier": rows})
    PAGE.write_text(page(found), encoding="utf-8")
    gallery.write_figures()
