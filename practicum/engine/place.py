"""A place in a run: the conditions it was given, and what is journaled under it.

`at` and the jobs of a `gather` get places below it. An effect is done once: if the journal has its result, that is
used; else the effect is paid for, written, and then used. Results are used in the order of places, never of arrival,
and randomness comes from the seed and the place. Resume, budgets and determinism at any concurrency follow from this,
without code for them in any method.
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

KEPT = ". What was paid for is kept: correct the method and resume the run"
"""Ends every error about a mistake in a method."""


@dataclass
class Chain:
    """What one line of work has behind it, up to some place: the seconds of calls that waited for each other (a run's
    longest chain is its critical path), the number of calls since its job began, the places of the provider's failures
    that it may rest on, and whether a model that learns read the playbook.

    Jobs of one `gather` have a chain each, so none of them makes the failure of another one permanent.
    """

    seconds: float = 0.0
    calls: int = 0
    losses: set[str] = field(default_factory=set)
    playbook: bool = False

    def apart(self) -> Chain:
        """The chain of a job that begins here."""
        return Chain(self.seconds, losses={*self.losses}, playbook=self.playbook)

    def join(self, others: Iterable[Chain]) -> None:
        """Go on after these chains."""
        for other in others:
            self.seconds = max(self.seconds, other.seconds)
            self.losses |= other.losses
            self.playbook |= other.playbook


@dataclass(frozen=True)
class Given:
    """What a run was given, for all of its places."""

    _state: RunState

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted in this run so far."""
        return self._state.counts

    @property
    def labels(self) -> bool:
        """Whether learning may see targets and scores."""
        return self._state.labels

    @property
    def profile(self) -> Profile:
        """What the models of the run can do."""
        return self._state.profile

    def room(self, role: str) -> int:
        """The tokens that a prompt of this role may have, by estimate."""
        return self._state.room(role)

    @property
    def sections(self) -> Mapping[str, str]:
        """The sections of a playbook, in order, each with what belongs there."""
        return self._state.sections

    @property
    def same_from(self) -> float:
        """The cosine similarity from which two entries count as the same, by the embedder."""
        return same_from(self._state.vectors.embedder.name, self.profile)

    @property
    def judged(self) -> bool:
        """Whether a judge gives feedback where there are no labels."""
        return self._state.judged

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible answers, where they are few; else empty."""
        return self._state.choices

    @property
    def only_answers(self) -> bool:
        """Whether the agent only answers: it uses no tools, so that its answer is all there is to show."""
        return not self._state.agent.journaled

    @property
    def seed(self) -> int:
        return self._state.seed

    @property
    def instructions(self) -> str:
        """What the user instructs the agent to do, beside the task."""
        return self._state.instructions

    @property
    def agent_instructions(self) -> list[str]:
        """The part of a prompt that quotes the agent's instructions; empty if it has none."""
        return [f"# What the agent is told\n{self.instructions}"] if self.instructions else []

    @property
    def scorer_name(self) -> str | None:
        """The scorer's name; None if nothing is scored."""
        return None if self._state.scorer is None else self._state.scorer.name

    @property
    def answers_known(self) -> bool:
        """Whether learning sees the targets and these could be answers: `regex` has patterns."""
        return self.labels and self.scorer_name != "regex"


