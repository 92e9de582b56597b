"""A turn reads nothing back and makes nothing from what only the host holds, so that it can be captured; and a turn after
the end changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from step_runs import STATIC, Runs, requests
from torch.utils._python_dispatch import TorchDispatchMode

from decgraph.backends.triton.step import keys, launch

READS = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "item", "unique_dim", "_unique2"}
COPIES = {"lift_fresh", "lift_fresh_copy"}
"""What `torch.tensor(list)` and `torch.from_numpy` are: constants are made by the first turn."""


class Guard(TorchDispatchMode):
    """Raises where a value would be read, or copied from the host; `seen` counts the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        where = name in ("index", "index_put", "index_put_") and any(
            t is not None and t.dtype == torch.bool for t in args[1])
        if name in READS or name in COPIES or where:
            raise AssertionError(f"{func} in a turn")
        self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", STATIC)
def test_a_turn_reads_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are left out here: the interpreter reads what they read by its nature."""
    asked = requests(count=2)
    program = Runs(name).program(asked)
    program.step.admit(asked, program.needs.pending)
    program.step.prologue()
    program.step.body()
    without_kernels(monkeypatch, program.step)
    program.step.body()       # constants of the shapes that take the kernels' places
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


def without_kernels(monkeypatch: pytest.MonkeyPatch, s: Any) -> None:
    """Zeros in the places of what kernels give."""
    from decgraph.backends.triton.rules.device import Walked

    def tokens(scores: torch.Tensor, *more: int) -> torch.Tensor:
        return torch.zeros((scores.shape[0], *more), dtype=torch.int64)

    class Zeros:
        def probs(self, scores: Any, face: str) -> Any:
            return torch.zeros_like(scores)

        def best(self, scores: Any) -> Any:
            return tokens(scores)

        def draw(self, scores: Any, *rest: Any) -> Any:
            return tokens(scores)

        def distinct(self, scores: Any, given: Any, words: Any, seeds: Any, k: int) -> Any:
            return tokens(scores, k)

        def races(self, scores: Any, given: Any, words: Any, seeds: Any, k: int) -> Any:
            return tokens(scores, k), torch.zeros((scores.shape[0], k), dtype=torch.float64)

        def top(self, scores: Any, k: int, *, banned: bool) -> Any:
            return tokens(scores, k)

        def without(self, probs: Any, members: Any, count: Any) -> Any:
            return torch.zeros_like(probs)

    def walked(rule: Any, given: Any, depth: int) -> Any:
        return Walked(torch.zeros((s.frame.batch, Walked.HEAD + 3 * depth), dtype=torch.int64), depth)

    monkeypatch.setattr(s, "laws", Zeros())
    monkeypatch.setattr(s, "walked", walked)
    class Nothing:
        """A kernel that is launched and does nothing."""

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **known: None

    class Kernels:
        def __getattr__(self, name: str) -> Nothing:
            return Nothing()

    class Torch:
        empty, empty_like = staticmethod(torch.zeros), staticmethod(torch.zeros_like)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    monkeypatch.setattr(keys, "key_words", Nothing())
    monkeypatch.setattr(launch, "kernels", Kernels())
    monkeypatch.setattr(launch, "torch", Torch())
