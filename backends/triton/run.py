"""A run that the device may compute: what lanes and programs see of one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import torch

from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.triton.capture import aside, captured
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.engine import causal, forward_graphs
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of
from decgraph.runtime.trace import Commits

_LOG = logging.getLogger("decgraph")
EAGER, FORWARDS = "eager mode: ", "eager mode, forwards as CUDA graphs: "
"""Modes of a run by the driver, before the reason."""


def forward(run: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """Capture a forward."""
    aside(run, device)
    return captured(run, device)


forward_graphs.recorder = forward
causal.graphs_of = forward_graphs.graphs_of


class DeviceRun(TorchMachine):
    """A run that begins on the device, and that the driver may have to run from its beginning after all."""

    _key: Hashable = None

    @property
    def target(self) -> Model:
        """The main model. Only runs with one are on the device (`program.needs_of`)."""
        assert self.main is not None
        return self.main

    def reuse(self, key: Hashable) -> None:
        self._key = key  # lanes find what begins alike by themselves; the driver is told when it runs

    def driven(self, why: str) -> None:
        """The driver runs it, from its beginning."""
        self.mode = EAGER + why
        _LOG.debug("%s: %s", self.title, self.mode)
        if self.committed():
            self.start_run()
        if isinstance(self.listener, Commits):
            self.listener.begin()
        if self._key is not None:
            super().reuse(self._key)

    def release(self) -> None:
        engines = (*self.engines.values(), *(memo_of(original_of(model)).get("engine") for model in self.models.values()))
        graphs = (getattr(engine, "graphs", None) for engine in engines)
        if self.mode.startswith(EAGER) and any(made is not None and made.used for made in graphs):
            self.mode = FORWARDS + self.mode.removeprefix(EAGER)
        super().release()
