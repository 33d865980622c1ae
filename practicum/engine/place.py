"""Places of a run. A place gives access to the settings of the run, and the effects at the place are journaled under
its name.

`at` and the jobs of a `gather` open further places below a place. An effect runs once: if the journal has a result for
the effect, the stored result is used; otherwise the effect runs, and its result is written before it is used (by
`engine.calls` and `engine.attempts`). Results are used in the order of places, not of arrival. Randomness depends on
the seed and the place. So resume, budgets and determinism at any concurrency need no code in a method.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from practicum.core.counts import Count
from practicum.core.errors import (
    PlaceTaken,
    Stopped,
)
from practicum.core.types import Profile
from practicum.engine.state import RunState
from practicum.retrieval.vectors import same_from
from practicum.store.journal import (
    NOTE_ROLE,
    JournalRow,
    digest,
)

T = TypeVar("T")

KEPT = ". Results that were paid for are stored: correct the method and resume the run"
"""Suffix of every error about a mistake in a method."""


@dataclass
class Chain:
    """Record of a sequence of effects, in which each effect waited for the previous effect. `seconds` is the total
    duration of the sequence. The longest sequence of a run is the critical path of the run. `calls` is the number of
    model calls since the job of this chain began. `losses` are the places of provider failures that later results of
    this chain may depend on. `playbook`: whether a learning model read the playbook.

    Writing a result makes the failures in `losses` permanent: a resume does not repeat them. So each job of a `gather`
    has its own chain, and no job makes the failure of another job permanent.
    """

    seconds: float = 0.0
    calls: int = 0
    losses: set[str] = field(default_factory=set)
    playbook: bool = False

    def apart(self) -> Chain:
        """Return a new chain for a job that begins at the end of this chain."""
        return Chain(self.seconds, losses={*self.losses}, playbook=self.playbook)

    def join(self, others: Iterable[Chain]) -> None:
        """Merge `others` into this chain: the chains of jobs that the work of this chain waited for."""
        for other in others:
            self.seconds = max(self.seconds, other.seconds)
            self.losses |= other.losses
            self.playbook |= other.playbook


@dataclass(frozen=True)
class Conditions:
    """Settings and counters of a run, which all places of the run share."""

    _state: RunState

    @property
    def counts(self) -> Mapping[str, int]:
        """Values of the run's counters so far."""
        return self._state.counts

    @property
    def labels(self) -> bool:
        """Whether learning may see scores."""
        return self._state.labels

    @property
    def targets(self) -> bool:
        """Whether learning may see targets."""
        return self._state.labels and self._state.targets

    @property
    def profile(self) -> Profile:
        """Capability of the run's models: `full` or `small`."""
        return self._state.profile

    def room(self, role: str) -> int:
        """Return the estimated number of tokens that a prompt of this role may have."""
        return self._state.room(role)

    @property
    def sections(self) -> Mapping[str, str]:
        """Sections of a playbook, in order, each with a description of its content."""
        return self._state.sections

    @property
    def same_from(self) -> float:
        """Minimum cosine of two texts' embeddings at which the texts count as the same. The minimum depends on the
        embedder and the profile."""
        return same_from(self._state.vectors.embedder.name, self.profile)

    @property
    def judged(self) -> bool:
        """Whether a judge gives the feedback on attempts without a score, and on all attempts if learning may not see
        scores."""
        return self._state.judged

    @property
    def choices(self) -> tuple[str, ...]:
        """Possible answers of the tasks; empty if the tasks do not have a short list of answers in common."""
        return self._state.choices

    @property
    def only_answers(self) -> bool:
        """Whether the agent only answers and uses no tools, so that an attempt consists of its answer."""
        return not self._state.agent.journaled

    @property
    def seed(self) -> int:
        return self._state.seed

    @property
    def instructions(self) -> str:
        """The user's instructions to the agent, in addition to the task."""
        return self._state.instructions

    @property
    def agent_instructions(self) -> list[str]:
        """Part of a prompt that quotes the agent's instructions, as a list of one text; empty without instructions."""
        return [f"# What the agent is told\n{self.instructions}"] if self.instructions else []

    @property
    def scorer_name(self) -> str | None:
        """Name of the scorer. None: attempts are not scored."""
        return None if self._state.scorer is None else self._state.scorer.name

    @property
    def targets_are_answers(self) -> bool:
        """Whether learning sees the targets, and targets have the form of answers (targets of `regex` are patterns)."""
        return self.targets and self.scorer_name != "regex"


