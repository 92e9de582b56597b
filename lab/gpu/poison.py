"""Poisons unwritten memory with NaN or the largest integer, so that a place that a kernel leaves out is detected."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def poisoned() -> Iterator[None]:
    """Inside, torch.empty and its like return poisoned memory."""
    before, only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic  # its one attribute is set on the module's class
    filled = settings.fill_uninitialized_memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # operations that have no deterministic form say so
        torch.use_deterministic_algorithms(True, warn_only=True)
        settings.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=only)
            settings.fill_uninitialized_memory = filled
