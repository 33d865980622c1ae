"""Check that the agent works. Nothing is learned until one attempt ends without an error of the agent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from practicum.core.errors import BrokenAgentError
from practicum.store.journal import JournalRow

FIRST = 5
"""Number of attempts after which a run stops, if the agent failed in all these attempts."""


@dataclass
class Proof:
    """Results of the first attempts: whether the agent works.

    `proven`: whether an attempt ended without an error of the agent, or the agent is practicum's own and cannot raise
    errors. Until `proven` is true, failed attempts are held back from the journal, so that a resume repeats the failed
    attempts. `coming` are the jobs that may still make an attempt. Learning from the first attempts waits for these
    jobs.
    """

    proven: bool = False
    coming: set[str] = field(default_factory=set)
    _order: dict[str, int] = field(default_factory=dict)
    _causes: list[tuple[int, str]] = field(default_factory=list)
    _held: list[JournalRow] = field(default_factory=list)
    _changed: asyncio.Event | None = None

    def begins(self, *jobs: str) -> None:
        """Register jobs that may make attempts."""
        if not self.proven:
            self.coming.update(jobs)
            for job in jobs:
                self._order.setdefault(job, len(self._order))

    def ended(self, job: str) -> None:
        """Remove a job from `coming`, because it has made its attempt, will make no attempt, or waits for jobs that it
        started."""
        self.coming.discard(job)
        self._wake()

    def hold_back(self, row: JournalRow) -> None:
        """Hold back the journal row of an attempt that ended with an error of the agent."""
        self._held.append(row)

    def report_failure(self, job: str, task: str, error: str) -> None:
        """Record the error of a failed attempt of this job. Raises BrokenAgentError if `FIRST` attempts failed and no
        attempt worked. Because of this error, the observer must receive the attempt before this call."""
        if not self.proven:
            self._causes.append((self._order[job], f"on task {task}: {error}"))
            self._wake()
            self.check()

    def record_success(self) -> list[JournalRow]:
        """Record an attempt that ended without an error of the agent. Returns the journal rows of failed attempts that
        were held back until now: the caller writes these rows to the journal."""
        if self.proven or len(self._held) >= FIRST:
            return []
        self.proven, held, self._held = True, self._held, []
        self._wake()
        return held

    def check(self) -> None:
        """Raise BrokenAgentError if `FIRST` attempts failed and no attempt worked."""
        if not self.proven and len(self._held) >= FIRST:
            raise self.error()

    @property
    def failures(self) -> int:
        """Number of held-back attempts that ended with an error of the agent."""
        return len(self._held)

    async def change(self) -> None:
        """Wait until a job ends, an attempt fails, or an attempt succeeds."""
        self._changed = self._changed or asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def error(self) -> BrokenAgentError:
        """Return the error that ends a run whose agent does not work."""
        # Name the failure of the job that began first, so that the message does not depend on which attempt ended
        # first.
        (_, first), attempted = min(self._causes), len(self._causes)
        others = "" if attempted == 1 else f", and in the other {attempted - 1} attempts so far"
        return BrokenAgentError(
            "agent.always_failed",
            f"the agent failed {first}{others}. Nothing was learned: correct the agent (for a task that the agent "
            'cannot do, it should return {"error": "why"})',
        )
