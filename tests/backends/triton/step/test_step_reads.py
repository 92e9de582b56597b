"""An iteration reads nothing back and creates nothing from host values, so that it can be captured; and an iteration after
the end changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from step_runs import STATIC, Guard, Runs, requests
from triton.runtime.interpreter import InterpretedFunction

SHAPED = {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.05, "bans": {2}, "bias": {3: 1.5}}


@pytest.mark.parametrize(
    ("name", "more"),
    [(name, {}) for name in STATIC]
    + [(name, {"temperature": 0}) for name in STATIC if name != "rsd_s"]
    + [(name, more) for name in ("speculative", "eagle2") for more in (SHAPED, {"temperature": 0.7})],
)
def test_a_turn_reads_nothing(name: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are launched and do nothing: the interpreter reads what they read by its nature."""
    asked = requests(count=2, **more)
    program = Runs(name).program(asked)
    monkeypatch.setattr(InterpretedFunction, "run", lambda *args, **known: None)
    with Guard.zeros():
        program.step.admit(asked, program.needs.uncached)
        program.step.prologue()
        program.step.body()
    constants = len(program.step._constants)
    with Guard() as guard:
        program.step.body()
    assert guard.seen and len(program.step._constants) == constants, "constants are created before an iteration is captured"


def test_the_guard_sees() -> None:
    t = torch.tensor([1.0, 0.0])
    for read in (lambda: t.max().item(), lambda: bool(t.any()), lambda: t[t > 0], lambda: torch.tensor([1, 2]) + 1):
        with pytest.raises(AssertionError, match="in a step"), Guard():
            read()


@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["speculative", "token_recycling"])
def test_a_turn_after_the_end_changes_nothing(name: str) -> None:
    asked = requests(count=2)
    program = Runs(name).program(asked)
    program.run(asked)
    s = program.step
    lasting = [
        s.tokens,
        s.length,
        s.iteration,
        s.done,
        s.lost,
        s.tally.tested,
        s.tally.accepted,
        *s.states.values(),
        *[h.cached for h in s.caches.values()],
    ]
    before = [t.clone() for t in lasting]
    s.body()
    for now, then in zip(lasting[1:], before[1:], strict=True):
        assert torch.equal(now, then)
    assert torch.equal(s.tokens[:, :-1], before[0][:, :-1])  # the last column is nobody's
