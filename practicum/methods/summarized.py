"""Summarization: one call summarizes the lessons of a large batch, and the curator sees the summary
(the baseline of Combee, section 4.1).

As in the paper, a lesson that the curator leaves out is lost; here it is counted.
"""

from __future__ import annotations

from dataclasses import replace

from practicum.blocks.update.top_k import summarized
from practicum.engine.loop import Method
from practicum.methods.ace import curated, playbook
from practicum.methods.settings import WidePlaybookSettings

Settings = WidePlaybookSettings


def method(s: Settings) -> Method:
    """ACE with a large batch, and a summary of its lessons for the curator."""
    made = playbook(s, "summarized", summarized(curated(s), SUMMARIZER), s.batch)
    # The summary is the curator's, even if curator=append asks none.
    return replace(made, roles=tuple(dict.fromkeys((*made.roles, "curator"))), costs=f"{made.costs}, a summary a step")


SUMMARIZER = """\
An agent reviewed many of its attempts and wrote down a lesson from each. Sum them up in a few points, each one \
sentence that makes sense by itself. Keep what the agent needs to know; leave out what is said twice."""
