"""Scorer `squad`: exact match of short answers in the normal form of SQuAD and HotpotQA: without case, punctuation and
English articles. The measure `f1` is the F1 of the words. Repeated words count repeatedly."""

from __future__ import annotations

import re
import string
from collections import Counter

from practicum.core.types import Score, Task, Trace
from practicum.tasks.scoring.registry import AnswerScorer

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(text: str) -> list[str]:
    """Return the words of a text in the normal form."""
    return re.sub(r"\b(?:a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split()


def score_words(task: Task, trace: Trace) -> Score:
    """Return the score 1 if answer and target have the same words in the same order, else 0."""
    expected, actual = words(task.target or ""), words(trace.answer)
    shared = sum((Counter(expected) & Counter(actual)).values())
    f1 = 2 * shared / (len(expected) + len(actual)) if shared else float(expected == actual)
    return Score(float(expected == actual), expected == actual, measures={"f1": f1})


SCORER = AnswerScorer("squad", score_words, needs_target=True)
