"""The routes: OpenAI's models, completions and chat completions; health, readiness and metrics."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from decgraph.serve.answers import AnswerWriter
from decgraph.serve.generation import detokenized, tokenized, window
from decgraph.serve.guard import Guard
from decgraph.serve.logs import LOG
from decgraph.serve.refusals import Refusal
from decgraph.serve.responses import ResponsesRequest, ResponseWriter, chat_of
from decgraph.serve.service import Exchange, Service
from decgraph.serve.traces import Traces
from decgraph.serve.wire import (
    ALIASES,
    REFUSED,
    ChatRequest,
    Common,
    CompletionRequest,
    DetokenizeRequest,
    ErrorAnswer,
    TokenizeRequest,
    _Strict,
    unknown_fields,
)
from decgraph.version import __version__

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what}
    for status, what in {
        400: "A request that cannot be computed",
        401: "No API key, or a wrong one",
        404: "No such model, algorithm or path",
        408: "A body that does not arrive",
        413: "A body that is too long",
        429: "The queue is full; see Retry-After",
        500: "The server failed",
        503: "The server is shutting down",
    }.items()
}
STREAM: dict[str, Any] = {
    "description": "The answer, or with `stream` its chunks",
    "content": {"text/event-stream": {}},
}
STREAMED = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
"""Headers of a stream: proxies are to pass each event on as it comes. nginx buffers them by default."""
SILENCE = 15.0
"""Seconds without news after which a stream has a comment, so that nobody between takes it for dead."""
LOCAL = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
"""The origins of pages that come from this machine."""
router = APIRouter()
T = TypeVar("T")


def service_of(request: Request) -> Service:
    """The service that a request belongs to."""
    found: Service = request.app.state.service
    return found


@router.get("/v1/models", responses={401: ERRORS[401], 503: ERRORS[503]})
async def models(request: Request) -> dict[str, Any]:
    """The model with each of its algorithms; the name alone is the first one."""
    service = service_of(request)
    return {"object": "list", "data": [_model(service, one) for one in service.catalogue.ids()]}


@router.get("/v1/models/{name:path}", responses={401: ERRORS[401], 404: ERRORS[404], 503: ERRORS[503]})
async def model(name: str, request: Request) -> dict[str, Any]:
    """One of them."""
    service = service_of(request)
    if name not in service.catalogue.ids():
        raise Refusal(404, f"the model {name!r} does not exist here", param="model", code="model_not_found")
    return _model(service, name)


def _model(service: Service, name: str) -> dict[str, Any]:
    session = service.catalogue.session(name)
    lies = session.placement
    return {"id": name, "object": "model", "created": int(service.began), "owned_by": "decgraph",
            "algorithm": session.function.name, "max_model_len": window(session, service.limits),
            "device": lies.device, "dtype": lies.dtype}  # fmt: skip


@router.post("/v1/completions", responses={**ERRORS, 200: STREAM})
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue texts."""
    return await _answered(body, request)


@router.post("/v1/chat/completions", responses={**ERRORS, 200: STREAM})
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer a conversation, by the model's chat template."""
    return await _answered(body, request)


@router.post("/v1/responses", responses={**ERRORS, 200: STREAM})
async def responses(body: ResponsesRequest, request: Request) -> Response:
    """Answer a conversation, as the Responses API has it."""
    return await _answered(body, request)


ASKED: dict[int | str, dict[str, Any]] = {status: ERRORS[status] for status in (400, 401, 404, 408, 413, 503)}


@router.post("/tokenize", responses=ASKED)
async def tokenize(body: TokenizeRequest, request: Request) -> dict[str, Any]:
    """The token ids of a text, or of a conversation by the chat template."""
    service = _service_for(body, request)
    return await service.aside(tokenized, body, service.catalogue, service.limits)


@router.post("/detokenize", responses=ASKED)
async def detokenize(body: DetokenizeRequest, request: Request) -> dict[str, Any]:
    """The text of token ids."""
    service = _service_for(body, request)
    return await service.aside(detokenized, body, service.catalogue)


@router.get("/version")
async def version() -> dict[str, str]:
    """Which decgraph this is."""
    return {"version": __version__}


@router.get("/")
async def root(request: Request) -> dict[str, Any]:
    """What is served here."""
    return {"decgraph": __version__, "models": service_of(request).catalogue.ids(), "api": "/v1", "docs": "/docs"}


