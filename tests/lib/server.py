"""A server in a thread, on a free port of 127.0.0.1, and OpenAI's client for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lib.waiting import SECONDS, ended, until

if TYPE_CHECKING:
    from decgraph.serve.catalogue import Catalogue


@contextmanager
def served(
    catalogue: Catalogue,
    *,
    key: str | Sequence[str] = (),
    origins: Sequence[str] = (),
    patience: float = 5.0,
    traces: Any = None,
    uvicorn: dict[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Any]:
    """The server, with `.url` and `.service`; it is drained in the end."""
    from decgraph.serve.app import app_of
    from decgraph.serve.server import Server, listen
    from decgraph.serve.service import Service

    service = Service(catalogue, **settings)
    with listen("127.0.0.1", 0) as listening:
        app = app_of(service, keys=[key] if isinstance(key, str) else key, origins=origins, traces=traces)
        server: Any = Server(app, service, host="127.0.0.1", port=0, patience=patience, **(uvicorn or {}))
        secure = "https" if "ssl_certfile" in (uvicorn or {}) else "http"
        server.url = f"{secure}://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until("the server has started", lambda: server.started)
        server.thread = thread
        try:
            yield server
        finally:
            if not service.draining:
                server.drain()
            ended("the server", thread)


def client(server: Any, **settings: Any) -> Any:
    """OpenAI's client, which does not try again by itself."""
    import openai

    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS, **settings)
