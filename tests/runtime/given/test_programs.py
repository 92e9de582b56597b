"""Whole programs on derived models with memories: the backends commit the same, with the same calls, one request and several of
different lengths, greedy and sampled; and greedy ones what a plain transformer commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lib.models.hf_modules import module
from lib.models.plain_transformer import Half, Plain, Rows, of_module, skipping

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models import hf
from decgraph.runtime.request import Request

V, LAYERS = 61, 4
PROMPTS = [(5, 9, 2, 44, 31), (7, 7), (1, 60, 3, 3, 8, 12, 30, 2, 9)]

LOSSY = """
algorithm lossy(target: causal, a: set, m: set):
    model small = target.{small}
    while not done:
        x ~ small(ctx, given = {given})
        commit x
"""
DRAFTED = """
algorithm drafted(target: causal, a: set, m: set):
    refines autoregressive(target) in distribution
    model small = target.{small}
    while not done:
        draft t:
            repeat 4:
                x ~ small(t.leaves, given = {given})
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""
WHOLE = {k: Half() for k in range(LAYERS)}
SMALL: dict[str, tuple[str, dict[str, Any], Any]] = {
    "skip": ("skip(a)", {"a": {1}}, skipping(LAYERS, {1}, {1})),
    "skip several": ("skip(a)", {"a": {0, 2}}, skipping(LAYERS, {0, 2}, {0, 2})),
    "halves": ("skip(attention = a, mlp = m)", {"a": {1, 2}, "m": {3}}, skipping(LAYERS, {1, 2}, {3})),
    "written out": ("skip(attention = [3], mlp = [0, 1])", {}, skipping(LAYERS, {3}, {0, 1})),
    "exit": ("exit(2)", {}, {k: Half() for k in range(2)}),
    "upto": ("head(target.upto(2))", {}, {k: Half() for k in range(2)}),
    "quantized": ("quantized(3)", {}, WHOLE),
    "twice": ("exit(3).skip(a)", {"a": {1}}, {0: Half(), 2: Half()}),
}
GIVEN = {
    "target": "target.memory(ctx.parent)",
    "to the end": "target.memory(ctx)",
    "own": "small.memory(ctx.parent)",
    "another's": "target.skip([2]).memory(ctx.parent)",
    "on top": "target.memory(ctx.parent, given = target.skip([2]).memory(ctx.parent))",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama"
    module("llama", num_hidden_layers=LAYERS).save_pretrained(path)
    return path


def runs(text: str, folder: Path, params: dict[str, Any], backend: str, temperature: float, *, passes: bool = True) -> Any:
    """What each prompt gets: tokens and calls by model. On torch all at once, each of its own length."""
    algorithm = decgraph.parse(text)
    plan = Plan(backend=backend) if passes else Plan(backend=backend, passes=())
    session = algorithm.session({"target": hf.load_causal(folder)}, plan=plan, **params)
    asked = [Request(p, max_tokens=9 + 3 * n, temperature=temperature, seed=4, request_id=n) for n, p in enumerate(PROMPTS)]
    results = session.run_many(asked) if hasattr(session, "run_many") else [session.run(r) for r in asked]
    for r in results:
        if r.error is not None:
            raise r.error
    return [(r.tokens, dict(r.stats.calls)) for r in results]


PAIRS = [(s, g) for s in SMALL for g in GIVEN if (s, g) != ("upto", "own")]
KINDS = [
    pytest.param(text, t, id=f"{name} {t}")
    for text, t, name in ((LOSSY, 0.0, "lossy"), (LOSSY, 0.9, "lossy"), (DRAFTED, 0.9, "drafted"))
]


@pytest.mark.budget(10)
@pytest.mark.quick(
    ("drafted 0.9", "target", "skip"),
    ("drafted 0.9", "target", "exit"),
    ("drafted 0.9", "target", "quantized"),
    ("lossy 0.9", "skip"),
)
@pytest.mark.parametrize("small, given", PAIRS)
@pytest.mark.parametrize("text, temperature", KINDS)
def test_backends_agree(folder: Path, text: str, small: str, given: str, temperature: float) -> None:
    how, params, _ = SMALL[small]
    source = text.format(small=how, given=GIVEN[given])
    params = {"a": set(), "m": set(), **params}
    want = runs(source, folder, params, "reference", temperature, passes=False)
    assert runs(source, folder, params, "torch", temperature) == want
    if text is LOSSY:
        return
    with_passes = runs(source, folder, params, "reference", temperature)  # these count what is computed for a memory alone
    assert [tokens for tokens, _ in with_passes] == [tokens for tokens, _ in want]


def decoded(plain: Plain, weights: Plain, halves: Any, given: str, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Greedy decoding with the derived model on that memory, every step from scratch."""
    third = skipping(LAYERS, {2}, {2})

    def memory(text: list[int]) -> Rows:
        above = text[:-1]
        if given == "to the end":
            return plain.memory(text)
        if given == "own":
            return weights.memory(above, halves=halves)
        if given == "another's":
            return plain.memory(above, halves=third)
        return plain.memory(above, plain.memory(above, halves=third) if given == "on top" else None)

    text = list(prompt)
    for _ in range(count):
        text.append(int(np.argmax(weights.logits(text, memory(text), halves=halves))))
    return tuple(text[len(prompt) :])


@pytest.mark.quick(first=1, each="small")
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("small", [s for s in SMALL if s != "upto"])
def test_greedy_tokens_are_a_plain_transformers(folder: Path, small: str, given: str) -> None:
    how, params, halves = SMALL[small]
    of = module("llama", num_hidden_layers=LAYERS)
    plain = of_module(of)
    weights = of_module(of, 3) if small == "quantized" else plain
    made = runs(LOSSY.format(small=how, given=GIVEN[given]), folder, {"a": set(), "m": set(), **params}, "torch", 0.0)
    for n, (prompt, (tokens, _)) in enumerate(zip(PROMPTS, made, strict=True)):
        assert tokens == decoded(plain, weights, halves, given, prompt, 9 + 3 * n)


def test_the_memory_changes_what_is_committed(folder: Path) -> None:
    """Or the tests above would show nothing."""
    params = {"a": {1}, "m": set()}
    texts = [LOSSY.format(small="skip(a)", given=GIVEN[g]) for g in ("target", "own", "another's")]
    made = [str([tokens for tokens, _ in runs(text, folder, params, "torch", 0.0)]) for text in texts]
    assert len(set(made)) == 3


def test_a_head_over_layers_has_no_memory_to_give(folder: Path) -> None:
    for backend in ("torch", "reference"):
        with pytest.raises(decgraph.DecError, match="cannot give its memory"):
            runs(LOSSY.format(small="head(target.upto(2))", given=GIVEN["own"]), folder, {"a": set(), "m": set()}, backend, 0.0)


def test_a_layer_that_is_not_there(folder: Path) -> None:
    for backend in ("torch", "reference"):
        with pytest.raises(decgraph.DecError, match=r"has no layer 7 to skip: its layers are 0..3"):
            runs(LOSSY.format(small="skip([7])", given=GIVEN["own"]), folder, {"a": set(), "m": set()}, backend, 0.0)
