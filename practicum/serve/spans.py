"""Spans of OpenTelemetry for requests to models: an outer span of the client's request, and as its child an inner span
of the upstream request. Both spans follow the semantic conventions for HTTP and for generative AI, and contain no
texts, sessions or users.

The trace of the client continues: the span in the client's `traceparent` is the parent of the outer span. The upstream
receives the inner span in `traceparent`, as the parent for the upstream's own spans.
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
"""Time (s) that the shutdown waits for unsent spans."""

logger = logging.getLogger("practicum.serve")


class Spans:
    """Exporter of spans over OTLP (HTTP, protobuf), configured by the variables OTEL_*. A passed `exporter` replaces
    the exporter over OTLP. Raises UsageError if a package is missing, or if the environment selects another
    protocol."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        require_spans(exporter)
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=resource())
        self._provider.add_span_processor(
            BatchSpanProcessor(counting_exporter(exporter, logger, "and the service goes on without these spans"))
        )
        self.tracer = self._provider.get_tracer("practicum")
        self.trace = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send the remaining spans, within PATIENCE."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(PATIENCE)


class Span:
    """Outer and inner span of a request to a model. The request began at `began` (monotonic, s). `upstream` is the
    upstream as commands name it, and `model` is the requested model, or `other` for an unknown model."""

    def __init__(
        self, spans: Spans, headers: Mapping[str, str], path: str, began: float, upstream: str, model: str
    ) -> None:  # fmt: skip
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        start = time.time_ns() - int((time.monotonic() - began) * NANO)
        attributes = {"http.request.method": "POST", "http.route": path, "url.path": path}
        # The empty context makes the outer span ignore current spans of other tracers in this process.
        parent = spans.trace.extract(headers, Context())
        self._outer = spans.tracer.start_span(f"POST {path}", parent, SpanKind.SERVER, attributes, start_time=start)
        attributes = {**model_attributes(upstream), "gen_ai.request.model": model}
        below = set_span_in_context(self._outer, Context())
        self._inner = spans.tracer.start_span(f"chat {model}".strip(), below, SpanKind.CLIENT, attributes)
        self._trace, self._below = spans.trace, set_span_in_context(self._inner, Context())

    def pass_trace(self, headers: MutableMapping[str, str]) -> None:
        """Write the trace context of the inner span into the headers of the upstream request."""
        self._trace.inject(headers, self._below)

    def end(self, status: int, answer: UpstreamAnswer | None, error: str, about: Mapping[str, Any]) -> None:
        """End both spans with the status sent to the client, the upstream's answer, and the upstream's error ("":
        none). `about` has attributes of the request, such as its space."""
        from opentelemetry.trace import StatusCode

        if answer is not None:
            self._inner.set_attributes(
                usage_attributes(answer.input_tokens, answer.cached_tokens, answer.output_tokens)
            )
            response = {"gen_ai.response.id": answer.id, "gen_ai.response.model": answer.model}
            self._inner.set_attributes({name: value for name, value in response.items() if value})
        if error:
            self._inner.set_attribute("error.type", error)
            self._inner.set_status(StatusCode.ERROR)
        if status >= 500:
            self._outer.set_attribute("error.type", error or str(status))
            self._outer.set_status(StatusCode.ERROR)
        attributes = {f"practicum.{name}": value for name, value in about.items() if value is not None}
        self._outer.set_attributes({"http.response.status_code": status, **attributes})
        self._inner.set_attributes(attributes)
        self._inner.end()
        self._outer.end()
