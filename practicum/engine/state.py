"""What all places of a run share: the journal, the models in their roles, the agent, the budget, the counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from practicum.agents.base import Agent
from practicum.core.types import Prompt, Rollout, Score, Task, Trace, Usage
from practicum.core.views import count_tokens
from practicum.models.budget import Budget, Need
from practicum.models.client import CallOptions, Client
from practicum.models.prompting import prompt_tokens, shorten_prompt
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors
from practicum.store.journal import Journal, JournalRow
from practicum.tasks.scoring.registry import meta_fault


@dataclass(frozen=True, slots=True)
class Seat:
    """A model in a role, and how it is asked there."""

    client: Client
    options: CallOptions = field(default_factory=CallOptions)


class Scorer(Protocol):
    """Scores a trace. One that is not `pure` (a user's function, say) has its results journaled."""

    @property
    def name(self) -> str: ...

    @property
    def pure(self) -> bool: ...

    @property
    def needs_target(self) -> bool: ...

    async def __call__(self, task: Task, trace: Trace, run: Any) -> Score: ...


Slots = dict[str, asyncio.Semaphore]
"""What is held while something is in flight, by endpoint."""

UNKNOWN_WINDOW = 100_000
"""Tokens a model is taken to read at most, where its window is not known."""

CUTS = 5
"""Times a prompt is cut that is over its model's window, each time to half of what the last one kept."""

LEAST = 64
"""Tokens that a cut leaves of a message, however little room there is."""


@dataclass
class House:
    """What all Runs of one run share. `labels` False keeps targets and scores from everything that learns.

    `failures` are the provider's that nothing was built on yet, and what was noted since; they are written with the
    next result that is.
    `unread` are the places where no output of a model could be read.
    `pace` is how many attempts were made, and the seconds they took together; `trouble` the last thing that went
    wrong with a model.
    """

    journal: Journal
    seats: dict[str, Seat]
    agent: Agent
    scorer: Scorer | None
    vectors: Vectors
    instructions: str = ""
    choices: tuple[str, ...] = ()
    labels: bool = True
    judged: bool = False
    seed: int = 0
    concurrency: int = 16
    budget: Budget = field(default_factory=Budget)
    counts: Counter[str] = field(default_factory=Counter)
    opened: set[str] = field(default_factory=set)
    evaluated: dict[tuple[str, str, str, int], Rollout] = field(default_factory=dict)
    attempted: dict[str, dict[tuple[object, str, int], Rollout]] = field(default_factory=dict)
    failures: list[JournalRow] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    inflation: dict[str, float] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    pace: tuple[int, float] = (0, 0.0)
    trouble: str = ""
    on_attempt: Callable[[], None] | None = None
    retriever: Retriever = field(init=False)
    slots: Slots = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.retriever = Retriever(self.vectors, counts=self.counts)

    @property
    def happened(self) -> dict[str, int]:
        """What was counted, by name, where there was any."""
        return {name: count for name, count in sorted(self.counts.items()) if count}

    @property
    def told(self) -> list[str]:
        """The part of a prompt that says what the agent is told; no part where it is told nothing."""
        return [f"# What the agent is told\n{self.instructions}"] if self.instructions else []

    def seat(self, role: str) -> Seat:
        """The model in this role; the agent's where none was named for it."""
        return self.seats.get(role) or self.seats["agent"]

    def scores(self, task: Task) -> bool:
        """Whether the scorer can say anything of attempts at this task."""
        scorer = self.scorer
        if scorer is None or (task.target is None and scorer.needs_target):
            return False
        return meta_fault(scorer.name, task.meta) is None

    def slot(self, endpoint: str, most: int | None = None) -> asyncio.Semaphore:
        """Held while something is in flight at this endpoint. What waits for it has promised and sent nothing yet,
        so that a stop lets go of it."""
        if endpoint not in self.slots:
            self.slots[endpoint] = asyncio.Semaphore(min(most or self.concurrency, self.concurrency))
        return self.slots[endpoint]

    def fitting(self, role: str, prompt: Prompt) -> Iterator[Prompt]:
        """The prompt as this role's model is taken to read it, then shorter and shorter, for a model that reads less
        than that. What is cut is marked, and the prompt counted once: a trace may be of any length, and its beginning
        and its end say most."""
        seat = self.seat(role)
        window = seat.client.window or UNKNOWN_WINDOW
        # The estimate of tokens is rough, so some room is left.
        over = prompt_tokens(prompt) - int((window - seat.options.max_output_tokens) / 1.25)
        size = count_tokens(prompt.user)
        if over <= 0:
            yield prompt
        keep = size - over if over > 0 else size // 2
        self.counts["prompts cut to fit"] += 1
        for n in range(CUTS):
            yield shorten_prompt(prompt, max(keep >> n, LEAST))

    def timed(self, record: JournalRow) -> None:
        """Note how long an attempt took: its one call, or all of it where the Run wrote its result down."""
        if record.role == "agent" and self.agent.journaled == (record.usage.calls == 0):
            self.pace = (self.pace[0] + 1, self.pace[1] + record.seconds)

    def note(self, record: JournalRow) -> None:
        """Put a note on the disk soon; after a failure, which it may rest on, with the next result: a resume that tries
        again what was lost must not find what came of its being lost."""
        if self.failures:
            self.failures.append(record)
        else:
            self.journal.post(record)

    async def write(self, *records: JournalRow) -> None:
        """Put results on the disk, after the provider's failures they may rest on.

        So a failure that the run went on from is never forgotten by a resume, and one that stopped it always is:
        what was lost at the end of a broken run is tried again.
        """
        waiting, self.failures = self.failures, []
        if waiting or records:
            await self.journal.write(*waiting, *records)


def need_of(client: Client, input_tokens: float, output_tokens: int) -> Need:
    """The most a call can cost."""
    most = Usage(1, int(input_tokens) + 1, 0, output_tokens)
    return Need(1, most.tokens, client.cost(most) or 0.0)
