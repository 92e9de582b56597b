"""uvicorn with a graceful end: after SIGTERM or SIGINT new work is refused, what runs may end within a time, and the rest ends
with an error."""

from __future__ import annotations

import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from decgraph.serve.logs import LOG
from decgraph.serve.service import Service


class Server(uvicorn.Server):
    """Serves one service. patience: seconds that running requests have after the first signal; a second signal ends them."""

    def __init__(self, app: FastAPI, service: Service, *, host: str, port: int, patience: float = 30.0) -> None:
        config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        super().__init__(config)
        self.service, self.patience = service, patience
        self._until = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self.service.draining:
            self.should_exit = True
        else:
            self.drain()

    def drain(self) -> None:
        """Take no new work, and end when what runs has ended or its time is over."""
        self._until = time.monotonic() + self.patience
        self.service.draining = True
        LOG.info("draining", extra={"fields": {"answers": len(self.service.worker), "patience_seconds": self.patience}})

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked every tenth of a second."""
        if self.service.draining and (not self.service.open or time.monotonic() > self._until):
            if self.service.open:
                LOG.warning("ended by force", extra={"fields": {"requests": len(self.service.open)}})
                self.service.worker.stop()
            return True
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any free one. Raises OSError for a port that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made
