"""Reader of a stored run: its attempts, calls, lessons, entries and steps (`practicum show`).

A `Story` only reads. It can read a run that is still running. It reads rows in blocks, when they are needed, so that a
run of 10,000 steps is never completely in memory.

An attempt has a short id: `3.t17` is the attempt at task t17 in step 3. `test.t9`, `before.t9` and `val5.t9` are
attempts at task t9 in the final evaluation, in the evaluation before learning, and in the validation of version 5.
Further attempts at the same task are numbered: `3.t17.2` is the second attempt at t17 in step 3. Functions that take an
id also take the full place of an attempt in the run.
"""

from practicum.view.read.naming import in_order
from practicum.view.read.parts import (
    AttemptLine,
    AttemptStory,
    CallStory,
    EntryShown,
    EntryStory,
    Fate,
    LessonStory,
    RoundStory,
    RunStory,
    StepStory,
)
from practicum.view.read.story import Story

__all__ = [
    "AttemptLine",
    "AttemptStory",
    "CallStory",
    "EntryShown",
    "EntryStory",
    "Fate",
    "LessonStory",
    "RoundStory",
    "RunStory",
    "StepStory",
    "Story",
    "in_order",
]