@dataclass(frozen=True)
class Place(Conditions):
    """Place in a run. It opens places below it, provides randomness, and stores notes.

    `about` names the sources ("task:t1") of the work at this place. `teaches` is False in evaluation. `warmth` is the
    temperature of the agent if several attempts at a task should differ; None: the temperature in the settings.
    `member` is the number of this attempt among the attempts at the task, from 1. `actor` names the seat that plays the
    agent, for methods with several agents. `job` is the place of the concurrent job that this place belongs to.
    `drafts`: whether work at this place is a draft, which is done again later and only counted then. `opened` holds the
    places opened directly below this place, and is discarded with this place. At the top of a run `opened` is None, and
    `RunState.opened` holds the places for all `Run` objects of the run.
    """

    place: str = ""
    about: tuple[str, ...] = ()
    teaches: bool = True
    warmth: float | None = None
    member: int = 1
    actor: str = "agent"
    job: str = ""
    drafts: bool = False
    chain: Chain = field(default_factory=Chain, compare=False)
    opened: set[str] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Run at {self.place!r}>"

    @property
    def hits(self) -> int:
        """Number of effects whose results came from the journal so far."""
        return self._state.journal.hits

    @property
    def provider_failed(self) -> bool:
        """Whether the work at this place may depend on a provider failure that is not in the journal yet."""
        return not self.chain.losses.isdisjoint(self._state.lost)

    @property
    def unparsed(self) -> bool:
        """Whether the output of a model could not be parsed at this place or below it."""
        return any(f"{place}/".startswith(f"{self.place}/") for place in self._state.unparsed)

    def count(self, counter: Count, by: int = 1) -> None:
        if not self.drafts:
            self._state.counts[counter] += by

    def at(self, name: str, about: tuple[str, ...] | None = None) -> Self:
        """Open the place `name` below this place, and return the opened place. Raises PlaceTaken if the place was
        opened before."""
        # A name may contain a slash (users choose task ids), but must not be read as several places.
        inner = name.replace("%", "%25").replace("/", "%2F")
        place = f"{self.place}/{inner}" if self.place else inner
        self._open(place)
        return replace(self, place=place, about=self.about if about is None else about, opened=set())

    def apart(self, name: str, about: tuple[str, ...] | None = None) -> Self:
        """Open the place `name` for a job that runs concurrently with the work at this place. The job gets a new
        chain."""
        at = self.at(name, about)
        return replace(at, job=at.place, chain=self.chain.apart())

    def begins(self) -> None:
        """Register that the job of this place is about to begin. `apart` opened this place."""
        self._state.proof.begins(self.job)

    async def do(self, job: Callable[[Self], Awaitable[T]]) -> T:
        """Run the job of this place, and return the result of the job. `apart` opened this place."""
        try:
            return await job(self)
        finally:
            self._state.proof.ended(self.job)

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Self], Awaitable[T]]]]) -> list[T]:
        """Run named jobs concurrently, each at its own place. Returns the results in the order of the jobs.

        If a job fails, the other jobs continue, so that results that the other jobs pay for are stored. When all jobs
        have ended, the error of the first failed job, in the order of `jobs`, is raised.
        """
        children = [self.apart(name) for name, _ in jobs]
        self._state.proof.ended(self.job)
        for child in children:
            child.begins()
        if len(jobs) == 1:
            # A single job needs no asyncio task.
            results: list[T | BaseException] = [await children[0].do(jobs[0][1])]
        else:
            results = await asyncio.gather(
                *(child.do(job) for (_, job), child in zip(jobs, children, strict=True)), return_exceptions=True
            )
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        if isinstance(failure, Stopped):
            # The run stops, and a resume repeats the lost effects, so the chains of the jobs are not merged.
            raise failure
        self.chain.join(child.chain for child in children)
        if failure is not None:
            raise failure
        return [result for result in results if not isinstance(result, BaseException)]

    def rng(self, name: str = "") -> random.Random:
        """Return a random generator that depends only on the seed of the run, this place and `name`."""
        return random.Random(digest(str(self.seed), self.place, name))

    def recall(self, name: str) -> Any:
        """Return the value that was noted under this name at this place before a resume; None if no value was noted."""
        recorded = self._state.journal.find(f"{self.place}/{name}", NOTE_ROLE)
        return None if recorded is None else json.loads(recorded.answer)

    def note(self, name: str, value: Any) -> None:
        """Store a JSON value that a resume could not compute again, such as a duration. The value is written to the
        journal before any later result."""
        place = f"{self.place}/{name}"
        self._open(place)
        row = JournalRow(place, NOTE_ROLE, NOTE_ROLE, json.dumps(value), sources=self.about)
        if self.provider_failed:
            # A resume repeats a lost call, and must not read a note that depends on the lost answer.
            self._lose(row)
        else:
            self._state.journal.post(row)

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """Run `do`, an action on an environment, and return its result, as a JSON value. A resume repeats the action,
        because the state of the environment may exist only in memory, but returns the result from before the resume."""
        recorded = self.recall(name)
        result = self._redacted(await do())
        if recorded is None:
            self.note(name, result)
            return result
        self._open(f"{self.place}/{name}")
        return recorded

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """Run `do`, which makes a decision, and return the decision, as a JSON value. A resume returns the recorded
        decision and does not run `do`."""
        recorded = self.recall(name)
        if recorded is None:
            self.note(name, recorded := await do())
        else:
            self._open(f"{self.place}/{name}")
        return recorded

    def try_again(self, places: Sequence[str]) -> None:
        """Mark places so that a resume repeats the effects at or below these places that were lost because the provider
        failed. A resume still uses the other results at these places, for equal requests."""
        self._state.journal.note_outage(again=places)

    def _open(self, place: str) -> None:
        opened = self._state.opened if self.opened is None else self.opened
        if place in opened:
            raise PlaceTaken(
                "journal.place_taken",
                f"the place '{place}' was opened twice: give each effect or job a different name",
            )
        opened.add(place)

    async def _write(self, *rows: JournalRow) -> None:
        """Write results to disk, together with the provider failures that these results may depend on. So a resume
        keeps every failure that a stored result may depend on, and repeats all other lost effects."""
        settled = self._state.settle(self.chain.losses)
        self.chain.losses.clear()
        await self._state.journal.write(*settled, *rows)

    def _lose(self, row: JournalRow) -> None:
        self._state.lost[row.place] = row
        self.chain.losses.add(row.place)

    def _redacted(self, value: T) -> T:
        """Return the value with secrets redacted."""
        return value if self._state.redactor is None else self._state.redactor(value)
