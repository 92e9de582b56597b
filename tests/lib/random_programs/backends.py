"""Random whole programs on every backend: what two runs of one program differ in.

The reference says what is right. Compared with it: torch as it is written and after the passes, requests together and one by
one, and for those asked for the triton machine, with steps on the device where it makes them.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton

from decgraph.api import Algorithm
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import ModelCall
from lib.random_programs.programs import Whole, program
from lib.stdlib.letters import Letters
from lib.stdlib.requests import heard as readable

PYTHON = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
OP = re.compile(r"(?<=\.dec:)(\d+):\d+|[a-z_][\w.]* cannot go on")
"""What a generated line, which may hold several ops of a line, tells of the last of them: its column and name."""


@dataclass
class Findings:
    """What a run over many programs found."""

    ran: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)  # errors of programs that all backends tell alike
    kinds: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    runs: int = 0

    def report(self) -> str:
        total = self.ran + sum(self.refused.values())
        lines = [
            (
                f"{total} programs: {self.ran} ran in {self.runs} runs, {sum(self.refused.values())} refused, "
                f"{len(self.faults)} with faults, {sum(self.ended.values())} requests ended with an error of the program"
            )
        ]
        lines += [f"  refused {n}: {what}" for what, n in self.refused.most_common()]
        lines += [f"  ended {n}: {what}" for what, n in self.ended.most_common()]
        lines += [f"  {seed}: {what}" for seed, what in self.faults.items()]
        return "\n".join(lines)


def numberless(text: str) -> str:
    return re.sub(r"-?\d+", "N", text.split("\n")[0])


def loaded(whole: Whole) -> Module:
    """The program's module, with the policy that is set from outside."""
    module = load_text(whole.text, "fuzzed.dec", check_labels=False)
    if whole.policy:
        return Algorithm(module, whole.text, "fuzzed.dec").cached(whole.policy).module
    return module


def asked(whole: Whole, module: Module) -> list[Request]:
    """The requests without what the program never reads, which would be refused."""
    return [readable(module.entry, request) for request in whole.requests]


def session(whole: Whole, module: Module, backend: str) -> Session:
    return Session(
        module,
        whole.models(module.entry),
        whole.values,
        machine=machine(backend),
        externs=whole.externs,
        tokenizer=Letters("abcdef"),
    )


def alone(whole: Whole, module: Module, backend: str) -> list[Result]:
    """Every request in a session of its own."""
    return [session(whole, module, backend).run(r) for r in asked(whole, module)]


def done(result: Result) -> list[Any]:
    """What happened, without the model calls."""
    return [e for e in result.events if not isinstance(e, ModelCall)]


def calls(result: Result) -> Counter[str]:
    return Counter(e.model for e in result.events if isinstance(e, ModelCall) and e.rows)  # without rows: a memory alone


def near(a: Any, b: Any) -> bool:
    """Whether two events are equal but for the last digits of their numbers."""
    if type(a) is not type(b):
        return False
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    return all(
        x == y or (isinstance(x, float) and isinstance(y, float) and abs(x - y) <= 1e-9 * max(1, abs(x))) for x, y in pairs
    )


def differs(got: Result, want: Result, *, passes: bool = False, events: bool = True, most: Result | None = None) -> str:
    """What is not as it should be; empty where nothing is.

    passes: there may be fewer calls than in `most`, where that is known."""
    for result in (want, got):
        if result.error is not None and (hit := PYTHON.search(str(result.error))):
            return f"{hit[0]}: {result.error}"
        if result.error is not None and "fuzzed.dec:" not in str(result.error) and "stdlib/" not in str(result.error):
            return f"no place: {result.error}"
    if bool(got.error) != bool(want.error):
        return f"error only {'here' if got.error else 'there'}: {got.error or want.error}"
    # kernels tell the line of a whole rule; a generated line may hold several ops and names the last of them
    if got.error is not None and events and OP.sub(r"\1", str(got.error)) != OP.sub(r"\1", str(want.error)):
        return f"other words: {got.error} <> {want.error}"
    for what in ("tokens", "reason", "results", "text"):
        if getattr(got, what) != getattr(want, what):
            return f"{what}: {getattr(got, what)} <> {getattr(want, what)}"
    if got.error is not None:
        return ""
    have, wanted = done(got), done(want)
    if events and (len(have) != len(wanted) or not all(map(near, have, wanted))):
        return next(
            (f"event {n}: {a} <> {b}" for n, (a, b) in enumerate(zip(have, wanted)) if not near(a, b)), "number of events"
        )
    if events and most is not None and not (calls(got) <= calls(most) if passes else calls(got) == calls(want)):
        return f"calls: {dict(calls(got))} <> {dict(calls(want))}"
    counted = ("unmasked", "tested", "accepted", "drafted")
    a, b = ([getattr(r.stats, s, None) for s in counted] for r in (got, want))
    return f"stats {counted}: {a} <> {b}" if a != b else ""


