"""Readers of fields of foreign records, which may hold any JSON value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

from pydantic_core import from_json

from practicum.core.scores import rounded
from practicum.core.types import Score
from practicum.tasks.scoring.rules import PASS_MARK

Warn = Callable[[str], None]
"""Function that reports a problem at the place that is being read. After a report, reading continues."""

_SCORES = ("score", "reward", "resolved", "success", "passed", "correct")


def own_id(record: Mapping[str, Any], *keys: str) -> str | None:
    """Return the value of the first of the fields `keys` that can be the id of a trace; None if no field can be the
    id."""
    values = (record.get(key) for key in keys)
    ids = (str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool))
    return next(filter(str.strip, ids), None)


def value_at(record: Any, path: str) -> Any:
    """Return the value at a path such as `agent/name`, or `choices/0` in a list; None if the record has no such
    path."""
    # The values are parsed JSON, and `dict` is checked faster than `Mapping`.
    for key in path.split("/") if "/" in path else (path,):
        if isinstance(record, dict):
            record = record.get(key)
        else:
            at = int(key) if isinstance(record, list) and key.isdecimal() else -1
            record = record[at] if 0 <= at < len(record) else None
    return record


def first_at(record: Any, paths: str) -> Any:
    """Return the first value that is not null or empty at one of several paths, which `|` separates, else None."""
    values = (value_at(record, path) for path in paths.split("|") if path)
    return next((value for value in values if value not in (None, "", [], {})), None)


def object_at(record: Any, path: str) -> Mapping[str, Any]:
    """Return the object at a path; an empty object if the path holds no object."""
    value = value_at(record, path)
    return value if isinstance(value, Mapping) else {}


def objects_in(record: Any, path: str, warn: Warn) -> Iterator[Mapping[str, Any]]:
    value, name = value_at(record, path), path.rpartition("/")[2]
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item
        else:
            warn(f"the list {name!r} contains a value that is not an object")
    if value is not None and not isinstance(value, list):
        warn(f"{name!r} is not a list")


def text_at(record: Any, *paths: str) -> str:
    """Return the first text at one of these paths; empty if no path has a text."""
    return next((value for path in paths if isinstance(value := value_at(record, path), str) and value), "")


def texts_at(record: Any, **paths: str) -> dict[str, str]:
    """Return the text at each path, keyed by argument name."""
    return {name: text_at(record, path) for name, path in paths.items()}


def decoded(value: Any) -> Any:
    """Parse a string that holds a JSON object or list. Return any other value unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return from_json(value)
    except ValueError:
        return value


def stored_score(record: Mapping[str, Any], warn: Warn) -> Score | None:
    """Return the score that a record, its `metadata` or its `info` holds. An invalid value is skipped and reported.

    The fields are `score`, `reward`, `resolved`, `success`, `passed` and `correct`. Each is true or false, a number in
    [0, 1], or an object with `value`, `correct` and `note`. The first of these six fields that has a valid value gives
    the value of the score. The first field that is true or false says whether the attempt is correct; if no field is
    true or false, the first field decides, by its `correct` or by the pass mark.
    """
    values: dict[str, Any] = {}
    for part in (record, object_at(record, "metadata"), object_at(record, "info")):
        values |= {name: part[name] for name in _SCORES if name not in values and part.get(name) is not None}
    scores = {name: score for name in _SCORES if name in values and (score := _as_score(values[name], name, warn))}
    first = next(iter(scores.values()), None)
    correct = next((values[name] for name in scores if isinstance(values[name], bool)), None)
    return first if first is None or correct is None else Score(first.value, correct, first.note)


def recorded_score(values: Mapping[str, Any], warn: Warn) -> Score | None:
    """Return the mean of several scores; None without a valid value. The mean counts as correct if all scores are
    correct, and the note of the mean names each score. Invalid values are skipped and reported."""
    scores = {name: score for name, value in values.items() if (score := _as_score(value, name, warn))}
    if not scores:
        return None
    note = ", ".join(f"{name} {score.value:g}" for name, score in scores.items())
    return Score(fmean(s.value for s in scores.values()), all(s.correct for s in scores.values()), note)


def _as_score(value: Any, name: str, warn: Warn) -> Score | None:
    if isinstance(value, Mapping) and not isinstance(value.get("value"), Mapping):
        score, correct = _as_score(value.get("value"), name, warn), value.get("correct")
        if score is None:
            return None
        return Score(score.value, correct if isinstance(correct, bool) else score.correct, text_at(value, "note"))
    value = rounded(value)
    if isinstance(value, int | float) and 0 <= value <= 1:  # true and false are 1 and 0
        return Score(float(value), value >= PASS_MARK)
    warn(f"{name} is not true, false or a number between 0 and 1; this value is left out")
    return None
