"""What everything that is sent over OTLP has in common: whose it is, by which protocol, why it did not arrive, and the
words of the semantic conventions for models. https://github.com/open-telemetry/semantic-conventions-genai
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
"""Nanoseconds in a second: the unit of all times."""

PROVIDERS = {
    "openai-chat": "openai", "openai-responses": "openai", "local": "llama_cpp", "google": "gcp.gemini",
    "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock", "mistral": "mistral_ai",
    "azure": "azure.ai.openai", "grok": "x_ai",
}  # fmt: skip
"""Names of the conventions for the prefixes of models; other prefixes are taken as they are."""


def require_spans(exporter: SpanExporter | None = None) -> None:
    """Raises UsageError if spans cannot be sent: a package is missing, or the environment asks for another protocol
    than that of the exporter that is used where none is given."""
    packages = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if any(find_spec(package) is None for package in packages):
        raise UsageError(
            "extra.missing", f"spans of OpenTelemetry need packages that are not installed: {pip_install('otel')}"
        )
    if exporter is None and (wrong := wrong_protocol("spans", "TRACES")):
        raise UsageError("telemetry.unavailable", wrong)


def first_set(*names: str) -> str | None:
    """The value of the first of these variables of the environment that is not empty."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def wrong_protocol(what: str, signal: str) -> str | None:
    """Why `what` cannot be sent: the environment asks for another protocol for this signal. None if it does not."""
    general = "OTEL_EXPORTER_OTLP_PROTOCOL"
    protocol = first_set(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", general) or "http/protobuf"
    return (
        None
        if protocol == "http/protobuf"
        else f"{what} are sent as http/protobuf only, but {general} asks for {protocol}"
    )


def resource() -> Resource:
    """The service that sends. A name from the environment takes precedence over ours."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    return Resource({"service.name": "practicum"}).merge(OTELResourceDetector().detect())


@contextmanager
def exporter_log(exporter: str) -> Iterator[list[str]]:
    """What an exporter for HTTP logs in this thread, which is all it says about a failure, kept off the terminal."""
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
    """Which model is asked, and where, in the words of the conventions; `model` is a name as commands take it."""
    kind, _, name = model.partition(":")
    found: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if kind in ("http", "https"):
        address, _, name = model.partition("#")
        kind, url = "openai", urlsplit(address)
        found |= {"server.address": url.hostname or "", **({"server.port": url.port} if url.port else {})}
    return found | {"gen_ai.provider.name": PROVIDERS.get(kind, kind), "gen_ai.request.model": name or model}


def usage_attributes(read: int, cached: int, written: int) -> dict[str, int]:
    """The tokens of a call in the words of the conventions: read, of them from the cache, and written."""
    return {
        "gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written,
        "gen_ai.usage.cache_read.input_tokens": cached,
    }  # fmt: skip


def counting_exporter(given: SpanExporter | None, log: logging.Logger, loss: str) -> Any:
    """The exporter, or that of OTLP. It says its first failure, and what follows from it (`loss`), and counts the
    spans that it lost."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    exporter = given or OTLPSpanExporter()

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
