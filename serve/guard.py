"""Around every request: its id, the API key, the size of its body, the log line and the count by status."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from decgraph.serve.logs import LOG
from decgraph.serve.metrics import Metrics
from decgraph.serve.refusals import Refusal
from decgraph.serve.traces import Traces

ROUTES = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize", "/version",
          "/health", "/ready", "/metrics", "/openapi.json", "/docs")  # fmt: skip

_BASES = re.compile(r"/*(?:v1/+)*((?:chat/)?completions|responses|models(?:/.+?)?)/*")
"""Paths that clients make of a base URL without `/v1`, with it twice, or with a slash too many."""

GUARDED = ("/v1", "/tokenize", "/detokenize")
"""What the routes begin with that an API key guards, and that are refused while the server shuts down."""


class Guard:
    """ASGI middleware. keys: of which `Authorization: Bearer ...` or `X-Api-Key` must hold one for `GUARDED` routes; none: it
    need not. body: the most bytes of a body. seconds: in which it must arrive. draining: whether new work is refused. traces:
    where spans of requests go."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        keys: Sequence[str],
        body: int,
        seconds: float,
        draining: Callable[[], bool],
        traces: Traces | None = None,
    ) -> None:
        self.app, self.metrics, self.body, self.draining = app, metrics, body, draining
        self.keys, self.seconds, self.traces = [key.encode() for key in keys], seconds, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, read, status = time.perf_counter(), 0, 0
        told: dict[str, Any] = {}
        scope.setdefault("state", {}).update(told=told, arrived=began)
        method, root = scope["method"], scope.get("root_path", "")
        headers = {name.lower(): value for name, value in scope["headers"]}
        theirs = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = theirs if re.fullmatch(r"[!-~]{1,128}", theirs) else f"req_{secrets.token_hex(8)}"
        path = scope["path"].removeprefix(root)
        if found := _BASES.fullmatch(path):
            path = f"/v1/{found[1]}"
        scope = {**scope, "path": root + path, "method": "GET" if method == "HEAD" else method}  # uvicorn leaves the body out
        route = path if path in ROUTES else "other"
        span = self.traces.begin(route, headers) if self.traces is not None and method == "POST" else None

        whole = False

        async def hear() -> Message:
            nonlocal read, whole
            left = None if whole else max(0.0, began + self.seconds - time.perf_counter())
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                close = {"connection": "close"}
                raise HTTPException(408, f"the body has not arrived within {self.seconds:g} seconds", close) from None
            whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self.body:  # FastAPI reads the body: it lets its own kind of exception pass
                raise HTTPException(413, str(_too_long(self.body)))
            return message

        async def say(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            if method != "OPTIONS":
                self._check(path, headers)
            await self.app(scope, hear, say)
        except Refusal as refusal:
            told |= refusal.logged()
            await _answer(refusal, say)
        except Exception as error:
            LOG.exception("a request failed", extra={"fields": {"request_id": request_id}})
            if status:  # the answer has begun: the connection breaks off
                raise
            await _answer(Refusal(500, f"the server failed: {type(error).__name__}"), say)
        finally:
            if told.get("ended") == "disconnected":
                status = 499  # as nginx writes it, whatever status the answer began with
            self.metrics.requests.labels(route, str(status)).inc()
            if span is not None and self.traces is not None:
                self.traces.end(span, told, status, request_id)
            if route.startswith(GUARDED) or status >= 500 and route != "/ready":  # which is asked again and again
                fields = {
                    "request_id": request_id,
                    "method": method,
                    "path": path,
                    "status": status,
                    "seconds": round(time.perf_counter() - began, 4),
                    **told,
                }
                LOG.info("request", extra={"fields": fields})

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if not path.startswith(GUARDED):
            return
        if self.keys:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            given = given.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
            fits = [hmac.compare_digest(given, key) for key in self.keys]  # all, whichever fits
            if not any(fits):
                raise Refusal(
                    401, "the API key is missing or wrong", code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
                )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self.body:
            raise _too_long(self.body)
        if self.draining():
            raise Refusal(503, "the server is shutting down", headers={"Retry-After": "5"})


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"the body is longer than {most} bytes")


async def _answer(refusal: Refusal, send: Callable[[Any], Any]) -> None:
    data = json.dumps(refusal.body(), ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
