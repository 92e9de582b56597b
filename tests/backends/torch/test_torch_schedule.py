"""A schedule that runs join and leave at any time: tokens of runs alone, cancelled runs freed, prompts in chunks."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.backends.torch.schedule import Schedule
from decgraph.models import request_for
from decgraph.runtime.models.engine.of import engine_of

TEXT = "def main():\n    for i in range(10):\n        print(i)\n\nclass A:\n    def f(self, x):\n        return x + 1\n"
NAMES = ("autoregressive", "speculative", "prompt_lookup")


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    """Sessions of several algorithms on the same model objects."""
    speculative = decgraph.load("speculative").session(gamma=3, backend="torch")
    target = {"target": speculative.models["target"]}
    others = {
        name: decgraph.load(name).session(target, backend="torch", tokenizer=speculative.tokenizer)
        for name in NAMES
        if name != "speculative"
    }
    return {"speculative": speculative, **others}


def machine_of(session: Any, prompt: str, **fields: Any) -> Any:
    session.shared.clear()
    return session._start(request_for(session, prompt, **{"eos": (), **fields}), None, False).machine


def alone(session: Any, prompt: str, **fields: Any) -> tuple[int, ...]:
    session.shared.clear()
    return tuple(session.run(request_for(session, prompt, **{"eos": (), **fields})).tokens)


def slots(sessions: dict[str, Any]) -> int:
    return sum(len(engine_of(m)._slots) for m in sessions["speculative"].models.values())


@pytest.mark.parametrize("chunk", [None, 24])
def test_algorithms_join_in_mid_run_and_commit_what_they_commit_alone(sessions: dict[str, Any], chunk: int | None) -> None:
    asked = [(NAMES[n % 3], TEXT[: 20 + 9 * n], {"max_tokens": 10 + n, "temperature": 0.8, "seed": n}) for n in range(6)]
    got: dict[int, Any] = {}

    def ended(number: int, machine: Any, error: BaseException | None) -> None:
        assert error is None
        got[number] = machine.committed_tokens()

    schedule, left = Schedule(ended, chunk=chunk), list(enumerate(asked))
    while left or schedule.advance():
        if left:  # one joins in every other round
            number, (name, prompt, fields) = left.pop(0)
            schedule.join(number, machine_of(sessions[name], prompt, **fields))
            schedule.advance()
    assert [got[n] for n in range(6)] == [alone(sessions[name], prompt, **fields) for name, prompt, fields in asked]
    assert slots(sessions) == 0


def test_a_cancelled_run_leaves_nothing_and_harms_nobody(sessions: dict[str, Any]) -> None:
    told: list[int] = []
    schedule = Schedule(lambda number, machine, error: told.append(number))
    machines = [machine_of(sessions["speculative"], TEXT, max_tokens=16, seed=n) for n in range(2)]
    for number, machine in enumerate(machines):
        schedule.join(number, machine)
    for _ in range(5):
        schedule.advance()
    assert 0 < len(machines[0].committed_tokens()) < 16 and slots(sessions) > 0
    assert schedule.cancel(0) and not schedule.cancel(0) and len(schedule) == 1
    while schedule.advance():
        pass
    assert told == [1] and slots(sessions) == 0
    assert machines[1].committed_tokens() == alone(sessions["speculative"], TEXT, max_tokens=16, seed=1)


def test_while_a_long_prompt_is_computed_in_chunks_others_go_on(sessions: dict[str, Any]) -> None:
    session = sessions["autoregressive"]
    short = machine_of(session, "import os", max_tokens=40)
    long = machine_of(session, TEXT * 4, max_tokens=4)
    schedule = Schedule(lambda *_: None, chunk=32)
    schedule.join(0, short)
    schedule.advance()
    schedule.join(1, long)
    rounds = -(-len(long.tokens) // 32)
    assert rounds >= 4
    for turn in range(rounds - 1):
        before = len(short.committed_tokens())
        schedule.advance()
        assert len(engine_of(session.models["target"])._slots[long.engines.sequence].chain) == 32 * (turn + 1)
        assert len(short.committed_tokens()) == before + 1
    assert schedule.prefilled == 32 * (rounds - 1)
    schedule.close()
    assert slots(sessions) == 0


def test_two_long_prompts_take_turns(sessions: dict[str, Any]) -> None:
    session = sessions["autoregressive"]
    machines = [machine_of(session, TEXT * 2, max_tokens=2, seed=n) for n in range(2)]
    schedule = Schedule(lambda *_: None, chunk=16)
    for number, machine in enumerate(machines):
        schedule.join(number, machine)
    for _ in range(4):
        schedule.advance()
    known = engine_of(session.models["target"])._slots
    assert [len(known[m.engines.sequence].chain) for m in machines] == [32, 32]
    schedule.close()


def test_prompts_of_one_round_are_no_longer_than_a_chunk_together(sessions: dict[str, Any]) -> None:
    """Three, of which a chunk has room for two: the third's is computed with the next round's."""
    session = sessions["autoregressive"]
    machines = [machine_of(session, TEXT, max_tokens=3, seed=n) for n in range(3)]
    long = len(machines[0].tokens)
    schedule, known = Schedule(lambda *_: None, chunk=2 * long + 1), engine_of(session.models["target"])._slots
    for number, machine in enumerate(machines):
        schedule.join(number, machine)
    for begun in (2, 3):
        schedule.advance()
        assert sum(m.engines.sequence in known for m in machines) == begun and schedule.prefilled == 0
    schedule.close()


def test_what_one_chunk_raises_ends_its_run_alone(sessions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session = sessions["autoregressive"]
    engine, told = engine_of(session.models["target"]), {}
    good, bad = machine_of(session, "import os", max_tokens=6), machine_of(session, TEXT, max_tokens=6)
    compute = engine._compute_plans

    def failing(plans: Any) -> None:
        if any(p.call.sequence == bad.engines.sequence for p in plans):
            raise ValueError("broken")
        compute(plans)

    monkeypatch.setattr(engine, "_compute_plans", failing)
    schedule = Schedule(lambda number, machine, error: told.update({number: error}), chunk=20)
    schedule.join(0, good)
    schedule.join(1, bad)
    while schedule.advance():
        pass
    assert told[0] is None and "broken" in str(told[1]) and len(good.committed_tokens()) == 6
    assert slots(sessions) == 0


def test_drafts_that_fail_half_way_in_a_batch_are_those_of_each_run_alone(
    sessions: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin anew, and nothing of the first attempt is left: neither its tokens nor what it did to their noise."""
    session, drafter = sessions["speculative"], engine_of(sessions["speculative"].models["drafter"])
    compute, failed = drafter.compute, []

    def failing(calls: Any) -> Any:
        if not failed and len(calls) > 1 and all(len(c.tokens) == 2 for c in calls):  # for the third token of each
            failed.append(len(calls))
            raise RuntimeError("no memory")
        return compute(calls)

    monkeypatch.setattr(drafter, "compute", failing)
    got: dict[int, Any] = {}
    schedule = Schedule(lambda n, machine, error: got.update({n: error or machine.committed_tokens()}))
    asked = [{"max_tokens": 10, "temperature": 2, "seed": n} for n in range(2)]
    for n, fields in enumerate(asked):
        schedule.join(n, machine_of(session, TEXT, **fields))
    while schedule.advance():
        pass
    assert failed == [2] and [got[n] for n in range(2)] == [alone(session, TEXT, **fields) for fields in asked]


