"""Whole steps through public doors: requests join and leave lanes, and what they get is what the reference gives each alone."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lib.devices.flights import filled, flown, made_with, session
from lib.stdlib import table_models as shelf

from decgraph.api import load, parse
from decgraph.backends.registry import machine
from decgraph.backends.triton import capture, program
from decgraph.backends.triton.program import Program, programs_of
from decgraph.backends.triton.replay import Replayed
from decgraph.check.worlds import models_for
from decgraph.passes.manager import optimise
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.session import Session
from decgraph.runtime.trace import Commits, Committed, Stopped

V = shelf.V
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 3},
    {"top_p": 0.8, "eos": {3}},
    {"min_p": 0.2, "repetition_penalty": 1.3, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    {"bias": {1: 1.0}, "bans": {2}},
    {"min_length": 4, "eos": {0, 1}, "temperature": 2.0},
]
"""Every setting of a request that is a row of tensors."""
RAGGED = [
    Request(tuple((i * 3 + j * 2 + 1) % V for j in range(1 + i % 4)), max_tokens=5 + i % 5, seed=11, request_id=i, **fields)
    for i, fields in enumerate(SETTINGS)
]
ASKED = [Request(prompt=(1, 2, 3)[: i + 1], max_tokens=6, seed=5, request_id=i) for i in range(3)]


def both(name: str) -> tuple[Session, Session]:
    """Sessions of the reference and of steps on the same models."""
    plain, have = shelf.module(name), shelf.tables()
    models = {p.name: have[p.name] for p in plain.entry.params if p.value.type.elem == "model"}
    params = shelf.parameters(name)
    return (
        Session(plain, models, params, machine=machine("reference")),
        Session(optimise(plain)[0], models, params, machine=machine("triton")),
    )


@pytest.mark.budget(8)
@pytest.mark.parametrize("name", ["autoregressive", "block_verification", "speculative", "eagle2", "medusa"])
def test_ragged_requests_of_all_settings_refill_lanes(name: str) -> None:
    reference, steps = both(name)
    for got, want in zip(steps.generate(RAGGED, batch=3), map(reference.run, RAGGED), strict=True):
        assert (got.mode, got.tokens, got.reason) == ("graph mode", want.tokens, want.reason)


def test_a_lane_that_another_request_had_begins_anew() -> None:
    """Also its iterations, which are part of the noise of drafts."""
    reference, steps = both("speculative")
    asked = [Request((1, 2, 3)[: 1 + i % 3], max_tokens=5 + 2 * i, seed=7, request_id=i, temperature=1) for i in range(4)]
    assert [g.tokens for g in steps.generate(asked, batch=2)] == [reference.run(r).tokens for r in asked]


@pytest.mark.budget(10)
@pytest.mark.parametrize(
    ("name", "params"), [("sequoia", {"shape": "3x2x2"}), ("recursive_sd", {}), ("eagle2", {"depth": 3, "k": 3, "budget": 8})]
)
def test_trees_of_several_levels(name: str, params: dict[str, Any]) -> None:
    """Also where draws without replacement run out, in greedy requests at once."""
    algorithm = load(name)
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b, **params) for b in ("reference", "triton"))
    asked = [Request((1, 2, 3), max_tokens=9, seed=n, temperature=n % 2, eos=frozenset({4} if n > 1 else ())) for n in range(4)]
    for got, want in zip(steps.generate(asked), map(reference.run, asked), strict=True):
        assert (got.mode, got.tokens, got.reason) == ("graph mode", want.tokens, want.reason)
        told = ("drafted", "tested", "accepted")
        assert [getattr(got.stats, name) for name in told] == [getattr(want.stats, name) for name in told]


def test_statistics_are_the_reference_s() -> None:
    reference, steps = session("reference", "block_verification"), session("triton", "block_verification")
    for got, want in zip(steps.generate(RAGGED), map(reference.run, RAGGED), strict=True):
        assert got.tokens == want.tokens
        assert (got.stats.tested, got.stats.accepted) == (want.stats.tested, want.stats.accepted)
        assert got.stats.target_calls == want.stats.target_calls and got.stats.stopped == want.reason


def test_one_request_alone_and_a_program_kept_for_the_next() -> None:
    made, wanted = session("triton"), [session("reference").run(r).tokens for r in ASKED]
    assert [made.run(r, keep_events=False).tokens for r in ASKED] == wanted
    main = made.models["target"]
    assert len(programs_of(main).programs) == 1
    assert [g.tokens for g in made.generate(ASKED)] == wanted and len(programs_of(main).programs) == 2, "with more lanes"


def test_streams_tell_every_token_once() -> None:
    made = session("triton")
    for request in ASKED:
        want = session("reference").run(request)
        heard: list[Any] = list(made.stream(request, commits_only=True))
        *told, last, result = heard
        assert result.mode == "graph mode" and result.tokens == want.tokens and last == Stopped(want.reason)
        assert len(told) > 1 and [t for e in told for t in e.tokens] == list(want.tokens)
    by_number: dict[int, list[int]] = {n: [] for n in range(len(ASKED))}
    for number, item in made.stream_many(ASKED, commits_only=True):
        by_number[number] += item.tokens if isinstance(item, Committed) else ()
    assert list(by_number.values()) == [list(session("reference").run(r).tokens) for r in ASKED]


def test_a_consumer_that_stops_early_ends_the_run() -> None:
    made = session("triton")
    items: Any = made.stream(replace(ASKED[0], max_tokens=40), commits_only=True)
    first = next(items)
    items.close()
    assert made.run(ASKED[0], keep_events=False).tokens[: len(first.tokens)] == first.tokens


def test_the_driver_runs_what_has_no_step_and_says_why() -> None:
    made, heard = session("triton"), session("triton").run(ASKED[0])
    assert "hears of every draft" in heard.mode and heard.events
    grammar = Automaton(((1, 2, 0, -1), (0, 1, 2, 2), (1, -1, 0, 2)), frozenset({0, 1, 2}))
    for fields, why in (({"processors": (lambda path, x: x,)}, "processors"), ({"allow": grammar}, "grammar")):
        request = replace(ASKED[0], **fields)
        got = made.run(request, keep_events=False)
        assert got.mode.startswith("eager mode: ") and why in got.mode
        assert got.tokens == session("reference").run(request).tokens
    mixed = [ASKED[0], replace(ASKED[1], processors=(lambda path, x: -x,)), ASKED[2]]
    got = made.generate(mixed, batch=2)
    assert [g.tokens for g in got] == [session("reference").run(r).tokens for r in mixed]
    assert [g.mode == "graph mode" for g in got] == [True, False, True]
    assert session("torch").run(ASKED[0]).mode == ""


@pytest.mark.budget(5)
def test_ends_that_the_host_finds_cut_where_the_reference_does() -> None:
    """`until`, which is the caller's, and stop strings, which are text's."""
    request = replace(ASKED[0], max_tokens=30, until=(lambda path: len(path) >= 7 and path[-1] != 0,))
    want, heard = session("reference", "speculative").run(request), []
    got = session("triton", "speculative").run(request, listener=Commits(heard.append), keep_events=False)
    assert (got.mode, got.tokens, got.reason) == ("graph mode", want.tokens, "until")
    assert heard[-2].cut == [e for e in want.events if isinstance(e, Committed)][-1].cut
    assert (got.stats.tested, got.stats.accepted) == (want.stats.tested, want.stats.accepted)
    broken = replace(request, until=(lambda path: 1 / 0,))
    one, two = session("triton").generate([broken, ASKED[1]])
    assert "division by zero" in str(one.error) and two.error is None
    zoo = {b: load("speculative").session(backend=b) for b in ("torch", "triton")}
    fields: dict[str, Any] = {"stop": ["e", "the"], "max_tokens": 10, "temperature": 0.8, "logprobs": 2}
    prompts = ["The quick brown fox", "def main(", "Once upon a time"]
    for have, wanted in zip(*(zoo[b].generate(prompts, **fields) for b in ("triton", "torch")), strict=True):
        assert have.mode == "graph mode" and (have.text, have.reason) == (wanted.text, wanted.reason)
        assert have.logprobs is not None and wanted.logprobs is not None
        assert have.logprobs.tokens == pytest.approx(wanted.logprobs.tokens, abs=1e-4)


def test_states_of_a_session_go_from_one_request_to_the_next() -> None:
    reference, steps = both("token_recycling")
    asked = [replace(r, **dict.fromkeys(("eos", "bans"), frozenset()), min_length=0) for r in RAGGED]
    assert [g.tokens for g in steps.generate(asked)] == [reference.run(r).tokens for r in asked]
    for name, value in reference.shared.items():
        assert np.array_equal(steps.shared[name], value)


def third_run_raises(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    runs, run = [0], Program.run

    def failing(self: Program) -> None:
        runs[0] += 1
        if runs[0] == 3:
            raise error
        run(self)

    patch.setattr(Program, "run", failing)


def test_steps_that_fail_are_driven_and_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Also in the middle: what was told is not told again."""
    third_run_raises(monkeypatch, RuntimeError("the device went away"))
    heard: list[Any] = []
    with caplog.at_level(logging.WARNING, "decgraph"):
        got = session("triton").run(ASKED[0], listener=Commits(heard.append), keep_events=False)
    assert got.mode == "eager mode: RuntimeError: the device went away" and "failed in graph mode" in caplog.text
    assert got.tokens == session("reference").run(ASKED[0]).tokens == tuple(t for e in heard[:-1] for t in e.tokens)


