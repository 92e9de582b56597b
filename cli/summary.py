"""The end of a run on one screen, and the same as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from decgraph.cli.clock import timing
from decgraph.cli.parsing import listed
from decgraph.runtime.parameters import shown, written
from decgraph.runtime.placement import differing
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Stats

WHY = {
    "limit": "the limit of new tokens",
    "eos": "the end-of-text token",
    "stop": "a stop string",
    "context": "the full context window",
    "end": "the end of the algorithm",
    "error": "an error",
    "interrupted": "an interruption",
}


def stats_of(stats: Stats) -> dict[str, Any]:
    """The statistics of a run for a program."""
    return {
        "tokens": stats.tokens,
        "target_calls": stats.target_calls,
        "draft_calls": stats.draft_calls,
        "tokens_per_call": stats.tokens_per_call,
        "acceptance": list(stats.acceptance),
        "tested": list(stats.tested),
        "accepted": list(stats.accepted),
        "drafted": stats.drafted,
        "unmasked": stats.unmasked,
        "remasked": stats.remasked,
        "draft_errors": dict(stats.draft_errors),
        **stats.noted,
        "calls": dict(stats.calls),
    }


def times_of(result: Result) -> dict[str, float | None]:
    """Load, first call and decoding apart, for a program."""
    first, rate = result.first_call_seconds, result.tokens_per_second
    return {
        "load_seconds": round(result.load_seconds, 4),
        "first_call_seconds": None if first is None else round(first, 4),
        "decoding_seconds": round(result.decoding_seconds, 4),
        "decoding_tokens": result.decoding_tokens,
        "tokens_per_second": None if rate is None else float(f"{rate:.4g}"),
    }


def result_of(session: Session, result: Result) -> dict[str, Any]:
    """A run for a program."""
    asked = result.logprobs
    more = {} if asked is None else {"logprobs": list(asked.tokens), "top_logprobs": [list(best.items()) for best in asked.top]}
    return {
        "algorithm": session.function.name,
        "params": {name: v if isinstance(v, int) else written(v) for name, v in session.params.items()},
        "models": {name: model.name for name, model in session.models.items()},
        "device": result.device,
        "dtype": result.dtype,
        **({"mode": result.mode} if result.mode else {}),
        "forwards": {name: forward.to_json() for name, forward in result.forwards.items()},
        "tokens": list(result.tokens),
        "text": result.text,
        "stats": stats_of(result.stats),
        "reason": result.reason,
        "seconds": round(result.seconds, 4),
        **times_of(result),
        "results": [list(tokens) for tokens in result.results],
        "error": str(result.error) if result.error is not None else None,
        **more,
    }


def rows(session: Session, result: Result) -> list[tuple[str, str]]:
    """The lines of the summary: what is counted, and its value in words."""
    s = result.stats
    out = [("algorithm", f"{session.function.name}  {listed({n: shown(v) for n, v in session.params.items()})}".rstrip())]
    out.append(("models", ", ".join(f"{name}: {model.name}" for name, model in session.models.items())))
    others = "".join(f"; {name}: {where.text()}" for name, where in differing(session.models).items())
    out.append(("device", result.placement.text() + others))
    if result.mode:
        out.append(("mode", result.mode))
    odd = {name: f.text() for name, f in result.forwards.items() if f.way == "module"}
    if odd:
        out.append(("forwards", "; ".join(f"{name} {text}" for name, text in odd.items())))
    out.append(("tokens", f"{s.tokens}, ended by {WHY.get(result.reason, result.reason)}"))
    per_call = f": {s.tokens_per_call:.2f} tokens per call" if s.target_calls else ""
    out.append(("target calls", f"{s.target_calls}{per_call}"))
    if s.draft_calls:
        out.append(("draft calls", str(s.draft_calls)))
    if s.drafted:
        taken = sum(s.accepted)  # of a program without `verify` nothing is accepted, nor rejected
        out.append(("drafts", f"{s.drafted} drafted" + (f", {taken} accepted ({taken / s.drafted:.0%})" if s.tested else "")))
    if s.acceptance:
        counts = zip(s.acceptance, s.accepted, s.tested, strict=True)
        depths = [f"{i}: {share:.0%} ({a} of {t})" for i, (share, a, t) in enumerate(counts, 1)]
        out.append(("accepted at", "  ".join(depths[:12]) + ("  ..." if len(depths) > 12 else "")))
    for error, count in s.draft_errors.items():
        out.append(("draft ended", f"{count} {'times' if count > 1 else 'time'} by an error: {error}"))
    for name, figure in s.notes.items():
        spelt = getattr(session.tokenizer, "decode", None) if figure.token else None
        out.append((name, f"{figure}" if spelt is None else f"{spelt([int(figure.last)])!r} at last, of {figure.count}"))
    if s.unmasked:
        out.append(("unmasked", f"{s.unmasked} positions" + (f", {s.remasked} masked again" if s.remasked else "")))
    backend = session.machine.name
    where = "reference interpreter" if backend == "reference" else f"{backend} backend"
    times = timing(result.load_seconds, result.first_call_seconds, result.decoding_tokens, result.decoding_seconds)
    out.append(("time", f"{times} on the {where}"))
    return out


def show(console: Console, session: Session, result: Result) -> None:
    """The summary, aligned."""
    console.print()
    for name, value in rows(session, result):
        line = Text(f"{name:<14}", "bold").append(value, "not bold")
        console.print(line)
