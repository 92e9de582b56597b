"""Statistics against counts made elsewhere: what engines and models were really asked, wrapped from outside, and the text."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.recorded_runs import open_tables
from lib.stdlib.table_models import FEW, NAMES, V, parameters, tables

import decgraph
from decgraph.backends.registry import machine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Committed, Drafted, Pruned, Stats

BACKENDS = ["reference", "torch", "triton"]
ONE_CALL = ["autoregressive", "block_verification", "eagle2", "kangaroo", "prompt_lookup", "recursive_sd", "rsd_s",
            "sequoia", "speculative", "token_recycling"]  # fmt: skip
"""Algorithms whose every step is one call of the target, at the tree it verifies."""
REQUESTS = [{"max_tokens": 9, "seed": s, "temperature": t, "eos": e} for s, t, e in
            ((1, 1.0, ()), (2, 0, ()), (3, 1.0, (2,)), (4, 1.0, (1,)), (5, 0, (0,)), (6, 1.0, (0, 3)))]  # fmt: skip


def bound(name: str, backend: str, passes: bool = True) -> Session:
    algorithm = decgraph.load(name)
    models = tables()
    module = algorithm.optimised() if passes else algorithm.module
    return Session(module, {n: models[n] for n in algorithm.models}, parameters(name), machine=machine(backend))


def request(**fields: Any) -> Request:
    return Request(prompt=(0, 1), request_id=0, **{**fields, "eos": frozenset(fields.get("eos", ()))})


class Asked:
    """Hears what an engine is asked, before it answers."""

    def __init__(self, model: Any) -> None:
        self.engine, self.calls = engine_of(model), []  # type: ignore[var-annotated]
        self.compute = self.engine.compute
        self.engine.compute = self

    def __call__(self, calls: list[Any]) -> Any:
        self.calls.append(list(calls))
        return self.compute(calls)


@pytest.mark.parametrize("name", ONE_CALL)
def test_calls_and_drafts_are_what_the_target_was_asked(name: str) -> None:
    for fields in REQUESTS:
        s = bound(name, "torch")
        target = Asked(s.models["target"])
        others = {n: Asked(m) for n, m in s.models.items() if n == "drafter"}
        result = s.run(request(**fields))
        assert result.error is None
        assert result.stats.target_calls == len(target.calls)
        assert result.stats.drafted == sum(len(call.tokens) for calls in target.calls for call in calls)
        if others:
            assert result.stats.draft_calls == len(others["drafter"].calls)


@pytest.mark.parametrize("name", ["eagle2"])
def test_what_is_pruned_is_not_drafted(name: str) -> None:
    events = bound(name, "reference").run(request(max_tokens=9, seed=3)).events
    first = next(i for i, e in enumerate(events) if isinstance(e, Pruned))
    pruned, grown = events[first], [e for e in events[:first] if isinstance(e, Drafted)]
    assert len(pruned.kept) == 5 and pruned.kept[0] == 0, "the budget of four, and the root"
    assert pruned.dropped and len(grown) == 4 + pruned.dropped, "two and four were grown"
    kept = sum(isinstance(e, Drafted) for e in events) - sum(e.dropped for e in events if isinstance(e, Pruned))
    for backend in BACKENDS:
        assert bound(name, backend).run(request(max_tokens=9, seed=3)).stats.drafted == kept


@pytest.mark.quick(
    ("reference", "eagle2"),
    ("torch", "eagle2"),
    ("reference", "speculative"),
    ("torch", "speculative"),
    ("triton", "speculative"),
)
@pytest.mark.parametrize("name", ONE_CALL)
@pytest.mark.parametrize("backend", BACKENDS)
def test_accepted_drafts_and_own_tokens_make_the_text(backend: str, name: str) -> None:
    """Every step commits what it accepted and one token of its own, but for the last, which ends where the text does."""
    if backend == "triton" and name not in ("speculative", "eagle2", "recursive_sd"):
        pytest.skip("slow in the interpreter")
    for fields in REQUESTS:
        heard = bound(name, "torch").run(request(**fields))
        steps = [e for e in heard.events if isinstance(e, Committed)]
        own = sum(not e.cut for e in steps)
        result = bound(name, backend).run(request(**fields), keep_events=backend == "reference")
        assert result.tokens == heard.tokens
        assert sum(result.stats.accepted) + own == len(result.tokens), (fields, steps, result.stats)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_backends_events_and_batches_say_the_same(name: str) -> None:
    asked = [Request(prompt=(0, 1 + i % 2), max_tokens=7, seed=s, temperature=t, request_id=i, eos=frozenset(e))
             for i, (s, t, e) in enumerate([(1, 1.0, ()), (2, 0, (2,)), (3, 1.0, (1, 3))])]  # fmt: skip
    alone = [bound(name, "reference", passes=False).run(r).stats for r in asked]
    heard = [bound(name, "torch", passes=False).run(r) for r in asked]
    assert [r.stats for r in heard] == alone == [Stats.of(r.events) for r in heard]
    optimised = [bound(name, "torch").run(r, keep_events=False).stats for r in asked]
    for got, want in zip(optimised, alone, strict=True):
        assert (got.tokens, got.drafted, got.tested, got.accepted, got.unmasked) == (
            want.tokens, want.drafted, want.tested, want.accepted, want.unmasked)  # fmt: skip


GUIDED = '''
algorithm autoregressive(target: causal):
    """One token at a time."""
    while not done:
        x ~ target(ctx)
        commit x

algorithm guided(target: causal, drafter: causal):
    """Two tokens of the drafter, then one of the target, each by a run."""
    while not done:
        s = run autoregressive(drafter) from ctx until ended(path) at most 2
        commit s
        if not done:
            u = run autoregressive(target) from ctx until ended(path) at most 1
            commit u
'''


@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
@pytest.mark.parametrize("passes", [False, True])
def test_calls_of_sub_runs_are_counted_for_the_model_that_was_called(backend: str, passes: bool) -> None:
    module = decgraph.parse(GUIDED, path="guided.dec", main="guided")
    models = {"target": TableModel(V, 1, name="target"), "drafter": TableModel(V, 2, name="drafter")}
    s = Session(module.optimised() if passes else module.module, models, machine=machine(backend))
    counts = {"target": 0, "drafter": 0}
    for name, model in models.items():
        answer = model.eval

        def counting(paths: Any, memory: Any = None, name: str = name, answer: Any = answer) -> Any:
            counts[name] += 1
            return answer(paths, memory)

        model.eval = counting  # type: ignore[method-assign]
    result: Result = s.run(Request(prompt=(0, 1), max_tokens=9, seed=3), keep_events=False)
    assert result.error is None
    assert (result.stats.target_calls, result.stats.draft_calls) == (3, 6) == (counts["target"], counts["drafter"])
    assert result.stats.calls == {"target": 3, "drafter": 6}


@pytest.mark.parametrize("how", ["exit(1)", "skip({1})"])
def test_calls_of_derived_models_are_drafts(how: str) -> None:
    text = f'''
algorithm own(target: causal):
    """Drafts of the target's own layers."""
    small = target.{how}
    while not done:
        draft t:
            repeat 2:
                x ~ small(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
'''
    algorithm = decgraph.parse(text.replace("{1}", "layers").replace("target: causal)", "target: causal, layers: set)")
                               if "skip" in how else text, path="own.dec")  # fmt: skip
    params = {"layers": [1]} if "skip" in how else {}
    for backend in ("reference", "torch"):
        target = FreeModel(1, V, 3, name="target")
        s = Session(algorithm.optimised() if backend == "torch" else algorithm.module, {"target": target}, params,
                    machine=machine(backend))  # fmt: skip
        result = s.run(Request(prompt=(1, 3, 2), max_tokens=9, seed=3))
        assert result.error is None, result.error
        steps = sum(isinstance(e, Committed) for e in result.events)
        assert result.stats.target_calls == steps and result.stats.draft_calls == result.stats.drafted


@pytest.mark.parametrize("passes", [False, True])
def test_the_cost_report_lists_the_calls_inside_run(passes: bool) -> None:
    from decgraph.passes.cost import cost_of

    algorithm = decgraph.parse(GUIDED, path="guided.dec", main="guided")
    cost = cost_of(algorithm.optimised() if passes else algorithm.module)
    said = [(c.model, c.place, c.times, c.most, c.line) for c in cost.calls]
    place = "the context, in a run of autoregressive"
    assert said == [("drafter", place, "up to 2", 2, 11), ("target", place, "up to 1", 1, 14)]
    assert "drafter  up to 2 x the context, in a run of autoregressive" in cost.text()


def test_the_cost_bounds_the_calls_that_are_made() -> None:
    """Of a step, by the report; over a run, by its steps."""
    for budget in (1, 3, 5):
        text = GUIDED.replace("at most 2", "at most k").replace("drafter: causal)", "drafter: causal, k: int in 1..6 = 2)")
        algorithm = decgraph.parse(text, path="guided.dec", main="guided")
        calls = {c.model: c for c in algorithm.cost().calls}
        assert calls["drafter"].times == "up to k" and calls["drafter"].most == 6
        models = {"target": TableModel(V, 1, name="target"), "drafter": TableModel(V, 2, name="drafter")}
        s = Session(algorithm.module, models, {"k": budget}, machine=machine("reference"))
        result = s.run(Request(prompt=(0, 1), max_tokens=12, seed=3))
        steps = -(-12 // (budget + 1))
        assert 0 < result.stats.draft_calls <= budget * steps and 0 < result.stats.target_calls <= steps


@pytest.mark.quick("reference", "torch")
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_model_as_target_and_drafter_is_counted_as_both(backend: str) -> None:
    """As many calls of each as of two models with equal tables, and the same tokens; `gamma` drafts, all of them accepted."""
    module = decgraph.load("speculative").optimised()
    one, other = (TableModel(V, seed=3, name="one") for _ in range(2))

    def run(drafter: Any) -> Result:
        session = Session(module, {"target": one, "drafter": drafter}, {"gamma": 3}, machine=machine(backend))
        return session.run(request(max_tokens=8, temperature=0), keep_events=backend != "triton")

    same, two = run(one), run(other)
    assert same.error is None and two.error is None
    assert same.tokens == two.tokens
    assert same.stats == two.stats
    assert (same.stats.target_calls, same.stats.draft_calls) == (2, 6)
    assert same.stats.accepted == (2, 2, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["magicdec", "sparse_to_dense"])
def test_the_target_on_a_memory_drafts(name: str, backend: str) -> None:
    """Verifications are the target's calls, its drafts for itself are draft calls: as if layers were skipped."""
    free = FreeModel(1, V, 2, name="target")
    for heard in (True, False):
        session = Session(decgraph.load(name).module, {"target": free}, parameters(name), machine=machine(backend))
        result = session.run(request(max_tokens=9, seed=3), **({} if heard else {"keep_events": False}))
        assert result.error is None
        stats = result.stats
        assert stats.calls == {"target": stats.target_calls, "target (drafting)": stats.draft_calls}
        assert stats.draft_calls == stats.drafted > stats.target_calls > 0


def test_a_verification_on_a_memory_is_a_call_of_the_target() -> None:
    """A lossy program that verifies against what the target says on a memory makes no draft calls."""
    algorithm = decgraph.parse(
        "algorithm cut(target: causal):\n"
        "    while not done:\n"
        "        m = target.memory(ctx.parent).only(range_(0, 2))\n"
        "        draft t:\n"
        "            grow point(ctx.token)\n"
        "        p = target(t, given = m)\n"
        "        q = normalize(p.raw + 0.5 * p.raw)\n"
        "        verify t by rejection against q\n"
        "        commit t.accepted\n"
    )
    for backend in ("reference", "torch"):
        session = Session(algorithm.module, {"target": FreeModel(1, V, 2, name="target")}, {}, machine=machine(backend))
        result = session.run(request(max_tokens=5, seed=3))
        assert result.error is None and result.stats.draft_calls == 0 and list(result.stats.calls) == ["target"]


def test_a_result_prints_in_a_line() -> None:
    """With thousands of events too."""
    session = open_tables("speculative")
    result = session.run(Request(prompt=(0, 1), max_tokens=60, temperature=1.0))
    assert len(result.events) > 100 and len(repr(result)) < 160 and "\n" not in repr(result)
    assert f"{len(result.tokens)} tokens" in repr(result)