def test_an_interrupt_keeps_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, made = [session("reference").run(r).tokens for r in ASKED], session("triton")
    with monkeypatch.context() as patch:
        third_run_raises(patch, KeyboardInterrupt())
        got = made.generate(ASKED)
    assert [g.reason for g in got] == ["interrupted"] * 3
    assert all(len(g.tokens) == 2 and g.tokens == w[:2] for g, w in zip(got, wanted, strict=True))
    assert [g.tokens for g in made.generate(ASKED)] == wanted, "the session is usable"


def test_long_prompts_are_computed_in_chunks_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made, steps, run = session("triton"), [0], Program.run
    monkeypatch.setattr(Program, "run", lambda self: steps.append(steps[-1] + 1) or run(self))
    seen = filled(monkeypatch)
    asked = [Request((1, 2), max_tokens=30), Request(tuple(n % V for n in range(60)), max_tokens=4)]
    got = flown([made, made], asked, chunk=16)
    assert [g.tokens for g in got] == [session("reference").run(r).tokens for r in asked]
    assert [count for _, count in seen] == [1, 15, 16, 16, 12] and steps[-1] <= 31, "the first one never waited"


@pytest.mark.budget(3)
@pytest.mark.parametrize("name", ["speculative", "token_recycling"])
def test_a_step_may_begin_before_the_last_one_is_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As on a CUDA device: what a lane computes past an end that the host finds, or after it has left, is nobody's."""
    made_with(monkeypatch, lambda made: setattr(made, "unread", 1))
    reference, steps = both(name)
    fields: dict[str, Any] = {"until": (lambda path: path[-1] == 3 and len(path) > 20,), "max_tokens": 60}
    asked = [replace(r, **fields, bans=frozenset(), min_length=0) for r in RAGGED]
    got = steps.generate(asked, batch=3)
    assert [(g.tokens, g.reason) for g in got] == [(w.tokens, w.reason) for w in map(reference.run, asked)]
    assert {g.mode for g in got} == {"graph mode"}


