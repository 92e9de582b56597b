"""Masked decoders against their published rules, written again in plain Python over the same table, at temperature 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log

import numpy as np
import pytest
from lib.stdlib.table_models import V, layered, run, tables

from decgraph.runtime.models.interface import MASK, Model
from decgraph.runtime.trace import ModelCall, Unmasked

PROMPT = (0, 1)
LENGTH, BLOCK = 12, 4
SEEDS = range(6)
Row = list[float]
Cells = list[int | None]


class Sampler:
    """A canvas after the prompt, the model's rows on it, and the count of calls."""

    def __init__(self, model: Model, length: int = LENGTH) -> None:
        self.model, self.cells, self.calls = model, [None] * length, 0
        self.order: list[list[int]] = []

    def rows(self) -> list[Row]:
        """The unshaped distribution at every cell."""
        self.calls += 1
        seen = (*PROMPT, *(MASK if c is None else c for c in self.cells))
        at = range(len(PROMPT), len(seen))
        return [[float(w) for w in s.weights] for s in self.model.eval_canvas(seen, list(at))]

    def open(self, cells: range) -> list[int]:
        return [i for i in cells if self.cells[i] is None]

    def decide(self, cells: list[int], rows: list[Row]) -> None:
        for i in cells:
            self.cells[i] = int(np.argmax(rows[i]))
        self.order.append(sorted(cells))


def best(cells: list[int], score: Callable[[int], float], n: int) -> list[int]:
    """The n cells with the largest scores, the first ones of equals."""
    return sorted(cells, key=lambda i: (-score(i), i))[:n]


def blocks(length: int = LENGTH, block: int = BLOCK) -> Iterator[range]:
    for start in range(0, length, block):
        yield range(start, min(start + block, length))


