"""Shared code for exports over OTLP: the resource, checks of the protocol, reports of failures, and attributes of the
semantic conventions for models. https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from practicum.core.errors import UsageError
from practicum.core.requirements import pip_install

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

NANO = 1_000_000_000
"""Nanoseconds per second. The times of spans are in nanoseconds."""

PROVIDERS = {
    "openai-chat": "openai", "openai-responses": "openai", "local": "llama_cpp", "google": "gcp.gemini",
    "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock", "mistral": "mistral_ai",
    "azure": "azure.ai.openai", "grok": "x_ai",
}  # fmt: skip
"""Prefix of a model name → provider name of the conventions; other prefixes are used unchanged."""


def require_spans(exporter: SpanExporter | None = None) -> None:
    """Raise UsageError if spans cannot be sent: a package is missing, or, without `exporter`, the environment asks for
    a protocol that the default exporter does not support."""
    packages = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if any(find_spec(package) is None for package in packages):
        raise UsageError(
            "extra.missing", f"OpenTelemetry spans need packages that are not installed: {pip_install('otel')}"
        )
    if exporter is None and (wrong := wrong_protocol("spans", "TRACES")):
        raise UsageError("telemetry.unavailable", wrong)


def first_set(*names: str) -> str | None:
    """Return the value of the first of these environment variables that is not empty, or None."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def wrong_protocol(data: str, signal: str) -> str | None:
    """Return a message if the environment asks for an unsupported protocol for `signal` ("TRACES" or "METRICS", as in
    names of environment variables), else None. The message calls the data `data`."""
    general = "OTEL_EXPORTER_OTLP_PROTOCOL"
    protocol = first_set(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", general) or "http/protobuf"
    return (
        None
        if protocol == "http/protobuf"
        else f"{data} are only sent as http/protobuf, but {general} asks for {protocol}"
    )


def resource() -> Resource:
    """Return the resource with the service name. A name from the environment takes precedence over "practicum"."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    return Resource({"service.name": "practicum"}).merge(OTELResourceDetector().detect())


@contextmanager
def exporter_log(exporter: str) -> Iterator[list[str]]:
    """Collect the log messages of an HTTP exporter in this thread, and hide them from the terminal. The exporter
    reports failures only in its log."""
    thread, messages = threading.get_ident(), list[str]()
    logger = logging.getLogger(f"opentelemetry.exporter.otlp.proto.http.{exporter}")

    def keep(record: logging.LogRecord) -> bool:
        if record.thread == thread:
            messages.append(" ".join(record.getMessage().split()))
        return record.thread != thread

    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)


def model_attributes(model: str) -> dict[str, Any]:
    """Return the attributes of the semantic conventions for a model and its server; `model` is a model name as in
    commands."""
    kind, _, name = model.partition(":")
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if kind in ("http", "https"):
        address, _, name = model.partition("#")
        kind, url = "openai", urlsplit(address)
        attributes |= {"server.address": url.hostname or "", **({"server.port": url.port} if url.port else {})}
    return attributes | {"gen_ai.provider.name": PROVIDERS.get(kind, kind), "gen_ai.request.model": name or model}


def usage_attributes(read: int, cached: int, written: int) -> dict[str, int]:
    """Return the attributes of the semantic conventions for the tokens of a call: input, cached input, and output."""
    return {
        "gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written,
        "gen_ai.usage.cache_read.input_tokens": cached,
    }  # fmt: skip


def counting_exporter(wrapped: SpanExporter | None, log: logging.Logger, loss: str) -> Any:
    """Wrap an exporter (None: the OTLP exporter). The wrapper logs the first failure with its consequence (`loss`), and
    counts lost spans."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    exporter = wrapped or OTLPSpanExporter()

    class Counting(SpanExporter):
        lost = 0

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            with exporter_log("trace_exporter") as reasons:
                result = exporter.export(spans)
            if result is not SpanExportResult.SUCCESS:
                if not self.lost:
                    reason = reasons[0] if reasons else "no reason given"
                    log.warning("otel: spans could not be sent, %s (%s)", loss, reason)
                self.lost += len(spans)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Counting()
