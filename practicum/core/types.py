"""Frozen data of a run: task -> attempt (trace + score) -> lesson; prompts and usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from practicum.core.images import Images
from practicum.core.trust import Trust, markers

Rating = Literal["helpful", "harmful", "neutral"]

Profile = Literal["full", "small"]
"""Capability of the models of a run. full: a capable model, which gets complete instructions and writes texts of any
length. small: a model of a few billion parameters, which gets short forms, limits in each schema and worked
examples."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task. `target` is the right answer, if known; `meta` is never sent to a model. `recorded` is an attempt that
    was made before this run, for learning from stored traces. `trust` is the trust level of the task.

    If the task is a conversation, `input` is the last message of the user, `history` has the earlier turns, and
    `system` is the system message. `images` are the images whose marks are in these texts.
    """

    id: str
    input: str
    target: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    recorded: Recorded | None = None
    system: str = ""
    history: tuple[Turn, ...] = ()
    images: Images = field(default_factory=dict)
    trust: Trust = "own"

    @property
    def text(self) -> str:
        """The task as one text. For a conversation: the system message, the earlier turns, and the input."""
        if not self.system and not self.history:
            return self.input
        turns = [text for turn in self.history for text in (f"User: {turn.user}", f"Agent: {turn.assistant}")]
        return "\n\n".join([*filter(None, [self.system]), *turns, f"User: {self.input}"])

    @property
    def messages(self) -> list[dict[str, str]]:
        """The task as chat messages, each with `role` (system, user, assistant) and `content`."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        turns = [(r, t) for turn in self.history for r, t in (("user", turn.user), ("assistant", turn.assistant))]
        return [*system, *({"role": role, "content": text} for role, text in (*turns, ("user", self.input)))]

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of everything that is learned from the task: the task, its trust marker, and the tags in
        `meta.tags`."""
        tags = self.meta.get("tags", ())
        tags = (tags,) if isinstance(tags, str) else tags
        return (f"task:{self.id}", *markers(self.trust), *(f"tag:{tag}" for tag in tags))


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an agent: a thought, an action or an observation."""

    kind: str
    text: str

    @property
    def line(self) -> str:
        """The step as models read it."""
        return f"{self.kind.capitalize()}: {self.text}"


@dataclass(frozen=True, slots=True)
class Trace:
    """Record of an attempt of an agent. `used` are the ids of the entries that the agent cites as used.

    `error` is set if the attempt failed before there was an answer. `lost` is set in addition to `error` if the
    provider failed or the output was invalid, so that nothing can be learned from the attempt. `refused` is set in
    addition to `error` and `lost` if the provider refused only this request. `unknown` counts cited ids that were never
    shown. `data` has the other requested outputs of the agent, such as doubts about entries. `trust` is the trust level
    of the agent's input during the attempt, such as tool output.
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
    """Quality of an answer, for reports: `value` in [0, 1], and `correct` if the answer passes.

    `measures` are further numbers of the scorer by name, such as the size of the code. `stopped` means that the sandbox
    stopped the code at a limit or a forbidden operation. `untestable` means that the score is 0 because of the task:
    its tests or its pattern could not be evaluated to the end. `unfenced` means that code ran without full isolation
    by the sandbox.
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
    """Attempt that was made elsewhere: its trace, and its score if one was stored.

    `own` means that the ids in `trace.used` are ids of the context that learns now, not of another run's context.
    `retrieved` are the entries that were retrieved for the task, with their similarity. `evidence` are the signs of
    what followed the attempt, each signal at most once. `later` is the user's next message in the session, which may
    begin another task; it is empty if a judge has read it.
    """

    trace: Trace
    score: Score | None = None
    own: bool = False
    evidence: tuple[Evidence, ...] = ()
    retrieved: tuple[tuple[str, float], ...] = ()
    later: str = ""

    @property
    def outcome(self) -> Feedback | None:
        """The evidence as feedback; None without evidence. One sign of a failure outweighs all signs of a success."""
        if not self.evidence:
            return None
        signs = ", and ".join(sign.text for sign in self.evidence)
        success = all(sign.success for sign in self.evidence)
        right = "right" if success else "not right at first"
        return Feedback(success, f"What followed shows that the work was {right}: {signs}.")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sign that an attempt succeeded or failed, from the events after it. `signal` is its kind, such as "objection".
    `text` is the sentence that reports it."""

    signal: str
    success: bool
    text: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """Information about an attempt that learning may use. `success` is None if it is unknown whether the attempt
    succeeded."""

    success: bool | None
    text: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """Result of reflection on attempts.

    `text` may be empty if the lesson only has votes. `detail` is evidence that may be shown to the model that writes
    the update. `votes` maps entry ids to ratings. `sources` name the origins of the lesson ("task:t1", "attempt:...",
    "tag:...") and are passed on to every edit made from the lesson. `confirmed` means that a failed attempt succeeded
    when it was repeated with the lesson. `data` has the other outputs of the reflection. `section` is the section for
    the text, if the reflection names it. `further` are more insights of the same reflection. In each of these further
    lessons, `of` is the id of this first lesson.
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
        """This lesson and each further insight as separate lessons. Only this lesson has the votes."""
        return (replace(self, further=()), *(replace(x, confirmed=self.confirmed) for x in self.further))

    @property
    def texts(self) -> str:
        """All insights as one text."""
        return "\n".join(x.text for x in (self, *self.further) if x.text)


