"""Spans of OpenTelemetry: one for each request to a model, and below it one for what the upstream was asked, by the
semantic conventions for HTTP and for generative AI. They hold no contents, and neither sessions nor users.

The client's trace goes on: its `traceparent` is the parent, and the upstream gets that of the span below.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from practicum.models.otlp import NANO, counting_exporter, model_attributes, require_spans, resource, usage_attributes
from practicum.serve.protocols import UpstreamAnswer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

PATIENCE = 3.0
"""Seconds that the end of the service waits for what is left to send."""

logger = logging.getLogger("practicum.serve")


class Spans:
    """Sends spans over OTLP (HTTP, protobuf), as the variables OTEL_* say; `exporter` is another exporter of the SDK.
    Raises UsageError if a package is missing or the environment asks for another protocol."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        require_spans(exporter)
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=resource())
        self._provider.add_span_processor(
            BatchSpanProcessor(counting_exporter(exporter, logger, "and the service goes on without them"))
        )
        self.tracer = self._provider.get_tracer("practicum")
        self.trace = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send what is left, if it is taken soon."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(PATIENCE)


class Span:
    """The two spans of a request to a model, from `began` (in seconds of the monotonic clock) on. `upstream` is a name
    as commands take it, and `model` one that is known, or `other`."""

    def __init__(
        self, spans: Spans, headers: Mapping[str, str], path: str, began: float, upstream: str, model: str
    ) -> None:  # fmt: skip
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        start = time.time_ns() - int((time.monotonic() - began) * NANO)
        about = {"http.request.method": "POST", "http.route": path, "url.path": path}
        # What is set by another tracer in this process is no parent of ours.
        parent = spans.trace.extract(headers, Context())
        self._outer = spans.tracer.start_span(f"POST {path}", parent, SpanKind.SERVER, about, start_time=start)
        about = {**model_attributes(upstream), "gen_ai.request.model": model}
        below = set_span_in_context(self._outer, Context())
        self._inner = spans.tracer.start_span(f"chat {model}".strip(), below, SpanKind.CLIENT, about)
        self._trace, self._below = spans.trace, set_span_in_context(self._inner, Context())

    def pass_trace(self, headers: MutableMapping[str, str]) -> None:
        """Put the trace into the headers of the request to the upstream."""
        self._trace.inject(headers, self._below)

    def end(self, status: int, answer: UpstreamAnswer | None, error: str, about: Mapping[str, Any]) -> None:
        """End both: the status that the client got, what the upstream answered, and how it failed ("" if it did not).
        `about` is what practicum knows of the request."""
        from opentelemetry.trace import StatusCode

        if answer is not None:
            self._inner.set_attributes(
                usage_attributes(answer.input_tokens, answer.cached_tokens, answer.output_tokens)
            )
            told = {"gen_ai.response.id": answer.id, "gen_ai.response.model": answer.model}
            self._inner.set_attributes({name: value for name, value in told.items() if value})
        if error:
            self._inner.set_attribute("error.type", error)
            self._inner.set_status(StatusCode.ERROR)
        if status >= 500:
            self._outer.set_attribute("error.type", error or str(status))
            self._outer.set_status(StatusCode.ERROR)
        known = {f"practicum.{name}": value for name, value in about.items() if value is not None}
        self._outer.set_attributes({"http.response.status_code": status, **known})
        self._inner.set_attributes(known)
        self._inner.end()
        self._outer.end()
