"""Trajectories of mini-swe-agent: `{"messages": [...], "info": {...}, "trajectory_format": "mini-swe-agent-1.1"}`.

The task is the first user message. What comes later as a user is the environment's answer, unless
`extra.interrupt_type` says that a person spoke; actions stand in the assistant's words (version 1) or in its tool
calls (version 2, both OpenAI APIs). The answer is `info.submission`; a message of the role `exit` only repeats how
it ended. A trajectory holds no score of its own; one that was added is read (see `scores`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.tasks.traces.messages import of_message
from practicum.tasks.traces.scores import score_in
from practicum.tasks.traces.swe_agent import named_by_file, unfinished
from practicum.tasks.traces.trace import (
    OBSERVATION,
    USER,
    Found,
    Notes,
    Odd,
    Place,
    Word,
    items_of,
    own_id,
    part_of,
    text_of,
    told,
)


def read(record: Mapping[str, Any], place: Place, notes: Notes) -> Iterator[Found]:
    """The trace of one record."""
    odd = notes.at(place.line)
    info = part_of(record, "info")
    status = text_of(info, "exit_status")
    # Of a run that hit a limit, version 1 has the error's text as its submission.
    submission = text_of(info, "submission") if status in ("", "Submitted") else ""
    words = list(_words(record, odd))
    if submission and words and words[-1].text == submission:
        words.pop()
    yield from told(
        words,
        place,
        notes,
        id=own_id(record, "instance_id") or named_by_file(place, notes),
        answer=submission,
        error=unfinished(info, submission),
        score=score_in(record, odd),
        meta={
            "model": text_of(part_of(info, "config", "model"), "model_name"),
            "exit_status": status,
            "agent": text_of(info, "mini_version"),
        },
    )


def _words(record: Mapping[str, Any], odd: Odd) -> Iterator[Word]:
    asked = False
    for message in items_of(record, "messages", odd):
        if message.get("role") == "exit":
            continue
        interrupted = text_of(part_of(message, "extra"), "interrupt_type").startswith("User")
        for word in of_message(message, odd):
            observed = word.kind == USER and asked and not interrupted
            asked = asked or word.kind == USER
            yield word._replace(kind=OBSERVATION) if observed else word