@pytest.mark.budget(3)
@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_a_recorded_step_serves_every_request(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As on a CUDA device: one recording, while lanes are refilled with requests of other lengths and settings."""
    graphs: list[Replayed] = []
    made_with(monkeypatch, lambda made: setattr(made, "records", not made.hosted))
    monkeypatch.setattr(program, "Replayed", lambda *args: graphs.append(Replayed(*args)) or graphs[-1])
    reference, steps = session("reference", name), session("triton", name)
    asked = [*RAGGED, replace(RAGGED[0], prompt=(2, 1), request_id=9)]
    got = steps.generate(asked, batch=3)
    assert [(g.tokens, g.reason) for g in got] == [(w.tokens, w.reason) for w in map(reference.run, asked)]
    assert {g.mode for g in got} == {"graph mode"} and 1 <= len(graphs) < len(asked)


def test_a_graph_that_recorded_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a model is not on the device that is captured: replaying it would never end, and so would the driver."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "device", lambda *_: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(capture, "_side", lambda _: (None, SimpleNamespace(id=None)))

    def run(self: Program) -> None:
        self.replays.setdefault(False, capture.captured(self.body, torch.device("cpu")))()

    monkeypatch.setattr(Program, "run", run)
    got = session("triton").run(ASKED[1], keep_events=False)
    assert got.reason == "error" and "recorded nothing" in str(got.error)


def test_a_cancelled_request_frees_its_lane() -> None:
    made, ended = session("triton"), []
    flight = machine("triton").schedule(lambda number, *_: ended.append(number), width=1)  # type: ignore[attr-defined]
    runs = [made.begin(replace(ASKED[0], max_tokens=30)), made.begin(ASKED[1])]
    for number, begun in enumerate(runs):
        flight.join(number, begun.machine)
    flight.advance()
    assert flight.cancel(0) and not flight.cancel(7) and len(flight) == 1
    while flight.advance():
        pass
    assert ended == [1] and runs[1].machine.committed_tokens() == session("reference").run(ASKED[1]).tokens
    assert len(runs[0].machine.committed_tokens()) == 1


COUNTED = """
rule counted(p: dist, children: draws):
    for x in children:
        if bernoulli(0.7):
            accept x
    emit argmax(p)
"""

EITHER = """
rule all_or_none(t: tree, p: dist[t.nodes]):
    live = down(t, argmax(p[t.parent]) == t.token, all)
    n = argmax(t.nodes where live, by = t.depth)
    if count(live) > 2:
        accept n
        emit argmax(p[n])
    else:
        accept root
        y ~ p[root]
        emit y

algorithm either(target: causal):
    while not done:
        draft t:
            repeat 3:
                grow topk(target(t.frontier).raw, 1)
        verify t by all_or_none against target(t)
        commit t.accepted
"""

COMPUTED = f"""{COUNTED}
algorithm computed(target: causal):
    while not done:
        draft t:
            repeat 3:
                q = normalize(target(t.leaves).raw ^ 2)
                grow sample(q, 1)
        verify t by counted against target(t)
        commit t.accepted
"""


def compared(text: str) -> list[tuple[Result, Result]]:
    """What steps give, and what the reference gives, for requests that may end early."""
    algorithm = parse(text)
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b) for b in ("reference", "triton"))
    requests = [Request((1, 2, 3, 1, 2), max_tokens=16, seed=n, eos=frozenset({n} if n % 2 else ())) for n in range(6)]
    return list(zip(steps.generate(requests), map(reference.run, requests), strict=True))


@pytest.mark.parametrize("text", [EITHER, COMPUTED], ids=["either", "computed"])
def test_drafts_that_a_driver_does_not_make(text: str) -> None:
    """A step drafts behind the last token and behind tokens that end the text. Of siblings with one token the accepted one is
    found; draws from computed distributions grow at the end of a chain."""
    for got, want in compared(text):
        assert (got.mode, got.tokens, str(got.error)) == ("graph mode", want.tokens, str(want.error))
        told = ("drafted", "tested", "accepted")
        assert [getattr(got.stats, name) for name in told] == [getattr(want.stats, name) for name in told]


DATA_SHAPES = {
    "it looks at which drafts there are": """
        draft t:
            repeat 3:
                grow sample(target(t.leaves), 2)
                break if t.size > 9
        verify t by counted against target(t)
        commit t.accepted""",
    "it looks at which drafts there are: of a tree": """
        draft t:
            repeat 3:
                q = target(t.leaves)
                grow sample(q, 2)
                break if any(max(q.raw) < 0.25)
        verify t by counted against target(t)
        commit t.accepted""",
    "it looks at which drafts there are: by their numbers": """
        draft t:
            repeat 3:
                grow sample(target(t.leaves), 2)
        verify t by counted against target(t)
        commit t.accepted""",
    "draws of no model's rows grow at nodes of which a driver has fewer": """
        draft t:
            grow topk(target(root).raw, 2)
            repeat 3:
                q = normalize(target(t.frontier).raw ^ 2)
                grow sample(q, 1)
        verify t by counted against target(t)
        commit t.accepted""",
    "a tree whose form data decides": """
        draft t:
            grow topk(target(root).raw, 2)
            if max(target(root).raw) > 0.3:
                grow topk(target(t.frontier).raw, 1)
            else:
                grow topk(target(t.frontier).raw, 2)
        verify t by counted against target(t)
        commit t.accepted""",
    "the leaves of a tree that data makes": """
        draft t:
            grow distinct(target(root), 3)
            grow topk(target(t.leaves).raw, 1)
        verify t by counted against target(t)
        commit t.accepted""",
    "a tree that grows as long as data decides": """
        draft t:
            repeat room while not ended(ctx):
                grow topk(target(t.leaves).raw, 1)
        verify t by counted against target(t)
        commit t.accepted""",
    "a chain that grows at nodes that data chooses": """
        draft t:
            grow topk(target(root).raw, 2)
            grow chain(point(ctx.last(2))) at top(t.new, 1, by = t.logprob)
        verify t by counted against target(t)
        commit t.accepted""",
    "a tree that grows after it was pruned": """
        draft t:
            grow topk(target(root).raw, 3)
            prune t to top(t.drafted, 2, by = t.logprob)
            grow point(1) at root
        verify t by counted against target(t)
        commit t.accepted""",
    "a model reads another text than the request's": """
        x ~ target(prompt)
        commit x""",
    "the state `seen` has a length that data decides": """
        x ~ target(ctx)
        if x.token % 2 == 0:
            seen = first(seen ++ [x.token], 6)
        commit x""",
    "a fold over what stands below the nodes of a tree": """
        draft t:
            repeat 2:
                grow topk(target(t.leaves).raw, 2)
        commit t.token[argmax(t.nodes where t.depth == 1, by = up(t, t.prob, sum))]""",
}
"""Bodies of `while not done` in which data decides a shape, by the reason that is said."""


@pytest.mark.parametrize("why", DATA_SHAPES)
def test_a_program_whose_shapes_data_decides_is_the_drivers(why: str) -> None:
    state = "    state seen: token[<= 6] = []\n" if "seen" in DATA_SHAPES[why] else ""
    for got, want in compared(f"{COUNTED}\nalgorithm shapes(target: causal):\n{state}    while not done:{DATA_SHAPES[why]}\n"):
        assert (got.tokens, str(got.error)) == (want.tokens, str(want.error))
        assert got.mode.startswith("eager mode: ") and why.partition(":")[0] in got.mode


SHARED = f"""{COUNTED}
algorithm shared(target: causal):
    state seen: ngrams(2) per session = prompt
    while not done:
        draft t:
            grow chain(seen.path(ctx, at_least = 1, at_most = 4, pick = "first"))
        verify t by counted against target(t)
        commit t.accepted
"""


def test_an_index_of_a_session_is_the_driver_s() -> None:
    """It has the texts of earlier requests, which a lane has not."""
    algorithm = parse(SHARED)
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b) for b in ("reference", "triton"))
    for seed in range(4):
        request = Request((1, 2, 3), max_tokens=16, seed=seed)
        got, want = steps.run(request, keep_events=False), reference.run(request)
        assert got.tokens == want.tokens and "of what a session has read" in got.mode


WITHOUT = """
rule the_rest(p: dist, children: draws):
    for x in children:
        if bernoulli(0.3):
            accept x
        p = x.law
    y ~ p
    emit y

algorithm without(target: causal, drafter: causal):
    while not done:
        draft t:
            repeat 2:
                grow distinct(drafter(t.frontier), 3)
        verify t by the_rest against target(t)
        commit t.accepted
"""

SEVERAL = """
algorithm several(target: causal):
    while not done:
        xs = sample(target(ctx), 4)
        commit xs.token
"""

AT_THE_NODE = """
rule of_the_coin(p: dist, children: draws):
    for x in children:
        if bernoulli(0.6):
            accept x
    emit argmax(p)

algorithm at_the_node(target: causal):
    while not done:
        draft t:
            repeat 3:
                grow sample(target(t.frontier), 2)
        p = target(t)
        verify t by of_the_coin against p
        commit t.accepted
        commit argmin(p[t.accepted].raw)
"""


@pytest.mark.parametrize("text", [WITHOUT, SEVERAL, AT_THE_NODE], ids=["without", "several", "node"])
def test_what_small_programs_commit(text: str) -> None:
    """The law of the second of several draws is what the first one leaves; of several ends in a commit the first one counts;
    the accepted node is each lane's own, whose walk may end before others'."""
    algorithm = parse(text)
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b) for b in ("reference", "triton"))
    requests = [Request((1, 2, 3, 1, 2), max_tokens=16, seed=n, eos=frozenset(range(7)[-n:] if n else ())) for n in range(6)]
    for got, want in zip(steps.generate(requests), map(reference.run, requests), strict=True):
        assert (got.mode, got.tokens, got.reason) == ("graph mode", want.tokens, want.reason)


def test_a_distribution_without_a_token_is_an_error_where_nothing_is_drawn() -> None:
    """Here the likeliest token is read of a row that the request's constraints leave empty."""
    algorithm = parse("algorithm likeliest(target: causal):\n    while not done:\n        commit argmax(target(ctx).raw)\n")
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b) for b in ("reference", "triton"))
    request = Request((1, 2, 3), max_tokens=6, eos=frozenset(range(7)), min_length=2)
    got, want = steps.run(request, keep_events=False), reference.run(request)
    assert "leave no token" in str(want.error) and (got.tokens, got.reason) == (want.tokens, want.reason)
    assert "leave no token" in str(got.error)
    free = Request((1, 2, 3), max_tokens=6)  # its lane is the one that was given up
    got, want = steps.run(free, keep_events=False), reference.run(free)
    assert (got.mode, got.tokens, want.error) == ("graph mode", want.tokens, None)


