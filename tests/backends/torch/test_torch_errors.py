"""What goes wrong in a run stays in that run: the others of a batch go on, what was produced is kept, and the session works
afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from lib.models.hf_modules import module as hf_module

from decgraph.api import load as load_algorithm
from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.interface import Memory, Scores, check_scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Committed

V, BAD, POISON = 5, 3, 44


class Broken(TableModel):
    """A table that answers with NaN after so many tokens of a prompt that begins with BAD."""

    def __init__(self, after: int = 0, **more: Any) -> None:
        super().__init__(V, seed=1, name="broken", vocab="V", **more)
        self.after = after

    def eval(self, paths: Sequence[tuple[int, ...]], memory: Memory | None = None) -> list[Scores]:
        for path in paths:
            if path[0] == BAD and len(path) >= self.after:
                check_scores(self, len(path), np.full(V, np.nan))
        return super().eval(paths, memory)

    def eval_canvas(self, cells: Any, at: Any, memory: Memory | None = None) -> list[Scores]:
        if cells[0] == BAD:
            check_scores(self, 0, np.full(V, np.nan))
        return super().eval_canvas(cells, at, memory)


def session(name: str, target: Any = None, **params: Any) -> Session:
    algorithm = load_algorithm(name)
    models = models_for(algorithm.function, V, 1)
    if target is not None:
        models[next(iter(models))] = target
    known = params_for(algorithm.function, 1, params)
    return Session(algorithm.optimised(), models, known, machine=machine("torch"))


def requests(count: int = 8, bad: int | None = None, **more: Any) -> list[Request]:
    return [
        Request(prompt=(BAD if i == bad else i % 3, 1, 2), max_tokens=6 + i, request_id=i, seed=9, **more) for i in range(count)
    ]


def tokens(results: Sequence[Result]) -> list[tuple[int, ...]]:
    return [r.tokens for r in results]


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "prompt_lookup", "token_recycling"])
def test_numbers_that_are_none_end_one_run(name: str) -> None:
    asked = requests(bad=4)
    sound = session(name, TableModel(V, seed=1, name="broken", vocab="V")).generate(asked)
    s = session(name, Broken(after=7))
    alone = s.run(asked[4])
    assert alone.error is not None and "'broken' gave logits that are not numbers" in str(alone.error)
    assert 0 < len(alone.tokens) < asked[4].max_tokens and sound[4].tokens[: len(alone.tokens)] == alone.tokens
    got = s.generate(asked)
    assert [r.error is not None for r in got] == [i == 4 for i in range(8)]
    assert tokens(got[:4]) == tokens(sound[:4]) and tokens(got[5:]) == tokens(sound[5:])
    n = len(got[4].tokens)  # where drafts are shared, the step that fails is not always the same
    assert n > 0 and got[4].tokens == sound[4].tokens[:n] and (n == len(alone.tokens) or name == "token_recycling")
    assert got[4].reason == "error" and got[4].stats.tokens == n
    assert tokens(s.generate(asked[:4])) == tokens(sound[:4])


def test_a_canvas_that_fails_leaves_the_others() -> None:
    model = Broken(kind="masked")
    asked = requests(bad=2)
    s = session("fast_dllm", model, length=6, block=3)
    sound = session("fast_dllm", TableModel(V, seed=1, kind="masked", name="broken"), length=6, block=3).generate(asked)
    got = s.generate(asked)
    assert [r.error is not None for r in got] == [i == 2 for i in range(8)]
    assert tokens(got[:2]) == tokens(sound[:2]) and tokens(got[3:]) == tokens(sound[3:])


def test_a_prompt_longer_than_the_context() -> None:
    s = session("speculative", TableModel(V, seed=1, context=4, vocab="V"))
    long = Request(prompt=(0, 1, 2, 0, 1), max_tokens=3)
    with pytest.raises(DecError, match="5 tokens, the context length is 4"):
        s.run(long)
    asked = [*requests(3), long, *requests(4)]
    got = s.generate(asked, batch=4)
    assert [r.error is not None for r in got] == [i == 3 for i in range(8)]
    assert "context length" in str(got[3].error) and got[3].tokens == ()
    assert tokens(got[:3]) == tokens(got[4:7])


class Interrupting:
    """A listener that raises KeyboardInterrupt at the n-th commit it hears of."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, number: int, event: Any) -> None:
        self.left -= isinstance(event, Committed)
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 2, 9, 25, 40])
@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_an_interrupt_gives_what_there_is(name: str, at: int) -> None:
    s = session(name)
    asked = [Request(prompt=(0, 1), max_tokens=1 if i % 3 == 0 else 20, request_id=i, seed=9) for i in range(8)]
    whole = s.generate(asked)
    told: list[int] = []
    got = s.generate(asked, batch=4, listener=Interrupting(at), finished=lambda n, r: told.append(n))
    reasons = {r.reason for r in got}
    assert "interrupted" in reasons and reasons <= {"interrupted", "limit"}
    for have, want in zip(got, whole):
        assert want.tokens[: len(have.tokens)] == have.tokens
        assert (have.error is None) == (have.reason != "interrupted") and (have.error is not None or have.tokens == want.tokens)
    assert len(told) == len(set(told)), "every result is told of once"
    assert tokens(s.generate(asked)) == tokens(whole)
    if at == 40:
        assert "limit" in reasons


