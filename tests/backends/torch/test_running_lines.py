"""Which lines of a driver run: also asked from within the run, on a Python whose generators cannot be read while they run."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from decgraph.api import load
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.program import program_of


class Asks:
    """A call that CPython 3.11 does not specialise: its inline cache counts up to bits that look like an instruction."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.run: Generator[Any, Any, None] | None = None

    def __call__(self) -> None:
        assert not [*self.driver.ops(self.run)]


def test_a_run_that_asks_for_its_own_lines_is_not_read_as_one_that_waits() -> None:
    module = load("autoregressive").module
    asks = Asks(program_of(module, module.main))

    def run() -> Generator[None, None, None]:
        for _ in range(5000):
            asks()
        yield

    asks.run = run()
    next(asks.run)
