"""Whose words an interaction and a report hold, and so what of them waits for review.

A question that was asked with `x-practicum-user` is the user's, and so is a report with that header. What tools
returned, and documents that a client attached, were written by anybody. The trust of what is shown or learned is the
least of all that it was made of; the operator says explicitly whom else to trust (`--trust-users`, `--trust-tools`).
"""

from __future__ import annotations

from practicum.core.screen import flags
from practicum.core.trust import Trust
from practicum.session.outcomes import Interaction


def is_flagged(question: str, words: str, by: Trust, known: Interaction | None, screened: bool) -> bool:
    """Whether the filter flags a correction or a note: its `words`, reported `by` somebody, and the question that is
    shown with them. The operator's own words and questions are not looked at. `screened`: an agent speaks for itself.
    """
    foreign = known is not None and (known.user is not None or "screened" in known.data)
    return (screened or by != "own" or foreign) and bool(flags(f"{question}\n{words}"))