@router.get("/ping")
@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the process lives."""
    return {"status": "ok"}


@router.get("/ready", responses={503: ERRORS[503]})
async def ready(request: Request) -> dict[str, str]:
    """Whether new work is taken, and waits for nothing that only the first one waits for."""
    service = service_of(request)
    if service.draining or not service.ready:
        raise Refusal(503, "the server is shutting down" if service.draining else "the server is warming up")
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def metrics(request: Request) -> Response:
    """Prometheus' metrics."""
    data, kind = service_of(request).metrics.text()
    return Response(data, headers={"content-type": kind})


async def _answered(body: CompletionRequest | ChatRequest | ResponsesRequest, request: Request) -> Response:
    service = _service_for(body, request)
    generation = await service.read(chat_of(body) if isinstance(body, ResponsesRequest) else body)
    writer = ResponseWriter(generation, body) if isinstance(body, ResponsesRequest) else AnswerWriter(generation)
    exchange = Exchange(service, generation, writer, request.state.arrived)
    exchange.begin()  # a full queue is a status, not an event
    if generation.stream:
        return _Stream(exchange, request.state.told)
    whole = await _unless_gone(exchange, _whole(exchange), request.receive, request.state.told)
    return Response(status_code=499) if whole is None else JSONResponse(whole)


def _service_for(body: _Strict, request: Request) -> Service:
    """The service of a request. Unknown fields of its body are ignored, and named in the log; raises `Refusal` for those that
    would change the answer, and with --strict-fields for all."""
    service, ignored = service_of(request), []
    for place, kind in unknown_fields(body):
        last = place.rpartition(".")[2]
        if last in REFUSED:
            values, why = REFUSED[last]
            but = f", except as {json.dumps(values[0])}" if values else ""
            raise Refusal(400, f"`{place}` is not supported{but}: {why}", param=place, code="unsupported_field")
        if service.limits.strict:
            known = kind.model_fields.keys() | (ALIASES.keys() if issubclass(kind, Common) else set())
            near = difflib.get_close_matches(last, known, 1)
            hint = f" (try: did you mean {near[0]}?)" if near else ""
            raise Refusal(400, f"unrecognised field: {place}{hint}", param=place, code="unknown_field")
        ignored.append(place[:64])
    request.state.told.update({"ignored_fields": ignored[:16]} if ignored else {})
    return service


async def _whole(exchange: Exchange) -> dict[str, Any]:
    async for _ in exchange.heard():
        pass
    return exchange.writer.whole(exchange.answers)


async def _unless_gone(exchange: Exchange, work: Coroutine[Any, Any, T], receive: Receive, told: dict[str, Any]) -> T | None:
    """What a coroutine returns, or None when the client goes away before. The exchange is left, and the log told."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        exchange.disconnected = not tasks[0].done()
        return None if exchange.disconnected else tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await exchange.close()
        told.update(exchange.told())


class _Stream(StreamingResponse):
    """The events of an exchange, which is left when they end or the client goes away."""

    def __init__(self, exchange: Exchange, told: dict[str, Any]) -> None:
        super().__init__(_events(exchange), media_type="text/event-stream", headers=STREAMED)
        self.exchange, self.told = exchange, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The response."""
        await _unless_gone(self.exchange, self.stream_response(send), receive, self.told)


async def _events(exchange: Exchange) -> AsyncIterator[bytes]:
    """The events of a stream: each answer's text as it grows, the usage if requested, `[DONE]`."""
    writer, answers = exchange.writer, exchange.answers
    for data in writer.opening(answers):
        yield data
    try:
        async for heard in exchange.heard(SILENCE):
            for data in writer.grown(answers, *heard) if heard else (b": waiting\n\n",):
                yield data
    except Refusal as refusal:
        yield writer.failed(refusal.body())
        return
    for data in writer.closing(answers):
        yield data


