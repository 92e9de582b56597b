"""A run that the device may compute: what lanes and programs see of one."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from decgraph.backends.torch.machine import TorchMachine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.trace import Commits

_LOG = logging.getLogger("decgraph")


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
        self.mode = f"eager mode: {why}"
        _LOG.debug("%s: %s", self.title, self.mode)
        if self.committed():
            self.start_run()
        if isinstance(self.listener, Commits):
            self.listener.begin()
        if self._key is not None:
            super().reuse(self._key)
