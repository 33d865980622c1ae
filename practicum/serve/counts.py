"""What a service counts, by the names of its metrics; and failures of practicum that must not fail a request."""

from __future__ import annotations

import logging
from traceback import extract_tb

from practicum.core.metrics import of_kind

logger = logging.getLogger("practicum.serve")

_NAMES = frozenset(metric.field for metric in of_kind("counter"))


class ServiceCounts(dict[str, int]):
    """The counters of a service by the names of their metrics (`core.metrics`). Raises KeyError for another name."""

    def __missing__(self, name: str) -> int:
        if name not in _NAMES:
            raise KeyError(name)
        return 0


class FaultCounter:
    """Counts failures in `counts`, and logs the first of each kind. A kind is the work that failed, the type of the
    error, and the line that raised it."""

    def __init__(self, counts: ServiceCounts) -> None:
        self._counts = counts
        self._logged: set[tuple[str, str, str, int | None]] = set()

    def note(self, doing: str, error: Exception) -> None:
        """Count an error, and log it if it is the first of its kind."""
        self._counts["failed_open"] += 1
        frame = extract_tb(error.__traceback__)[-1]
        kind = doing, type(error).__name__, frame.filename, frame.lineno
        if kind not in self._logged:
            self._logged.add(kind)
            logger.error(
                "%s failed, and the request goes on unchanged: it is counted in /health as failed_open, and logged "
                "once", doing, exc_info=error,
            )  # fmt: skip
