"""One server on the shipped models for the tests of the room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from served import client, served

from decgraph.serve.catalogue import Catalogue

ALGORITHMS = ("speculative", "autoregressive", "prompt_lookup", "beam")


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue(ALGORITHMS, "target", drafter="drafter")


@pytest.fixture(scope="session")
def server(catalogue: Catalogue) -> Iterator[Any]:
    with served(catalogue, width=8, queue=32, chunk=64) as running:
        yield running


@pytest.fixture(scope="session")
def api(server: Any) -> Iterator[Any]:
    with client(server) as made:
        yield made
