"""A real chat model for slow tests: SmolLM2-135M-Instruct, fetched once per machine as a user fetches it.

What a worker of pytest-xdist finds fetched it uses; where several start at once, one fetches and the others wait for it
(`zoo/fetching.py` has the lock). The tests of this folder are slow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from decgraph import DecError, zoo

CACHE = os.environ.get("DECGRAPH_CACHE")  # the user's, read when tests are collected: fixtures give every test run another one


@contextmanager
def users_cache() -> Iterator[None]:
    """The cache that `decgraph zoo fetch` keeps models in, instead of the empty one of a test run."""
    ours = os.environ["DECGRAPH_CACHE"]
    try:
        if CACHE is None:
            del os.environ["DECGRAPH_CACHE"]
        else:
            os.environ["DECGRAPH_CACHE"] = CACHE
        yield
    finally:
        os.environ["DECGRAPH_CACHE"] = ours


@pytest.fixture(scope="session")
def smollm2(_measurements: None) -> Path:
    """The model's folder. While tests run the name `smollm2` means it too. Without a network and without the folder, tests that
    ask for it fail; DECGRAPH_NO_NETWORK=1 skips them."""
    with users_cache():
        if os.environ.get("DECGRAPH_NO_NETWORK") and "smollm2" not in _here():
            pytest.skip("smollm2 is not on this machine, and DECGRAPH_NO_NETWORK is set")
        try:
            folder = zoo.fetch("smollm2")
        except DecError as error:
            pytest.fail(f"{error}\n(DECGRAPH_NO_NETWORK=1 skips the tests of tests/real)", pytrace=False)
    here = Path(os.environ["DECGRAPH_CACHE"]) / "models"
    here.symlink_to(folder.parent, target_is_directory=True)
    return folder


def _here() -> list[str]:
    """The fetchable models that are on this machine."""
    from decgraph.zoo import fetched

    return [name for name in zoo.fetchable() if fetched.is_here(name)]


@pytest.fixture(scope="session")
def module(smollm2: Path) -> Any:
    """transformers' module of the folder, in float32; one per worker."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def tokenizer(smollm2: Path) -> Any:
    """transformers' tokenizer of the folder, padding on the left."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2, padding_side="left")
