"""A turn reads nothing back and makes nothing from what only the host holds, so that it can be captured; and a turn after
the end changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from step_runs import STATIC, Runs, requests
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

READS = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "item", "unique_dim", "_unique2"}
COPIES = {"lift_fresh", "lift_fresh_copy"}
"""What `torch.tensor(list)` and `torch.from_numpy` are: constants are made by the first turn."""


class Guard(TorchDispatchMode):
    """Raises where a value would be read, or copied from the host; `seen` counts the operations. Memory comes as zeros: no
    kernel writes it here."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @staticmethod
    def zeros() -> Guard:
        """The same without raising."""
        made = Guard()
        made.lenient = True
        return made

    lenient = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        where = name in ("index", "index_put", "index_put_") and any(
            t is not None and t.dtype == torch.bool for t in args[1])
        if not self.lenient and (name in READS or name in COPIES or where):
            raise AssertionError(f"{func} in a turn")
        self.seen.append(name)
        out = func(*args, **(kwargs or {}))
        return out.zero_() if "empty" in name else out


SHAPED = {"top_k": 3, "top_p": 0.9, "min_p": 0.05, "bans": {2}, "bias": {3: 1.5}}


@pytest.mark.parametrize(("name", "more"), [(name, {}) for name in STATIC] + [
    (name, {"temperature": 0}) for name in STATIC if name != "rsd_s"] + [(name, SHAPED) for name in ("speculative", "eagle2")])
def test_a_turn_reads_nothing(name: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are launched and do nothing: the interpreter reads what they read by its nature."""
    asked = requests(count=2, **more)
    program = Runs(name).program(asked)
    monkeypatch.setattr(InterpretedFunction, "run", lambda *args, **known: None)
    with Guard.zeros():
        program.step.admit(asked, program.needs.pending)
        program.step.prologue()
        program.step.body()
    constants = len(program.step._constants)
    with Guard() as guard:
        program.step.body()
    assert guard.seen and len(program.step._constants) == constants, "constants are made before a turn is captured"


def test_the_guard_sees() -> None:
    t = torch.tensor([1.0, 0.0])
    for read in (lambda: t.max().item(), lambda: bool(t.any()), lambda: t[t > 0], lambda: torch.tensor([1, 2]) + 1):
        with pytest.raises(AssertionError, match="in a turn"), Guard():
            read()


@pytest.mark.parametrize("name", ["eagle2", "speculative", "token_recycling"])
def test_a_turn_after_the_end_changes_nothing(name: str) -> None:
    asked = requests(count=2)
    program = Runs(name).program(asked)
    program.run(asked)
    s = program.step
    lasting = [s.tokens, s.length, s.turn, s.done, s.lost, s.tally.tested, s.tally.accepted, *s.states.values(),
               *[h.held for h in s.held.values()]]
    before = [t.clone() for t in lasting]
    s.body()
    for now, then in zip(lasting[1:], before[1:], strict=True):
        assert torch.equal(now, then)
    assert torch.equal(s.tokens[:, :-1], before[0][:, :-1])       # the last column is nobody's
