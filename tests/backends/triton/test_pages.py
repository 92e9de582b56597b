"""Pages of lanes: requests of all lengths have one program, share what their texts begin with, and give way to each other."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest
import torch
from lib.devices.flights import filled, flown, made_with, session
from lib.stdlib.table_models import V
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from decgraph.api import load
from decgraph.backends.registry import machine
from decgraph.backends.triton import lanes, program
from decgraph.backends.triton.models import interface, table
from decgraph.backends.triton.models.decoder import SlotDecoder
from decgraph.backends.triton.pages import PAGE, Pages
from decgraph.backends.triton.program import Program, programs_of
from decgraph.backends.triton.replay import Replayed
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

LONG = tuple(n * n % V for n in range(150))


def test_a_prompt_that_a_lane_knows_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whole pages: of one that left, and of one that is computed before it."""
    made, wanted = session("triton"), session("reference")
    first = made.run(Request(LONG, max_tokens=60), keep_events=False)
    seen = filled(monkeypatch)
    again = Request((*LONG, *first.tokens[:50], 1, 2), max_tokens=8, seed=9)
    got = made.run(again, keep_events=False)
    assert got.tokens == wanted.run(again).tokens and seen == [(192, 9)]
    seen.clear()
    copies = [Request((*LONG, n), max_tokens=4, request_id=n) for n in range(3)]  # in other lanes of another program
    assert [g.tokens for g in made.generate(copies)] == [wanted.run(r).tokens for r in copies]
    assert seen == [(0, 150), (128, 22), (128, 22)]


def test_what_a_step_computes_again_is_in_no_shared_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a text that fills its pages: its last page is computed anew."""
    made, wanted = session("triton"), session("reference")
    made.run(Request(LONG, max_tokens=60), keep_events=False)
    seen, request = filled(monkeypatch), Request(LONG[: 2 * PAGE], max_tokens=5, seed=3)
    assert made.run(request, keep_events=False).tokens == wanted.run(request).tokens
    assert seen == [(PAGE, PAGE - 1)]


def evictions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the requests that are evicted from now on."""
    evicted, evict = [], Program.evict
    monkeypatch.setattr(Program, "evict", lambda self, job: evicted.append(job.number) or evict(self, job))
    return evicted


def test_memory_is_bounded_and_lanes_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that is evicted goes on later, and commits what it would have."""
    monkeypatch.setattr(lanes, "PATIENCE", 2)
    evicted = evictions(monkeypatch)
    target = TableModel(V, 3, window=2)
    both = [load("speculative").session(target=target, drafter=TableModel(V, 4, window=1), backend="triton")]
    both.append(load("autoregressive").session(target=target, backend="triton"))
    asked = [Request((1, 2), max_tokens=40, seed=3), Request((2,), max_tokens=20, seed=4, repetition_penalty=1.2)]
    needs = [lanes.wants(s.begin(r).machine)[1] for s, r in zip(both, asked, strict=True)]
    budget = max(n.bytes for n in needs) * 2 * PAGE
    machine("triton").limit_memory({"target": target}, budget)
    got = flown(both, asked)
    assert [g.mode for g in got] == ["graph mode"] * 2 and evicted
    assert [g.tokens for g in got] == [s.run(r).tokens for s, r in zip(both, asked, strict=True)], "the driver's"
    assert sum(p.bytes for p in programs_of(target).programs.values()) <= budget
    small = both[1].generate(asked[1:], budget=1)[0]
    assert "keys and values" in small.mode and small.tokens == got[1].tokens


@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_texts_that_do_not_fit_side_by_side_are_computed_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Those that came last give their pages up, some of them more than once."""
    evicted, made = evictions(monkeypatch), session("triton", name)
    asked = [Request(LONG[: 40 + 9 * i], max_tokens=150 - 20 * i, seed=i, request_id=i) for i in range(5)]
    need = lanes.wants(made.begin(asked[0]).machine)[1]
    got = flown([made] * 5, asked, width=8)
    pages = [p.pages for p in programs_of(made.models["target"]).programs.values()]
    assert not evicted and pages[0].count > 12
    made = session("triton", name)
    machine("triton").limit_memory({"target": made.models["target"]}, need.bytes * 7 * PAGE)
    again = flown([made] * 5, asked, width=8)
    assert [g.tokens for g in again] == [g.tokens for g in got] == [session("reference", name).run(r).tokens for r in asked]
    assert {g.mode for g in again} == {"graph mode"} and len(evicted) > len({*evicted})
    pages = [p.pages for p in programs_of(made.models["target"]).programs.values()]
    assert [p.count <= 7 for p in pages] == [True] and whole(pages[0])


