"""The data of a run, all frozen: task -> attempt (trace + score) -> lesson; prompts and usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from practicum.core.trust import Trust, markers

Rating = Literal["helpful", "harmful", "neutral"]

Profile = Literal["full", "small"]
"""What the models of a run can do. full: a capable model, which gets complete instructions and writes at any length;
small: a model of a few billion parameters, which gets short forms, bounds in each schema and worked examples."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task. `target` is the right answer, if known; `meta` never reaches a model. `recorded` is an attempt from
    before this run, for learning from stored traces. `trust` says where all of it comes from."""

    id: str
    input: str
    target: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    recorded: Recorded | None = None
    trust: Trust = "own"

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of what is learned from the task alone; `meta.tags` become tags."""
        tags = self.meta.get("tags", ())
        tags = (tags,) if isinstance(tags, str) else tags
        return (f"task:{self.id}", *markers(self.trust), *(f"tag:{tag}" for tag in tags))


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an agent: a thought, an action, an observation."""

    kind: str
    text: str

    @property
    def line(self) -> str:
        """The step as models read it."""
        return f"{self.kind.capitalize()}: {self.text}"


@dataclass(frozen=True, slots=True)
class Trace:
    """What an agent did on one task. `used` are the ids of the entries it cites as used.

    `error` is set if the attempt failed before there was an answer. It is also `lost` if the provider failed or the
    output was invalid, so that there is nothing to learn from it, and `refused` if the provider refused this request
    alone. `unknown` counts cited ids that were never shown.
    `data` holds whatever else the agent was asked for, such as doubts about entries. `trust` is that of what the agent
    read on the way: what a tool returned, for example.
    """

    answer: str
    reasoning: str = ""
    used: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    error: str | None = None
    lost: bool = False
    unknown: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = "own"
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is, for reports: `value` in [0, 1], and `correct` if it passes.

    `measures` are further numbers of the scorer, by name, such as the size of the code. `stopped` means that it is code
    which the sandbox stopped at a limit or a fence, `untestable` that the score is 0 because of the task: its tests, or
    its pattern, could not be tried to the end. `unfenced` means that code ran without all fences of the sandbox.
    """

    value: float
    correct: bool
    note: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    stopped: bool = False
    untestable: bool = False
    unfenced: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """An attempt that was made elsewhere: its trace, and its score if one was stored with it.

    It is `own` if the agent was shown entries of the same run. `retrieved` are those that were looked up for the task,
    with their similarity.
    """

    trace: Trace
    score: Score | None = None
    own: bool = False
    retrieved: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Feedback:
    """What learning may see of an attempt. `success` is None if it is unknown."""

    success: bool | None
    text: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What reflection makes of attempts.

    `text` may be empty if the lesson only carries votes. `detail` is evidence that an update may be shown. `votes` maps
    entry ids to ratings. `sources` name what the lesson came from ("task:t1", "attempt:...", "tag:..."), and pass on to
    every edit made of it. `confirmed` means that the lesson turned a failure into a success. `data` holds all that the
    reflection says beside its insights. `section` is the one that the text belongs to, if the reflection names it.
    `further` are more insights of the same reflection; each then has the id of the reflection in `of`.
    """

    id: str
    text: str
    detail: str = ""
    votes: Mapping[str, Rating] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    confirmed: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    section: str = ""
    of: str = ""
    further: tuple[Lesson, ...] = ()

    @property
    def each(self) -> tuple[Lesson, ...]:
        """Its insights as lessons of their own. The first one keeps the votes."""
        return (replace(self, further=()), *(replace(x, confirmed=self.confirmed) for x in self.further))

    @property
    def texts(self) -> str:
        """All its insights as one text."""
        return "\n".join(x.text for x in (self, *self.further) if x.text)


@dataclass(frozen=True, slots=True)
class Round:
    """One reflection within an attempt and, if another try followed, its trace and feedback."""

    lesson: Lesson
    trace: Trace | None = None
    feedback: Feedback | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task. `trace`, `score` and `feedback` are those of round 0, which reports count.

    `siblings` are further attempts under the same context, `twin` is one under an annotated view; both serve learning
    and appear in no report. If the attempt was chosen from several, `choice` holds how many there are ("of"), which of
    them it is ("number", from 1), who chose ("by"), "why", the share with the same answer ("agreement"), and more.
    Reports then count the `first` one, and the chosen one beside it as the best of k. `retrieved` are the entries that
    were looked up for the task or one of its steps, with their similarity. `of` is the place of an earlier attempt that
    was reused in place of a new one.
    """

    task: Task
    trace: Trace
    score: Score | None
    feedback: Feedback
    place: str
    rounds: tuple[Round, ...] = ()
    siblings: tuple[Attempt, ...] = ()
    twin: Trace | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    retrieved: tuple[tuple[str, float], ...] = ()
    of: str = ""

    @property
    def group(self) -> tuple[Attempt, ...]:
        """All attempts under the same context, this one first."""
        return (self, *self.siblings)

    @property
    def first(self) -> Attempt:
        """The first attempt at the task. What is chosen from several by their scores says nothing about a context."""
        return self if self.choice.get("number", 1) == 1 else self.siblings[0]

    @property
    def solved(self) -> Trace | None:
        """The trace that solved the task: of the attempt, else of the first further try that succeeded; else None."""
        tries = [(self.trace, self.feedback), *((round.trace, round.feedback) for round in self.rounds)]
        return next((trace for trace, known in tries if trace and known and known.success is True), None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of everything learned from this attempt."""
        task, *others = self.task.sources
        reused = (f"attempt:{self.of}",) if self.of else ()
        traces = (*(r.trace for r in self.group), *(r.trace for r in self.rounds), self.twin)
        read = markers(*(trace.trust for trace in traces if trace is not None))
        return (task, f"attempt:{self.place}", *reused, *(m for m in read if m not in others), *others)


MOST_TOKENS = 2**53
"""A larger count of tokens is none."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls cost. `usd` is None if the price of any call is unknown."""

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
    """An earlier exchange that a model is shown: a question and its answer. `steps` are what an agent did in between,
    for agents that act."""

    user: str
    assistant: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads, in the order that serves prefix caches: instructions, context pages, earlier turns, the task.

    `parts` are the parts of `user`, if it has several: when it is too long, each is shortened by itself. `closing` is
    what a role is told after the material in `user`, so that prompts that differ in it alone begin alike.
    """

    system: str
    user: str
    pages: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    parts: tuple[str, ...] = ()
    closing: str = ""

    @classmethod
    def from_parts(
        cls, system: str, parts: Sequence[str], pages: tuple[str, ...] = (), turns: tuple[Turn, ...] = ()
    ) -> Prompt:
        """A prompt whose last message joins these parts with blank lines."""
        return cls(system, "\n\n".join(parts), pages, turns, tuple(parts))

    @property
    def head(self) -> str:
        """The system message: the instructions, then the pages."""
        return "\n\n".join(part for part in (self.system, "\n".join(self.pages)) if part)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a role is told, by profile. If `small` is empty, small models are told the same. They also get worked
    examples, since they learn a form from examples better than from any description."""

    full: str
    small: str = ""
    examples: tuple[Turn, ...] = ()

    def text(self, profile: Profile) -> str:
        return self.small if self.small and profile == "small" else self.full

    def prompt(self, profile: Profile, parts: Sequence[str], pages: tuple[str, ...] = (), heading: str = "") -> Prompt:
        """A prompt with these instructions; `heading` stands above the pages."""
        system = "\n\n".join(filter(None, (self.text(profile), heading)))
        return Prompt.from_parts(system, parts, pages, self.examples if profile == "small" else ())
