"""Naive parallel learning: a large batch, and one update call that reads all its lessons at once (Combee, section 2.2:
this overloads the curator).

As in the paper, a lesson that the curator leaves out is lost. practicum counts the lost lessons.
"""

from __future__ import annotations

from practicum.engine.loop import Method
from practicum.methods.ace import curated, playbook
from practicum.methods.settings import WidePlaybookSettings

Settings = WidePlaybookSettings


def method(s: Settings) -> Method:
    """Build ACE with a large batch, and no wrappers around its curator."""
    return playbook(s, "naive", curated(s), s.batch)
