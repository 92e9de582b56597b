"""Masked models in whole steps: what an algorithm of stdlib/ decides is what the reference decides, one request at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from lib.models.masked_models import masked as loaded
from lib.random_programs.programs import program
from lib.stdlib import table_models as shelf
from lib.stdlib.letters import Letters

from decgraph import stdlib
from decgraph.api import load, parse
from decgraph.backends.triton.models.table import PathModel
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.interface import Model, Visibility
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

V = shelf.V
SMALL: dict[str, Any] = {
    "length": 9, "block": 3, "steps": 5, "small": 2, "look": 4, "gamma": 4, "d": 3, "window": 2, "width": 3,
}  # fmt: skip
"""Parameters with which a canvas has several blocks, the last of which is short in some lanes."""
GRAMMAR = Automaton(((1, 2, 0, -1), (0, 1, 2, 2), (1, -1, 0, 2)), frozenset({0, 1, 2}))
REQUESTS = [
    Request((1, 2, 3, 1), max_tokens=9, temperature=0, seed=3),
    Request((2,), max_tokens=12, seed=3, request_id=1),
    Request((3, 1), max_tokens=6, temperature=0.7, top_k=3, eos=frozenset({2}), seed=3, request_id=2),
    Request((0, 2, 1, 3, 3), max_tokens=9, temperature=1.3, top_p=0.9, eos=frozenset({0, 1}), seed=4, request_id=2**33 + 1),
    Request(
        (1, 1), max_tokens=3, repetition_penalty=1.3, presence_penalty=0.3, frequency_penalty=0.2, bans=frozenset({3}), seed=5
    ),
]
"""Ragged prompts and rooms, and settings of their own."""
TOLD = ("target_calls", "draft_calls", "drafted", "unmasked", "remasked", "tested", "accepted")
DRIVEN = {
    "dingo": "its automaton is searched on the host",
    "dllm_self_speculative": "a tree of canvases",
    "dpad": "a function of the caller's",
    "freedave": "a tree of canvases",
    "joint_sampler": "a head over the states of a canvas",
    "joint_threshold_indel": "a list of texts of different lengths",
    "latent_refinement": "cells that hold mixtures",
    "learn2pd": "a function of the caller's",
    "learn2pd_eot": "a function of the caller's",
    "llada_guided": "a canvas after other tokens",
    "pc_sampler": "a function of the caller's",
    "soft_value": "a function of the caller's",
    "sparse_dllm": "rows of single layers",
    "specdiff": "a chain that grows block by block of a canvas",
}
"""Algorithms that have no step, and why."""


MASKED = [n for n in stdlib.names() if re.search(r":\s*masked\b", stdlib.text(n))]
"""The algorithms of stdlib/ that call a masked model, read from their texts: to lower all files takes ten seconds."""


def models_for(algorithm: Any, visibility: Visibility = "full") -> dict[str, Model]:
    """A table for each model of an algorithm."""
    return {
        name: TableModel(V, 5 + i, kind="masked", name=name, visibility=visibility)
        if kind == "masked"
        else TableModel(V, 5 + i, name=name, window=2)
        for i, (name, kind) in enumerate(algorithm.models.items())
    }


def sessions(
    algorithm: Any, visibility: Visibility = "full", models: dict[str, Model] | None = None, **params: Any
) -> tuple[Session, Session]:
    """The reference, and steps."""
    models = models or models_for(algorithm, visibility)
    known = {p.name for p in algorithm.function.params}
    values = {k: v for k, v in {**SMALL, **params}.items() if k in known}
    reference, steps = (algorithm.session(models, backend=backend, **values) for backend in ("reference", "triton"))
    return reference, steps


def same(reference: Session, steps: Session, requests: list[Request], mode: str = "graph mode") -> None:
    """What steps give for requests in one batch is what the reference gives each. Fields that are not read are left out."""
    plain = Request((1,), max_tokens=1)
    requests = [replace(r, **{name: getattr(plain, name) for name in steps.unread}) for r in requests]
    for got, want in zip(steps.generate(requests), map(reference.run, requests), strict=True):
        assert want.error is None and got.error is None, (want.error, got.error)
        assert (got.tokens, got.reason) == (want.tokens, want.reason)
        assert got.mode.startswith(mode), got.mode
        if mode == "graph mode":  # the driver's engine remembers other calls than the reference does
            assert [getattr(got.stats, name) for name in TOLD] == [getattr(want.stats, name) for name in TOLD]


@pytest.mark.budget(14)
@pytest.mark.quick("llada", "fast_dllm", "static_masked", "d2f")
@pytest.mark.parametrize("name", [n for n in MASKED if n not in DRIVEN])
def test_an_algorithm_decides_what_the_reference_decides(name: str) -> None:
    same(*sessions(load(name)), REQUESTS)


def test_algorithms_without_a_step_are_known() -> None:
    assert DRIVEN.keys() <= set(MASKED)
    reference, steps = sessions(load("sparse_dllm"), steps=9)
    for got, want in zip(steps.generate(REQUESTS[:2]), map(reference.run, REQUESTS), strict=False):
        assert got.tokens == want.tokens and got.mode.startswith("eager mode: ") and "memory.layer" in got.mode


@pytest.mark.parametrize("name", ["dream", "fast_dllm", "static_masked"])
def test_grammars_constrain_cells_by_what_is_decided_before_them(name: str) -> None:
    reference, steps = sessions(load(name))
    requests = [Request((1, 2), max_tokens=5 + i, seed=i, request_id=i, allow=GRAMMAR, temperature=i % 2) for i in range(4)]
    for got, want in zip(steps.generate(requests), map(reference.run, requests), strict=True):
        assert (got.tokens, got.reason, str(got.error)) == (want.tokens, want.reason, str(want.error))


@pytest.mark.parametrize(
    ("name", "visibility"), [("d2f", ("prompt+block", 3)), ("fast_dllm_v2", ("block", 3)), ("sdlm", ("window", 4))]
)
def test_models_whose_cells_see_some_of_the_others(name: str, visibility: Visibility) -> None:
    same(*sessions(load(name), visibility), REQUESTS)


@pytest.mark.budget(10)
@pytest.mark.parametrize(
    ("name", "visibility", "shift"),
    [
        ("fast_dllm", "full", False),
        ("dream", "full", True),
        ("dkv_cache", "full", True),
        ("d2f", ("prompt+block", 3), False),
        ("fast_dllm_v2", ("block", 3), False),
        ("sdlm", ("window", 4), False),
    ],
)
def test_loaded_models(name: str, visibility: Visibility, shift: bool) -> None:
    model, _ = loaded(3, visibility)
    model.shift = shift
    same(*sessions(load(name), models={"model": model}), REQUESTS)


TOUR = """
algorithm tour(model: masked, length: int in 1..64 = 9):
    canvas c: length
    p = model(c)
    x ~ p
    edge = before(c, 2) + from_(c, 7)
    c[edge] = x[edge]
    middle = span(c, 3, 3)
    unmask c[middle] with x
    if any(c.masked):
        remask c[middle where c.decided[middle]]
    for b in blocks(c, 2):
        rest = b - edge
        q = model(c, at = b)
        y ~ q
        if len(rest) > 0 and b.index % 2 == 0:
            unmask c[rest] where rank(q.raw[rest][y[rest]]) < 1 with y[rest]
        if b.stop > 4:
            c[b] = b.start % 4
    z ~ model(c)
    unmask c with z
    commit c