def quotas(masks: int, steps: int) -> list[int]:
    """LLaDA's: what does not divide goes to the first steps."""
    return [masks // steps + (i < masks % steps) for i in range(steps)]


def steps_of(name: str, model: Model, **params: object) -> tuple[list[list[int]], tuple[int, ...], int]:
    """What a run decides, call by call, its tokens and its number of calls."""
    result = run(name, {"model": model}, params, prompt=PROMPT, max_tokens=LENGTH, temperature=0)
    order: list[list[int]] = []
    for event in result.events:
        if isinstance(event, ModelCall):
            order.append([])
        if isinstance(event, Unmasked):
            order[-1].append(event.position)
    return [sorted(o) for o in order], result.tokens, result.stats.target_calls


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("steps", [3, 5, 6, 12])
def test_llada(seed: int, steps: int) -> None:
    s = Sampler(tables(seed)["model"])
    for b in blocks():
        for n in quotas(len(s.open(b)), steps * len(b) // LENGTH):
            rows = s.rows()
            s.decide(best(s.open(b), lambda i, rows=rows: max(rows[i]), n), rows)
    assert steps_of("llada", s.model, length=LENGTH, block=BLOCK, steps=steps) == (s.order, tuple(s.cells), s.calls)


def test_llada_at_random_keeps_the_schedule_and_the_blocks() -> None:
    orders = set()
    for seed in SEEDS:
        result = run("llada", tables(1), {"length": 12, "block": 6, "steps": 4, "random": True}, seed=seed, temperature=0)
        at = [e.position for e in result.events if isinstance(e, Unmasked)]
        assert sorted(at[:6]) == list(range(6))
        assert sorted(at[6:]) == list(range(6, 12))
        orders.add(tuple(at))
    assert len(orders) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_static_masked_is_llada_with_a_step_a_cell(seed: int) -> None:
    model = tables(seed)["model"]
    one = steps_of("static_masked", model, length=LENGTH, block=BLOCK)
    assert one == steps_of("llada", model, length=LENGTH, block=BLOCK, steps=LENGTH)
    assert one[2] == LENGTH


SCORES: dict[str, Callable[[Row], float]] = {
    "dream": lambda row: sum(p * log(p) for p in row if p > 0),
    "dream_margin": lambda row: sorted(row)[-1] - sorted(row)[-2],
    "dream_confidence": max,
}


TIED = ("dream_confidence", 0)
"""Two cells have the same confidence there, 7/18, computed from other weights: which is larger is a matter of the last bit."""


@pytest.mark.parametrize(("name", "seed"), [(n, seed) for n in SCORES for seed in SEEDS if (n, seed) != TIED])
def test_dream(name: str, seed: int) -> None:
    steps, eps = 5, 1e-3
    s = Sampler(tables(seed)["model"])
    times = np.linspace(1, eps, steps + 1)
    for i in range(steps):
        masks = s.open(range(LENGTH))
        n = int(len(masks) * (1 - times[i + 1] / times[i])) if i < steps - 1 else len(masks)
        rows = s.rows()
        s.decide(best(masks, lambda i, rows=rows: round(SCORES[name](rows[i]), 12), n), rows)
    assert steps_of(name, s.model, length=LENGTH, steps=steps) == (s.order, tuple(s.cells), s.calls)


def test_dream_by_origin_decides_at_the_schedules_rate() -> None:
    """A quarter of the cells in each of four steps, on the average, and all in the end."""
    first, seen = [0] * 4, 0
    for seed in range(60):
        result = run("dream_origin", tables(1), {"length": 12, "steps": 4, "eps": 0}, seed=seed)
        assert sum(isinstance(e, Unmasked) for e in result.events) == 12
        if result.stats.target_calls < 4:  # a step that decides nothing: the next one asks for a canvas that is remembered
            continue
        seen, step = seen + 1, -1
        for event in result.events:
            step += isinstance(event, ModelCall)
            first[step] += isinstance(event, Unmasked)
    assert seen > 45  # of 12 cells none in one of three steps: in 10 of 100 runs
    assert all(0.8 < n / (3 * seen) < 1.2 for n in first)  # 3 expected a run, standard deviation of the ratio 0.07


def fast(s: Sampler, chosen: Callable[[list[int], list[Row]], list[int]]) -> None:
    for b in blocks():
        while s.open(b):
            rows = s.rows()
            s.decide(chosen(s.open(b), rows), rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tau", [0.351, 0.451, 0.9])
def test_fast_dllm_threshold(seed: int, tau: float) -> None:
    s = Sampler(tables(seed)["model"])

    def chosen(cells: list[int], rows: list[Row]) -> list[int]:
        return sorted({*best(cells, lambda i: max(rows[i]), 1), *(i for i in cells if max(rows[i]) >= tau)})

    fast(s, chosen)
    params = {"length": LENGTH, "block": BLOCK, "tau": tau}
    assert steps_of("fast_dllm_uncached", s.model, **params) == (s.order, tuple(s.cells), s.calls)
    # A table has one layer, so what a cache keeps is what the cells say: block and suffix caches change nothing here.
    for name in ("fast_dllm", "fast_dllm_prefix"):
        assert steps_of(name, s.model, **params) == (s.order, tuple(s.cells), s.calls)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factor", [0.5, 1.5, 2.2])
def test_fast_dllm_factor(seed: int, factor: float) -> None:
    s = Sampler(tables(seed)["model"])

    def chosen(cells: list[int], rows: list[Row]) -> list[int]:
        ranked = best(cells, lambda i: max(rows[i]), len(cells))
        n = 1
        while n < len(ranked) and (n + 2) * (1 - max(rows[ranked[n]])) <= factor + 1e-12:
            n += 1
        return ranked[:n]

    fast(s, chosen)
    params = {"length": LENGTH, "block": BLOCK, "factor": factor}
    assert steps_of("fast_dllm_factor", s.model, **params) == (s.order, tuple(s.cells), s.calls)


@pytest.mark.parametrize(
    ("name", "again"),
    [("fast_dllm", "the block"), ("fast_dllm_prefix", "the block and what follows"), ("fast_dllm_uncached", "everything")],
)
def test_what_a_cached_call_computes(name: str, again: str) -> None:
    """Cells given to the model in each call of the second block: everything when it starts, then the policy's part."""
    result = run(name, tables(2), {"length": 12, "block": 4, "tau": 1}, prompt=PROMPT, temperature=0)
    calls = [e for e in result.events if isinstance(e, ModelCall)][4:8]
    rest = {"the block": 4, "the block and what follows": 8, "everything": 14}[again]
    assert [e.cells for e in calls] == [14] * 4  # read, from the cache or computed
    assert [e.cells if e.computed is None else e.computed for e in calls] == [14, rest, rest, rest]


def test_caches_are_approximate_where_there_are_layers() -> None:
    """On the free model a stale row shows: the three disagree once a block has begun."""
    texts = {
        n: run(n, layered("free"), {"length": 12, "block": 6, "tau": 1}, temperature=0).tokens
        for n in ("fast_dllm", "fast_dllm_prefix", "fast_dllm_uncached")
    }
    assert len(set(texts.values())) == 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("answer", [0, 5, 9, 40])
def test_prophet(seed: int, answer: int) -> None:
    """With logit gaps as small as a table's, only a scaled threshold is ever passed: a model with sharp rows."""
    model = Sharp(tables(seed)["model"])
    s = Sampler(model)
    steps, at = 6, 0
    for b in blocks():
        for n in quotas(BLOCK, steps * BLOCK // LENGTH):
            if not s.open(range(LENGTH)):
                break
            rows = s.rows()
            gaps = [log(sorted(r)[-1] / sorted(r)[-2]) for r in rows[answer : answer + 5]]
            need = 7.5 if (at + 1) / steps < 0.33 else 5.0 if (at + 1) / steps < 0.67 else 2.5
            if gaps and sum(gaps) / len(gaps) >= need:
                s.decide(s.open(range(LENGTH)), rows)
            else:
                s.decide(best(s.open(b), lambda i, rows=rows: max(rows[i]), n), rows)
            at += 1
    got = steps_of("prophet", model, length=LENGTH, block=BLOCK, steps=steps, answer=answer)
    assert got == (s.order, tuple(s.cells), s.calls)


def test_prophet_leaves_early_when_the_answer_is_clear() -> None:
    calls = {
        steps_of("prophet", Sharp(tables(seed)["model"]), length=LENGTH, block=BLOCK, steps=6, answer=0)[2] for seed in SEEDS
    }
    assert min(calls) < 6


class Sharp(Model):
    """A masked model whose rows are another's to the twentieth power."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.kind, self.vocab, self.context, self.exact = "masked", inner.vocab, None, True
        self.visibility, self.layers, self.name, self.family = "full", 1, "sharp", "sharp"

    def eval_canvas(self, cells, at, given=None):  # type: ignore[no-untyped-def]
        from decgraph.runtime.models.interface import Scores

        out = []
        for row in self.inner.eval_canvas(cells, at, given):
            powers = [w**20 for w in row.weights]
            out.append(Scores(weights=tuple(w / sum(powers) for w in powers)))
        return out


def test_limit_cuts_the_canvas() -> None:
    """A canvas longer than the request's limit has the limit's length; no cell past it is computed."""
    for name in ("llada", "dream", "fast_dllm_uncached", "prophet", "static_masked"):
        result = run(name, tables(3), None, max_tokens=5)
        assert len(result.tokens) == 5
        assert {e.cells for e in result.events if isinstance(e, ModelCall)} == {7}
        assert {e.position for e in result.events if isinstance(e, Unmasked)} == set(range(5))
    assert V == 4
