"""The data that flows through the house, frozen: task -> rollout (trace + score) -> lesson."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Rating = Literal["helpful", "harmful", "neutral"]


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do. `target` is the right answer where one is known; `meta` never reaches a model. `recorded` is
    what an agent did on it before this run, for learning from stored traces."""

    id: str
    input: str
    target: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    recorded: Recorded | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Provenance for what is learned from the task alone; `meta.tags` become tags."""
        tags = self.meta.get("tags", ())
        return (f"task:{self.id}", *(f"tag:{tag}" for tag in ((tags,) if isinstance(tags, str) else tags)))


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an agent's work: a thought, an action, an observation."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """What an agent did on one task. `used` are the ids of the entries it says it relied on.

    `error` is set when the attempt failed before there was an answer; `lost` when that was the provider's fault or
    the output could not be read, so that there is nothing to learn from it. `unknown` counts cited ids that were never
    shown; `data` holds what else the agent was asked to tell, such as doubts about entries.
    """

    answer: str
    reasoning: str = ""
    used: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    error: str | None = None
    lost: bool = False
    unknown: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is, for reports: `value` in [0, 1]; `correct` is the pass mark. `measures` are what else the
    scorer found out about it in numbers, by name, such as the size of its code. `stopped`: it is code that went too far
    when it was run, for a limit or a fence of the sandbox."""

    value: float
    correct: bool
    note: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """An attempt that was made elsewhere: its trace, and its score where one was kept with it."""

    trace: Trace
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What learning may see of an attempt. `success` is None where nothing says whether it went well."""

    success: bool | None
    text: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What reflection makes of rollouts.

    `votes` maps entry ids to a verdict; `confirmed` means the lesson turned a failure into a success.
    `sources` name what it came from ("task:t1", "rollout:...", "tag:..."), and travel into every edit made of it.
    `text` may be empty: then it carries votes only. `detail` is the evidence an update may be shown.
    """

    id: str
    text: str
    detail: str = ""
    votes: Mapping[str, Rating] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    confirmed: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """One reflection within an attempt and, if it was tried, what the next try gave."""

    lesson: Lesson
    trace: Trace | None = None
    feedback: Feedback | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at a task. `trace`, `score` and `feedback` are those of round 0, which is what reports count.

    `siblings` are further attempts under the same context, `twin` one under an annotated view of it; both are there to
    learn from and in no report. Where it was chosen from several, `choice` says of how many ("of"), who chose ("by"),
    "why", which share came to the same ("agreement"), and more. `retrieved` are entries that were looked up for this
    task, with their similarity to it, or to the step they were looked up for. `of` is the place of an attempt that
    stands for this one, which was not made.
    """

    task: Task
    trace: Trace
    score: Score | None
    feedback: Feedback
    place: str
    rounds: tuple[Round, ...] = ()
    siblings: tuple[Rollout, ...] = ()
    twin: Trace | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    retrieved: tuple[tuple[str, float], ...] = ()
    of: str = ""

    @property
    def group(self) -> tuple[Rollout, ...]:
        """All attempts under the same context, this one first."""
        return (self, *self.siblings)

    @property
    def sources(self) -> tuple[str, ...]:
        """Provenance for everything learned from this rollout."""
        task, *tags = self.task.sources
        made = (f"rollout:{self.of}",) if self.of else ()
        return (task, f"rollout:{self.place}", *made, *tags)


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls cost. `usd` is None as soon as one call's price is unknown."""

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            usd,
        )

    @property
    def tokens(self) -> int:
        """Input and output tokens together, cached ones included."""
        return self.input_tokens + self.output_tokens

    @property
    def cached_share(self) -> float:
        """Share of the input tokens that came from a prefix cache, in [0, 1]."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier exchange shown to an agent: what was asked and what was answered."""

    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads, in the order a prefix cache likes: fixed words, context pages, earlier turns, the task.

    `parts` are those of `user`, where it has several: if all of it is too long, each is cut by itself.
    """

    system: str
    user: str
    pages: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, system: str, parts: Sequence[str], pages: tuple[str, ...] = (), turns: tuple[Turn, ...] = ()) -> Prompt:
        """A prompt whose last message is made of these parts, one below the other."""
        return cls(system, "\n\n".join(parts), pages, turns, tuple(parts))

    @property
    def head(self) -> str:
        """The system message: fixed words first, then the pages."""
        return "\n\n".join(part for part in (self.system, "\n".join(self.pages)) if part)
