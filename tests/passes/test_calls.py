"""What is said of model calls: every call of every program has one entry with its line, which says what passes decided."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import NAMES

import decgraph
from decgraph.ir.values import Module, Op
from decgraph.passes.calls import Calls, ExplainedCall, calls_of
from decgraph.passes.motion import CALLS
from decgraph.passes.plan import Plan


def explained(text: str, **params: object) -> Calls:
    module = decgraph.parse(text, path="<text>").module
    return calls_of(module, params, text_of=lambda path: text if path == "<text>" else "")


def written(module: Module, name: str, within: tuple[str, ...] = ()) -> list[Op]:
    """The calls of a function and of those that it runs, as they were lowered."""
    out = []
    for op in module.functions[name].body.walk():
        if op.opcode in CALLS:
            out.append(op)
        elif op.opcode == "run" and op.attrs["callee"] not in (*within, name):
            out += written(module, str(op.attrs["callee"]), (*within, name))
    return out


@pytest.mark.parametrize("name", NAMES)
def test_every_call_has_one_entry_with_its_line(name: str) -> None:
    module = decgraph.load(name).module
    calls = calls_of(module, savings=False).calls
    ops = written(module, module.main)
    assert [(c.kind, c.line) for c in calls] == [(op.opcode, (op.loc.called or op.loc).line) for op in ops]
    for call in calls:
        assert call.line > 0 and call.model and call.times and call.why
        assert bool(call.reuse) != bool(call.not_reused) or call.times == "0"
        assert "did not run" not in call.text()


SPECULATIVE = decgraph.load("speculative").text


def test_a_chain_is_drafted_and_verified() -> None:
    drafter, target = explained(SPECULATIVE).calls
    assert (drafter.expression, drafter.line, drafter.times, drafter.most) == ("drafter(t.leaves)", 10, "gamma", 32)
    assert drafter.why == ("drafts nodes of t (line 11)",)
    assert target.why == ("verifies t by rejection (line 12)",)
    assert target.computed == "1 + n(t)" and target.reuse == "target" and target.rows_most == 33
    assert target.waits == ("for the host: the verification by rejection: what it accepts (line 12)",)
    assert target.batch == "one forward for all sequences that wait for target"


def test_what_half_of_a_parameter_saves() -> None:
    (saving,) = explained(SPECULATIVE).savings
    assert str(saving) == "gamma 4 -> 2: drafter (line 10) 4 -> 2 calls"
    (known,) = explained(SPECULATIVE, gamma=9).savings
    assert str(known) == "gamma 9 -> 4: drafter (line 10) 9 -> 4 calls"
    assert explained(SPECULATIVE, gamma=1).savings == ()


def calls(text: str) -> tuple[ExplainedCall, ...]:
    return explained(text).calls


def test_equal_calls_are_made_once() -> None:
    text = """algorithm same(target: causal):
    while not done:
        p = target(ctx)
        q = target(ctx)
        x ~ p
        y ~ q
        commit x if p[x] > q[y] else y
"""
    first, second = calls(text)
    assert first.times == "1"
    assert second.times == "0" and second.why == ("an equal call stands in line 3, and is made once",)


def test_a_call_that_nothing_needs_is_dropped() -> None:
    text = """algorithm idle(target: causal, other: causal):
    while not done:
        q = other(ctx)
        x ~ target(ctx)
        commit x
"""
    idle, used = calls(text)
    assert idle.times == "0" and idle.why == ("dropped: what it is for is not reached or not needed",)
    assert used.why == ("is committed (line 5)",)


def test_fused_calls_name_each_other() -> None:
    first, second = (c for c in calls_of(decgraph.load("lookahead").module, savings=False).calls)
    assert first.fused == (second.line,) and second.fused == (first.line,)
    alone = calls_of(decgraph.load("lookahead").module, plan=Plan(passes=("simplify", "reuse")), savings=False).calls
    assert all(c.fused == () for c in alone)
    assert alone[0].apart == (f"not with line {second.line}: the pass tree_fusion did not run",)


BETWEEN = """algorithm between(target: causal):
    refines autoregressive(target) in tokens
    state n: int per sequence = 0
    state sure: float per sequence = 0.0

    while not done:
        p = target(ctx)
        n += 1
        draft t:
            grow point(1)
        verify t by match against target(t)
        sure = max(p.raw)
        commit t.accepted
"""


def test_a_write_between_two_calls_is_named_with_what_moving_it_would_do() -> None:
    first, second = calls(BETWEEN)
    assert first.apart == ("not with line 11: a write of a state stands between them (line 8)",)
    assert first.changes == ("with a write of a state (line 8) after both, tree_fusion would make lines 7 and 11 one call",)
    assert second.changes == first.changes
    moved = BETWEEN.replace("        n += 1\n", "").replace("        commit", "        n += 1\n        commit")
    assert calls(moved)[0].fused == (10,), "the change that was proposed does what was said"


def test_a_call_that_needs_the_other_says_through_which_line() -> None:
    text = BETWEEN.replace("        n += 1\n", "").replace("point(1)", "topk(p.raw, 1)")
    first, second = calls(text)
    assert first.apart == ("not with line 10: line 10 needs its result, through line 9",)
    assert second.apart == ("not with line 7: it needs the result of line 7, through line 9",)


def test_a_model_that_changes_from_step_to_step_has_no_store_and_is_called_alone() -> None:
    text = """algorithm changing(target: causal):
    while not done:
        model small = target.exit(1 + ctx.length % 2)
        x ~ small(ctx)
        commit x
"""
    (call,) = calls(text)
    assert call.not_reused.startswith("its model is derived by what may change from step to step (line 3)")
    assert call.batch.startswith("alone: its model differs between sequences")
    assert len(call.changes) == 2
    (fixed,) = calls(text.replace("1 + ctx.length % 2", "1"))
    assert fixed.reuse == "target.exit(1)" and fixed.changes == (), "the change that was proposed does what was said"


def test_a_second_context_and_a_chosen_memory() -> None:
    (second,) = (c for c in calls_of(decgraph.load("cfg").module, savings=False).calls if c.kind == "model.read")
    assert second.not_reused.startswith("it reads other tokens than the request's")
    found = calls_of(decgraph.load("magicdec").module, savings=False).calls
    chosen = next(c for c in found if "(drafting)" in c.model)
    assert "on a memory that the program chose" in chosen.not_reused
    assert chosen.changes[0].startswith("without `given =`")


def test_calls_before_the_first_step() -> None:
    first = calls_of(decgraph.load("eagle2").module, savings=False).calls[0]
    assert (first.when, first.times) == ("before the first step", "1")
    assert all(c.when == "a step" for c in calls_of(decgraph.load("eagle2").module, savings=False).calls[1:])


def test_json_holds_what_the_text_says() -> None:
    report = explained(SPECULATIVE)
    assert report.to_json()["calls"][0]["expression"] == "drafter(t.leaves)"
    for call in report.calls:
        assert call.text() in report.text()
        for line in (*call.why, *call.cached, *call.waits):
            assert line in call.text()
