"""Counters of a service, by metric name, and a counter of practicum's own failures, which must not make a request
fail."""

from __future__ import annotations

import logging
from traceback import extract_tb

from practicum.core.metrics import of_kind

logger = logging.getLogger("practicum.serve")

_NAMES = frozenset(metric.field for metric in of_kind("counter"))


class ServiceCounts(dict[str, int]):
    """Counters of a service by metric name (`core.metrics`). Raises KeyError for an unknown name."""

    def __missing__(self, name: str) -> int:
        if name not in _NAMES:
            raise KeyError(name)
        return 0


class FaultCounter:
    """Counter of failures that logs the first failure of each kind. A kind is the operation that failed, the type of
    the error, and the line that raised it."""

    def __init__(self, counts: ServiceCounts) -> None:
        self._counts = counts
        self._logged: set[tuple[str, str, str, int | None]] = set()

    def note(self, operation: str, error: Exception) -> None:
        """Count an error. Log the first error of each kind."""
        self._counts["failed_open"] += 1
        frame = extract_tb(error.__traceback__)[-1]
        kind = operation, type(error).__name__, frame.filename, frame.lineno
        if kind not in self._logged:
            self._logged.add(kind)
            logger.error(
                "%s failed, so the request is passed on unchanged; /health counts this as failed_open; later failures "
                "of this kind are not logged", operation, exc_info=error,
            )  # fmt: skip
