"""Failures of practicum that must not fail a request: each is counted, and each kind is logged once."""

from __future__ import annotations

import logging
from collections import Counter
from traceback import extract_tb

logger = logging.getLogger("practicum.serve")


class FaultCounter:
    """Counts failures in `counts`. A kind is what was being done, the type of the error and the line that raised it."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._logged: set[tuple[str, str, str, int | None]] = set()

    def note(self, doing: str, error: Exception) -> None:
        """Count an error, and log it if it is the first of its kind."""
        self._counts["failed open"] += 1
        frame = extract_tb(error.__traceback__)[-1]
        kind = doing, type(error).__name__, frame.filename, frame.lineno
        if kind not in self._logged:
            self._logged.add(kind)
            logger.error(
                "%s failed, and the request goes on unchanged: it is counted in /health as 'failed open', and logged "
                "once", doing, exc_info=error,
            )  # fmt: skip
