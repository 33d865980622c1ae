"""What the service says about itself: lines on standard error, as text or as JSON.

What was asked, shown and answered is never in them, and neither are keys, sessions and users. So of an error that
nobody foresaw, a line has its type and where it was raised, but not its message, which may quote what was read.
"""

from __future__ import annotations

import json
import logging
import sys
from copy import copy
from datetime import UTC, datetime
from traceback import extract_tb
from typing import Any

from practicum.core.visible import visible, visible_json, visible_line

requests = logging.getLogger("practicum.requests")
"""One record for each request, with what `--log json` writes of it as the attribute `request`."""


def set_up(as_json: bool) -> None:
    """Write warnings to standard error, and with `as_json` a line for each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else LineFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # It warns of each write that fails, which is raised too.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    if as_json:
        requests.setLevel(logging.INFO)


def where(error: BaseException) -> list[str]:
    """The types of an error and of its causes, each with the lines of code that led there, the innermost one last."""
    found, seen = list[str](), set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        calls = (f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(cause.__traceback__))
        found.append(" > ".join([type(cause).__name__, *calls]))
        cause = cause.__cause__ or cause.__context__
    return found


class LineFormatter(logging.Formatter):
    """Records as text. A message is one line, and what a terminal would obey in it is escaped: it may quote a model
    server."""

    def format(self, record: logging.LogRecord) -> str:
        # Another handler may have kept there how it writes the error.
        record = copy(record)
        record.msg, record.args = visible_line(record.getMessage()), None
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        return visible("\n".join(where(ei[1])))


class JsonLines(logging.Formatter):
    """Each record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        if (request := getattr(record, "request", None)) is not None:
            return visible_json(json.dumps({**line, **request}, ensure_ascii=False))
        line["message"] = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = where(record.exc_info[1])
        return visible_json(json.dumps(line, ensure_ascii=False))
