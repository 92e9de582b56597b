"""What the page of a run shows, as data for its script: text, steps, trees, cells, model calls, source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from decgraph.ir.values import Claim
from decgraph.runtime import trace
from decgraph.runtime.recording import Recording, Stamped
from decgraph.runtime.session import Result, Session
from decgraph.runtime.text import Detokenizer, detokenizer_of
from decgraph.views.steps import DraftTree, DrawnNode, RecordedStep, instructive, steps_of


@dataclass(frozen=True)
class Trace:
    """A run to be shown. prompt: token ids. pieces: the text of every token id. source: the algorithm's text, "" where there is
    none. params, models: as a person reads them."""

    name: str
    params: Mapping[str, str]
    models: Mapping[str, str]
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    recording: Recording
    stats: trace.Stats
    reason: str
    backend: str
    detokenizer: Detokenizer
    special: Mapping[int, str]
    source: str = ""
    path: str = ""
    error: str = ""
    claims: tuple[Claim, ...] = ()
    temperature: float = 1.0
    live: bool = False
    """It is still going on."""

    def _repr_html_(self) -> str:
        from decgraph.html import frame

        return frame(self)

    def __repr__(self) -> str:
        return f"<trace of {self.name}: {len(self.tokens)} tokens in {len(self.steps)} steps>"

    @staticmethod
    def of(
        session: Session,
        prompt: tuple[int, ...],
        result: Result,
        recording: Recording,
        *,
        source: str = "",
        path: str = "",
        temperature: float = 1.0,
    ) -> Trace:
        """What a session's run gave. source, path: the algorithm's text and its file. temperature: the request's."""
        from decgraph.runtime.parameters import shown

        tokenizer = session.tokenizer
        named = {}
        if tokenizer is not None:
            pieces = tokenizer.detokenizer.pieces
            heard = {t for s in recording.events for t in tokens_in(s.event)} | {*prompt}
            empty = [t for t in heard if not (0 <= t < len(pieces) and pieces[t])]
            spelled = getattr(tokenizer, "spelled", lambda token: None)
            named = {t: spelled(t) or f"<{t}>" for t in empty}
        return Trace(
            name=session.function.name,
            params={name: str(shown(value)) for name, value in session.params.items()},
            models={name: model.name for name, model in session.models.items()},
            prompt=prompt,
            tokens=tuple(result.tokens),
            recording=recording,
            stats=result.stats,
            reason=result.reason,
            backend=session.machine.name,
            detokenizer=tokenizer.detokenizer if tokenizer is not None else detokenizer_of(()),
            special=named,
            source=source,
            path=path,
            error=str(result.error) if result.error is not None else "",
            claims=session.function.claims,
            temperature=temperature,
        )

    @cached_property
    def steps(self) -> list[RecordedStep]:
        """Its decoding steps."""
        return steps_of(self.recording, len(self.prompt))

    @property
    def sure(self) -> tuple[float, float]:
        """The lowest and the highest confidence with which a cell was decided; 0 and 1 where none was."""
        found = [edit.confidence for step in self.steps for edit in step.edits if edit.token >= 0] or [0.0, 1.0]
        return min(found), max(found)

    def piece(self, token: int) -> str:
        """A token by itself, as text."""
        return self.special.get(token) or self.detokenizer.text([token]) or f"<{token}>"


def relation(runs: Sequence[Trace]) -> dict[str, Any]:
    """Whether two runs must commit the same tokens by what their algorithms claim, and why (not); {} for one run."""
    if len(runs) != 2:
        return {}
    greedy = all(run.temperature == 0 for run in runs)
    promises = [{run.name: "tokens", **promised(run, greedy)} for run in runs]
    names = " and ".join(run.name for run in runs)
    shared = [(spec, mode, promises[1][spec]) for spec, mode in promises[0].items() if spec in promises[1]]
    for spec, *modes in shared:
        if set(modes) == {"tokens"}:
            why = f"They must be equal: {names} claim the tokens of {spec}" + (" at temperature 0." if greedy else ".")
            return {"must": True, "why": f"{why} It is a fault, or two scores were equal up to rounding."}
    for spec, *modes in shared:
        if "sometimes" in modes:
            return {"must": False, "why": f"The claim about {spec} has a condition, which was not looked at here."}
        why = f"This is expected: what they claim about {spec} is in distribution, so equal seeds need not give equal tokens."
        return {"must": False, "why": why}
    return {"must": False, "why": f"No claim says that {names} commit the same tokens."}


def promised(run: Trace, greedy: bool) -> dict[str, str]:
    """The specifications that a run's algorithm refines: "tokens", "distribution", or "sometimes"."""
    out: dict[str, str] = {}
    for claim in run.claims:
        if claim.kind == "refines":
            plain = not claim.setting and (not claim.when or (greedy and claim.when == "greedy"))
            equal = claim.mode == "tokens" or (greedy and claim.mode in ("distribution", "greedy"))
            mode = (
                "sometimes" if not plain or (claim.mode == "greedy" and not greedy) else "tokens" if equal else "distribution"
            )
            out[claim.spec] = mode if out.get(claim.spec, "sometimes") == "sometimes" else out[claim.spec]
    return out


def tokens_in(event: trace.Event) -> tuple[int, ...]:
    """The token ids that an event names."""
    if isinstance(event, trace.Noted):
        return (int(event.value),) if event.token else ()
    token: int | None = getattr(event, "token", None)
    found: tuple[int, ...] = getattr(event, "tokens", ()) if token is None else (token,)
    return found


COUNTS = ("tokens", "target_calls", "draft_calls", "drafted", "unmasked", "remasked")


