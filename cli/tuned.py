"""What `decgraph tune` found: as a table, in sentences, as JSON, and as a profile."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from decgraph.cli.tuning import TuningJob
from decgraph.runtime.request import DEFAULT_TEMPERATURE, Request
from decgraph.runtime.trace import ended_text
from decgraph.runtime.tune import facts
from decgraph.runtime.tune.profile import Profile
from decgraph.runtime.tune.space import Axis, Setting, shown, spelt
from decgraph.runtime.tune.tuner import TuningOutcome

HEADINGS = ("", "setting", "tokens/s", "times the default", "(quartiles)", "tokens/call", "runs", "same tokens")
OTHERS = 8  # settings of the search that the table shows beside the finalists


def settings(outcome: TuningOutcome) -> list[Setting]:
    """What the table shows: the default, the finalists, then what else was met, fastest first and failures last."""
    default, finals, met = outcome.default, outcome.finals, outcome.searched
    first = sorted((s for s, f in finals.items() if s != default and f.ratios), key=lambda s: -finals[s].ratio)
    others = [s for s, f in met.items() if s != default and s not in first and (f.ratios or f.failed)]
    others.sort(key=lambda s: (bool(met[s].failed), -met[s].ratio))
    return [default, *first, *others[:OTHERS]]


def rows(job: TuningJob, outcome: TuningOutcome) -> list[tuple[str, ...]]:
    """The cells under `HEADINGS`. Finalists are shown with the figures of the final rounds alone; of others that ran fewer
    requests, only the ratio to the default on the same ones can be compared."""
    out: list[tuple[str, ...]] = []
    final = any(f.ratios for f in outcome.finals.values())
    for chosen in settings(outcome):
        f, base = outcome.figures(chosen), chosen == outcome.default
        mark = "default" if base else "final" if chosen in outcome.finals and f.ratios else ""
        mark = "tuned" if chosen == outcome.chosen and not outcome.kept_default else mark
        if f.failed:
            out.append((mark, shown(chosen), f"cannot run: {f.failed}", "", "", "", "", ""))
            continue
        low, high = f.quartiles
        ratio, spread, same = ("1.00", "", "") if base else (f"{f.ratio:.2f}", f"{low:.2f}-{high:.2f}", f"{f.agreement:.0%}")
        same = "-" if job.promise == "law" else same  # draws of their own, of one distribution: equal places say nothing
        same += f" ({f.near_ties} near-ties)" if f.near_ties else ""
        same += f" ({sum(f.draft_errors.values())} drafts ended by errors)" if f.draft_errors else ""
        rate = "-" if final and not mark or not f.runs else speed(f.rate)
        out.append((mark, shown(chosen), rate, ratio, spread, f"{f.per_call:.2f}", str(f.runs), same))
    return out


def speed(rate: float) -> str:
    """Tokens a second in three digits or more."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def summary(job: TuningJob, outcome: TuningOutcome, path: Path) -> list[str]:
    """What people want to know, a line each."""
    out = []
    best, base = outcome.figures(outcome.chosen), outcome.figures(outcome.default)
    if outcome.interrupted:
        out.append("Interrupted: judged by what was measured until then.")
    if outcome.kept_default:
        run = sum(bool(f.ratios) for f in outcome.searched.values())
        out.append(
            f"Nothing measured beats the default, {shown(outcome.default)}, beyond the noise ({run} other settings were "
            "run): it stays."
        )
    else:
        out.append(
            f"{shown(outcome.chosen)}: {speed(best.rate)} tokens/s, the default {speed(base.rate)}; {best.ratio:.2f} "
            f"times as fast over {len(best.ratios)} pairs of runs."
        )
    where = f"Written to {path}: decgraph run {job.name} --tuned {path}"
    out.append(where if outcome.judged else "No profile is written.")
    if not outcome.enough and not outcome.interrupted:
        out.append(f"There was too little time for the final rounds: --seconds {2 * max(5, round(outcome.seconds))} or more.")
    if job.changing:
        said = "" if outcome.kept_default else f": {best.agreement:.1%} of the tokens are the default's"
        out.append(f"{', '.join(job.changing)} may change what is committed{said}.")
    elif job.promise == "tokens" and any(f.compared for f in outcome.searched.values()):
        ties = sum(f.near_ties for figures in (outcome.searched, outcome.finals) for f in figures.values())
        said = f", but for {ties} near-ties" if ties else ""
        out.append(f"All settings committed the default's tokens, as the claim says{said}.")
    elif job.promise == "law":
        out.append("The claim is in distribution: sampled tokens differ between settings, their distribution does not.")
    for of in dict.fromkeys((outcome.default, outcome.chosen)):
        if ended := ended_text(outcome.figures(of).draft_errors):
            out.append(f"{shown(of)}: {ended}.")
    if facts.load() > (os.cpu_count() or 1):
        on_cpu = str(job.device["device"]).startswith("cpu")
        steadier = "; --clock cpu is steadier here" if job.clock == "wall" and on_cpu else ""
        out.append(f"The load average is {facts.load()} on {os.cpu_count()} cores: others were computing too{steadier}.")
    return out


