"""Summarization: one call summarizes the lessons of a large batch, and the curator sees the summary
(the baseline of Combee, section 4.1).

As in the paper, a lesson that the curator leaves out is lost; here it is counted.
"""

from __future__ import annotations

from dataclasses import replace

from practicum.blocks.update.top_k import summarized
from practicum.core.types import Instructions
from practicum.engine.loop import Method
from practicum.methods.ace import curated, playbook
from practicum.methods.settings import WidePlaybookSettings

Settings = WidePlaybookSettings


def method(s: Settings) -> Method:
    """ACE with a large batch, and a summary of its lessons for the curator."""
    made = playbook(s, "summarized", summarized(curated(s), SUMMARIZER), s.batch)
    # The summary is the curator's, even if curator=append asks none.
    return replace(made, roles=tuple(dict.fromkeys((*made.roles, "curator"))), costs=f"{made.costs}, a summary a step")


SUMMARIZER = Instructions(
    full="""\
An agent's attempts were reviewed, each by itself. Sum up the reflections for the curator of the agent's playbook, \
who sees nothing else of them. Write one point for each thing that the agent needs to know, as long as it needs to be, \
with the details that decide an outcome. Join what several reflections say; leave nothing out that only one says.""",
    small="""\
An agent reviewed many of its attempts and wrote down a lesson from each. Sum them up in a few points, each one \
sentence that makes sense by itself. Keep what the agent needs to know; leave out what is said twice.""",
)
