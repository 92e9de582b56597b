"""What outlives a request, or is shared by sequences, tells of every draw that it was ever told, however it was
told and is read: a program that lets it decide among draws is not derived. One with the target's own draws is.

That such programs are wrong where noise comes again, the enumeration below shows of one that asks a function of the caller's.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.backends.exact.choices import Choices
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.check.distributions import RunTally, distribution_of, execute
from decgraph.check.proof.claims import Open, prove
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

TOP = "extern ask(int) -> int on host\nextern read(text) -> int on host\n"
INNER = """algorithm inner(target: causal):
    while not done:
        x ~ target(ctx) as output
        told = ask(int(x))
        commit x
"""
PROGRAMS = {
    "an index of the session's texts": ("state past: suffixes(2) per session", "n = 1 if past.has([0]) else 0", ""),
    "how sure such an index is": ("state past: suffixes(2) per session", "n = max(past(ctx)) - 0.5", ""),
    "where another state begins": ("state first: int per session = -1\n    state n: int = first", "", "first = int(y)"),
    "what was copied from it": (
        "state first: int per session = 0\n    state n: int = 0",
        "",
        "n = first\n        first = int(y)",
    ),
    "a committed token": ("state last: int per session = 0", "n = last", "last = int(ctx.token)"),
    "how many steps there were": ("state last: int per session = 0", "n = last", "last = last + 1"),
    "inside a list": ("state first: int per session = 0", "n = sum([first + i for i in range_(0, 1)])", "first = int(y)"),
    "a function that read the text": ("", "n = read(text_of(ctx))", ""),
    "an answer of the step before": ("state n: int = 0", "", "n = ask(int(y))"),
    "a function in a list": ("", "n = sum([ask(i) for i in range_(0, 1)])", "told = ask(int(y))"),
    "a batch, a step ago": ("state n: int = 0", "", "across batch:\n            n = max(int(y))"),
    "what a batch was told before": (
        "state s: int = 0",
        "across batch:\n            n = max(s)",
        "across batch:\n            s = max(int(y))",
    ),
}
LOOP = """algorithm a(target: causal):
    refines autoregressive(target) in {mode}
    {state}
    while not done:
        y ~ target(ctx){stream}
        z ~ target(ctx){stream}
        {read}
        {write}
        if n == 0:
            commit y
        else:
            commit z
"""


def text(name: str, own: bool) -> str:
    state, read, write = PROGRAMS[name]
    state = state or "state unused: int = 0"
    read, write = read or "unused_ = 0", write or "unused__ = 0"
    if "n: int" in state:
        read = "m = n"
    made = LOOP.format(
        mode="tokens" if own else "distribution", stream=" as output" if own else "", state=state, read=read, write=write
    )
    return TOP + (made.replace("if n == 0", "if m == 0") if "n: int" in state else made)


@pytest.mark.quick(but=())
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_memory_that_decides(name: str) -> None:
    wrong, true = (decgraph.parse(text(name, own)).module for own in (False, True))
    assert isinstance(prove(wrong, wrong.entry.claims[0]), Open)
    assert not isinstance(found := prove(true, true.entry.claims[0]), Open), found


def test_a_sub_run_tells_a_function_what_it_drew() -> None:
    program = """algorithm a(target: causal):
    refines autoregressive(target) in distribution
    while not done:
        r = run inner(target) from ctx until no at most 1
        s = run inner(target) from ctx until no at most 1
        if ask(0) == 0:
            commit r
        else:
            commit s
"""
    for inner, derived in ((INNER, False), (INNER.replace("told = ask(int(x))", "told = 0"), True)):
        module = decgraph.parse(TOP + inner + program.replace("ask(0)", "ask(0)" if not derived else "len(prompt)")).module
        assert isinstance(prove(module, module.entry.claims[0]), Open) is not derived


def test_noise_of_a_rule_that_is_not_drawn_yet() -> None:
    """A draft that is certain is right whatever chose it, but for what tells of the noise that the rule reads then."""
    text = """algorithm a(target: causal):
    refines autoregressive(target) in distribution
    state last: int per {scope} = 0
    while not done:
        draft t:
            if last == 0:
                grow point(ctx.token)
        verify t by rejection against target(t)
        last = int(t.accepted.token[0])
        commit t.accepted
"""
    for scope in ("session", "sequence"):
        module = decgraph.parse(text.format(scope=scope)).module
        assert isinstance(prove(module, module.entry.claims[0]), Open) is (scope == "session")


def test_a_function_that_remembers_another_session() -> None:
    """It answers in the first step of a request what it was told in the second step of one with the same noise."""
    algorithm = decgraph.parse(text("an answer of the step before", own=False))
    target = TableModel(2, 1, {(): (4, 1)}, window=0, vocab="V")
    world = World(coupled=False)

    def program(choices: Choices) -> dict[tuple[int, ...], Fraction]:
        world.restart(choices)
        told: list[int] = []
        answers: list[int] = []

        def ask(x: int) -> int:
            told.append(int(x))
            return answers[len(told) - 1] if len(told) <= len(answers) else 0

        committed: tuple[int, ...] = ()
        for _ in range(2):
            told.clear()
            request = Request((0,), max_tokens=2, seed=0, request_id=0)
            machine = ExactMachine(
                algorithm.module, "a", {"target": target}, {}, request, shared={}, externs={"ask": ask, "read": ask}
            )
            committed = tuple(execute(machine.on(world)).committed_tokens())
            answers[:] = told[1:]
        return {committed: Fraction(1)}

    law = distribution_of(program, 200_000, RunTally())
    assert sum(law.values()) == 1
    assert sum(mass for tokens, mass in law.items() if tokens[1] == 0) > Fraction(9, 10)  # and 4/5 of the target's