def test_folds_of_a_batch_see_each_run_alone_where_asked(sessions: dict[str, Any]) -> None:
    """`bass` drafts as far as the best of its batch: apart, each run commits and calls what it does alone."""
    bass = decgraph.load("bass").session(
        dict(sessions["speculative"].models), backend="torch", tokenizer=sessions["speculative"].tokenizer
    )
    asked = [{"max_tokens": 12 + 5 * n, "temperature": 1, "seed": n} for n in range(3)]
    got: dict[int, Any] = {}
    schedule = Schedule(lambda n, machine, error: got.update({n: (machine.committed_tokens(), machine.stats())}), apart=True)
    for n, fields in enumerate(asked):
        schedule.join(n, machine_of(bass, TEXT, **fields))
    while schedule.advance():
        pass
    for n, fields in enumerate(asked):
        bass.shared.clear()
        one = bass.run(request_for(bass, TEXT, **{"eos": (), **fields}), keep_events=False)
        assert got[n] == (one.tokens, one.stats)


@pytest.mark.parametrize("lone", ["medusa", "autoregressive"])
def test_a_lone_run_goes_on_whatever_joins(sessions: dict[str, Any], lone: str) -> None:
    """Its model is its own, and three runs on another one are in flight at any time: its calls are computed too."""
    made, busy = decgraph.load(lone).session(backend="torch"), sessions["autoregressive"]
    over: list[int] = []
    schedule = Schedule(lambda number, machine, error: over.append(number))
    schedule.join(0, machine_of(made, TEXT, max_tokens=12, seed=1))
    joined = 0
    for _ in range(100):
        while len(schedule) < 3 + (0 not in over):
            joined += 1
            schedule.join(joined, machine_of(busy, TEXT, max_tokens=9 + joined % 4, seed=joined))
        schedule.advance()
        if 0 in over:
            break
    schedule.close()
    assert 0 in over