def test_a_text_that_outgrows_the_memory_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it alone has all pages, and another request none."""
    made, evicted = session("triton"), evictions(monkeypatch)
    request = Request((1, 2, 3), max_tokens=150, seed=1)
    need = lanes.wants(made.begin(request).machine)[1]
    machine("triton").limit_memory({"target": made.models["target"]}, need.bytes * (153 + PAGE + need.ahead))
    got = made.run(request, keep_events=False)
    assert "keys and values" in got.mode and got.tokens == session("reference").run(request).tokens and evicted


def whole(pages: Pages) -> bool:
    """Whether a table is consistent: every page is unused or has as many lanes as it says, those of several lanes are computed
    to their ends, and the device has the host's table."""
    lanes = Counter(page for own in pages.lanes for page in own)
    counted = all(pages.uses[page] == lanes[page] for page in range(1, pages.count))
    unused = {page for page in range(1, pages.count) if not lanes[page]} == {*pages.unused} and not lanes[0]
    shared = {page for page, n in lanes.items() if n > 1}
    begun = all(page in pages.names for page in shared)
    table = [own + [0] * (pages.width + 1 - len(own)) for own in pages.lanes]
    rows = (torch.tensor(table)[..., None] * PAGE + torch.arange(PAGE)).flatten(1)
    names = {page: name for name, page in pages.named.items()} == pages.names and len(pages.named) == len(pages.names)
    return counted and unused and begun and names and pages.table.tolist() == table and torch.equal(pages.rows, rows)


@pytest.mark.budget(15)
def test_lanes_that_join_and_leave_lose_no_page_and_write_none_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random requests, of which many begin alike, some are cancelled, and the memory is not enough for all."""
    written: list[Tensor] = []
    store = interface.put
    monkeypatch.setattr(table, "put", lambda pool, rows, values: written.append(rows) or store(pool, rows, values))
    made, rng = session("triton", "speculative"), random.Random(5)
    needs = lanes.wants(made.begin(Request(LONG, max_tokens=9)).machine)[1]
    machine("triton").limit_memory({"target": made.models["target"]}, needs.bytes * 16 * PAGE)
    results: dict[int, Any] = {}
    asked = [
        Request((*LONG[: rng.choice([60, 64, 70, 130, 150])], *(rng.randrange(V) for _ in range(rng.randrange(80)))),
                max_tokens=rng.randrange(1, 90), seed=n, request_id=n) for n in range(30)
    ]  # fmt: skip
    runs = [made.begin(r) for r in asked]

    def ended(number: int, _: Any, problem: BaseException | None) -> None:
        results[number] = made.ended(runs[number], problem)

    flight = machine("triton").schedule(ended, width=4, chunk=32)  # type: ignore[attr-defined]
    joined, cancelled, shared = 0, set[int](), 0
    while joined < len(asked) or len(flight):
        while joined < len(asked) and rng.random() < 0.3:
            flight.join(joined, runs[joined].machine)
            joined += 1
        if rng.random() < 0.03 and len(flight):
            cancelled |= {n for n in [rng.randrange(joined)] if flight.cancel(n)}
        before = [p.pages for p in programs_of(made.models["target"]).programs.values()]
        kept = [{page for page, n in enumerate(p.uses) if n > 1} for p in before]
        written.clear()
        flight.advance()
        programs = [p.pages for p in programs_of(made.models["target"]).programs.values()]
        assert all(map(whole, programs))
        for pages, several in zip(before, kept, strict=True):
            still = several & {page for page, n in enumerate(pages.uses) if n > 1}
            shared += len(still)
            if len(before) == len(programs) == 1:
                assert not still & {int(row) // PAGE for rows in written for row in rows.flatten()}
    assert shared > 50 and cancelled and [*map(whole, programs)] == [True] * len(programs)
    assert all(not any(p.lanes) for p in programs), "all pages are free again"
    reference = session("reference", "speculative")
    for n, got in results.items():
        assert (got.mode, got.tokens) == ("graph mode", reference.run(asked[n]).tokens)
    assert results.keys() | cancelled == {*range(30)}


@pytest.mark.budget(10)
def test_requests_that_share_a_beginning_share_pages_and_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a head's keys and values are one slot behind, and while both go on."""
    shared, share = list[int](), Pages.share
    monkeypatch.setattr(Pages, "share", lambda *args: shared.append(share(*args)) or shared[-1])
    made, want = (load("eagle2").session(backend=b) for b in ("triton", "torch"))
    text = "Once upon a time, in a town by the sea, there lived a " * 6
    prompts = [f"{text}{end}" for end in ("fox", "dog that", "fox")]
    asked = [{"temperature": n % 2, "seed": n, "max_tokens": 12} for n in range(3)]
    first = [r for p, f in zip(prompts, asked, strict=True) for r in made.generate([p], **f)]
    assert [r.tokens for r in first] == [r.tokens for p, f in zip(prompts, asked, strict=True) for r in want.generate([p], **f)]
    several = made.generate(prompts * 2, temperature=0.7, max_tokens=8)
    assert [r.tokens for r in several] == [r.tokens for r in want.generate(prompts * 2, temperature=0.7, max_tokens=8)]
    assert {r.mode for r in several} == {"graph mode"}
    pages = max((p.pages for p in programs_of(made.models["target"]).programs.values()), key=lambda p: p.batch)
    assert pages.behind == 1 and sum(shared) > 6 * PAGE and whole(pages)


