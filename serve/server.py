"""uvicorn with a graceful end: after SIGTERM or SIGINT new work is refused, what runs may end within a time, and the rest ends
with an error."""

from __future__ import annotations

import socket
import time
from collections.abc import Hashable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from decgraph.serve.logs import LOG
from decgraph.serve.service import Service

HEAD_SECONDS = 60.0
"""How long a connection may stay open on which no request has wholly begun. Idle ones between requests end sooner."""


class Server(uvicorn.Server):
    """Serves one service. patience: seconds that running requests have after the first signal; a second signal ends them, a
    third does not wait for clients to read that. head: seconds in which the head of a request must arrive. more: settings of
    uvicorn's own (`ssl_certfile`, `root_path`, ...)."""

    def __init__(
        self,
        app: FastAPI,
        service: Service,
        *,
        host: str,
        port: int,
        patience: float = 30.0,
        head: float = HEAD_SECONDS,
        **more: Any,
    ) -> None:
        # Not httptools, which sends chunks to clients of HTTP/1.0, such as nginx by default, that cannot read them.
        config = uvicorn.Config(
            app, host=host, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=5, http="h11", **more
        )
        super().__init__(config)
        self.service, self.patience, self.head = service, patience, head
        self._until = 0.0
        self._idle: dict[tuple[Hashable, Hashable], float] = {}  # connections without a request and their last, since when

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if not self.service.draining:
            self.drain()
        elif self._until:
            self._until = 0.0  # in the next tick: signals come at any place of the event loop's work
        else:
            self.force_exit = True

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
        if counter % 10 == 0:
            self._close_idle(time.monotonic())
        return await super().on_tick(counter)

    def _close_idle(self, now: float) -> None:
        """Close the connections on which the head of a request has not arrived in time: uvicorn waits for it without end."""
        last = [(one, getattr(one, "cycle", None)) for one in self.server_state.connections]
        idle: list[tuple[Any, Any]] = [(one, cycle) for one, cycle in last if cycle is None or cycle.response_complete]
        self._idle = {key: self._idle.get(key, now) for key in idle}  # a request between two looks is another cycle
        for one, cycle in idle:
            if now - self._idle[one, cycle] > self.head:
                one.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens: from here on clients can connect, and are answered once the server runs. Port 0 is any free one.
    Raises OSError for a port that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(2048)  # before the address is printed: uvicorn itself listens only when it has started
    except OSError:
        made.close()
        raise
    return made
