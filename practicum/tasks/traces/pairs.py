"""Logged pairs of a request to a model and its response: of LiteLLM, Helicone, OpenAI's and Anthropic's batches, and of
proxies and programs that log `{"request": ..., "response": ...}`.

An agent with tools sends the whole conversation again with each request. So a pair whose request begins with the
conversation of an earlier pair in the file continues the trace of that pair, as does a response of the Responses API
that names the earlier response. A batch has its requests in one file and the responses in another file of the same
folder, joined by `custom_id`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from practicum.core.types import Score, Task
from practicum.tasks.survey import digest
from practicum.tasks.traces.exchanges import request_items, response_items, unquoted
from practicum.tasks.traces.fields import first_at, object_at, own_id, recorded_score, text_at, value_at
from practicum.tasks.traces.trace import MOST_DOCUMENT, Item, Problem, RecordPlace, nonempty_values

MOST_OPEN = 1_000
"""Maximum number of conversations of a file that a later pair can continue."""

_CUT = ("length", "max_tokens", "max_output_tokens", "content_filter", "refusal")
"""Reasons for the end of an answer that make it incomplete."""


@dataclass(frozen=True)
class Pair:
    """Format of a logged pair. The values are paths in a record, with alternatives separated by `|`."""

    name: str
    request: str
    response: str
    marks: tuple[str, ...] = ()  # fields that a record of the format has
    id: str = "id"
    session: str = "session_id"
    error: str = "error"
    score: str = "score"
    tags: str = "tags"
    time: str = "timestamp|created_at"

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has this format."""
        has_marks = all(value_at(record, mark) is not None for mark in self.marks)
        if not has_marks or not isinstance(unquoted(first_at(record, self.request)), Mapping | list):
            return False
        has_response = isinstance(unquoted(first_at(record, self.response)), Mapping | list)
        return has_response or bool(first_at(record, self.error))


PAIRS = (
    Pair(
        "litellm", "proxy_server_request|messages", "response", ("call_type", "response"), time="startTime",
        session="session_id|trace_id", error="error_information/error_message|error_str", tags="request_tags",
    ),
    Pair(
        "helicone", "request_body", "response_body", ("request_body",), id="request_id|id",
        session="properties/Helicone-Session-Id|request_properties/Helicone-Session-Id", score="scores|feedback_rating",
        error="response_body/error/message|response_body/heliconeMessage", time="request_created_at",
    ),
    Pair("pair", "request/body|request/json|request|kwargs", "response/body|response/json|response/content|response",
         ("response",), error="error/message|error|response/error/message"),
)  # fmt: skip


BATCH = Pair(
    "batch", "body|params", "response/body|result/message", id="custom_id",
    error="error/message|response/body/error/message|result/error/error/message|result/type",
)  # fmt: skip


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a pair."""
    return not matches_batch(record) and any(pair.matches(record) for pair in PAIRS)


def matches_batch(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a request or a response of a batch."""
    return isinstance(record.get("custom_id"), str) and bool(record.keys() & {"body", "params", "response", "result"})


@dataclass(slots=True)
class _Exchange:
    """A request with its response, or all of one conversation. `place` and `id` belong to the first pair."""

    place: RecordPlace
    id: str | None
    items: list[Item]
    error: str | None
    score: Score | None
    meta: dict[str, Any]

    def after(self, earlier: _Exchange, items: list[Item]) -> _Exchange:
        """Return the conversation of this exchange and the exchange before it."""
        return replace(self, place=earlier.place, id=earlier.id, items=items, score=self.score or earlier.score)

    def tasks(self) -> Iterator[Task]:
        return self.place.task(self.items, id=self.id, error=self.error, score=self.score, meta=self.meta)


