"""Scores that were stored with a trace.

The fields are `score`, `reward`, `resolved`, `success`, `passed` and `correct` of a record, of its `metadata` and of
its `info`: true or false, a number in [0, 1], or an object with `value`, `correct` and `note`. The first field is the
value. The first of them that is true or false says whether the attempt is correct; without one, the pass mark does.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from practicum.core.types import Score
from practicum.tasks.scoring.rules import PASS_MARK
from practicum.tasks.traces.fields import Warn, object_at, text_at

_FIELDS = ("score", "reward", "resolved", "success", "passed", "correct")


def stored_score(record: Mapping[str, Any], warn: Warn) -> Score | None:
    """The score that a record holds; an invalid value is a problem, and left out."""
    values: dict[str, Any] = {}
    for part in (record, object_at(record, "metadata"), object_at(record, "info")):
        values |= {name: part[name] for name in _FIELDS if name not in values and part.get(name) is not None}
    scores = {name: score for name in _FIELDS if name in values and (score := _as_score(values[name], name, warn))}
    first = next(iter(scores.values()), None)
    correct = next((values[name] for name in scores if isinstance(values[name], bool)), None)
    return first if first is None or correct is None else Score(first.value, correct, first.note)


def mean_score(values: Mapping[str, Any], warn: Warn) -> Score | None:
    """The mean of several marks of one trace, by name; correct when all are."""
    scores = {name: score for name, value in values.items() if (score := _as_score(value, name, warn))}
    if not scores:
        return None
    note = ", ".join(f"{name} {score.value:g}" for name, score in scores.items())
    return Score(fmean(s.value for s in scores.values()), all(s.correct for s in scores.values()), note)


def _as_score(value: Any, name: str, warn: Warn) -> Score | None:
    if isinstance(value, bool):
        return Score(float(value), value)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return Score(float(value), value >= PASS_MARK)
    if isinstance(value, Mapping) and not isinstance(value.get("value"), Mapping):
        score = _as_score(value.get("value"), name, warn)
        correct = value.get("correct")
        if score is None:
            return None
        return Score(score.value, correct if isinstance(correct, bool) else score.correct, text_at(value, "note"))
    warn(f"{name} is neither true, false nor a number between 0 and 1; it is left out")
    return None