async def _refused(request: Request, error: Exception) -> Response:
    """The answer of a refusal, which the log tells too."""
    assert isinstance(error, Refusal)
    request.state.told.update(error.logged())
    return JSONResponse(error.body(), error.status, headers=error.headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405 and request.method == "OPTIONS":  # what may be sent there
        return Response(status_code=204, headers=dict(error.headers or {}))
    message = {
        400: "the body cannot be read: it is no UTF-8, or its JSON is nested too deeply, or has a number that is too long",
        404: f"there is no {request.url.path} here",
        405: f"{request.method} does not go with {request.url.path}",
    }
    said = message.get(error.status_code, str(error.detail))
    return await _refused(request, Refusal(error.status_code, said, headers=dict(error.headers or {})))


async def _invalid(request: Request, error: Exception) -> Response:
    """A body that is no JSON, or not of the shape."""
    assert isinstance(error, RequestValidationError)
    return await _refused(request, _wrong(error, request.headers.get("content-type", "")))


def _wrong(error: RequestValidationError, content: str) -> Refusal:
    found = error.errors()
    first = found[0]
    place = fields(first["loc"])
    if first["type"] == "json_invalid":
        return Refusal(400, "the body is not JSON")
    if not place and first["type"] == "missing":
        return Refusal(400, "the body is empty")
    if not place and "json" not in content:
        return Refusal(400, "the body is not read: send it with the header `Content-Type: application/json`")
    # For a field of several types, the message is that of the type that fits furthest, or of all that fit equally far.
    of_field = [one for one in found if fields(one["loc"])[:1] == place[:1]]
    most = max(len(fields(one["loc"])) for one in of_field)
    furthest = [one for one in of_field if len(fields(one["loc"])) == most]
    # A type that is not supported, or half a character, explains what else does not fit.
    furthest.sort(key=lambda one: one["type"] not in ("literal_error", "string_unicode"))
    furthest = furthest[:1] if furthest[0]["type"] == "string_unicode" else furthest
    place = fields(furthest[0]["loc"])
    said = " or ".join(dict.fromkeys(plain(one) for one in furthest if fields(one["loc"]) == place))
    sent = error.body if isinstance(error.body, dict) else {}
    if place and place[0] not in sent:  # the name that the client has for it
        names = [alias for alias, to in ALIASES.items() if to == tuple(place[: len(to)]) and alias in sent]
        place = [*names[:1], *place[len(ALIASES[names[0]]) :]] if names else place
    message = f"`{'.'.join(place)}` {said}" if place else said
    return Refusal(400, message, param=place[0] if place else None)


WORDS = {
    "missing": "is needed",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be below {lt}",
    "string_unicode": "has half of a surrogate pair, which is no character",
    "string_too_short": "must not be empty",
    "string_too_long": "must have {max_length} characters or less",
    "string_pattern_mismatch": "must be a name: letters, digits, and . _ : -",
    "too_short": "must not be empty",
    "too_long": "must have {max_length} items or less",
    "literal_error": "must be {expected}, and is {input!r:.40}",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
}
"""The message for a wrong value, by pydantic's name of the error."""


def plain(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, in words of ours: pydantic's speak of Python."""
    words, known = WORDS.get(error["type"]), error.get("ctx") or {}
    if words is None or error["type"] == "too_long" and "max_length" not in known:
        return str(error["msg"])
    return words.format(**known, input=error["input"])


_TYPES = re.compile(r"body|bool|int|float|str|none|.*[\[\]-].*|[A-Z]\w*")
"""What pydantic puts into the place of an error besides fields: the type of a union that it tried."""


def fields(place: Sequence[str | int]) -> list[str]:
    """The fields and indices of an error's place."""
    return [str(part) for part in place if not (isinstance(part, str) and _TYPES.fullmatch(part))]


class _Cors(CORSMiddleware):
    """Says in the log which page may not call the server: its own reader learns no more than that."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser that wants to know whether a page may send a request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code >= 400:
            origin = request_headers["origin"]
            LOG.warning("a page may not call", extra={"fields": {"origin": origin, "try": f"--cors {origin}"}})
        return answer


def app_of(service: Service, *, keys: Sequence[str] = (), origins: Sequence[str] = (), traces: Traces | None = None) -> FastAPI:
    """The application of a service. keys: API keys, none where none is needed. origins: of pages that may call it, besides
    those of this machine; "*": of all. traces: where spans of requests go."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.stop)

    app = FastAPI(title="decgraph", version=__version__, lifespan=lifespan, redirect_slashes=False)
    app.state.service = service
    service.began = time.time()
    app.include_router(router)
    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        Refusal: _refused,
        HTTPException: _http,
        RequestValidationError: _invalid,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    limits = service.limits
    app.add_middleware(Guard, service.metrics, keys, limits.body, limits.seconds, lambda: service.draining, traces)
    app.add_middleware(
        _Cors, allow_origins=origins, allow_origin_regex=LOCAL, allow_methods=["GET", "POST"], allow_headers=["*"],
        allow_private_network=True, expose_headers=["x-request-id", "retry-after"],
    )  # fmt: skip
    schema = app.openapi

    def openapi() -> dict[str, Any]:
        """The schema without 422: a wrong body is a 400, as OpenAI's."""
        made = schema()
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does
    return app