def compared(
    how: str, got: Sequence[Result], want: Sequence[Result], *, most: Sequence[Result | None] | None = None, **options: Any
) -> Iterator[str]:
    for n, (a, b, c) in enumerate(zip(got, want, want if most is None else most, strict=True)):
        if said := differs(a, b, most=c, **options):
            yield f"{how}, request {n}: {said}"


def faults(whole: Whole, module: Module, found: Findings, *, triton: bool = False) -> Iterator[str]:
    """Everything that is wrong with the runs of a program."""
    wanted = alone(whole, module, "reference")
    after, _ = optimise(module)
    plan, _ = optimise(
        module, {p.name: whole.values.get(p.name, p.default) for p in module.entry.params if p.value.type.elem != "model"}
    )
    found.runs += len(wanted)
    # which calls of a masked model are remembered, and so are none, is a matter of its engine
    masked = "model: masked" in whole.text
    known = [None if w.error or masked else w for w in wanted]
    yield from compared("torch", alone(whole, module, "torch"), wanted, most=known)
    for how, made in (("passes", after), ("parameters known", plan)):
        optimised = alone(whole, made, "reference")
        plain = [o if w.error else w for o, w in zip(optimised, wanted)]
        # what nothing uses is not computed after the passes: its error is gone, or another one comes first
        yield from compared(f"{how}, on the reference", optimised, plain, passes=True, most=known)
        yield from compared(f"{how}, on torch", alone(whole, made, "torch"), optimised, passes=True, most=known)
    found.runs += 5 * len(wanted)
    for r in wanted:
        if r.error is not None:
            found.ended[numberless(str(r.error))[:110]] += 1
    if whole.shared:
        first, second, third = (
            session(whole, m, b) for m, b in ((after, "reference"), (after, "torch"), (module, "reference"))
        )
        got, want, most = ([s.run(r) for r in asked(whole, module)] for s in (second, first, third))
        bounds = [None if m.error or masked else m for m in most]
        yield from compared("one after the other", got, want, passes=True, most=bounds)
    else:
        together = session(whole, plan, "torch").generate(asked(whole, plan), batch=len(whole.requests), keep_events=True)
        yield from compared("together", together, optimised, passes=True, most=known)
        if triton:
            with heard() as warned:
                got = session(whole, plan, "triton").generate(asked(whole, plan), batch=len(whole.requests))
            yield from compared("triton", got, optimised, events=False)
            yield from (f"triton: {text}" for text in warned if "failed in graph mode" in text or "has no steps" in text)
            found.runs += len(wanted)
    found.runs += len(wanted)


@contextmanager
def heard() -> Iterator[list[str]]:
    """What decgraph warns of: that a step failed and the host drives instead is a fault that no result shows."""
    said: list[str] = []

    class Ears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, ears = logging.getLogger("decgraph"), Ears(logging.WARNING)
    log.addHandler(ears)
    try:
        yield said
    finally:
        log.removeHandler(ears)


def fuzz(seeds: Sequence[int], *, triton: int = 0) -> Findings:
    """Programs of these numbers, every `triton`-th on the triton machine too."""
    found = Findings()
    for n, seed in enumerate(seeds):
        whole = program(seed)
        try:
            module = loaded(whole)
        except DecError as error:
            found.refused[numberless(str(error))] += 1
            continue
        except Exception as error:
            found.faults[seed] = f"the front end raised {type(error).__name__}: {error}"
            continue
        found.ran += 1
        found.kinds.update(whole.kinds)
        try:
            wrong = next(faults(whole, module, found, triton=triton > 0 and n % triton == 0), "")
        except Exception as error:
            wrong = f"raised {type(error).__name__}: {str(error)[:300]}"
        if wrong:
            found.faults[seed] = wrong
    return found


def main() -> None:
    """`PYTHONPATH=.:tests python -m lib.random_programs.backends 0 200 [triton]`: programs 0 to 199, what they found."""
    import sys
    import time
    import warnings

    warnings.simplefilter("ignore")
    started = time.perf_counter()
    low, high, triton = [*map(int, sys.argv[1:]), 0][:3]
    found = fuzz(range(low, high), triton=triton)
    print(found.report())
    print(f"kinds: {len(found.kinds)}: " + ", ".join(f"{k} {n}" for k, n in sorted(found.kinds.items())))
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

__all__ = ["Findings", "fuzz"]
