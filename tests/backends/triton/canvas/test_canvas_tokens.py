"""Masked algorithms on the device commit what their drivers commit, with as many calls of the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from canvas_programs import NAMES, hf_model, machines, parameters

import decgraph.backends.triton  # noqa: F401  # before triton: it says how kernels run here
from decgraph.backends.registry import machine
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.triton.step.canvas_run import Ran, canvas_reason, run_canvases
from decgraph.backends.triton.step.canvas_step import CanvasEvaluator
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

PROMPTS = ((1, 2), (2, 0, 1, 1), (2,))


def requests(count: int, **more: Any) -> list[Request]:
    return [
        Request(**{"prompt": PROMPTS[i], "limit": 20, "seed": 7 + i, "request_id": 2**33 + i, **more}) for i in range(count)
    ]


def counted(m: Any) -> Counter[str]:
    """Counts from now on what a driver asks for, by model."""
    calls: Counter[str] = Counter()
    evaluate = m.evaluate

    def asked(model: Any, *place: Any, **how: Any) -> Any:
        calls[model.name] += 1
        return evaluate(model, *place, **how)

    m.evaluate = asked
    return calls


def same(
    name: str, model: Any, params: dict[str, Any], asked: Sequence[Request], *, every: int = 1, known: bool = True
) -> list[Ran]:
    """Both ways over the same requests; what the device says of its runs. The device makes every call that is asked for; a
    driver does not make those at a canvas that was just computed."""
    want = machines(name, model, params, asked, known=known)
    have = machines(name, model, params, asked, known=known)
    calls = [counted(m) for m in want]
    for m in want:
        m.run()
    ran = run_canvases(have, every=every)
    for driver, device, r, every_call in zip(want, have, ran, calls, strict=True):
        assert r.why is None, r.why
        assert device.committed_tokens() == driver.committed_tokens()
        assert device.tally.calls == every_call and driver.tally.calls[model.name] <= every_call[model.name]
        assert (device.tally.unmasked, device.tally.tokens, device.tally.stopped) == (
            driver.tally.unmasked,
            driver.tally.tokens,
            driver.tally.stopped,
        )
    return ran


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_drivers_tokens_and_calls(name: str, temperature: float) -> None:
    """Three prompts of different lengths in lockstep, and blocks that do not divide the length."""
    params = parameters(name, length=11, block=4, tau=0.3, steps=6)
    ran = same(name, hf_model(), params, requests(3, temperature=temperature))
    own = [r.calls["model"] for r in ran]
    assert all(max(own) <= r.iterations <= sum(own) and r.wasted == r.iterations - r.calls["model"] for r in ran)
    assert name.startswith(("fast", "static")) or set(own) == {ran[0].iterations}  # those have a number of turns


@pytest.mark.parametrize("name", ["fast_dllm", "fast_dllm_prefix", "dream", "static_masked"])
def test_one_sequence(name: str) -> None:
    """Alone nothing is masked and no turn is wasted; what the passes do not know changes nothing."""
    params = parameters(name, length=10, block=4, tau=0.2, steps=5)
    (ran,) = same(name, hf_model(), params, requests(1, temperature=0.7), known=False)
    assert ran.wasted == 0


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_the_references_tokens_on_tables(name: str, temperature: float) -> None:
    """In float64 every decision is the reference's."""
    params = parameters(name, length=3, block=2, tau=0.451, factor=1.5, steps=3, width=2, answer=1)
    model = TableModel(3, 4, kind="masked", name="model", zeros=True)
    asked = requests(2, temperature=temperature, limit=9)
    same(name, model, params, asked)
    reference = machine("reference")
    module: Module = machines(name, model, params, asked)[0].module
    have = machines(name, model, params, asked)
    run_canvases(have)
    for request, m in zip(asked, have, strict=True):
        want = reference(module, name, {"model": model}, params, request)
        want.run()
        assert m.committed_tokens() == want.committed_tokens()


@pytest.mark.parametrize(
    ("name", "kind"), [("fast_dllm", "modernbert"), ("fast_dllm_prefix", "llama"), ("fast_dllm", "blocks"), ("llada", "blocks")]
)
def test_windows_groups_and_blocks(name: str, kind: str) -> None:
    """Sliding windows, heads that share keys and models that see up to the end of a block, behind prompts of two lengths."""
    params = parameters(name, length=11, block=4, tau=0.3, steps=6)
    same(name, hf_model(kind), params, requests(2))