"""


TWICE = """
algorithm twice(model: masked, length: int in 1..64 = 9):
    canvas c: length
    m = model.memory(c)
    x ~ model(c, at = from_(c, 2), given = m.only(before(c, 2)))
    unmask c[from_(c, 2)] with x
    n = model.memory(c)
    y ~ model(c, at = before(c, 2), given = n.only(from_(c, 2)))
    c[before(c, 2)] = y
    c[before(c, 2) ++ before(c, 1)] = [1, 2, 0]
    commit c
"""


STALE = """
algorithm stale(model: masked, length: int in 1..64 = 9):
    canvas c: length
    m = model.memory(c)
    x ~ model(c)
    unmask c[before(c, 3)] with x
    z ~ model(c)
    unmask c[span(c, 3, 2)] with z
    p = model(c, at = from_(c, 5), given = m)
    y ~ p
    unmask c[from_(c, 5)] with y
    commit c
"""


@pytest.mark.budget(8)
@pytest.mark.parametrize("number", [218, 628, 652, 683, 1020])
def test_random_programs_that_found_something(number: int) -> None:
    """Sums in another order, tokens read in all rows, elements from the end, canvases that are called again,
    memories of some positions."""
    made = program(number)
    algorithm = parse(made.text)
    reference, steps = (
        algorithm.session(made.models(algorithm.function), backend=b, tokenizer=Letters("abcdef"), **made.values)
        for b in ("reference", "triton")
    )
    window = min((m.context for m in made.models(algorithm.function).values() if m.context is not None), default=99)
    same(reference, steps, [r for r in made.requests if not r.until and len(r.prompt) + r.max_tokens <= window])


def test_positions_of_every_sort() -> None:
    ragged = [replace(r, max_tokens=4 + 2 * i) for i, r in enumerate(REQUESTS)]
    same(*sessions(parse(TOUR)), ragged)


def test_of_several_values_for_a_cell_the_last_one_counts_and_a_part_of_a_memory_has_the_text() -> None:
    model, _ = loaded(3, "full")
    reference, steps = (parse(TWICE).session({"model": model}, backend=b) for b in ("reference", "triton"))
    same(reference, steps, REQUESTS)


def test_a_memory_that_a_later_call_wrote_over_is_the_drivers() -> None:
    """The slots of the first memory hold what the second call computed: the lanes are run again, and give what they must."""
    reference, steps = sessions(parse(STALE))
    same(reference, steps, REQUESTS[:3], "eager mode")


def test_a_call_on_a_memory_computes_its_own_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    forward = PathModel.forward

    def spy(self: PathModel, tokens: Any, *more: Any, **named: Any) -> Any:
        widths.append(int(tokens.shape[1]))
        return forward(self, tokens, *more, **named)

    monkeypatch.setattr(PathModel, "forward", spy)
    reference, steps = sessions(load("fast_dllm"), length=40, block=8, tau=1)
    requests = [Request((1, 2, 3), max_tokens=40, seed=i, request_id=i) for i in range(2)]
    same(reference, steps, requests)
    whole, part = max(widths), min(widths)
    assert part == 16 and whole >= 43
    assert widths.count(part) > 4 * widths.count(whole)
