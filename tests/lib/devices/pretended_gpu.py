"""A machine that says it has one GPU: torch counts it, models are moved to it, mixing devices raises (foreign_tensors.py)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from lib.devices.foreign_tensors import Elsewhere

SAID = {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "current_device": 0,
    "synchronize": None,
    "mem_get_info": (1 << 30, 1 << 30),
    "get_device_name": "far",
    "get_device_capability": (9, 0),
    "get_device_properties": SimpleNamespace(multi_processor_count=4, major=9, minor=0, name="far", total_memory=1 << 30),
}


@contextmanager
def one_gpu() -> Iterator[None]:
    """Inside it, also in threads that begin inside it, there is one CUDA device."""
    run = threading.Thread.run

    def watched(thread: threading.Thread) -> None:
        with Elsewhere():
            run(thread)

    with pytest.MonkeyPatch.context() as patch, Elsewhere():
        patch.setattr(threading.Thread, "run", watched)
        for name, value in SAID.items():
            patch.setattr(torch.cuda, name, lambda *_, value=value, **__: value)
        yield