def document(run: Trace) -> dict[str, Any]:
    """A run as JSON: the data of the page (`views/trace.js` reads it)."""
    steps = run.steps
    pieces = {t for s in run.recording.events for t in tokens_in(s.event)}
    trees = list({id(tree): tree for step in steps for tree in step.trees}.values())
    own = any("logprob" in line for line in run.source.splitlines())
    columns = sorted({name for tree in trees for node in tree.nodes for name in node.columns if own or name != "logprob"})
    called = {s.event.model: s.event.role for s in run.recording.events if isinstance(s.event, trace.ModelCall)}
    return {
        "name": run.name,
        "params": dict(run.params),
        "models": dict(run.models),
        "backend": run.backend,
        "reason": run.reason,
        "error": run.error,
        "seconds": rounded(run.recording.seconds),
        "stats": {name: getattr(run.stats, name) for name in COUNTS},
        "depths": [
            [t, a, rounded(low, 4), rounded(high, 4)]
            for t, a, (low, high) in zip(run.stats.tested, run.stats.accepted, run.stats.intervals, strict=True)
        ],
        "sure": [rounded(x, 3) for x in run.sure],
        "live": run.live,
        "opens": instructive(steps),
        "path": run.path,
        "source": run.source.splitlines(),
        "pieces": {str(t): run.piece(t) for t in sorted(pieces)},
        "prompt": texts(run, run.prompt),
        "tokens": list(run.tokens),
        "texts": texts(run, run.tokens),
        "origins": [origin for step in steps for origin in step.origins],
        "roles": called,
        "spans": [[s.model, rounded(s.start), rounded(s.seconds), s.calls] for s in run.recording.spans],
        "columns": columns,
        "trees": [[node_data(node, columns) for node in tree.nodes] for tree in trees],
        "steps": [step_data(step, trees) for step in steps],
    }


def texts(run: Trace, tokens: tuple[int, ...]) -> list[str]:
    """The characters that each token adds to a text."""
    pending, out = run.detokenizer.start(), []
    for token in tokens:
        pending, text = run.detokenizer.feed(pending, token)
        out.append(text or (run.special.get(token, "") if token in run.special else ""))
    if out:
        out[-1] += run.detokenizer.finish(pending)
    return out


def step_data(step: RecordedStep, trees: Sequence[DraftTree]) -> dict[str, Any]:
    """A step as the page's script reads it; what is empty is left out."""
    data: dict[str, Any] = {
        "i": step.iteration,
        "first": step.first,
        "n": step.count,
        "t": [rounded(step.began), rounded(step.ended)],
        "ran": step.ran,
        "log": log(step.events),
        "trees": [i for tree in step.trees for i, each in enumerate(trees) if each is tree],
        "edits": [[e.position, e.token, rounded(e.confidence)] for e in step.edits],
        "cells": step.cells,
    }
    return {key: value for key, value in data.items() if value or key in ("first", "n", "i")}


def node_data(node: DrawnNode, columns: Sequence[str]) -> list[Any]:
    """[token, parent, state, source, steps in which it was grown and settled, columns, score, q, p, raw p, why], without
    what is empty at its end: most nodes of a page were pruned. columns: the names of those that are shown, in the order of
    their values; a value is one number, or [step, value] pairs where it has changed."""
    values = [node.columns.get(name, []) for name in columns]
    told = [rounded(v[0][1], 4) if len(v) == 1 else [[step, rounded(x, 4)] for step, x in v] for v in values]
    numbers = [rounded(x, 4) for x in (node.score, node.q, node.p, node.raw)]
    row = [node.token, node.parent, node.state, node.source, node.born, node.settled, told, *numbers, node.why or None]
    while row[-1] is None:
        row.pop()
    return row


GROUP = 8  # drafts of one line in a row that are one entry of the log


def log(events: Sequence[Stamped]) -> list[list[Any]]:
    """The entries of a step: values that many drafts in a row share are written once."""
    out: list[list[Any]] = []
    alike = lambda s: (s.line, s.rule, isinstance(s.event, trace.Drafted) and s.event.source)
    for (line, rule, source), group in groupby(events, alike):
        together = list(group)
        if source is False or len(together) < GROUP:
            out += map(entry, together)
        else:
            tokens = [s.event.token for s in together[:GROUP] if isinstance(s.event, trace.Drafted)]
            out.append([line, rule, rounded(together[0].seconds), "Grown", len(together), source, tokens])
    return out


SHOWN: dict[type, tuple[str, ...]] = {
    trace.ModelCall: ("model", "rows", "cells", "computed"),
    trace.Drafted: ("token", "prob", "source", "drawn", "score"),
    trace.Accepted: ("token", "depth"),
    trace.Rejected: ("token", "depth", "why"),
    trace.Emitted: ("token", "kind"),
    trace.Unmasked: ("position", "token", "confidence"),
    trace.Remasked: ("position",),
    trace.Committed: ("tokens", "cut"),
    trace.Noted: ("name", "value", "token"),
    trace.Pruned: ("dropped",),
    trace.DraftEnded: ("tree", "error"),
    trace.Stopped: ("reason",),
}
"""What a page has of each event."""


def entry(s: Stamped) -> list[Any]:
    """[line, rule, seconds, kind, ...] of an event."""
    shown = [getattr(s.event, name) for name in SHOWN[type(s.event)]]
    plain = [rounded(x) if isinstance(x, float) else list(x) if isinstance(x, tuple) else x for x in shown]
    return [s.line, s.rule, rounded(s.seconds), type(s.event).__name__, *plain]


def rounded(x: float | None, digits: int = 6) -> float | None:
    """Six digits are more than a page shows; None for what is no finite number, which JSON does not have."""
    return None if x is None or x - x != 0 else float(f"{x:.{digits}g}")
