"""The story of a run: what the agent was shown and did, how it was scored, and what became of it (`practicum show`).

A `Story` reads what a run stored, also while the run is at work, and changes nothing. It reads rows in blocks, as they
are asked for: a run of 10,000 steps is never in memory as a whole.

An attempt has a short id: `3.t17` is the one at task t17 in step 3, `test.t9` one of the final evaluation, `before.t9`
one before learning, `val5.t9` one of the validation of version 5. Further attempts at the same task are numbered:
`3.t17.2` is the second of a group. The full place of an attempt in the run works in the same way.
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
