"""An error in a draft ends that draft and nothing else: with the drafts that were grown before it, the run goes on, alike on
every backend, alone and in a batch, and says what happened. Everywhere else an error ends the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import decgraph
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

V = 6
HEAD = """extern f(i: int) -> int

algorithm drafted(target: causal, drafter: causal, k: int in 0..8 = 2):
    refines autoregressive(target)
    state kept: int per sequence = 0

    while not done:
{before}
        draft t:
{body}
        verify t by {rule} against target(t)
{after}
        commit t.accepted
"""
BODIES = {  # what fails after two drafts: the line within the block, and what the error says
    "an index": ("for i in 0..4:\n    grow point(int(zeros(2)[i]))", "no element 2 among 2"),
    "no candidate": (
        "for i in 0..4:\n    grow point(argmax(range_(0, max(0, 2 - i)), by = range_(0, max(0, 2 - i))))",
        "nothing",
    ),
    "no mass": ("for i in 0..4:\n    x ~ normalize(max(0, 2 - i) * drafter(t.leaves[0]))\n    grow x", "without mass"),
    "too far": ("for i in 0..4:\n    grow point(0) at t.nodes[9 * max(0, i - 1)]", "9"),
}


def blocks(body: str, rule: str = "match", before: str = "", after: str = "") -> str:
    """A program whose block has this body."""

    def lines(text: str, depth: int) -> str:
        return "\n".join(" " * depth + line for line in text.splitlines())

    return HEAD.format(body=lines(body, 12), rule=rule, before=lines(before, 8), after=lines(after, 8))


def session(text: str, backend: str, **more: Any) -> Session:
    """A session with two small tables."""
    models = {"target": TableModel(V, seed=1, vocab="V"), "drafter": TableModel(V, seed=2, vocab="V")}
    return Session(load_text(text), models, machine=machine(backend), externs={"f": lambda i: i}, **more)


def ask(number: int = 0, **more: Any) -> Request:
    """A request for twelve tokens."""
    return Request(**{"prompt": (1, 2, number % V), "max_tokens": 12, "request_id": number, "seed": 5, **more})


def same(a: Result, b: Result) -> None:
    """Two results in which the same happened."""
    assert (a.tokens, a.reason, a.stats.draft_errors) == (b.tokens, b.reason, b.stats.draft_errors)
    assert (a.stats.drafted, a.stats.tested, a.stats.accepted) == (b.stats.drafted, b.stats.tested, b.stats.accepted)


BACKENDS = ["reference", "torch", "triton"]


@pytest.mark.parametrize("rule", ["match", "rejection"])
@pytest.mark.parametrize("name", BODIES)
def test_the_run_goes_on_with_what_was_grown(name: str, rule: str) -> None:
    body, words = BODIES[name]
    models = {"target": TableModel(V, seed=1, vocab="V")}
    target = Session(decgraph.load("autoregressive").module, models, machine=machine("reference"))
    greedy = ask(temperature=0)
    found = {b: session(blocks(body, rule), b).run(greedy) for b in BACKENDS}
    for result in found.values():
        assert result.error is None and result.reason == "limit"
        assert result.tokens == target.run(greedy).tokens
        ((told, times),) = result.stats.draft_errors.items()
        assert words in told and told.startswith("<text>:11: ") or told.startswith("<text>:12: ")
        assert times == result.stats.ended_drafts > 3
        assert result.stats.drafted <= 2 * times + 2 and result.stats.drafted > 0
        same(result, found["reference"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_sequence_of_a_batch_by_itself(backend: str) -> None:
    """One has an error in every draft, the next in none, side by side."""
    made = blocks("for i in 0..3:\n    grow point(int(zeros(2 + len(prompt) % 2)[i]))")
    asked = [ask(n, prompt=(1, 2, 3)[: 2 + n % 2]) for n in range(5)]
    wanted = [session(made, "reference").run(r) for r in asked]
    got = session(made, backend).generate(asked, batch=3)
    assert [bool(r.stats.ended_drafts) for r in got] == [True, False, True, False, True]
    for a, b in zip(got, wanted, strict=True):
        same(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_strict_request_ends_there(backend: str) -> None:
    result = session(blocks(BODIES["an index"][0]), backend).run(ask(strict=True))
    assert result.reason == "error" and result.tokens == () and "no element 2 among 2" in str(result.error)


STRICT = {  # where an error ends the run, as it did in any block: what, and words of the error
    "before": ({"before": "a = zeros(2)[k]"}, "no element 2"),
    "after": ({"after": "a = zeros(2)[k]\nkept = int(a)"}, "no element 2"),
    "read after": ({"body": "a = zeros(2)[k]\ngrow point(0)", "after": "kept = int(a)"}, "no element 2"),
    "by what was drawn": ({"body": "x ~ drafter(ctx)\na = zeros(0)[x]\ngrow x with best = a"}, "no element"),
    "in a branch by what was drawn": (
        {
            "body": "x ~ drafter(ctx)\na = 0.0\nif x < V.size:\n    a = zeros(2)[k]\ngrow x with best = a".replace(
                "V.size", "99"
            )
        },
        "no element 2",
    ),
    "a function of the caller's": ({"body": "grow point(f(k))"}, "`f` raised"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STRICT)
def test_what_ends_the_run_all_the_same(name: str, backend: str) -> None:
    parts, words = STRICT[name]
    made = session(blocks(**{"body": "grow point(0)\ngrow point(int(zeros(1)[0]))", **parts}), backend)
    made.externs["f"] = lambda i: 1 // (i - 2)
    result = made.run(ask())
    assert result.reason == "error" and words in str(result.error) and not result.stats.ended_drafts


class Broken(TableModel):
    """A table that fails at long texts."""

    def eval(self, paths: Sequence[tuple[int, ...]], memory: Any = None) -> Any:
        if any(len(p) > 6 for p in paths):
            raise ValueError("weights are gone")
        return super().eval(paths, memory)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_that_fails_ends_the_run(backend: str) -> None:
    text = blocks("x ~ drafter(ctx)\ngrow x\ngrow point(int(zeros(1)[0]))")
    models = {"target": TableModel(V, seed=1, vocab="V"), "drafter": Broken(V, seed=2, vocab="V")}
    result = Session(load_text(text), models, machine=machine(backend), externs={"f": abs}).run(ask())
    assert result.reason == "error" and "weights are gone" in str(result.error) and not result.stats.ended_drafts


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", ["token_recycling", "sam_decoding"])
def test_programs_that_ended_without_a_token(name: str, backend: str) -> None:
    """With two successors of a token their trees ask for a third."""
    models = {"target": TableModel(V, seed=1, vocab="V")}
    result = Session(decgraph.load(name).module, models, {"k": 2}, machine=machine(backend)).run(ask())
    assert result.error is None and len(result.tokens) == 12
