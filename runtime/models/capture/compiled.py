"""A captured step compiled with torch.compile, on request.

Compiling takes seconds to minutes for each of the two graphs (one sequence, many), so it is never done unasked; sizes
stay dynamic, so that a longer prompt does not compile again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.capture.program import CapturedGraph
from decgraph.runtime.models.capture.step import CapturedForward, Part, Variant

_log = logging.getLogger("decgraph.capture")


def compiled(
    step: CapturedForward, *, backend: str = "inductor", notice: Callable[[str], None] = _log.warning
) -> CapturedForward:
    """The same step, compiled when it is first called. Where that fails (no compiler on this machine, say), `notice`
    gets the reason and the step runs as it is."""
    return _Compiled(step.program, step.part, backend, notice)


class _Compiled(CapturedForward):
    def __init__(self, program: CapturedGraph, part: Part | None, backend: str, notice: Callable[[str], None]) -> None:
        super().__init__(program, part)
        self.backend, self.notice = backend, notice

    def _like(self, part: Part) -> CapturedForward:
        return _Compiled(self.program, part, self.backend, self.notice)

    def _made(self, variant: Variant) -> Any:
        plain = super()._made(variant)
        fast = torch.compile(self._module(variant), dynamic=True, backend=self.backend)
        tried = False

        def run(
            ids: Tensor,
            positions: Tensor,
            write: Tensor,
            keys: Sequence[Tensor],
            values: Sequence[Tensor],
            masks: Mapping[str, Tensor | None],
        ) -> Any:
            nonlocal tried
            if tried:
                return fast(ids, positions, write, keys, values, masks)
            try:
                out = fast(ids, positions, write, keys, values, masks)
            except Exception as error:  # whatever the compiler, or finding one, raises
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                cause = getattr(error, "inner_exception", error)
                lines = str(cause).strip().splitlines() or [type(cause).__name__]
                self.notice(f"the captured forward runs uncompiled, compiling it failed: {lines[0]}")
                self._runs[variant] = plain
                return plain(ids, positions, write, keys, values, masks)
            tried = True
            return out

        return run
