"""Exact laws of two requests of one session, one after the other or side by side, with one seed: for `python -m lab fuzz_proofs
--beside`.

The requests have one seed and one id, and here noise is not numbered by request: it is what another engine may do, and what the
prover does not lean on (docs/decisions/0016-noise-and-memory.md). Functions of the caller's remember what they were told,
also by a request before. Both are enumerated as `decgraph check` does (check/beside.py). Sequences that run side by side take
turns wherever one touches what they share, in some of all orders of so many turns.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product
from typing import Any, cast

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import AnyFunction
from decgraph.check.beside import Beside
from decgraph.check.case import Case
from decgraph.check.claims import Failure, decide
from decgraph.check.distributions import OutOfTime, RunTally
from decgraph.check.initial_states import Start
from decgraph.ir.values import Function, Module

TURNS = 6
"""Choices of two sequences of which any order is tried; then whoever moved last goes on."""


def shares(module: Module) -> bool:
    """Whether something outlives a request of a module, or is shared by sequences."""
    functions: list[Function] = list(module.functions.values())
    ops = {op.opcode for f in functions for op in f.body.walk()}
    return any(s.scope != "sequence" for f in functions for s in f.states) or bool(ops & {"extern", "batch.fold", "batch.top"})


class Unnumbered(ExactMachine):
    """A machine whose noise goes by the seed and the request's id alone, and whose functions remember: what an adversary would
    answer for answers by what the other request told it, so many calls (`later`) after the one that is like this one."""

    others = ()  # a batch of one
    later = 0

    def _number(self) -> int:
        return self.request.request_id

    def extern_once(self, name: str, f: Any, args: Any, returns: Any) -> Any:
        if not isinstance(f, AnyFunction):
            return super().extern_once(name, f, args, returns)
        if isinstance(self, Beside):
            self.touch()
        told = cast("list[tuple[int, int]]", self.shared.setdefault(("told", name), []))
        told.append((id(self.whole), sum(map(_number_of, args))))
        theirs = [n for who, n in told if who != id(self.whole)]
        at = len(told) - len(theirs) - 1 + self.later
        return f.answers[(theirs[at] if at < len(theirs) else 0) % len(f.answers)]


def _number_of(x: object) -> int:
    """A number that tells of a value: the last one of a vector or a text."""
    if isinstance(x, str):
        return ord(x[-1]) if x else 0
    if hasattr(x, "__len__"):
        return _number_of(x[-1]) if len(x) else 0  # type: ignore[index]
    try:
        return int(x)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return 0


def beside_fails(case: Case, tally: RunTally, rng: random.Random, count: int = 6) -> tuple[Failure | None, int]:
    """A way in which a request that is not alone commits what the claim does not allow, and how many ways were decided. count:
    of so many orders of two sequences."""
    case = replace(case, steps=None, length=case.request.max_tokens, spec_engine=Unnumbered)
    starts = [Start(before=case.request.prompt)]
    if not any(op.opcode in ("draw.race", "draw.many") for op in case.function.body.walk()):  # whose noise is read of one row
        starts.append(Start(before=case.request.prompt[:1]))
    starts += [Start(beside="lines", order=order) for order in rng.sample(list(product((0, 1), repeat=TURNS)), count)]
    decided = 0
    for start, later in product(starts, (0, 1) if case.externs else (0,)):
        engine = type("Asked", (Unnumbered,), {"later": later})
        try:
            failure = decide(replace(case, engine=engine, start=start), tally, far=False)
        except TooMany:
            continue
        except OutOfTime:
            return None, decided
        if failure is None:
            decided += 1
        elif failure.kind != "adversary":  # heads that one answers for may decide which drafts there are
            return failure, decided
    return None, decided


# -- edits that give a program something shared
TOP = "extern zz_ask(int) -> int on host\nextern zz_read(text) -> bool on host\n"
STATES = {
    "number": "state zz: int per {scope} = 0",
    "table": "state zz: int[vocab] per {scope} = 0",
    "text": "state zz: suffixes(2) per {scope}",
    "list": "state zz: list[token[<= 2], <= 4] per {scope} = []",
}
READS = {
    "number": ("zz == 0", "zz > 0", "zz + yy == 1", "yy == 0"),
    "table": ("zz[ctx.token] == 0", "zz[ctx.token] + yy == 0"),
    "text": ("zz.has([0])", "zz.matched(ctx) > 0", "max(zz(ctx)) > 0.5"),
    "list": ("len(zz) == 0", "len(zz) > yy"),
    "function": ("zz_ask(0) == 0", "zz_read(text_of(ctx))", "yy == 0", "zz_ask(ctx.length) == 1"),
    "batch": ("yy == 0", "yy > 0"),
}
TELLS = {
    "number": ("zz = {n}", "zz = zz + {n}", "yy = zz", "zz = yy"),
    "table": ("zz[ctx.token] = {n}", "yy = zz[ctx.token]"),
    "text": ("zz.learn([{t}, {t}])", "yy = zz.matched(ctx)"),
    "list": ("zz = [[{t}]]", "zz = []", "yy = len(zz)"),
    "function": ("yy = zz_ask({n})", "told_ = zz_ask({n})"),
    "batch": ("across batch:\n    yy = max({n})", "across batch:\n    yy = sum({n})"),
}


def with_memory(rng: random.Random, text: str) -> str:
    """A program that is also told something shared, and lets it decide something. It need not be a program any more."""
    kind = rng.choice(list(READS))
    lines = text.rstrip().splitlines()
    start = max(n for n, line in enumerate(lines) if line.startswith("algorithm "))
    claims = [n for n in range(start, len(lines)) if re.match(r"    (refines|keeps|ensures) ", lines[n])]
    loop = next((n for n in range(start, len(lines)) if lines[n].strip() == "while not done:"), None)
    if not claims or loop is None:
        return text
    drawn = re.findall(r"\b(\w+) ~ ", "\n".join(lines[loop:]))
    numbers = ["ctx.length", "int(ctx.token)", "1", *(f"int({x})" for x in drawn), *(["t.size"] if "draft t:" in text else [])]
    numbers += ["t.accepted.depth", "t.accepted.length"] if "verify t" in text else []
    body = lines[loop + 1 :]
    for _ in range(rng.choice((1, 1, 2))):
        told = rng.choice(TELLS[kind]).format(
            n=rng.choice(numbers), t=rng.choice(["ctx.token", *(f"{x}.token" for x in drawn)])
        )
        at = rng.randrange(len(body) + 1)
        indent = _indent(body[min(at, len(body) - 1)])
        body[at:at] = [" " * indent + line for line in told.splitlines()]
    for _ in range(rng.choice((1, 1, 2))):
        read = rng.choice(READS[kind])
        at = rng.randrange(len(body))
        if rng.random() < 0.3 and (draws := [n for n, line in enumerate(body) if re.match(r"\s*\w+ ~ ", line)]):
            at = rng.choice(draws)
            name, _, row = body[at].strip().partition(" ~ ")
            pad = " " * _indent(body[at])
            body[at : at + 1] = [
                f"{pad}{name}1 ~ {row}",
                f"{pad}{name}2 ~ {row}",
                f"{pad}{name} = {name}1 if {read} else {name}2",
            ]
        else:
            deep = _indent(body[at])
            end = next((n for n in range(at + 1, len(body)) if body[n].strip() and _indent(body[n]) <= deep), len(body))
            other = [" " * deep + "else:", *("    " + line for line in body[at:end])] if "commit" in body[at] else []
            body[at:end] = [" " * deep + f"if {read}:", *("    " + line for line in body[at:end]), *other]
    scope = rng.choice(("session", "session", "batch"))
    own = [STATES[kind].format(scope=scope)] if kind in STATES else []
    head = [*lines[: claims[-1] + 1], *("    " + line for line in [*own, "state yy: int = 0"])]
    made = "\n".join([*head, *lines[claims[-1] + 1 : loop + 1], *body]) + "\n"
    return (TOP if kind == "function" else "") + made


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def shared_scope(rng: random.Random, text: str) -> str:
    """A program one of whose states outlives the request."""
    places = list(re.finditer(r"^(    state \w+: [^=\n]*?)( per \w+)?( =.*)?$", text, re.MULTILINE))
    if not places:
        return text
    place = rng.choice(places)
    scope = rng.choice((" per session", " per batch"))
    return text[: place.start()] + place.group(1).rstrip() + scope + (place.group(3) or "") + text[place.end() :]


__all__ = ["beside_fails", "shared_scope", "shares", "with_memory"]