class PairReader:
    """Reader that collects the pairs of a file. At most MOST_OPEN conversations are held in memory."""

    def __init__(self) -> None:
        self._open: dict[int, _Exchange] = {}
        """Digest of a conversation → conversation."""
        self._by_response: dict[str, int] = {}
        """Id of a response of the Responses API → digest of its conversation."""

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
        """Add a pair, and yield the task of a conversation that ended."""
        pair = next(pair for pair in PAIRS if pair.matches(record))
        request, response = (unquoted(first_at(record, path)) for path in (pair.request, pair.response))
        exchange = _exchange(pair, record, request, response, place)
        if exchange is None:
            return
        previous = self._by_response.pop(text_at(request, "previous_response_id"), 0)
        if earlier := self._open.pop(previous, None):
            exchange = exchange.after(earlier, [*earlier.items, *exchange.items])
        else:
            begins = _digests(exchange.items)[:-1]
            if begin := next((digest for digest in reversed(begins) if digest in self._open), None):
                exchange = exchange.after(self._open.pop(begin), exchange.items)
        key = _digests(exchange.items)[-1]
        self._open[key] = exchange
        if id := text_at(response, "id"):
            self._by_response[id] = key
        if len(self._open) > MOST_OPEN:
            yield from self._open.pop(next(iter(self._open))).tasks()

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks of the other conversations."""
        for exchange in self._open.values():
            yield from exchange.tasks()


class BatchReader:
    """Reader that joins the requests and the responses of batches, which may be in several files. At most MOST_DOCUMENT
    bytes wait in memory for their counterparts."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[bytes, RecordPlace]] = {}
        self._size = 0

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
        """Add a record, and yield its task if its counterpart was read before."""
        id, is_request = record["custom_id"], bool(record.keys() & {"body", "params"})
        waiting, other_place = self._waiting.pop(id, (b"", place))
        if not waiting or bool(json.loads(waiting).keys() & {"body", "params"}) == is_request:
            data = to_json(record)
            self._size += len(data)
            if self._size > MOST_DOCUMENT:
                place.warn(f"batches of more than {MOST_DOCUMENT // 2**20} MB without their responses are left out")
            else:
                self._waiting[id] = (data, place)
            return
        self._size -= len(waiting)
        record = {**json.loads(waiting), **record}
        request, response = (unquoted(first_at(record, path)) for path in (BATCH.request, BATCH.response))
        exchange = _exchange(BATCH, record, request, response, other_place if is_request else place)
        yield from exchange.tasks() if exchange else ()

    def unmatched(self) -> Iterator[Problem]:
        """Yield a problem for each file with records that have no counterpart."""
        places: dict[tuple[str, str], list[RecordPlace]] = {}
        for data, place in self._waiting.values():
            missing = "response" if json.loads(data).keys() & {"body", "params"} else "request"
            places.setdefault((place.source.shown, missing), []).append(place)
        for (path, missing), all_places in places.items():
            reason = f"the {missing} of a batch is missing: put the file with the {missing}s into the same folder"
            yield Problem(path, all_places[0].line, f"{reason}; {len(all_places)} times", len(all_places))


def _exchange(
    pair: Pair, record: Mapping[str, Any], request: Any, response: Any, place: RecordPlace
) -> _Exchange | None:
    """Return a pair as an exchange. Report a pair that holds no conversation."""
    both = request_items(request, place.warn), response_items(response, place.warn)
    asked, answered = ([item for item in items if item.text.strip()] for items in both)
    error = text_at(record, *pair.error.split("|"))
    if not answered and not error:
        place.warn("a pair without an answer of a model")
        return None
    if any(item.text == "redacted-by-litellm" for item in asked):
        place.warn("a pair whose content was redacted by LiteLLM")
        return None
    end = text_at(response, "choices/0/finish_reason", "stop_reason", "incomplete_details/reason")
    error = error if not answered else f"the answer ended early: {end}" if end in _CUT else ""
    usage, time = object_at(response, "usage"), first_at(record, pair.time) or value_at(response, "created")
    tokens = [usage.get(key) for key in ("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens")]
    meta = {
        "session": text_at(record, *pair.session.split("|")),
        "model": text_at(response, "model") or text_at(request, "model") or text_at(record, "model"),
        "tokens": sum(value for value in tokens if isinstance(value, int)),
        "time": datetime.fromtimestamp(time, UTC).isoformat() if isinstance(time, int | float) else time,
        "tags": first_at(record, pair.tags),
    }
    score = first_at(record, pair.score)
    scores = score if isinstance(score, Mapping) and "value" not in score else {pair.score: score}
    return _Exchange(
        place,
        own_id({"id": first_at(record, pair.id)}, "id"),
        [*asked, *answered],
        error or None,
        recorded_score(scores, place.warn) if score is not None else None,
        nonempty_values({key: value for key, value in meta.items() if value}),
    )


def _digests(items: list[Item]) -> list[int]:
    """Return a digest of the conversation after each item. Thoughts do not count: later requests omit them."""
    digests, latest = [0], 0
    for item in items:
        if item.kind != "thought":
            latest = digest(f"{latest} {item.kind} {item.text}")
            digests.append(latest)
    return digests
