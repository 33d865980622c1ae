"""Episodes: solved tasks are kept, and the most similar ones are shown as earlier turns of the chat.

The simplest memory that works with the smallest models: a 135M model that cannot follow a rule in its prompt can
continue a conversation. Failures are kept as the right answer where it is known. (The retrieval-based form of
in-context learning; no paper of the five.)
"""

from __future__ import annotations

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, similar_turns
from practicum.blocks.attempt.attempt import once
from practicum.blocks.reflect.per_trace import as_experience
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, newest_per_key
from practicum.engine.loop import Method
from practicum.methods.settings import Batched


class Settings(Batched):
    """Settings of episodes."""

    k: int = Field(default=4, ge=1)
    """Episodes shown: the most similar ones that went well."""


def method(settings: Settings) -> Method:
    """Attempt with the episodes so far, keep what was right."""
    act = answer(similar_turns(settings.k, "episodes"))
    return Method(
        name="episodes",
        sample=batches(settings.online, settings.epochs, settings.batch),
        act=act,
        attempt=once(act),
        reflect=as_experience(),
        update=newest_per_key(append("episodes")),
        accept=always,
        costs="nothing",
    )
