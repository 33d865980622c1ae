"""Sessions of coding agents. A file holds one session or several; a session holds one request of the user or several.

A reader collects the lines of a file and converts each session to items (see `Item`). Two more kinds of items occur in
sessions: "interruption" (the user stopped the agent) and "error" (the program or the provider failed).

Each request is a task, and the agent's work on it is the recorded attempt. A message of the user begins a new request,
unless the message belongs to the request before it (see `followup`). The history of a task has the earlier requests of
the session, each with the agent's last message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from practicum.core.types import Task, Turn
from practicum.core.views import truncate
from practicum.tasks.traces.evidence import evidence, followup
from practicum.tasks.traces.trace import Item, RecordPlace

MOST_ITEM = 100_000
"""Maximum number of characters of a text in a session."""

MOST_HISTORY = 6
"""Maximum number of earlier requests in the history of a task."""

MOST_TEXT = 2_000
"""Maximum number of characters of a text in the history of a task."""


class SessionReader(Protocol):
    """Reader that collects the lines of a file, and at the end converts the sessions to tasks."""

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        """Add a line of the file."""

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, in the order of the first lines of their sessions."""


@dataclass(slots=True)
class Session:
    """A session, or the part of it that one agent worked on. `place` is its first line."""

    place: RecordPlace
    id: str = ""
    items: list[Item] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    def add(self, items: Iterable[Item]) -> None:
        """Add items. The middle of a text of more than MOST_ITEM characters is left out."""
        for item in items:
            if len(item.text) > MOST_ITEM:
                self.place.warn(f"the middle of a text of more than {MOST_ITEM:,} characters is left out")
                item = item._replace(text=truncate(item.text, MOST_ITEM))
            # A session may have hundreds of megabytes of images.
            self.items.append(item._replace(images=()) if item.images else item)

    def tasks(self) -> Iterator[Task]:
        """Yield one task per request."""
        before, requests = _requests([item for item in self.items if item.text.strip()])
        id = self.id or f"{self.place.source.name}{self.place.tag}"
        history: list[Turn] = []
        for number, (items, later) in enumerate(zip(requests, [*requests[1:], []], strict=False), 1):
            for task in self.place.task(
                [*(item for item in before if number == 1 or item.kind == "system"), *items],
                id=f"{id}/{number}" if len(requests) > 1 else id,
                error=items[-1].text if items[-1].kind in ("error", "interruption") else None,
                meta=self.meta,
                history=tuple(history[-MOST_HISTORY:]),
                evidence=evidence(items, later),
                later=truncate(later[0].text, MOST_TEXT) if later else "",
            ):
                yield task
                answer = "" if task.recorded is None else task.recorded.trace.answer
                history.append(Turn(truncate(task.input, MOST_TEXT), truncate(answer, MOST_TEXT)))


def _requests(items: list[Item]) -> tuple[list[Item], list[list[Item]]]:
    """Split the items of a session. Return the items before the first request, and the items of each request. Messages
    of the user without work of the agent between them are one request."""
    before: list[Item] = []
    requests: list[list[Item]] = []
    for item in items:
        if item.kind == "user" and requests and all(one.kind in ("user", "system") for one in requests[-1]):
            requests[-1][0] = Item("user", f"{requests[-1][0].text}\n{item.text}")
        elif item.kind == "user" and not (requests and followup(requests[-1], item.text)):
            requests.append([item])
        else:
            (requests[-1] if requests else before).append(item)
    return before, requests
