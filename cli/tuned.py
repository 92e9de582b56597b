"""What `decgraph tune` found: as a table, in sentences, as JSON, and as a profile."""

from __future__ import annotations

import datetime
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decgraph.bench import render
from decgraph.bench.compare import first_line
from decgraph.bench.search import fastest
from decgraph.bench.tuner import TuningOutcome
from decgraph.cli.tuning import TuningJob
from decgraph.runtime.request import Request
from decgraph.runtime.trace import ended_text
from decgraph.runtime.tune import facts
from decgraph.runtime.tune.profile import Profile, TunedLoad
from decgraph.runtime.tune.space import Entrant, shown, spelt

HEADINGS = ("at a time", "", "algorithm", "setting", "tokens/s", "times as fast", "tokens/call", "same tokens")
OTHERS = 8  # that the table shows of each load beside the finalists


def rows(job: TuningJob) -> list[tuple[str, ...]]:
    """The cells under `HEADINGS`: at each load what is compared with, the finalists with the row of a benchmark, then what
    else was met, whose requests were others, so that only the ratio says something."""
    out: list[tuple[str, ...]] = []
    for batch, found in job.outcomes.items():
        met = [one for one in fastest(found.race, len(found.race.entrants), each=OTHERS) if one not in found.finalists]
        failed = [one for one in found.race.entrants.values() if one.label in found.race.failed and one.algorithm in job.opened]
        for one in [found.base, *by_ratio(found), *met[:OTHERS], *failed[:OTHERS]]:
            out.append((str(batch), mark(found, one), one.algorithm, shown(one.setting), *cells(job, found, one)))
    return out


def mark(found: TuningOutcome, one: Entrant) -> str:
    """What a line is about."""
    if one == found.chosen:
        return "chosen"
    return "compared" if one == found.base else "final" if found.finals is not None and one in found.finalists else ""


def by_ratio(found: TuningOutcome) -> list[Entrant]:
    """The finalists, fastest first."""
    ratios = {one: ratio.value for one in found.finalists if (ratio := found.ratio(one)) is not None}
    return sorted((one for one in ratios if one.label not in found.race.failed), key=lambda one: -ratios[one])


def cells(job: TuningJob, found: TuningOutcome, one: Entrant) -> tuple[str, ...]:
    """The figures of a line."""
    if (error := found.race.failed.get(one.label)) is not None:
        return (f"cannot run: {first_line(error)}", "", "", "")
    row, ratio = found.rows.get(one.label, {}), found.ratio(one)
    times = "1.00" if one == found.base else render.shown(ratio.to_json() if ratio is not None else None)
    same = "-" if job.promise(one.algorithm) == "distribution" else ""  # draws of one distribution: equal places say nothing
    if one != found.base and not same and "same_tokens" in row:
        ties = row["tokens_equal"]["near_ties"]
        same = f"{row['same_tokens']:.0%}" + (f" ({ties} near-ties)" if ties else "")
    if ended := sum(found.draft_errors(one).values()):
        same += f" ({ended} drafts ended by errors)"
    speed = render.number(row.get("tokens_per_second"), 1)
    return (speed, times, render.number(row.get("tokens_per_call")), same)


def summary(job: TuningJob, path: Path, left: Mapping[str, str]) -> list[str]:
    """What people want to know, a line each."""
    out = []
    missed, more = unseen(job), 0.0  # times as long as it had
    for batch, found in job.outcomes.items():
        many = "Alone" if batch == 1 else f"{batch} at a time"
        ratio = found.ratio(found.chosen)
        if not found.ran:
            out.append(f"{many}: {found.base.label} alone was measured, so nothing is said of this load.")
            more = 2
        elif found.kept_base or ratio is None:
            what = "is faster than plain decoding" if job.chosen_among else "measured beats the default"
            what = f"so far {what}" if found.interrupted else what
            out.append(
                f"{many}: nothing {what}, {found.base.label}, beyond the noise; settings that were run beside it: {found.ran}."
            )
        else:
            out.append(f"{many}: {found.chosen.label}, {render.shown(ratio.to_json())} times as fast as {found.base.label}; "
                       f"{ratio.n} {'prompts' if batch == 1 else 'groups of prompts'}.")  # fmt: skip
        if not found.enough and not found.interrupted:
            out.append(f"{many}: there was too little time for the final rounds.")
            more = 2
    if missed:
        out.append(f"There was no time for {len(missed)} of {len(job.entrants)} algorithms.")
        more = max(2.0, len(job.entrants) / max(1, len(job.entrants) - len(missed)))
    if found.interrupted:
        wider = "" if found.chances == 1 else f"; intervals allow for {found.chances} settings, of which one may be lucky"
        out.append(f"Interrupted: judged by what was measured until then{wider}.")
    elif more:
        out.append(f"For what there was no time: --seconds {math.ceil(more * job.seconds)} or more.")
    named = "" if job.chosen_among else f" {job.of[job.base.algorithm].algorithm.spec}"
    compared = any(found.ran for found in job.outcomes.values())
    why = "nothing was surely faster until then" if compared else "nothing was compared"
    out.append(f"Written to {path}: decgraph run{named} --tuned {path}" if judged(job) else f"No profile is written: {why}.")
    if job.changing:
        out.append(f"{', '.join(job.changing)} may change what is committed.")
    elif job.temperature:
        out.append("Requests are sampled: tokens differ, and their distribution is what the claims are about.")
    elif job.outcomes and not job.chosen_among and job.promise(job.base.algorithm) == "tokens":
        out.append("All settings committed the default's tokens, as the claim says.")
    if left:
        reasons = Counter(reason.partition(": ")[0] for reason in left.values())
        out.append("Did not fit: " + "; ".join(f"{count}, because {reason}" for reason, count in reasons.most_common()) + ".")
    for found in job.outcomes.values():
        for one in dict.fromkeys((found.base, found.chosen)):
            if ended := ended_text(found.draft_errors(one)):
                out.append(f"{one.label}: {ended}.")
    if facts.load() > (os.cpu_count() or 1):
        on_cpu = str(job.device["device"]).startswith("cpu")
        steadier = "; --clock cpu is steadier here" if job.clock == "wall" and on_cpu else ""
        out.append(f"The load average is {facts.load()} on {os.cpu_count()} cores: others were computing too{steadier}.")
    return out


