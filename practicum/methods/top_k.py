"""Top-K retrieval: the lessons of a large batch are embedded and clustered, and the curator sees one of each cluster
(the baseline of Combee, section 4.1).

As in the paper, a lesson that the curator leaves out is lost; here it is counted.
"""

from __future__ import annotations

from pydantic import Field

from practicum.blocks.update.top_k import top_k
from practicum.engine.loop import Method
from practicum.methods.ace import curated, playbook
from practicum.methods.settings import WidePlaybookSettings


class Settings(WidePlaybookSettings):
    k: int | None = Field(default=None, ge=1)
    """The number of clusters (default: Combee's number of groups, the square root of the number of lessons)."""


def method(s: Settings) -> Method:
    """ACE with a large batch, and one lesson of each cluster for the curator."""
    return playbook(s, "top_k", top_k(curated(s), s.k), s.batch)
