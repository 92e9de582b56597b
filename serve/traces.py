"""OpenTelemetry: a span for each request of the API, by the conventions for generative models. A `traceparent` of the client's
is the span's parent (W3C Trace Context)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

ATTRIBUTES = {
    "model": ("gen_ai.request.model", "gen_ai.response.model"),
    "response_id": ("gen_ai.response.id",),
    "finish_reasons": ("gen_ai.response.finish_reasons",),
    "prompt_tokens": ("gen_ai.usage.input_tokens",),
    "completion_tokens": ("gen_ai.usage.output_tokens",),
    "answers": ("gen_ai.request.choice.count",),
    "max_tokens": ("gen_ai.request.max_tokens",),
    "temperature": ("gen_ai.request.temperature",),
    "seed": ("gen_ai.request.seed",),
    "first_token_seconds": ("gen_ai.response.time_to_first_chunk",),
    **{name: (f"decgraph.{name}",) for name in ("algorithm", "ended", "queued_seconds", "target_calls", "drafted", "accepted")},
}
"""What a request's log line has, as attributes of its span."""

OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/v1/responses": "chat"}


class Traces:
    """Spans of requests. tracer: OpenTelemetry's; see `exported`."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer, self._context = tracer, TraceContextTextMapPropagator()

    def begin(self, route: str, headers: Mapping[bytes, bytes]) -> Any:
        """The span of a request that has arrived; None for a route that computes no answer."""
        if route not in OPERATIONS:
            return None
        from opentelemetry.trace import SpanKind

        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        operation = OPERATIONS[route]
        known = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "decgraph", "http.route": route}
        return self._tracer.start_span(
            operation, self._context.extract(given), SpanKind.SERVER, known, start_time=time.time_ns()
        )

    def end(self, span: Any, told: Mapping[str, Any], status: int, request_id: str) -> None:
        """The span's end. told: what the log says of the request."""
        from opentelemetry.trace import Status, StatusCode

        for name, value in told.items():
            for attribute in ATTRIBUTES.get(name, ()) if value is not None else ():
                span.set_attribute(attribute, value)
        if "model" in told:
            span.update_name(f"{span.attributes['gen_ai.operation.name']} {told['model']}")
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("decgraph.request_id", request_id)
        if status >= 400:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def exported(endpoint: str | None, version: str) -> Traces:
    """Traces that are sent to a collector by OTLP over HTTP. endpoint: such as http://localhost:4318/v1/traces; None: what
    OTEL_EXPORTER_OTLP_ENDPOINT says. Raises ModuleNotFoundError without opentelemetry-sdk and its exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "decgraph", "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Traces(provider.get_tracer("decgraph", version))
