"""Worlds whose step begins later: after committed tokens, with carried values of any kind, in a later request of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decgraph.check.constants import Facts, carried_types
from decgraph.check.plans.parameters import defaults
from decgraph.check.starts import wholes
from decgraph.check.tables import Style
from decgraph.check.worlds import WorldPlan
from decgraph.ir.values import Claim, Function

LATER = (("top_k",), ("bans",), ("repetition_penalty",), ("min_length",))


def noisy(f: Function) -> bool:
    """Whether drafts are drawn with the noise of the output stream."""
    opcodes = [op.opcode for op in f.body.walk()]
    output = any(op.opcode == "noise" and op.attrs.get("kind") == "output" for op in f.body.walk())
    return output and "tree.walk" in opcodes and "tree.grow" in opcodes


def twos(f: Function) -> tuple[tuple[str, int], ...]:
    """Whole numbers at 2, where they can be: a draft after a refused one."""
    whole = [p for p in f.params if p.value.type.elem == "int" and not p.value.type.dims]
    return tuple((p.name, 2) for p in whole if (p.low is None or p.low <= 2) and (p.high is None or p.high >= 2))


def started(f: Function, known: Facts, claim: Claim, vocab: int, rounds: int) -> Iterator[WorldPlan]:
    """Steps from other states than the first."""
    if known.masked or not known.stepwise:
        return
    sampled = claim.mode == "distribution"
    sorts = ("plain", "zeros", "peaked", "plain")
    short: dict[str, Any] = {"limit": 3, "length": 3, "tight": True}
    for n in range(3 * rounds):
        style, features = Style(sorts[n % 4], shared=n), ("eos",) if n % 3 == 2 else ()
        where: dict[str, Any] = {"prompt": 1 + n % 3, "committed": 1 + n % 3, "features": features}
        yield WorldPlan("resumed", 1000 + n, vocab, style, limit=8, length=2, **where)
    if sampled and noisy(f):
        for n in range(3):  # what one step's rule read of a draft that it refused, the next step's draft reads again
            style = Style(("plain", "zeros", "plain")[n], shared=1270 + n)
            yield WorldPlan("steps", 1270 + n, 2, style, prompt=1 + n % 2, steps=2, params=twos(f), runs=1500, **short)
    if known.states or known.carries:
        counts = len(wholes(known)) if any(t.elem == "int" and not t.dims for t in carried_types(f)) else 0
        free = any(t.elem == "memory" for t in carried_types(f))  # a table's memory tells little
        for n in range(max(9 * rounds, min(60, 2 * counts))):
            where = {"prompt": 2 + n % 2, "committed": n % 3, "arbitrary": n, "tight": n % 3 == 1}
            where |= {"limit": 8, "length": 2 if sampled else 3, "params": defaults(f, known) if n % 3 == 2 else ()}
            yield WorldPlan("carried", 1100 + n, vocab if n % 2 else 2, Style(sorts[n % 4], shared=n), free=free, **where)
        for n in range(3 if sampled else 0):
            where = {"prompt": 1 + n, "steps": 2 + n % 2, "limit": 4, "length": 4, "tight": True, "runs": 1500}
            yield WorldPlan("steps", 1200 + n, 2, Style(sorts[n % 4], shared=n), **where)
        for n, features in enumerate(LATER if sampled else ()):  # the request applies in the next step, too
            style = Style("plain", shared=1250 + n, power=2 if "repetition_penalty" in features else 1)
            yield WorldPlan("steps", 1250 + n, vocab, style, prompt=1 + n % 2, steps=2, features=features, **short)
    if known.session or known.batch:
        for n in range(3 * rounds):
            where = {"prompt": 2, "session": 1 + n % 2, "limit": 4, "length": 3, "steps": None if n % 2 else 1}
            style = Style(sorts[n % 4], shared=n)
            yield WorldPlan("session", 1300 + n, vocab if n % 2 else 2, style, tight=True, runs=1500, **where)
