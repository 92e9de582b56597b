"""A run, watched: what the target was given in each call, and what verification accepted of it.

It is read where a machine asks its models, not from statistics: a call's drafts are the paths below the committed text whose
rows were asked for, so what was grown and pruned again is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime import trace
from decgraph.runtime.request import Request

Path = tuple[int, ...]


@dataclass
class Call:
    """One call of the target: how much text it stands on, the drafted paths below it, how many drafts were accepted; and the
    whole paths after which it was asked."""

    past: int
    drafted: set[Path]
    accepted: int = 0
    rows: Sequence[Path] = ()


@dataclass
class Watched:
    """A run: its text, the target's calls, the rows of every drafter call in order, and the result. unheard: the text once
    more, of a run that nobody listens to: on triton that goes by steps on the device where the program and its models can."""

    tokens: Path
    calls: list[Call]
    drafter: list[int]
    result: Any
    committed: list[Path] = field(default_factory=list)
    unheard: Path | None = None


def run(
    program: str,
    prompt: Sequence[int],
    models: Mapping[str, Any],
    backend: str,
    *,
    max_tokens: int,
    eos: Sequence[int] = (),
    temperature: float = 0,
    shared: Mapping[str, Any] | None = None,
    externs: Mapping[str, Any] | None = None,
    text: str | None = None,
    change: Callable[[Any], Any] = lambda kind: kind,
    settings: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    **params: Any,
) -> Watched:
    """Decode a prompt with a program of stdlib (or `text`) on a backend, all passes on. change: from the machine's class to the
    one that is used. settings: further ones of the request."""
    algorithm = decgraph.load(program) if text is None else decgraph.parse(text)
    session = algorithm.session(models, tokenizer=tokenizer, plan=Plan(backend=backend), externs=externs, **params)
    log: list[Any] = []
    session.machine = watching(change(machine(backend)), log)
    before = {(session.function.name, k): v for k, v in (shared or {}).items()}
    session.shared.update(before)
    request = Request(tuple(prompt), max_tokens=max_tokens, eos=frozenset(eos), temperature=temperature, **(settings or {}))
    result = session.run(request, listener=log.append)
    if result.error is not None:
        raise result.error
    out = Watched((*prompt, *result.tokens), [], [], result)
    if backend == "triton":
        quiet = algorithm.session(models, tokenizer=tokenizer, plan=Plan(backend=backend), externs=externs, **params)
        quiet.shared.update(before)
        again = quiet.run(request, keep_events=False)
        assert again.error is None and again.stats.target_calls == result.stats.target_calls, (again, result.stats)
        out.unheard = (*prompt, *again.tokens)
    for e in log:
        match e:
            case Call():
                out.calls.append(e)
            case trace.ModelCall(role="draft") if not e.model.endswith(".heads"):  # those read a state that is there
                out.drafter.append(e.rows)
            case trace.Accepted():
                out.calls[-1].accepted += 1
            case trace.Committed():
                out.committed.append(e.tokens)
    return out


def watching(kind: Any, log: list[Any]) -> Any:
    """A machine's class that also writes the target's calls into `log`, among the events."""

    class Watching(kind):  # type: ignore[misc]
        def note(self, model: Any, paths: Sequence[Path]) -> None:
            """A call of the main model at these whole paths, also in a sub-run, whose own main model is another."""
            run = self
            while run.parent is not None:
                run = run.parent
            if model is not run.main or not paths:
                return
            root = tuple(commonprefix([list(p) for p in paths]))
            log.append(Call(len(root), {tuple(p[len(root) :]) for p in paths} - {()}, rows=[tuple(p) for p in paths]))

    if hasattr(kind, "evaluate_together"):  # torch and what builds on it: a call is made here, answered elsewhere

        class Watched_(Watching):
            def evaluate(self, model: Any, place: Any, *extra: Any, **how: Any) -> Any:
                call = super().evaluate(model, place, *extra, **how)
                if not self.uncounted and getattr(call, "engine", None) is not None and how.get("part") is None:
                    self.note(model, call.ask.paths() if hasattr(call.ask, "paths") else ())  # a canvas is no path
                return call

            def read_tokens(self, model: Any, tokens: Any, *given: Any, **how: Any) -> Any:
                call = super().read_tokens(model, tokens, *given, **how)
                if getattr(call, "engine", None) is not None:
                    self.note(model, call.ask.paths())
                return call

            def evaluate_together(self, model: Any, parts: Any, **how: Any) -> Any:
                call = super().evaluate_together(model, parts, **how)
                if getattr(call, "engine", None) is not None:
                    self.note(model, [p for ask in call.asks for p in ask.paths()])
                return call
    else:
        from decgraph.ir.data.canvas import Canvas
        from decgraph.ir.data.dist import resolve_path

        class Watched_(Watching):  # type: ignore[no-redef]
            def evaluate(self, op: Any, model: Any, place: Any, extra: Any) -> Any:
                if self.joined is None and op.attrs.get("part") != "heads" and not isinstance(place, Canvas):
                    self.note(model, [resolve_path(s) for s in self.place_states(place, extra)[0]])
                return super().evaluate(op, model, place, extra)

            def read_tokens(self, op: Any, model: Any, tokens: Any, *given: Any) -> Any:
                text = resolve_path(getattr(tokens, "tokens", tokens))
                self.note(model, [text[: i + 1] for i in range(len(text))] if op.attrs.get("each") else [text])
                return super().read_tokens(op, model, tokens, *given)

            def evaluate_parts(self, op: Any, model: Any, parts: Any) -> Any:
                self.note(model, [resolve_path(s) for place, extra in parts for s in self.place_states(place, extra)[0]])
                return super().evaluate_parts(op, model, parts)

    return Watched_