def to_json(job: TuningJob, outcome: TuningOutcome) -> dict[str, Any]:
    """The same for a program."""
    found = []
    for chosen in settings(outcome):
        f = outcome.figures(chosen)
        low, high = f.quartiles
        found.append(
            {
                "setting": words(chosen),
                "final": chosen in outcome.finals,
                "tokens_per_second": f.rate,
                "ratio": f.ratio,
                "low": low,
                "high": high,
                "runs": f.runs,
                "tokens_per_call": f.per_call,
                "same_tokens": f.agreement,
                "near_ties": f.near_ties,
                "draft_errors": f.draft_errors,
                "failed": f.failed or None,
            }
        )
    return {
        "algorithm": job.algorithm.name,
        "chosen": words(outcome.chosen),
        "kept_default": outcome.kept_default,
        "promise": job.promise,
        "changes_output": bool(job.changing),
        "interrupted": outcome.interrupted,
        "rows": found,
        "device": job.device,
        "load": facts.load(),
        "seconds": outcome.seconds,
    }


def words(chosen: Setting) -> dict[str, str]:
    """A setting as the command line would take it."""
    return {name: spelt(value) for name, value in chosen}


def profile(job: TuningJob, outcome: TuningOutcome) -> Profile:
    """The profile of what was chosen."""
    function, contents = job.algorithm.function, job.contents()
    known = {p.name: p.default for p in function.params if p.value.type.elem != "model" and p.has_default}
    values = {**known, **job.fixed, **dict(outcome.chosen)}
    best, base = outcome.figures(outcome.chosen), outcome.figures(outcome.default)
    low, high = best.quartiles
    figures: dict[str, Any] = {
        "tokens_per_second": round(best.rate, 2),
        "default_tokens_per_second": round(base.rate, 2),
        "ratio": round(best.ratio, 4),
        "ratio_low": round(low, 4),
        "ratio_high": round(high, 4),
        "pairs": len(best.ratios),
        "clock": job.clock,
        "load": facts.load(),
        "complete": not outcome.interrupted,
        "kept_default": outcome.kept_default,
        "tokens_per_call": round(best.per_call, 3),
        "default_tokens_per_call": round(base.per_call, 3),
        "changes_output": bool(job.changing) and not outcome.kept_default,
        "same_tokens_as_default": round(best.agreement, 4),
        "near_ties": best.near_ties,
    }
    request: dict[str, Any] = {
        "temperature": float(job.fields.get("temperature", DEFAULT_TEMPERATURE)),
        "max_new": int(job.fields.get("max_tokens", Request.max_tokens)),
        **({"batch": job.batch} if job.batch > 1 else {}),
        **{name: job.fields[name] for name in ("top_k", "top_p") if name in job.fields},
        "prompts": len(job.lines),
        "prompts_digest": facts.digest("\n".join(line if isinstance(line, str) else repr(line) for line in job.lines)),
    }
    search = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 1),
        "settings": len(outcome.searched),
        "ranges": {axis.name: searched(axis) for axis in job.axes},
    }
    return Profile(
        function.name,
        facts.digest(job.algorithm.text),
        {name: spelt(value) for name, value in values.items()},
        job.plan.text(),
        {n: {"source": str(s), "content": contents[n]} for n, s in job.sources.items()},
        request,
        job.device,
        figures,
        search,
    )


def searched(axis: Axis) -> str:
    """An axis's range in a word."""
    if axis.listed:
        return ",".join(spelt(value) for value in axis.values)
    return "shapes" if axis.kind == "topology" else f"{spelt(axis.values[0])}..{spelt(axis.values[-1])}"
