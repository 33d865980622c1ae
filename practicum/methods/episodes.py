"""Episodes: keep solved tasks, and show the most similar ones as earlier turns of the chat.

This is the simplest memory that works with the smallest models: a 135M model that cannot follow a rule in its prompt
can continue a conversation. A failed task is kept with the right answer, if the right answer is known. Offline, a task
with a known answer is kept without an attempt, because an attempt would teach nothing more. An episode that misled the
agent too often in a row is retired. (This is retrieval-based
in-context learning; none of the five papers has it.)"""

from __future__ import annotations

from pydantic import Field

from practicum.engine.loop import Method
from practicum.methods.blocks.attempt import once, shown_answers
from practicum.methods.blocks.curate import append, newest_per_key, without_outdated
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import as_experience
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.show import answer, similar_turns
from practicum.methods.settings import Batched, RetrievalSettings

EPISODES = "episodes"
"""Section of episodes."""

SHOWN = 16
"""Default maximum number of episodes shown with a task."""

WINDOW = 1000
"""Default maximum number of tokens of these episodes."""


class Settings(Batched, RetrievalSettings):
    """Settings of episodes."""

    k: int = Field(default=SHOWN, ge=1)
    """The maximum number of episodes shown with a task: the most similar solved tasks. Failed tasks are not shown."""
    window: int = Field(default=WINDOW, ge=0)
    """The maximum number of tokens of the episodes. The four most similar ones are shown even if they are longer."""


def method(s: Settings) -> Method:
    """Build the method. Offline, a task with a known answer is kept without an attempt. All other tasks are attempted
    with the episodes so far."""
    show = similar_turns(s.k, EPISODES, s.window)
    act = answer(show)
    return Method(
        name="episodes",
        show=show,
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=once(act) if s.online else shown_answers(act),
        reflect=as_experience,
        update=without_outdated(newest_per_key(append(EPISODES))),
        accept=always,
        costs="nothing",
    )
