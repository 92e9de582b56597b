"""Worlds whose step begins later: after committed tokens, with carried values of any kind, in a later request of a session."""

from __future__ import annotations

from collections.abc import Iterator

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
    for n in range(3 * rounds):
        yield WorldPlan(
            "resumed",
            1000 + n,
            vocab,
            Style(sorts[n % 4], shared=n),
            prompt=1 + n % 3,
            committed=1 + n % 3,
            limit=8,
            length=2,
            features=("eos",) if n % 3 == 2 else (),
        )
    if sampled and noisy(f):
        for n in range(3):  # what one step's rule read of a draft that it refused, the next step's draft reads again
            yield WorldPlan(
                "steps",
                1270 + n,
                2,
                Style(("plain", "zeros", "plain")[n], shared=1270 + n),
                prompt=1 + n % 2,
                steps=2,
                limit=3,
                length=3,
                tight=True,
                params=twos(f),
                runs=1500,
            )
    if known.states or known.carries:
        counts = len(wholes(known)) if any(t.elem == "int" and not t.dims for t in carried_types(f)) else 0
        for n in range(max(9 * rounds, min(60, 2 * counts))):
            yield WorldPlan(
                "carried",
                1100 + n,
                vocab if n % 2 else 2,
                Style(sorts[n % 4], shared=n),
                free=any(t.elem == "memory" for t in carried_types(f)),  # a table's memory tells little
                prompt=2 + n % 2,
                committed=n % 3,
                arbitrary=n,
                limit=8,
                length=2 if sampled else 3,
                tight=n % 3 == 1,
                params=defaults(f, known) if n % 3 == 2 else (),
            )
        for n in range(3 if sampled else 0):
            yield WorldPlan(
                "steps",
                1200 + n,
                2,
                Style(sorts[n % 4], shared=n),
                prompt=1 + n,
                steps=2 + n % 2,
                limit=4,
                length=4,
                tight=True,
                runs=1500,
            )
        for n, features in enumerate(LATER if sampled else ()):  # the request applies in the next step, too
            yield WorldPlan(
                "steps",
                1250 + n,
                vocab,
                Style("plain", shared=1250 + n, power=2 if "repetition_penalty" in features else 1),
                prompt=1 + n % 2,
                steps=2,
                limit=3,
                length=3,
                tight=True,
                features=features,
            )
    if known.session or known.batch:
        for n in range(3 * rounds):
            yield WorldPlan(
                "session",
                1300 + n,
                vocab if n % 2 else 2,
                Style(sorts[n % 4], shared=n),
                prompt=2,
                session=1 + n % 2,
                limit=4,
                length=3,
                steps=None if n % 2 else 1,
                tight=True,
                runs=1500,
            )
