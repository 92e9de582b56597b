"""Cache policies: the scores that a program sees under each are a plain transformer's, given which rows are stale.

A policy says what a call computes and what of the rows of earlier calls it sees. Here that is said again in plain Python, and
computed with rows that are dictionaries. A row is as old as the last call that computed its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from lib.models.masked_models import MASK_ID, masked, probabilities
from lib.models.plain_transformer import Plain, Rows

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request

PROMPT, LENGTH = (5, 9, 2, 17, 3), 12
BASE, END = len(PROMPT), len(PROMPT) + LENGTH


@dataclass(frozen=True)
class Now:
    """What a policy may look at: the call's block, how many calls there were, how many in this block without a break, and
    which cells were decided in the canvas of each earlier call."""

    block: range
    calls: int
    inside: int
    decided: Sequence[frozenset[int]]


Says = Callable[[Now], tuple[Iterable[int], Iterable[int]]]
"""What a call computes, and which of all positions it sees of earlier calls."""
ALL = range(END)


def rest(computed: Iterable[int]) -> list[int]:
    return sorted(set(ALL) - set(computed))


def prefix(now: Now) -> Any:
    """Everything when a block starts, then from the block on."""
    computed = ALL if now.inside == 0 else range(now.block.start, END)
    return computed, rest(computed)


def dual(now: Now) -> Any:
    """Everything when a block starts, then the block alone."""
    computed = ALL if now.inside == 0 else now.block
    return computed, rest(computed)


LAZY = """policy lazy(b: span):
    on every 5:  recompute all
    otherwise:   recompute b, reuse the rest
"""


def lazy(now: Now) -> Any:
    """A block that is entered between two refreshes sees the one before it as its last call did."""
    computed = ALL if now.calls % 5 == 0 else now.block
    return computed, rest(computed)


CANVAS = """policy whole(b: span):
    on enter b:  recompute all
    otherwise:   recompute from 0, reuse the rest
"""


def canvas(now: Now) -> Any:
    """The canvas is computed, the prompt as it was when the block was entered."""
    return (ALL, ()) if now.inside == 0 else (range(BASE, END), range(BASE))


SINKS = """policy sinks(b: span, n: int in 0..16 = 3):
    on enter b:  recompute all
    otherwise:   recompute b, reuse first(all, n), forget the rest
"""


def sinks(now: Now) -> Any:
    """Behind the first calls a block sees the prompt, itself and the canvas's first cells, nothing else."""
    seen = set(range(BASE + 3)) - set(now.block)
    return (ALL, ()) if now.inside == 0 else (now.block, seen)


DELAYED = """policy delayed(b: span):
    on every 6:  recompute all
    otherwise:   recompute b, recompute all - settled(c, 2), reuse the rest
"""


def delayed(now: Now) -> Any:
    """Beside the block, what was not yet decided two calls ago."""
    if now.calls % 6 == 0:
        return ALL, ()
    settled = now.decided[-2] if len(now.decided) > 1 else frozenset()
    computed = (set(range(BASE, END)) - settled) | set(now.block)
    return computed, rest(computed)


POLICIES: dict[str, tuple[Says, str]] = {
    "prefix": (prefix, ""),
    "dual": (dual, ""),
    "lazy": (lazy, LAZY),
    "whole": (canvas, CANVAS),
    "sinks": (sinks, SINKS),
    "delayed": (delayed, DELAYED),
}
PROGRAM = """
algorithm decoded(model: masked, length: int in 1..64 = 12, block: int in 1..64 = 4, tau: prob = 0.5):
    canvas c: length
    cache model by {policy}
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            x ~ p
            unmask c[b] where sure(p.raw[x], tau) with x
    commit c
"""
Seen = list[dict[int, Any]]
"""By call, the law at each position computed."""


