"""ATIF, the trajectories of Harbor and Terminal-Bench (`schema_version` ATIF-v1.0 to v1.8, RFC 0001 of Harbor).

The task is the first step with source `user`. A step of the agent holds `reasoning_content`, `message`, `tool_calls`
and `observation.results`. Steps that were copied from an earlier trajectory are read like all other steps. Each of
`subagent_trajectories` is a separate trace.

The score comes from `verifier_result.rewards` in Harbor's `result.json`: the reward named `reward`, or without it the
mean of all rewards. `result.json` is looked up in the trajectory's folder and in up to three folders above it. If the
trajectory is for one part of a task, the result of this part in `step_results` is used. Without a result, a score in
the record or in the record's `extra` is read (see `stored_score`). Subagents have no score, because Harbor does not
score them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from practicum.core.types import Score, Task
from practicum.tasks.traces.fields import object_at, objects_in, own_id, recorded_score, stored_score, text_at, texts_at
from practicum.tasks.traces.messages import action_item, items_of_content, result_text
from practicum.tasks.traces.trace import MOST_DOCUMENT, Item, RecordPlace

RESULT_DEPTH = 4  # number of folders that are searched for result.json, starting with the trajectory's
_SOURCES = {"system": "system", "user": "user", "agent": "message"}


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record has this format."""
    return str(record.get("schema_version")).startswith("ATIF-")


def is_trial_result(record: Mapping[str, Any]) -> bool:
    """Return whether a record is Harbor's result of a trial. Such a record is not a trace, but holds the score of a
    trace in another file."""
    return "verifier_result" in record or {"trial_name", "step_results"} <= record.keys()


def read(record: Mapping[str, Any], place: RecordPlace, parent: str | None = None) -> Iterator[Task]:
    """Yield the task of a record, then the tasks of the record's subagents. `parent`: id of the trajectory that
    contains the record as a subagent; None if the record is not a subagent."""
    id = own_id(record, "trajectory_id", "session_id")
    parent = parent or text_at(record, "agent/extra/parent_session_id")
    result = {} if parent else _trial_result(place)
    exception = text_at(result, "exception_info/exception_type")
    score = None if parent else _score(record, result, exception, place)
    meta = texts_at(record, session="session_id", agent="agent/name", agent_version="agent/version")
    meta |= texts_at(record, model="agent/model_name", continued_in="continued_trajectory_ref")
    meta |= texts_at(result, task="task_name", trial="trial_name") | {"exception": exception, "parent": parent}
    # An attempt that has a score does not count as failed, even if it ended with an exception.
    error = f"ended with {exception}" if exception and score is None else None
    yield from place.task(_items(record, place), id=id, error=error, score=score, meta=meta)
    for subagent in objects_in(record, "subagent_trajectories", place.warn):
        yield from read(subagent, place, id or "unnamed")


def _items(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Item]:
    for step in objects_in(record, "steps", place.warn):
        source = step.get("source")
        if str(source) not in _SOURCES:
            place.warn(f"a step of unknown source {source!r:.40}; its text is kept")
        kind = _SOURCES.get(str(source)) or str(source)[:40].strip() or "unknown"
        yield Item("thought", text_at(step, "reasoning_content"))
        yield from items_of_content(step.get("message"), kind, place.warn)
        for call in objects_in(step, "tool_calls", place.warn):
            yield action_item(call.get("function_name"), call.get("arguments") or "", text_at(call, "tool_call_id"))
        for result in objects_in(step, "observation/results", place.warn):
            text = result_text(result.get("content"), place.warn)
            yield Item("observation", text, text_at(result, "source_call_id"))


def _score(record: Mapping[str, Any], result: Mapping[str, Any], exception: str, place: RecordPlace) -> Score | None:
    rewards = object_at(result, "verifier_result/rewards")
    score = (
        recorded_score({"reward": rewards["reward"]} if "reward" in rewards else rewards, place.warn)
        or stored_score(record, place.warn)
        or stored_score(object_at(record, "extra"), place.warn)
    )
    return replace(score, note=f"{score.note}, ended with {exception}".lstrip(", ")) if score and exception else score


def _trial_result(place: RecordPlace) -> Mapping[str, Any]:
    """Return Harbor's result for this trajectory; empty if no result can be read. If the result has a separate result
    for each part of the task, the result of the part that this trajectory belongs to takes precedence."""
    path = place.source.path
    for folder in path.parents[:RESULT_DEPTH]:
        try:
            with place.source.open(folder / "result.json") as file:
                result = from_json(file.read(MOST_DOCUMENT))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            place.warn(f"the result.json of the trial cannot be read ({error}); the rewards in this file are not used")
            return {}
        if isinstance(result, Mapping) and result.keys() & {"verifier_result", "step_results"}:
            parts = {text_at(part, "step_name"): part for part in objects_in(result, "step_results", place.warn)}
            folders = path.parts[-RESULT_DEPTH:]
            return {**result, **next((parts[name] for name in folders if name in parts), {})}
    return {}
