"""What is computed of what is asked for: what the report says in symbols is what the interpreter counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from lib.stdlib.table_models import parameters, tables

import decgraph
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.ir.values import Module
from decgraph.passes.cost import cost_of
from decgraph.passes.manager import optimise
from decgraph.passes.reuse import reuses
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params
from decgraph.runtime.trace import Committed, Drafted, ModelCall


@dataclass
class Step:
    """What happened between two commits."""

    calls: list[ModelCall] = field(default_factory=list)
    drafted: int = 0
    committed: int = 0

    def of(self, model: str) -> list[int]:
        """Cells computed, by call of a model."""
        return [c.computed or 0 for c in self.calls if c.model.startswith(model)]


def steps(module: Module, name: str, max_tokens: int = 24) -> Iterator[Step]:
    """The steps of a run, the last one left out: it is cut."""
    models = {p.name: tables()[p.name] for p in module.entry.params if p.value.type.elem == "model"}
    events: list[object] = []
    m = ReferenceMachine(
        module,
        name,
        models,
        check_params(module.entry, parameters(name)),
        Request(prompt=(0, 1, 2), max_tokens=max_tokens),
        listener=events.append,
    )
    m.run()
    now, out = Step(), []
    for e in events:
        match e:
            case ModelCall():
                now.calls.append(e)
            case Drafted():
                now.drafted += 1
            case Committed():
                now.committed = len(e.tokens)
                out.append(now)
                now = Step()
    yield from out[:-1]


def optimised(name: str) -> Module:
    return optimise(decgraph.load(name).module)[0]


def said(module: Module, store: str) -> list[str]:
    return [k.computed for k in reuses(module.entry) if k.store == store]


ONE_CALL = [
    "speculative",
    "eagle2",
    "medusa",
    "medusa_match",
    "lookahead",
    "token_recycling",
    "prompt_lookup",
    "kangaroo",
    "sequoia",
    "rsd_s",
    "recursive_sd",
]


@pytest.mark.parametrize("name", ONE_CALL)
def test_one_call_of_the_target_a_step(name: str) -> None:
    """The first step also reads the prompt; where drafting needs it, that is a call of its own."""
    run = list(steps(optimised(name), name))
    assert len(run) > 3
    assert [len(s.of("target")) - len(s.of("target.")) for s in run[2:]] == [1] * len(run[2:])


@pytest.mark.parametrize("name", ["speculative", "prompt_lookup", "medusa_match", "token_recycling", "kangaroo"])
def test_the_target_computes_one_and_the_drafts(name: str) -> None:
    """`1 + n(t)`: the token that was emitted, and every drafted node; equal siblings are one cell."""
    module = optimised(name)
    assert said(module, "target")[-1] == "1 + n(t)"
    for s in list(steps(module, name))[2:]:
        target = [c for c in s.calls if c.model == "target"][-1]
        distinct = target.rows - 1
        assert 1 <= (target.computed or 0) <= 1 + distinct
        if name in ("speculative", "prompt_lookup", "kangaroo"):  # chains: no equal siblings
            assert target.computed == 1 + s.drafted


def test_the_drafter_computes_each_token_once() -> None:
    module = optimised("speculative")
    (words,) = said(module, "drafter")
    assert words == "1 (2 where every draft was accepted) + the leaves of t, each node once"
    run = list(steps(module, "speculative"))
    for before, now in zip(run[1:], run[2:], strict=False):
        gamma = before.drafted
        everything = before.committed == gamma + 1
        assert now.of("drafter") == [2 if everything else 1] + [1] * (gamma - 1)


def test_lookahead_is_one_call_over_two_trees() -> None:
    module = optimised("lookahead")
    (call,) = [c for c in cost_of(module).calls if c.model == "target"]
    assert call.place == "the nodes of u and every node of t"
    assert call.most == 1
    assert call.computed.startswith("1 + ")


def test_freedave_asks_for_no_canvas_twice() -> None:
    module = optimised("freedave")
    first, second = reuses(module.entry)
    assert first.computed == "nothing"
    assert second.computed == "all"  # the root has the first edit, which needs no call
    name = "freedave"
    events: list[object] = []
    for m in (decgraph.load(name).module, module):
        count: list[object] = []
        ReferenceMachine(
            m,
            name,
            {"model": tables()["model"]},
            check_params(m.entry, parameters(name)),
            Request(prompt=(0, 1), max_tokens=12),
            listener=count.append,
        ).run()
        events.append(sum(isinstance(e, ModelCall) for e in count))
    before, after = events
    # One a step; of the others those at the first canvas, and behind a block whose last cell needed no call.
    assert before // 2 < after <= before // 2 + 1 + 12 // parameters(name)["block"]


def test_a_head_computes_its_own_cells_again() -> None:
    module = optimised("eagle2")
    (words,) = said(module, "head")
    assert words.startswith("what was committed + the frontier of t")
    assert said(module, "target") == ["nothing", "1 + n(t)"]
    assert any("its own features" in r for k in reuses(module.entry) if k.store == "head" for r in k.reasons)


def test_the_cost_report_says_it() -> None:
    text = cost_of(optimised("speculative")).text()
    assert "computes 1 + n(t); reads c + n(t)" in text
    assert "the verification by rejection: what it accepts (line 12)" in text
    assert "the stop test, once a step (line 7)" in text
    assert "computes" not in cost_of(decgraph.load("speculative").module).text()


def test_calls_that_may_not_be_reused_are_not() -> None:
    """Approximate memories are the author's."""
    made = optimised("fast_dllm")
    for op in made.entry.body.walk():
        if op.opcode in ("model.eval", "model.memory") and "given" in op.attrs.get("with", ()):
            assert "reuse" not in op.attrs
    assert reuses(made.entry) == []


READS_A_MEMORY = """algorithm reads(target: causal, head: features, gamma: int in 1..8 = 2):
    while not done:
        m = target.memory(ctx)
        n = {memory}
        draft t:
            repeat gamma:
                x ~ head(t.leaves, given = n)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""


@pytest.mark.parametrize("memory", ["m", "m.without([0])", "target.memory(ctx, given = m.without([0]))"])
def test_a_head_s_cells_are_kept_where_its_memory_is_all_that_the_target_computed(memory: str) -> None:
    made = optimise(decgraph.parse(READS_A_MEMORY.format(memory=memory)).module)[0]
    assert bool(said(made, "head")) == (memory == "m")
    assert said(made, "target")
