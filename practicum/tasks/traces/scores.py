"""Scores that were kept with a trace.

Read are the fields `score`, `reward`, `resolved`, `success`, `passed` and `correct` of a record, of its `metadata`
and of its `info`: true or false, a number in [0, 1], or an object with `value`, `correct` and `note`. The first that
is there is the value; a true or false among them says whether it counts as correct, else the pass mark does.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from practicum.core.types import Score
from practicum.tasks.scoring.rules import PASS_MARK
from practicum.tasks.traces.trace import Odd, part_of, text_of

_FIELDS = ("score", "reward", "resolved", "success", "passed", "correct")


def score_in(record: Mapping[str, Any], odd: Odd) -> Score | None:
    """The score that a record holds; a value that is none is odd, and left out."""
    given: dict[str, Any] = {}
    for part in (record, part_of(record, "metadata"), part_of(record, "info")):
        given |= {name: part[name] for name in _FIELDS if name not in given and part.get(name) is not None}
    read = {name: score for name in _FIELDS if name in given and (score := score_of(given[name], name, odd))}
    first = next(iter(read.values()), None)
    verdict = next((given[name] for name in read if isinstance(given[name], bool)), None)
    return first if first is None or verdict is None else Score(first.value, verdict, first.note)


def score_of(value: Any, name: str, odd: Odd) -> Score | None:
    """One field as a score."""
    if isinstance(value, bool):
        return Score(float(value), value)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return Score(float(value), value >= PASS_MARK)
    if isinstance(value, Mapping) and not isinstance(value.get("value"), Mapping):
        score = score_of(value.get("value"), name, odd)
        correct = value.get("correct")
        verdict = correct if isinstance(correct, bool) else score is not None and score.correct
        return None if score is None else Score(score.value, verdict, text_of(value, "note"))
    odd(f"{name} is neither true, false nor a number between 0 and 1; it is left out")
    return None


def mean_of(values: Mapping[str, Any], odd: Odd) -> Score | None:
    """Several marks of one trace as one: their mean, and correct where all are."""
    scores = {name: score for name, value in values.items() if (score := score_of(value, name, odd))}
    if not scores:
        return None
    note = ", ".join(f"{name} {score.value:g}" for name, score in scores.items())
    return Score(fmean(s.value for s in scores.values()), all(s.correct for s in scores.values()), note)