@dataclass(frozen=True)
class Place(Given):
    """A place in a run: work below it, chance, and notes.

    `about` names the sources ("task:t1") of what happens here. `teaches` is False in evaluation. `warmth` is the
    agent's temperature if several attempts should differ, and `member` numbers such attempts. `actor` names the seat
    that plays the agent, where there are several. `job` is the place of the concurrent job that this belongs to.
    `opened` are the places opened right below this one, which are forgotten with it; None where nothing is above it, so
    that others may open them, too.
    """

    place: str = ""
    about: tuple[str, ...] = ()
    teaches: bool = True
    warmth: float | None = None
    member: int = 1
    actor: str = "agent"
    job: str = ""
    chain: Chain = field(default_factory=Chain, compare=False)
    opened: set[str] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Run at {self.place!r}>"

    @property
    def hits(self) -> int:
        """How many effects the journal has saved so far."""
        return self._state.journal.hits

    @property
    def provider_failed(self) -> bool:
        """Whether the provider failed before this place, and no result rests on that yet."""
        return not self.chain.losses.isdisjoint(self._state.lost)

    @property
    def unparsed(self) -> bool:
        """Whether an output of a model could not be parsed at this place or below it."""
        return any(f"{place}/".startswith(f"{self.place}/") for place in self._state.unparsed)

    def count(self, counter: Count, by: int = 1) -> None:
        self._state.counts[counter] += by

    def at(self, name: str, about: tuple[str, ...] | None = None) -> Self:
        """The place `name` below this one. Raises PlaceTaken if it was opened before."""
        # A name may hold a slash (task ids are the user's), but must not look like a place further down.
        inner = name.replace("%", "%25").replace("/", "%2F")
        place = f"{self.place}/{inner}" if self.place else inner
        self._open(place)
        return replace(self, place=place, about=self.about if about is None else about, opened=set())

    def apart(self, name: str, about: tuple[str, ...] | None = None) -> Self:
        """The same for work that runs beside what follows here: it is a job with a chain of its own."""
        at = self.at(name, about)
        return replace(at, job=at.place, chain=self.chain.apart())

    def begins(self) -> None:
        """The job at this place, which `apart` made, is about to begin."""
        self._state.proof.begins(self.job)

    async def do(self, job: Callable[[Self], Awaitable[T]]) -> T:
        """The result of a job at this place, which `apart` made."""
        try:
            return await job(self)
        finally:
            self._state.proof.ended(self.job)

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Self], Awaitable[T]]]]) -> list[T]:
        """Run named jobs concurrently, each at its own place. Returns the results in the order of the jobs.

        A failure cancels no sibling, so what they pay for is kept; then the first in the order of the jobs is raised.
        """
        children = [self.apart(name) for name, _ in jobs]
        self._state.proof.ended(self.job)
        for child in children:
            child.begins()
        if len(jobs) == 1:
            # Nobody runs beside it, so it needs no task of its own.
            results: list[T | BaseException] = [await children[0].do(jobs[0][1])]
        else:
            results = await asyncio.gather(
                *(child.do(job) for (_, job), child in zip(jobs, children, strict=True)), return_exceptions=True
            )
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        if isinstance(failure, Stopped):
            # Nothing goes on from here, and what was lost is tried again.
            raise failure
        self.chain.join(child.chain for child in children)
        if failure is not None:
            raise failure
        return [result for result in results if not isinstance(result, BaseException)]

    def rng(self, name: str = "") -> random.Random:
        """Randomness that depends on nothing but the seed and this place."""
        return random.Random(digest(str(self.seed), self.place, name))

    def recall(self, name: str) -> Any:
        """What was noted here under this name before a resume, or None."""
        known = self._state.journal.find(f"{self.place}/{name}", NOTE_ROLE)
        return None if known is None else json.loads(known.answer)

    def note(self, name: str, value: Any) -> None:
        """Store a JSON value that a resume could not compute again, such as a duration, before any later result."""
        place = f"{self.place}/{name}"
        self._open(place)
        row = JournalRow(place, NOTE_ROLE, NOTE_ROLE, json.dumps(value), sources=self.about)
        if self.provider_failed:
            # A resume tries a lost call again, and must not find what followed from the loss.
            self._lose(row)
        else:
            self._state.journal.post(row)

    async def observe(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What an action on the outside world returned, as a JSON value. A resume repeats the action, because the world
        may live in memory, but returns the first result."""
        known = self.recall(name)
        result = self._redacted(await do())
        if known is None:
            self.note(name, result)
            return result
        self._open(f"{self.place}/{name}")
        return known

    async def once(self, name: str, do: Callable[[], Awaitable[Any]]) -> Any:
        """What a decision returned, as a JSON value. A resume does not ask for it again."""
        known = self.recall(name)
        if known is None:
            self.note(name, known := await do())
        else:
            self._open(f"{self.place}/{name}")
        return known

    def try_again(self, places: Sequence[str]) -> None:
        """Have a resume try again what the provider failed at or below these places. Other results there count as long
        as the same is asked."""
        self._state.journal.note_outage(again=places)

    def _open(self, place: str) -> None:
        opened = self._state.opened if self.opened is None else self.opened
        if place in opened:
            raise PlaceTaken(
                "journal.place_taken",
                f"the place '{place}' was opened twice: give each effect or job a name of its own",
            )
        opened.add(place)

    async def _write(self, *rows: JournalRow) -> None:
        """Write results to disk, together with the failures that they may rest on: a resume never forgets a failure
        that the run went on from, and tries again what was lost besides."""
        settled = self._state.settle(self.chain.losses)
        self.chain.losses.clear()
        await self._state.journal.write(*settled, *rows)

    def _lose(self, row: JournalRow) -> None:
        self._state.lost[row.place] = row
        self.chain.losses.add(row.place)

    def _redacted(self, value: T) -> T:
        """The value without what must not be stored or sent."""
        return value if self._state.redactor is None else self._state.redactor(value)
