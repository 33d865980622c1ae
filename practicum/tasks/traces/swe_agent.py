"""Trajectories of SWE-agent (`.traj`): `{"trajectory": [...], "history": [...], "info": {...}}`.

The task is the first user message of `history` that is no demonstration (of the first step's `query` where there is
no history); each step gives `reasoning_content` and `thought`, `action` and `observation`, or `response` where
neither thought nor action could be parsed. The answer is `info.submission`. Several `attempts` in a file are a trace
each. A trajectory holds no score of its own; one that was added is read (see `scores`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from practicum.tasks.traces.messages import as_json, of_message, plain
from practicum.tasks.traces.scores import score_in
from practicum.tasks.traces.trace import (
    ACTION,
    MESSAGE,
    OBSERVATION,
    SYSTEM,
    THOUGHT,
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
    """The traces of one file: one, or one an attempt."""
    name = own_id(record, "instance_id") or named_by_file(place, notes)
    attempts = record.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        yield from _attempt(record, name, place, notes, {})
        return
    # With attempts, what stands beside them is a copy of the one that was chosen.
    for number, attempt in enumerate(items_of(record, "attempts", notes.at(place.line)), 1):
        yield from _attempt(attempt, name, place, notes, {"attempt": number})


def named_by_file(place: Place, notes: Notes) -> str | None:
    """The instance that a file is named after, where it holds one trajectory."""
    if notes.path.suffix in (".jsonl", ".ndjson") or place.line not in (None, 1):
        return None
    return notes.path.name.removesuffix(".json").removesuffix(".traj")


def unfinished(info: Mapping[str, Any], submission: str) -> str | None:
    """Why there is no submission, as far as `info` says."""
    status = text_of(info, "exit_status")
    return None if submission or not status else f"ended without a submission ({status})"


def _attempt(
    attempt: Mapping[str, Any], name: str | None, place: Place, notes: Notes, meta: Mapping[str, Any]
) -> Iterator[Found]:
    odd = notes.at(place.line)
    info = part_of(attempt, "info")
    given = info.get("submission")
    submission = given if isinstance(given, str) else as_json(given) if given else ""
    steps = list(items_of(attempt, "trajectory", odd))
    yield from told(
        [*_task(attempt, steps, odd), *_steps(steps, odd)],
        place,
        notes,
        id=name,
        answer=submission,
        error=unfinished(info, submission),
        score=score_in(attempt, odd),
        meta={
            **meta,
            "model": _model(attempt),
            "exit_status": text_of(info, "exit_status"),
            "agent": text_of(info, "swe_agent_version"),
            "environment": text_of(attempt, "environment"),
        },
    )


def _task(attempt: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], odd: Odd) -> Iterator[Word]:
    """What stands before the agent's first message."""
    history = list(items_of(attempt, "history", odd))
    for message in history or items_of(steps[0] if steps else {}, "query", odd):
        if message.get("is_demo") or message.get("message_type") == "demonstration":
            continue
        if message.get("role") not in ("system", "user"):
            return
        yield from (word for word in of_message(message, odd) if word.kind in (SYSTEM, USER))


def _steps(steps: Iterable[Mapping[str, Any]], odd: Odd) -> Iterator[Word]:
    for step in steps:
        words = [
            Word(THOUGHT, plain(step.get("reasoning_content"), odd)),
            Word(THOUGHT, plain(step.get("thought"), odd)),
            Word(ACTION, plain(step.get("action"), odd)),
        ]
        if not any(word.text for word in words):
            words = [Word(MESSAGE, plain(step.get("response"), odd))]
        words.append(Word(OBSERVATION, plain(step.get("observation"), odd)))
        if not any(word.text for word in words):
            odd("a step without thought, action, observation or response")
        yield from words


def _model(attempt: Mapping[str, Any]) -> str:
    """The model's name, out of the settings that a replay would take."""
    raw = attempt.get("replay_config")
    try:
        settings = from_json(raw) if isinstance(raw, str) else raw
    except ValueError:
        # Settings of some other version: the trace is none the worse for it.
        return ""
    return text_of(part_of(settings, "agent", "model"), "name")
