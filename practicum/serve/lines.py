"""Log of the service: lines on standard error, as text or as JSON.

Lines never contain questions, views, answers, keys, sessions or users. For an unexpected error, a line has the type and
the code location of the error, but not the message of the error, because a message may quote such data.
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
"""Logger with one record for each request; the attribute `request` has the values for `--log json`."""


def set_up(as_json: bool) -> None:
    """Write warnings to standard error. With `as_json`, write lines as JSON, and also a line for each request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else LineFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # psycopg logs a warning for each failed write, which also raises an error.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    if as_json:
        requests.setLevel(logging.INFO)


def where(error: BaseException) -> list[str]:
    """Return the types of an error and of its causes, each with its stack of code lines, innermost last."""
    result, seen = list[str](), set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        calls = (f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(cause.__traceback__))
        result.append(" > ".join([type(cause).__name__, *calls]))
        cause = cause.__cause__ or cause.__context__
    return result


class LineFormatter(logging.Formatter):
    """Formatter of records as text. A message becomes one line, and terminal control characters are escaped, because
    the message may quote a model server."""

    def format(self, record: logging.LogRecord) -> str:
        # Another formatter may have cached its text of the error in the record.
        record = copy(record)
        record.msg, record.args = visible_line(record.getMessage()), None
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        return visible("\n".join(where(ei[1])))


class JsonLines(logging.Formatter):
    """Formatter of records as JSON objects, one per line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        if (request := getattr(record, "request", None)) is not None:
            return visible_json(json.dumps({**line, **request}, ensure_ascii=False))
        line["message"] = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = where(record.exc_info[1])
        return visible_json(json.dumps(line, ensure_ascii=False))
