"""ATIF, the trajectories of Harbor and Terminal-Bench (`schema_version` ATIF-v1.0 to v1.8, RFC 0001 of Harbor).

The task is the first step of source `user`; a step of the agent gives `reasoning_content`, `message`, `tool_calls`
and `observation.results`. Steps copied from an earlier trajectory are read like others. Each of
`subagent_trajectories` is a trace of its own.

The score is what Harbor's `result.json`, beside the file or up to three folders above, has in
`verifier_result.rewards` (of a task in several parts: that part's, in `step_results`): `reward`, else the mean of
what is there. Without one, a score in the record or its `extra` is read (see `scores`). What a subagent did was not
scored for itself, so it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from practicum.core.types import Score
from practicum.tasks.traces.messages import action, of_content, plain
from practicum.tasks.traces.scores import mean_of, score_in
from practicum.tasks.traces.trace import (
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

RESULT_UP = 4
"""How many folders, the trajectory's own first, are looked through for its result.json."""

_SOURCES = {"system": SYSTEM, "user": USER, "agent": MESSAGE}


def read(record: Mapping[str, Any], place: Place, notes: Notes, parent: str | None = None) -> Iterator[Found]:
    """The trace of one record, and those of the subagents in it."""
    odd = notes.at(place.line)
    agent = part_of(record, "agent")
    name = own_id(record, "trajectory_id", "session_id")
    parent = parent or text_of(part_of(agent, "extra"), "parent_session_id")
    result = {} if parent else _result(notes.path, odd)
    ended = text_of(part_of(result, "exception_info"), "exception_type")
    score = None if parent else _score(record, result, ended, odd)
    yield from told(
        _words(record, odd),
        place,
        notes,
        id=name,
        # Where a verifier has judged, what counts is its verdict.
        error=f"ended with {ended}" if ended and score is None else None,
        score=score,
        meta={
            "session": text_of(record, "session_id"),
            "agent": text_of(agent, "name"),
            "agent_version": text_of(agent, "version"),
            "model": text_of(agent, "model_name"),
            "task": text_of(result, "task_name"),
            "trial": text_of(result, "trial_name"),
            "exception": ended,
            "parent": parent,
            "continued_in": text_of(record, "continued_trajectory_ref"),
        },
    )
    for sub in items_of(record, "subagent_trajectories", odd):
        yield from read(sub, place, notes, name or "unnamed")


def _words(record: Mapping[str, Any], odd: Odd) -> Iterator[Word]:
    for step in items_of(record, "steps", odd):
        source = step.get("source")
        if str(source) not in _SOURCES:
            odd(f"a step of a source that is not known ({source!r:.40}); its words are kept")
        kind = _SOURCES.get(str(source)) or str(source)[:40].strip() or "unknown"
        yield Word(THOUGHT, text_of(step, "reasoning_content"))
        yield from of_content(step.get("message"), kind, odd)
        for call in items_of(step, "tool_calls", odd):
            yield action(call.get("function_name"), call.get("arguments") or "", text_of(call, "tool_call_id"))
        for result in items_of(part_of(step, "observation"), "results", odd):
            yield Word(OBSERVATION, plain(result.get("content"), odd), text_of(result, "source_call_id"))


def _score(record: Mapping[str, Any], result: Mapping[str, Any], ended: str, odd: Odd) -> Score | None:
    rewards = part_of(result, "verifier_result", "rewards")
    marks = {"reward": rewards["reward"]} if "reward" in rewards else rewards
    score = mean_of(marks, odd) or score_in(record, odd) or score_in(part_of(record, "extra"), odd)
    return replace(score, note=f"{score.note}, ended with {ended}".lstrip(", ")) if score and ended else score


def _result(path: Path, odd: Odd) -> Mapping[str, Any]:
    """How the trial was scored, for the part of it that this trajectory is."""
    for folder in list(path.absolute().parents)[:RESULT_UP]:
        try:
            result = from_json((folder / "result.json").read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            odd(f"the result.json that goes with it cannot be read ({error}); the trace has no score")
            return {}
        if isinstance(result, Mapping) and not result.keys().isdisjoint({"verifier_result", "step_results"}):
            return _of_part(result, path, odd)
    return {}


def _of_part(result: Mapping[str, Any], path: Path, odd: Odd) -> Mapping[str, Any]:
    """Of a task in several parts, the result of the one whose folder the file lies in."""
    parts = {text_of(part, "step_name"): part for part in items_of(result, "step_results", odd)}
    named = next((parts[name] for name in path.absolute().parts[-RESULT_UP:] if name in parts), {})
    return {**result, **named}