SHAPES: list[dict[str, Any]] = [
    {"top_k": 3},
    {"top_p": 0.6},
    {"min_p": 0.2, "temperature": 2},
    {"bans": {21, 11}},
    {"bias": {4: 3.0}},
    {"bias": {4: 3.0}, "temperature": 0},
    {"eos": {21}},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shaped_requests(shape: dict[str, Any]) -> None:
    params = parameters("fast_dllm", length=9, block=4, tau=0.3)
    same("fast_dllm", hf_model(), params, requests(2, **shape))


def test_llada_at_random() -> None:
    params = parameters("llada", length=11, block=4, steps=6, random=True)
    same("llada", hf_model(), params, requests(3))


@pytest.mark.parametrize(("name", "every"), [("fast_dllm", 2), ("fast_dllm", 3), ("static_masked", 3)])
def test_a_flag_that_is_read_late_wastes_turns_and_changes_nothing(name: str, every: int) -> None:
    """A turn of static_masked after the end would write somewhere: only who goes on keeps it from doing so."""
    params = parameters(name, length=11, block=4, tau=0.3)
    (ran,) = same(name, hf_model(), params, requests(1), every=every)
    blocks = 3
    assert 0 < ran.wasted <= blocks * (every - 1)
    assert ran.reads <= blocks + -(-ran.iterations // every)


def test_requests_of_different_kinds_run_in_groups() -> None:
    params = parameters("fast_dllm", length=9, block=4, tau=0.3)
    asked = [*requests(2), *requests(2, temperature=0, limit=6)]
    same("fast_dllm", hf_model(), params, asked)


OPEN = """def sure(s: prob, tau: prob) -> bool:
    return s >= tau or first_max(s)

algorithm open_cells(model: masked, length: int in 1..64 = 8):
    canvas c: length

    for b in blocks(c, 3):
        while any(c.masked[b]):
            p = model(c)
            open = b where c.masked[b]
            x ~ p[open]
            unmask c[open] where sure(p[open].raw[x], 0.2) with x
    commit c
"""


def test_draws_are_counted_among_the_cells_that_are_there() -> None:
    """A program of one's own that draws at open cells alone: the second draw of a turn is at the second open cell."""
    module = load_text(OPEN, "open_cells.dec")
    asked = requests(3)
    want, have = (
        [TorchMachine(module, "open_cells", {"model": hf_model()}, {"length": 8}, r) for r in asked] for _ in range(2)
    )
    for m in want:
        m.run()
    assert [r.why for r in run_canvases(have)] == [None] * 3
    assert [m.committed_tokens() for m in have] == [m.committed_tokens() for m in want]


CHOICES = [
    "s >= mean(s) or first_max(s)",
    "s >= max(s) or first_max(s)",
    "s <= min(s) or first_max(s)",
    "s * len(s) >= sum(s) or first_max(s)",
    "rank(s) < max(1, int(len(s) / 2))",
    "s <= sort(s)[0] or first_max(s)",
    "rank(-s) < 1 + leading(sort(s, descending = yes)[1:] >= 0.2)",
    "rank(s) < count(s >= max(s) / 2)",
    "s >= 0.1 or first_max(s)",
    "all(s < 0.5) or rank(s) < 2",
]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("choice", CHOICES)
def test_choices_among_the_cells_that_are_there(choice: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is folded, ranked and counted are the masked cells, fewer every turn; by torch and in one kernel."""
    if fused:
        start = CanvasEvaluator.start

        def begun(self: CanvasEvaluator) -> None:
            start(self)
            self.fused = True

        monkeypatch.setattr(CanvasEvaluator, "start", begun)
    said = re.sub(r"\bs\b", "p.raw[x]", choice)
    text = f"""algorithm chosen(model: masked, length: int in 1..64 = 6):
    canvas c: length

    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where {said} with x
    commit c
"""
    module = load_text(text, "chosen.dec")
    asked = requests(2)
    want, have = ([TorchMachine(module, "chosen", {"model": hf_model()}, {"length": 6}, r) for r in asked] for _ in range(2))
    for m in want:
        m.run()
    assert [r.why for r in run_canvases(have)] == [None] * 2
    assert [m.committed_tokens() for m in have] == [m.committed_tokens() for m in want]
    assert [m.tally.calls for m in have] == [m.tally.calls for m in want]


def test_what_a_driver_raises_is_left_to_it() -> None:
    """Bans that leave no token: the machine is handed back untouched, and its driver says what is wrong."""
    params = parameters("llada", length=6, block=3, steps=4)
    (m,) = machines("llada", hf_model(), params, requests(1, bans=set(range(22))))
    (ran,) = run_canvases([m])
    assert ran.why is not None and not m.committed_tokens() and not m.tally.calls
    with pytest.raises(DecError, match="leave no token"):
        m.run()


def test_what_cannot_run_so_says_why() -> None:
    model = hf_model()

    def why(name: str, **request: Any) -> str | None:
        (m,) = machines(name, model, parameters(name), requests(1, **request))
        return canvas_reason(m.module, name, m.request, m.models)

    assert why("fast_dllm") is None
    assert "tree" in str(why("freedave"))
    assert "penalties" in str(why("llada", repetition_penalty=2))
    assert "minimum length" in str(why("llada", min_length=2, eos={1}))
    params = parameters("llada", length=9, block=4)
    (m,) = machines("llada", TableModel(9, 1, kind="masked"), params, requests(1))
    for _ in range(2):  # the second time it is remembered
        (ran,) = run_canvases([m])
        assert "rows" in str(ran.why)
        assert not m.committed_tokens()
