"""Trajectories of SWE-agent and mini-swe-agent. Neither format has a score. A score that was added to a record is read
(see `stored_score`).

SWE-agent (`.traj`): `{"trajectory": [...], "history": [...], "info": {...}}`. The task is the first user message of
`history` that is not a demonstration (or of the first step's `query`, if `history` is empty). Each step holds
`reasoning_content`, `thought`, `action` and `observation`, or only `response` and `observation` if neither thought nor
action could be parsed. Each of several `attempts` is a separate trace.

mini-swe-agent: `{"messages": [...], "info": {...}, "trajectory_format": "mini-swe-agent-1.1"}`. The task is the first
user message. Later user messages are the environment's observations, unless `extra.interrupt_type` marks a message of a
person. Actions are in the assistant's text (version 1) or in its tool calls (version 2, both OpenAI APIs). A message of
role `exit` only repeats the exit status and is skipped.

In both formats, the answer is `info.submission`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.fields import decoded, object_at, objects_in, own_id, stored_score, text_at, texts_at
from practicum.tasks.traces.messages import as_json, items_of_message, result_text
from practicum.tasks.traces.trace import Item, RecordPlace


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the format of SWE-agent."""
    steps = record.get("trajectory", record.get("attempts"))
    if not isinstance(steps, list):
        return False
    if "history" in record or "info" in record:
        return True
    fields = {"trajectory", "thought", "action", "observation", "response"}
    return any(isinstance(step, Mapping) and fields & step.keys() for step in steps)


def matches_mini(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the format of mini-swe-agent."""
    if str(record.get("trajectory_format")).startswith("mini-swe-agent"):
        return True
    has_outcome = object_at(record, "info").keys() & {"exit_status", "submission"}
    return bool(has_outcome) and isinstance(record.get("messages"), list)


def read(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
    """Yield the task of a SWE-agent file, or one task per attempt in it."""
    id = _instance_id(record, place)
    if not isinstance(record.get("attempts"), list) or not record["attempts"]:
        yield from _read_attempt(record, id, place, None)
        return
    # The fields other than `attempts` repeat the chosen attempt.
    for number, attempt in enumerate(objects_in(record, "attempts", place.warn), 1):
        yield from _read_attempt(attempt, id, place, number)


def read_mini(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
    status, stored = text_at(record, "info/exit_status"), text_at(record, "info/submission")
    # When a run hits a limit, version 1 stores the text of the error as the submission.
    submission = stored if status in ("", "Submitted") else ""
    items = list(_mini_items(record, place))
    if submission and items and items[-1].text == submission:
        items.pop()
    return place.task(
        items,
        id=_instance_id(record, place),
        answer=submission,
        error=_missing_submission(status, submission),
        score=stored_score(record, place.warn),
        meta=texts_at(
            record, model="info/config/model/model_name", exit_status="info/exit_status", agent="info/mini_version"
        ),
    )


def _instance_id(record: Mapping[str, Any], place: RecordPlace) -> str | None:
    """Return the id in the record. If the record has no id, return the file's name if the file holds only this
    trajectory, else None."""
    path = place.source.path
    single = path.suffix not in (".jsonl", ".ndjson") and place.line in (None, 1)
    return own_id(record, "instance_id") or (path.name.removesuffix(".json").removesuffix(".traj") if single else None)


def _missing_submission(status: str, submission: str) -> str | None:
    return None if submission or not status else f"ended without a submission ({status})"


def _read_attempt(attempt: Mapping[str, Any], id: str | None, place: RecordPlace, number: int | None) -> Iterator[Task]:
    stored = object_at(attempt, "info").get("submission") or ""
    submission = stored if isinstance(stored, str) else as_json(stored)
    steps = list(objects_in(attempt, "trajectory", place.warn))
    # `replay_config` holds the model's name.
    model = text_at(decoded(attempt.get("replay_config")), "agent/model/name")
    meta = texts_at(attempt, exit_status="info/exit_status", agent="info/swe_agent_version", environment="environment")
    return place.task(
        [*_prompt_items(attempt, steps, place), *_step_items(steps, place)],
        id=id,
        answer=submission,
        error=_missing_submission(meta["exit_status"], submission),
        score=stored_score(attempt, place.warn),
        meta={"attempt": number, "model": model, **meta},
    )


def _prompt_items(attempt: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], place: RecordPlace) -> Iterator[Item]:
    """Yield the system and user items before the agent's first message."""
    history = list(objects_in(attempt, "history", place.warn))
    for message in history or objects_in(steps[0] if steps else {}, "query", place.warn):
        if message.get("is_demo") or message.get("message_type") == "demonstration":
            continue
        if message.get("role") not in ("system", "user"):
            return
        yield from (item for item in items_of_message(message, place.warn) if item.kind in ("system", "user"))


def _step_items(steps: Iterable[Mapping[str, Any]], place: RecordPlace) -> Iterator[Item]:
    for step in steps:
        fields = {"reasoning_content": "thought", "thought": "thought", "action": "action"}
        items = [Item(kind, result_text(step.get(name), place.warn)) for name, kind in fields.items()]
        if not any(item.text for item in items):
            items = [Item("message", result_text(step.get("response"), place.warn))]
        items.append(Item("observation", result_text(step.get("observation"), place.warn)))
        if not any(item.text for item in items):
            place.warn("a step without thought, action, observation or response")
        yield from items


def _mini_items(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    has_task = False
    for message in objects_in(record, "messages", place.warn):
        if message.get("role") == "exit":
            continue
        by_person = text_at(message, "extra/interrupt_type").startswith("User")
        for item in items_of_message(message, place.warn):
            observed = item.kind == "user" and has_task and not by_person
            has_task = has_task or item.kind == "user"
            yield item._replace(kind="observation") if observed else item
