"""What the tests of decgraph.hf share: a Llama pair with one vocabulary, a GPT-2, the backends, three algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lib.models import hf_models

import decgraph
from decgraph.backends.registry import BACKENDS


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def target() -> Any:
    return hf_models.llama(1)


@pytest.fixture(scope="session")
def drafter() -> Any:
    return hf_models.noisy(hf_models.llama(1), 0.03)


@pytest.fixture(scope="session")
def gpt2() -> Any:
    return hf_models.gpt2(3)


@pytest.fixture(params=[name for name in ("reference", "torch") if name in BACKENDS])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def speculative(backend: str, drafter: Any) -> Callable[..., Any]:
    """`speculative(**more)`: a door."""

    def make(**more: Any) -> Any:
        return decgraph.hf("speculative", backend=backend, drafter=drafter, gamma=3, **more)

    return make


@pytest.fixture(params=["autoregressive", "speculative", "prompt_lookup"])
def made(request: pytest.FixtureRequest, backend: str, drafter: Any) -> Callable[..., Any]:
    """`made(**more)`: one of three algorithms as a door."""
    models = {"drafter": drafter, "gamma": 3} if request.param == "speculative" else {}

    def make(**more: Any) -> Any:
        return decgraph.hf(request.param, backend=backend, **{**models, **more})

    return make
