"""Whether the agent works at all. Nothing is learned until one attempt ends without an error of the agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from practicum.core.errors import BrokenAgentError
from practicum.store.journal import JournalRow

FIRST = 5
"""Attempts after which a run stops, if all of them failed."""


@dataclass
class Proof:
    """What the first attempts say about the agent.

    `given`: an attempt has ended otherwise than by an error of the agent, or nothing can fail so. Before that, failed
    attempts are held back from the journal, so that a resume makes them again. `coming` are the jobs that may still
    make an attempt; what is learned from the first attempts waits for them.
    """

    given: bool = False
    coming: set[str] = field(default_factory=set)
    _order: dict[str, int] = field(default_factory=dict)
    _causes: list[tuple[int, str]] = field(default_factory=list)
    _held: list[JournalRow] = field(default_factory=list)
    _changed: asyncio.Event | None = None

    def begins(self, *jobs: str) -> None:
        """These jobs may make attempts."""
        if not self.given:
            self.coming.update(jobs)
            for job in jobs:
                self._order.setdefault(job, len(self._order))

    def ended(self, job: str) -> None:
        """The job has made an attempt, or makes none, or stands aside for jobs of its own."""
        self.coming.discard(job)
        self._wake()

    def failed(self, row: JournalRow) -> None:
        """An attempt ended by an error of the agent."""
        self._held.append(row)

    def told(self, job: str, task: str, error: str) -> None:
        """The error of an attempt of this job, after the run's observer was told of it. Raises BrokenAgentError if it
        was one of too many."""
        if not self.given:
            self._causes.append((self._order[job], f"on task {task}: {error}"))
            self._wake()
            self.check()

    def give(self) -> list[JournalRow]:
        """An attempt ended in another way. Returns the failed attempts that are results now."""
        if self.given or len(self._held) >= FIRST:
            return []
        self.given, held, self._held = True, self._held, []
        self._wake()
        return held

    def check(self) -> None:
        """Raises BrokenAgentError if so many attempts failed that no other one is made."""
        if not self.given and len(self._held) >= FIRST:
            raise self.error()

    @property
    def failures(self) -> int:
        """Attempts that ended by an error of the agent and are held back."""
        return len(self._held)

    async def change(self) -> None:
        """Wait until something more is known."""
        self._changed = self._changed or asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def error(self) -> BrokenAgentError:
        """The error that ends a run whose agent does not work."""
        # That of the job which began first, so that the same run says the same, whichever attempt ended first.
        (_, first), tried = min(self._causes), len(self._causes)
        others = "" if tried == 1 else f", and on the other {tried - 1} it tried so far"
        return BrokenAgentError(
            "agent.always_failed",
            f"the agent failed {first}{others}. Nothing was learned: correct the agent (one that cannot do a task "
            'returns {"error": "why"} in place of an answer)',
        )