BEFORE = """algorithm before(target: causal):
    start = ctx.length
    first = ctx.token
    begin = prompt
    while not done:
        p = target(ctx)
        if (ctx.length - start) % 2 == 0:
            x ~ p
            commit x
        else:
            commit first if len(begin) % 2 == 0 else argmax(p)
"""


@pytest.mark.parametrize("recorded", [False, True], ids=["eager", "recorded"])
@pytest.mark.parametrize("evicted", [False, True], ids=["stays", "evicted"])
def test_what_is_computed_before_the_loop_is_a_lane_s_own(
    monkeypatch: pytest.MonkeyPatch, recorded: bool, evicted: bool
) -> None:
    """Also when another request joins, where steps are recorded, and when the request goes on in another lane."""
    if recorded:
        made_with(monkeypatch, lambda made: setattr(made, "records", not made.hosted))
    algorithm = parse(BEFORE)
    models = models_for(algorithm.function, 7, 1)
    reference, steps = (algorithm.session(models, backend=b) for b in ("reference", "triton"))
    asked = [Request(tuple(range(1, 3 + i)), max_tokens=4 + 5 * (i % 3), seed=i, request_id=i) for i in range(5)]
    want = [reference.run(r).tokens for r in asked]
    if not evicted:
        got = steps.generate(asked, batch=2)
        assert [(g.tokens, g.mode) for g in got] == [(w, "graph mode") for w in want]
        return
    results: dict[int, Any] = {}
    began = [steps.begin(r) for r in asked]
    flight = machine("triton").schedule(  # type: ignore[attr-defined]
        lambda n, _, problem: results.update({n: steps.ended(began[n], problem)}), width=2
    )
    for number, run in enumerate(began):
        flight.join(number, run.machine)
    rounds = 0
    while flight.advance():
        rounds += 1
        jobs = [j for p in flight.steps.running for j in p.jobs if j is not None and j.begun]
        flight.steps._evict(jobs[:1] if rounds % 3 == 0 else [])
    assert [results[n].tokens for n in range(len(asked))] == want