def judged(job: TuningJob) -> dict[int, TuningOutcome]:
    """What is written down: not a load at which nothing was compared."""
    return {batch: found for batch, found in job.outcomes.items() if found.judged and found.ran}


def unseen(job: TuningJob) -> set[str]:
    """The algorithms that nothing was measured of at the first load, though they may fit."""
    found = job.outcomes.get(job.batches[0])
    tried = {one.algorithm for one in found.race.entrants.values()} if found is not None else set()
    return {one.algorithm for one in job.entrants} - tried


def to_json(job: TuningJob, left: Mapping[str, str]) -> dict[str, Any]:
    """The same for a program; `rows` are those of `decgraph bench`."""
    loads = []
    for batch, found in job.outcomes.items():
        race = found.race
        ratios = {label: ratio.to_json() for label, one in race.entrants.items() if (ratio := found.ratio(one)) is not None}
        loads.append({
            "batch": batch,
            "base": found.base.label,
            "chosen": found.chosen.label,
            "algorithm": found.chosen.algorithm,
            "params": {name: spelt(value) for name, value in found.chosen.setting},
            "kept_base": found.kept_base,
            "promise": job.promise(found.chosen.algorithm),
            "final": [one.label for one in by_ratio(found)] if found.finals is not None else [],
            "rows": list(found.rows.values()),
            "ratios": ratios,
            "draft_errors": {label: errors for label, one in race.entrants.items() if (errors := found.draft_errors(one))},
            "failed": {label: first_line(error) for label, error in race.failed.items()},
            "seconds": found.seconds,
        })  # fmt: skip
    return {
        "loads": loads,
        "left_out": dict(left),
        "changes_output": bool(job.changing),
        "interrupted": any(found.interrupted for found in job.outcomes.values()),
        "clock": job.clock,
        "device": job.device,
        "load": facts.load(),
    }


def profile(job: TuningJob) -> Profile:
    """The profile of what was chosen."""
    texts = "\n".join(repr((text.text, text.messages, text.ids)) for text in job.texts)
    fields = job.fields[job.base.algorithm]
    request: dict[str, Any] = {
        "temperature": job.temperature,
        "max_tokens": int(fields.get("max_tokens", Request.max_tokens)),
        **{name: fields[name] for name in ("top_k", "top_p") if name in fields},
        "prompts": len(job.texts),
        "prompts_digest": facts.digest(texts),
        **({"contexts": job.contexts} if job.contexts else {}),
    }
    search = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(sum(found.seconds for found in job.outcomes.values()), 1),
        "clock": job.clock,
        "load": facts.load(),
        "complete": not unseen(job) and all(f.ran and f.enough and not f.interrupted for f in job.outcomes.values()),
        "algorithms": sorted({*job.opened} - unseen(job)),
    }
    loads = [load(job, batch, found) for batch, found in judged(job).items()]
    return Profile(loads, job.plan.text(), request, job.device, search)


def load(job: TuningJob, batch: int, found: TuningOutcome) -> TunedLoad:
    """What was chosen at a load, with its figures."""
    chosen, label = found.chosen, found.chosen.algorithm
    one, row, ratio = job.of[label], found.rows.get(chosen.label, {}), found.ratio(chosen)
    contents = job.contents(label)
    figures: dict[str, Any] = {
        "compared_with": found.base.label,
        "kept": found.kept_base,
        "tokens_per_second": row.get("tokens_per_second") or 0.0,
        "tokens_per_call": row.get("tokens_per_call") or 0.0,
        "changes_output": not found.kept_base and not job.promise(label),
        **{name: row[name] for name in ("same_tokens",) if name in row},
    }
    for name, value in (ratio.to_json() if ratio is not None else {}).items():
        if value is not None:
            figures["ratio" if name == "value" else f"ratio_{name}"] = value
    values = {**one.values, **dict(chosen.setting)}
    return TunedLoad(
        batch,
        one.algorithm.name,
        one.algorithm.spec if one.algorithm.spec != one.algorithm.name else "",
        facts.digest(one.algorithm.text),
        {name: spelt(value) for name, value in values.items()},
        {name: {"source": str(source), "content": contents[name]} for name, source in job.sources[label].items()},
        figures,
    )
