"""Memory that has garbage until somebody writes it, and the device of kernels: the CPU in Triton's interpreter, or a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN, or -77."""
    fresh = torch.empty

    def empty(*shape: object, **kwargs: object) -> Tensor:
        made = fresh(*shape, **kwargs)  # type: ignore[call-overload]
        return made.fill_(float("nan") if made.is_floating_point() else -77)

    monkeypatch.setattr(torch, "empty", empty)


@pytest.fixture
def device() -> torch.device:
    from triton import knobs  # not at the top: decgraph.backends.triton chooses the interpreter before triton is imported

    return torch.device("cpu" if bool(knobs.runtime.interpret) else "cuda")
