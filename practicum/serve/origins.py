"""Whose words an interaction and a report hold, and so what of them waits for review.

A question that was asked with `x-practicum-user` is the user's, and so is a report with that header. What tools
returned, and documents that a client attached, were written by anybody. The trust of what is shown or learned is the
least of all that it was made of; the operator says explicitly whom else to trust (`--trust-users`, `--trust-tools`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from practicum.core.screen import flags
from practicum.core.trust import Trust, least
from practicum.serve.feedback import Interaction


@dataclass(frozen=True)
class Trusted:
    """What counts as the operator's own words: what end `users` ask (their reports do not), and what `tools` return."""

    users: bool = False
    tools: bool = False

    def question(self, user: str | None) -> Trust:
        """The trust of a question of this end user (None: the operator's), of which the operator knows the answer."""
        return "own" if user is None or self.users else "labelled"

    def taught(self, by: Trust, users: Iterable[str | None], material: bool) -> Trust:
        """The trust of what a report by the operator (`own`) or an end user (`user`) teaches about a conversation with
        these end users. `material`: it had results of tools or documents."""
        read: Trust = "tool" if material and not self.tools else "own"
        return least(by, read, *map(self.question, users))


def said_by(user: str | None) -> Trust:
    """The trust of what was said in the name of an end user (None: by the operator)."""
    return "own" if user is None else "user"


def is_flagged(question: str, words: str, by: Trust, known: Interaction | None, screened: bool) -> bool:
    """Whether the filter flags a correction or a note: its `words`, reported `by` somebody, and the question that is
    shown with them. The operator's own words and questions are not looked at. `screened`: an agent speaks for itself.
    """
    foreign = known is not None and (known.user is not None or "screened" in known.data)
    return (screened or by != "own" or foreign) and bool(flags(f"{question}\n{words}"))