def truth(plain: Plain, says: Says, block: int, tau: float) -> tuple[tuple[int, ...], Seen]:
    """The tokens and the laws, by a plain transformer."""
    cells: list[int] = [*PROMPT, *[MASK_ID] * LENGTH]
    held, seen, decided = Rows(), [], []
    calls = 0
    for start in range(BASE, END, block):
        here = range(start, min(start + block, END))
        inside = 0
        while any(cells[i] == MASK_ID for i in here):
            computed, visible = (set(ps) for ps in says(Now(here, calls, inside, decided)))
            decided.append(frozenset(i for i in range(BASE, END) if cells[i] != MASK_ID))
            rows = plain.run(cells, computed, held.only(visible - computed), sees=lambda i, j: True)
            held = rows.over(held.only(visible))
            laws = {i: probabilities(plain.read(rows.last[i])) for i in computed}
            seen.append(laws)
            open_ = [i for i in here if cells[i] == MASK_ID]
            surest = max(open_, key=lambda i: laws[i].max())
            for i in open_:
                if laws[i].max() >= tau or i == surest:
                    cells[i] = int(laws[i].argmax())
            calls, inside = calls + 1, inside + 1
    return tuple(cells[BASE:]), seen


def watching(kind: Any, seen: Seen) -> Any:
    """A machine that writes down the laws that its calls give, as a program sees them."""

    def note(at: Any, laws: Any) -> None:
        cells = range(LENGTH) if at is None else map(int, at)
        seen.append({BASE + i: np.asarray(law, dtype=np.float64) for i, law in zip(cells, laws, strict=True)})

    class OfTorch(kind):  # type: ignore[misc]
        def evaluate(self, *what: Any, **more: Any) -> Any:
            call = super().evaluate(*what, **more)
            finish = call.finish

            def finished(answer: Any) -> Any:
                made = finish(answer)
                note(made.at, made.seen("raw").vector())
                return made

            call.finish = finished
            return call

    class OfReference(kind):  # type: ignore[misc]
        def eval_canvases(self, *what: Any) -> Any:
            made = super().eval_canvases(*what)
            note(made.at, [row.face("raw") for row in made.rows])
            return made

    return OfTorch if hasattr(kind, "evaluate_together") else OfReference


@pytest.mark.quick(first=8)
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("block, tau", [(4, 0.3), (5, 0.9), (12, 0.6)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_program_sees_what_the_policy_says(policy: str, block: int, tau: float, backend: str) -> None:
    model, plain = masked(len(policy))
    says, text = POLICIES[policy]
    program = decgraph.parse(text + PROGRAM.format(policy=policy))
    seen: Seen = []
    session = program.session({"model": model}, plan=Plan(backend=backend), length=LENGTH, block=block, tau=tau)
    session.machine = watching(machine(backend), seen)
    result = session.run(Request(PROMPT, max_tokens=LENGTH, eos=frozenset(), temperature=0))
    assert result.error is None, result.error
    tokens, laws = truth(plain, says, block, tau)
    for n, (ours, want) in enumerate(zip(seen, laws, strict=True)):
        assert ours.keys() == {i for i in want if i >= BASE}, f"call {n}"
        for i, law in ours.items():
            assert np.allclose(law, want[i], atol=1e-4), (n, i, np.abs(law - want[i]).max())
    assert result.tokens == tokens
    assert result.stats.calls["eurobert"] == len(laws)


@pytest.mark.parametrize("name", ["fast_dllm", "fast_dllm_prefix"])
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_the_shelfs_programs_have_the_policies_that_they_name(name: str, backend: str) -> None:
    model, plain = masked(7)
    says = dual if name == "fast_dllm" else prefix
    for block, tau in ((4, 0.3), (5, 0.6), (3, 0.9)):
        session = decgraph.load(name).session({"model": model}, plan=Plan(backend=backend), length=LENGTH, block=block, tau=tau)
        result = session.run(Request(PROMPT, max_tokens=LENGTH, eos=frozenset(), temperature=0))
        tokens, laws = truth(plain, says, block, tau)
        assert result.error is None and result.tokens == tokens and result.stats.calls["eurobert"] == len(laws)


def test_every_policy_of_the_shelf_is_here() -> None:
    import re
    from pathlib import Path

    text = (Path(__file__).parents[3] / "stdlib" / "policies.dec").read_text(encoding="utf-8")
    assert set(re.findall(r"^policy (\w+)", text, flags=re.M)) <= POLICIES.keys()
