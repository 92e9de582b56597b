"""What every backend has, and the runs of one that says nothing of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from decgraph.backends.registry import BACKENDS, machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.opdef import OpError
from decgraph.ir.table import TABLE, lookup
from decgraph.runtime.backend import Backend
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

BODIES = """algorithm two(target: causal, n: int = 3):
    while not done:
        x ~ target(ctx)
        commit x
"""


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_backend_says_what_it_has(name: str) -> None:
    backend = machine(name)
    assert issubclass(backend, Backend) and backend.name == name
    assert backend.supports("model.eval") is None and backend.supports("normalize") is None
    for opcode in TABLE:
        said = backend.supports(opcode)
        assert said is None or len(said.split()) > 3, opcode
        assert name != "reference" or said == (lookup(opcode).unavailable or None)
    with pytest.raises(OpError, match="no op named nothing_of_the_kind"):
        backend.supports("nothing_of_the_kind")


def test_what_torch_does_not_lower_is_said() -> None:
    """Against the packages themselves: an op without a function under backends/torch is one that runs as its NumPy meaning."""
    from decgraph.backends.torch.lowering import lower
    from decgraph.ir.values import Op

    assert {"automaton", "extern"} <= {o for o in TABLE if machine("torch").supports(o)}
    for opcode in ("normalize", "topk", "commit", "state.read"):
        assert machine("torch").supports(opcode) is None
        assert lower(Op(opcode, (), {"state": "s"}, (), ())).fn.__module__.startswith("decgraph.backends.torch.ops.")


def test_a_backend_must_say_what_it_has() -> None:
    class Silent(machine("reference")):  # type: ignore[misc]
        supports = Backend.supports

    with pytest.raises(TypeError, match="supports"):
        Silent(load_text(BODIES, "two.dec"), "two", {}, {"n": 3}, Request(prompt=(0,)))


def test_what_no_backend_compiles_is_refused() -> None:
    with pytest.raises(DecError, match="backend reference compiles nothing"):
        machine("reference").compile({}, print)
    told: list[str] = []
    machine("torch").compile({"target": TableModel(4, seed=1)}, told.append)
    assert told == ["`target` is not compiled: no decoder runs it"]


class Failing(TableModel):
    """Raises after so many tokens."""

    def __init__(self, after: int, error: Callable[[], BaseException]) -> None:
        super().__init__(4, seed=1, name="failing")
        self.after, self.error = after, error

    def eval(self, paths: Any, memory: Any = None) -> Any:
        if any(len(p) >= self.after for p in paths):
            raise self.error()
        return super().eval(paths, memory)


def session(backend: str, model: TableModel) -> Session:
    return Session(load_text(BODIES, "two.dec"), {"target": model}, machine=machine(backend))


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_what_one_run_raises_ends_that_run_alone(backend: str) -> None:
    asked = [Request(prompt=(0,) * n, max_tokens=3, request_id=n) for n in (1, 6, 2)]
    got = session(backend, Failing(6, lambda: ValueError("too long"))).generate(asked, batch=2, budget=1 << 20)
    assert [r.reason for r in got] == ["limit", "error", "limit"]
    assert "too long" in str(got[1].error) and "request 6" in str(got[1].error)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_an_interrupt_ends_all_runs(backend: str) -> None:
    asked = [Request(prompt=(0,) * n, max_tokens=3, request_id=n) for n in (1, 6, 2)]
    got = session(backend, Failing(6, KeyboardInterrupt)).generate(asked, batch=1)
    assert [r.reason for r in got] == ["limit", "interrupted", "interrupted"]
    assert len(got[0].tokens) == 3 and not got[2].tokens