@dataclass(frozen=True, slots=True)
class Round:
    """One reflection within an attempt and, if another try followed, the trace and feedback of that try."""

    lesson: Lesson
    trace: Trace | None = None
    feedback: Feedback | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task. `trace`, `score` and `feedback` are from the first try, before any of the `rounds`;
    reports count this try.

    `siblings` are further attempts at the task under the same context. `twin` is the trace of an attempt under an
    annotated view. Siblings and twin are used for learning and do not appear in reports. If the attempt was chosen from
    several, `choice` has the count of these attempts ("of"), the index of this attempt, from 1 ("number"), the block
    that chose it ("by"), the reason ("why"), the share of attempts with the same answer ("agreement"), and more.
    Reports then count the `first` attempt, and the chosen attempt as the best of k. `retrieved` are the entries that
    were retrieved for the task or one of its steps, with their similarity. If this attempt reuses an earlier attempt,
    `of` is the place of the earlier attempt.
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
        """This attempt, followed by its siblings: all attempts at the task under the same context."""
        return (self, *self.siblings)

    @property
    def first(self) -> Attempt:
        """The first of the attempts from which this attempt was chosen; this attempt itself, if no choice was made.
        Reports count the first attempt, because an attempt chosen by its score is not evidence about a context."""
        return self if self.choice.get("number", 1) == 1 else self.siblings[0]

    @property
    def solved(self) -> Trace | None:
        """Trace of the first successful try: the try of the attempt itself, or a later try of its rounds. None if no
        try succeeded."""
        tries = [(self.trace, self.feedback), *((round.trace, round.feedback) for round in self.rounds)]
        return next((trace for trace, feedback in tries if trace and feedback and feedback.success is True), None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of everything learned from this attempt."""
        task, *others = self.task.sources
        reused = (f"attempt:{self.of}",) if self.of else ()
        traces = (*(r.trace for r in self.group), *(r.trace for r in self.rounds), self.twin)
        read = markers(*(trace.trust for trace in traces if trace is not None))
        return (task, f"attempt:{self.place}", *reused, *(m for m in read if m not in others), *others)


MOST_TOKENS = 2**53
"""Upper limit of valid token counts."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of calls. `input_tokens` include the tokens that were read from a prefix cache (`cached_tokens`) and written
    to it (`cache_write_tokens`). `usd` is None if the price of any call is unknown."""

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            usd,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def tokens(self) -> int:
        """Sum of input and output tokens, including cached tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def cached_share(self) -> float:
        """Fraction of the input tokens from a prefix cache, in [0, 1]."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier turn of a conversation that is shown to a model: a question and its answer. `steps` are the steps
    between question and answer, for agents that act."""

    user: str
    assistant: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """Input of a model, in the order that suits prefix caches: instructions, context pages, earlier turns, the task.

    `parts` are the parts of `user`, if `user` has several parts. Each part is shortened separately if `user` is too
    long. `closing` is an instruction after the material in `user`, so that prompts that differ only in `closing` have a
    common prefix. The first `fixed` pages begin other prompts of the role, too; None: all pages. If the prompt `grows`,
    the next prompt of the conversation repeats its turns. `images` are those whose marks are in `user` and `turns`.
    """

    system: str
    user: str
    pages: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    parts: tuple[str, ...] = ()
    closing: str = ""
    fixed: int | None = None
    grows: bool = False
    images: Images = field(default_factory=dict, hash=False)

    @classmethod
    def from_parts(
        cls, system: str, parts: Sequence[str], pages: tuple[str, ...] = (), turns: tuple[Turn, ...] = ()
    ) -> Prompt:
        """Return a prompt whose last message joins the parts with blank lines."""
        return cls(system, "\n\n".join(parts), pages, turns, tuple(parts))

    @property
    def head(self) -> str:
        """The system message: the instructions, then the pages."""
        return "\n\n".join(part for part in (self.system, "\n".join(self.pages)) if part)


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for a role, by profile. If `small` is empty, small models get the text `full`. Small models also get
    worked examples, because they learn a form better from examples than from a description."""

    full: str
    small: str = ""
    examples: tuple[Turn, ...] = ()

    def text(self, profile: Profile) -> str:
        return self.small if self.small and profile == "small" else self.full

    def prompt(self, profile: Profile, parts: Sequence[str], pages: tuple[str, ...] = (), heading: str = "") -> Prompt:
        """Return a prompt with these instructions; `heading` is placed above the pages."""
        system = "\n\n".join(filter(None, (self.text(profile), heading)))
        return Prompt.from_parts(system, parts, pages, self.examples if profile == "small" else ())