@pytest.mark.budget(8)
@pytest.mark.parametrize("recorded", [False, True])
def test_requests_of_all_lengths_have_one_program_that_reads_the_weights_once_a_round(
    monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """Eight that arrive one after the other, whose prompts are computed beside the steps of the others. There are hardly more
    slots than tokens; where a graph has their address, so many that it is recorded a few times."""
    config = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    module = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, **config, **ends)).eval()
    runs, reads, made, rounds, graphs = Counter[int](), Counter[int](), list[Program](), [0], list[Replayed]()
    made_with(monkeypatch, lambda program: setattr(program, "records", recorded) or made.append(program))
    run, read = Program.run, SlotDecoder.__call__
    monkeypatch.setattr(Program, "run", lambda self: runs.update(rounds) or run(self))
    monkeypatch.setattr(SlotDecoder, "__call__", lambda *args: reads.update(rounds) or read(*args))
    monkeypatch.setattr(program, "Replayed", lambda *args: graphs.append(Replayed(*args)) or graphs[-1])
    steps, driven = (load("autoregressive").session({"target": module}, backend=b) for b in ("triton", "torch"))
    rng, results = random.Random(0), dict[int, Any]()
    lengths = [20, 50, 150, 300, 350, 750, 1250, 1500]
    asked = [Request(tuple(rng.randrange(16) for _ in range(n)), 32, request_id=i) for i, n in enumerate(lengths)]
    began = [steps.begin(r) for r in asked]
    flight = lanes.Steps(
        lambda n, m, e: results.update({n: m}), lambda *why: pytest.fail(str(why)), width=8, chunk=256, more=True
    )
    for n, begun in enumerate(began):
        flight.join(n, begun.machine)
        for rounds[0] in range(3 * n, 3 * n + 3):
            flight.advance()
    for rounds[0] in count(3 * len(asked)):
        if not flight.advance():
            break
    assert len(made) == 1 and set(runs.values()) == {1}
    slots, tokens = made[0].pages.count * PAGE, sum(len(r.prompt) + 32 for r in asked)
    if recorded:  # a step with a chunk, and one without, for each size of the pool
        assert 2 <= len(graphs) <= 8 and slots < 2.4 * tokens
    else:
        assert {reads[n] for n in runs if n} == {1} and slots <= 1.2 * tokens
    assert [results[n].committed_tokens() for n in range(8)] == [driven.run(r).tokens for r in asked]