def test_an_interrupt_alone() -> None:
    s = session("speculative")
    request = Request(prompt=(0, 1), max_tokens=20, seed=4)
    whole = s.run(request)
    left = Interrupting(3)
    got = s.run(request, listener=lambda e: left(0, e))
    assert got.reason == "interrupted" and 0 < len(got.tokens) < 20 and whole.tokens[: len(got.tokens)] == got.tokens
    assert s.run(request).tokens == whole.tokens


class Exploding(TableModel):
    """Fails in a way that is nobody's request: at every text of some length."""

    armed = True

    def eval(self, paths: Any, memory: Any = None) -> Any:
        if self.armed and any(len(p) > 6 for p in paths):
            raise MemoryError("none left")
        return super().eval(paths, memory)


def hf_model() -> Any:
    of = hf_module("llama")
    with torch.no_grad():
        of.lm_head.weight = torch.nn.Parameter(of.lm_head.weight.clone())
        of.model.embed_tokens.weight[POISON] = float("nan")
    return from_module(of, name="small")


def test_engines_are_empty_after_errors_and_interrupts() -> None:
    """Slots are given back whatever ended a run, and what a run left does not reach the next one."""
    model = hf_model()
    s = Session(load_algorithm("prompt_lookup").optimised(), {"target": model}, {"k": 3}, machine=machine("torch"))
    engine = engine_of(model)
    bans = frozenset({POISON})  # drawn by nobody
    asked = [
        Request(prompt=(5, 9, 11, 5, POISON if i == 3 else 9), max_tokens=8, request_id=i, seed=2, bans=bans) for i in range(8)
    ]
    whole = s.generate(asked)
    assert [r.error is not None for r in whole] == [i == 3 for i in range(8)]
    assert "request 3" in str(whole[3].error) and not engine._slots
    got = s.generate(asked, batch=4, listener=Interrupting(7))
    assert any(r.reason == "interrupted" for r in got) and not engine._slots
    assert [r.tokens for r in s.generate(asked)] == [r.tokens for r in whole] and not engine._slots
    assert [s.run(r).tokens for r in asked] == [r.tokens for r in whole]


def test_an_error_that_is_nobodys_request_ends_each_with_what_it_had_and_nothing_stays_open() -> None:
    target = Exploding(V, seed=1)
    closed: set[Any] = set()
    engine = engine_of(target)
    engine.close = closed.add
    s = session("autoregressive", target)
    got = s.generate(requests(), batch=4)
    assert [len(r.tokens) for r in got] == [4] * 8, "paths of 7 tokens are not answered"
    assert all("no memory was left (MemoryError: none left)" in str(r.error) for r in got)
    assert [r.error is not None and r.error.request for r in got] == [f"request {n}" for n in range(8)]
    assert len(closed) == 8
    target.armed = False
    assert all(r.error is None for r in s.generate(requests()))


def test_a_mistake_in_arithmetic_is_an_error_at_its_line() -> None:
    """What torch raises as a RuntimeError for a program's mistake is no traceback."""
    from decgraph.dsl.lower import load_text

    text = """algorithm fails(target: causal):
    \'\'\'Four leaves less six drafts.\'\'\'
    while not done:
        draft t:
            repeat 2:
                grow topk(target(t.frontier).raw, 2)
        d = target(t.leaves).raw - target(t.drafted).raw
        commit point(argmax(d[0]))
""".replace("'''", '"' * 3)
    s = Session(load_text(text, "mine.dec"), {"target": TableModel(V, seed=1)}, machine=machine("torch"))
    result = s.run(Request(prompt=(0, 1), max_tokens=3))
    assert result.error is not None and str(result.error).startswith("error: mine.dec:7:"), result.error
