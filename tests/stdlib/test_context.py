"""Every algorithm decodes until the context is full, on every backend, and says so.

A context of C positions holds C tokens. What is decoded token by token, also in trees, commits one more, which follows from the
last position and which no model reads; canvases, which a model reads to their ends, do not.
"""

from __future__ import annotations

from typing import Any

import pytest
from lib.models.hf_modules import CONFIGS
from lib.models.hf_modules import module as hf_module
from lib.stdlib.table_models import FEW, NAMES, parameters, refining, tables

import decgraph
from decgraph.backends.registry import machine
from decgraph.errors import DecError
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

C = 9
LONG = 10**9
ASKED = [(1, LONG, 1.0), (2, 100, 0), (3, 100, 1.0), (C - 3, LONG, 1.0), (C - 1, 100, 1.0), (C - 1, LONG, 0), (C, 5, 1.0),
         (C, LONG, 0)]  # fmt: skip


def requests(context: int, asked: list[tuple[int, int, float]], size: int) -> list[Request]:
    return [Request(prompt=tuple((1 + 3 * i) % size for i in range(n)), max_tokens=limit, temperature=t, seed=4, request_id=i)
            for i, (n, limit, t) in enumerate(asked)]  # fmt: skip


def session(name: str, backend: str, passes: bool = True) -> Session:
    algorithm = decgraph.load(name)
    models = {**tables(context=C), "drafter": tables(context=C + 3)["drafter"]}
    module = algorithm.optimised() if passes and backend != "reference" else algorithm.module
    return Session(module, {n: models[n] for n in algorithm.models}, parameters(name), machine=machine(backend))


def check(got: list[Result], asked: list[Request], context: int, whole: bool) -> None:
    """`whole`: what is committed was read by a model."""
    for result, request in zip(got, asked, strict=True):
        assert result.error is None, (result.error, request)
        assert result.reason == "context", request
        assert len(result.tokens) == context - len(request.prompt) + (not whole), request


def reads_all(s: Session) -> bool:
    return any(m.kind == "masked" for m in s.models.values())


@pytest.mark.quick(("torch", "True"))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("backend", "passes"), [("reference", False), ("torch", False), ("torch", True)])
def test_the_text_goes_to_the_last_position(backend: str, passes: bool, name: str) -> None:
    s, asked = session(name, backend, passes), requests(C, ASKED, 4)
    alone = [s.run(request) for request in asked]
    check(alone, asked, C, reads_all(s))
    if backend == "torch":  # one reaches the end before the others, and another takes its place
        for batch in (3, len(asked)):
            together = s.generate(asked, batch=batch)
            check(together, asked, C, reads_all(s))
            if not any(state.scope == "session" for state in s.function.states):
                assert [r.tokens for r in together] == [r.tokens for r in alone]


def decoded_by_triton(name: str, asked: list[Request], passes: bool, widths: tuple[int, ...]) -> None:
    """To the end of the context, alone and in batches, with the tokens of torch."""
    s = session(name, "triton", passes)
    keeps = any(state.scope == "session" for state in s.function.states)
    for width in widths:
        ours, torch = session(name, "triton", passes), session(name, "torch", passes)
        if width == 1:
            together, wanted = [ours.run(request) for request in asked], [torch.run(request) for request in asked]
        else:
            together, wanted = (x.generate(asked, batch=width) for x in (ours, torch))
        check(together, asked, C, reads_all(s))
        if width == 1 or not keeps:
            assert [r.tokens for r in together] == [r.tokens for r in wanted]


@pytest.mark.quick(*FEW[:2])
@pytest.mark.parametrize("name", NAMES)
def test_in_the_interpreter_of_triton(name: str) -> None:
    decoded_by_triton(name, requests(C, [(C - 4, LONG, 0), (C - 3, 100, 1.0), (C, 5, 1.0)], 4), True, (2,))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("passes", [False, True])
def test_in_the_interpreter_of_triton_with_and_without_passes(passes: bool, name: str) -> None:
    decoded_by_triton(name, requests(C, ASKED, 4), passes, (1, 3, len(ASKED)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
def test_a_prompt_over_the_context_is_refused(backend: str, name: str) -> None:
    s = session(name, backend)
    over, fits = requests(C, [(C + 1, 5, 0), (C, 5, 0)], 4)
    with pytest.raises(DecError, match=f"the prompt has {C + 1} tokens, the context length is {C}"):
        s.run(over)
    if backend == "torch":
        got = s.generate([over, fits], batch=2)
        assert got[0].error is not None and got[0].error.request == "request 0" and got[1].reason == "context"


LOSSLESS = sorted({*refining("tokens", "autoregressive"), *refining("distribution", "autoregressive")})


@pytest.mark.quick("block_verification", "eagle2", "jacobi", "lookahead", "speculative")
@pytest.mark.parametrize("name", LOSSLESS)
def test_a_text_cut_by_the_context_is_that_of_a_longer_context(name: str) -> None:
    """What the end of the context cuts off is all that it changes, where drafts change nothing."""
    s = session(name, "torch")
    longer = Session(s.module, {n: tables()[n] for n in s.models}, parameters(name), machine=machine("torch"))
    for request in requests(C, [(2, 100, 0), (5, 100, 0), (C - 1, 100, 0)], 4):
        assert s.run(request).tokens == longer.run(request).tokens[: C + 1 - len(request.prompt)]


@pytest.mark.quick("llama")
@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_engines_of_every_architecture(kind: str) -> None:
    target, drafter = (from_module(hf_module(kind, seed), name=f"{kind}{seed}") for seed in (1, 2))
    end: Any = target.context
    asked = requests(end, [(end - 1, 100, 0), (end, 5, 1.0), (end - 9, 100, 1.0), (end - 20, LONG, 1.0)], 60)
    for name, params in (("autoregressive", {}), ("speculative", {"gamma": 5}), ("recursive_sd", {"shape": "3x2x1"})):
        algorithm = decgraph.load(name)
        models = {n: {"target": target, "drafter": drafter}[n] for n in algorithm.models}
        s = Session(algorithm.optimised(), models, params, machine=machine("torch"))
        check([s.run(request) for request in asked], asked, end, False)
        check(s.generate(asked, batch=len(asked)), asked, end, False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_shipped_models(name: str) -> None:
    """Captured forwards, heads, adapters, features and memories at the real end of 1,024 positions."""
    algorithm, end = decgraph.load(name), 1024
    params = {k: v for k, v in {"length": 24, "block": 8, "steps": 24}.items() if k in algorithm.params}
    s = algorithm.session(backend="torch", **params)
    assert {m.context for m in s.models.values() if m.context is not None} == {end}
    asked = requests(end, [(end - 19, 100, 0), (end - 1, LONG, 0), (end, 5, 0), (end - 9, 100, 1.0)], 900)
    check([s.run(request) for request in asked], asked, end, reads_all(s))
    check(s.generate(asked, batch=len(asked)), asked, end, reads_all(s))
