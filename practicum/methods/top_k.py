"""Top-K retrieval: the lessons of a large batch are embedded and clustered, and the curator sees one of each cluster
(the baseline of Combee, section 4.1).

As in the paper, what the curator does not mention is lost; here it is counted.
"""

from __future__ import annotations

from pydantic import Field

from practicum.blocks.update.top_k import top_k
from practicum.engine.loop import Method
from practicum.methods.ace import dropping, playbook
from practicum.methods.settings import PlaybookSettings, WideBatches


class Settings(PlaybookSettings, WideBatches):
    """Settings of top-K retrieval."""

    k: int | None = Field(default=None, ge=1)
    """Clusters; as many as Combee would make groups (the square root of the lessons) where not given."""


def method(settings: Settings) -> Method:
    """ACE with a large batch, and its lessons thinned out before the curator."""
    s = settings
    return playbook(s, "top_k", top_k(dropping(s), s.k), batch=s.batch, epochs=s.epochs)
