"""What everything that is sent over OTLP has in common: whose it is, by which protocol, and why it did not arrive."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

NANO = 1_000_000_000
"""Nanoseconds in a second: the unit of all times."""


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
