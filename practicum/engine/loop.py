"""The loop: `Method`, and the schedule that runs a method step after step.

    sample -> attempt (wraps act, which begins with show) -> reflect -> update -> admission -> accept -> apply

A method is a value of `Method` with seven functions, the seams. Blocks fill the seams and wrap each other
(`methods/blocks/`). Recipes combine blocks (`methods/`). The loop has no branch for any method. A new method needs only
new blocks. `docs/extend/method.md` shows how to build a method.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

from practicum.core.context import Context
from practicum.core.edits import Add, Applied, Delta, Refused, Resolution, changed_entries, ordered_union
from practicum.core.errors import MethodError, PracticumError, ProviderError, UsageError
from practicum.core.types import Attempt, Lesson, Task
from practicum.core.views import View
from practicum.core.words import error_line
from practicum.engine.admission import Held
from practicum.engine.place import KEPT
from practicum.engine.provenance import traced, traced_lessons
from practicum.engine.run import ActSeam, Run
from practicum.retrieval.search import DEFAULT, Retrieval

T = TypeVar("T")

ENDED = "ended"
"""Name of the note that stores when a step ended, in seconds since 1970."""

LOST_STEPS = 3
"""Number of lost steps in a row after which the run stops."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks of one step.

    `arm` names the candidate context that the step starts from, in methods that keep several candidates (GEPA). `data`
    describes the sampler's choice as JSON values and is stored with the step. `steps` is the total number of steps of
    the run; None: the number is not known yet.
    """

    tasks: tuple[Task, ...]
    epoch: int = 1
    arm: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one step: the attempts, the lessons, and the context after the step.

    `applied` are the edits that changed the context, `refused` are the edits that were refused, with reasons.
    `resolutions` give the outcomes of lessons that led to no edit. `held` are the edits that wait for review. `seconds`
    is the duration of the step; None: the duration is unknown, because the run was stopped and resumed during the step.
    `val` is the mean validation score, in [0, 1]; None: the step was not validated. `evidence` holds the measurements
    that `accept` decided by.
    """

    step: int
    batch: Batch
    attempts: tuple[Attempt, ...]
    lessons: tuple[Lesson, ...]
    context: Context
    applied: tuple[Applied, ...]
    refused: tuple[Refused, ...]
    resolutions: tuple[Resolution, ...]
    seconds: float | None
    val: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Validation:
    """Held-out tasks for validation. After every `every` steps, the context is scored on these tasks, so that the run
    can keep the best context."""

    tasks: Sequence[Task]
    every: int = 1

    async def score(self, method: Method, context: Context, run: Run) -> float:
        """Return the mean score of the tasks under `context`. If a context with the same visible text was evaluated
        before, the stored scores are used and no calls are made."""
        return mean_score(await run.evaluate(method.act, "val", self.tasks, context))


RECENT = 20
"""Number of latest steps whose reports a history keeps."""

History = Sequence[StepReport]
ShowSeam = Callable[[Context, Task, Run], Awaitable[View]]
SampleSeam = Callable[[Sequence[Task], History, Run], Iterator[Batch]]
"""Yields the batches of tasks to attempt, from the tasks and the history of steps."""
AttemptSeam = Callable[[Batch, Context, Run], Awaitable[list[Attempt]]]
"""Attempts the tasks of a batch under a context, by calls of `act`."""
ReflectSeam = Callable[[Sequence[Attempt], Context, Run], Awaitable[list[Lesson]]]
"""Turns attempts into lessons."""
UpdateSeam = Callable[[Sequence[Lesson], Context, Run], Awaitable[Delta]]
"""Turns lessons into a delta of the context."""
AcceptSeam = Callable[[Context, Delta, Sequence[Attempt], Run], Awaitable[Delta]]
"""Returns the delta to apply: the proposed delta, a part of the proposed delta, or an empty delta."""
Schedule = Callable[["Method", Sequence[Task], Context, Run, Validation | None], AsyncIterator[StepReport]]


async def _no_show(context: Context, task: Task, run: Run) -> View:
    """Mark a missing `show`: this function is the default value of `show`, and `Method` raises UsageError if `show` is
    this function."""
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Method:
    """Learning method: seven functions (the seams, from `show` to `accept`), and facts about the method.

    `show` returns the view of the context that an agent sees for a task. `show` may search the context, and may ask
    only the models in the roles `show_roles`. `act` makes one attempt, exactly as in evaluation: show, then the agent,
    then the score. `attempt` wraps `act` and may make several attempts. `schedule` calls the seven functions; the
    default schedule, `sequential`, runs one step after the other.

    `roles` are the roles whose models are asked during learning, in addition to the agent's model. `act_roles` are the
    roles whose models `act` asks, such as a judge that chooses among attempts. `models` maps seats that are not roles,
    such as single agents of a network, to the names of their models.

    `retrieval` is the similarity measure of all searches of a run: "cosine", "words" or "mixed".

    `act_calls` is the maximum number of model calls of one `act`. The budget reserves this number of calls for each
    test task. `calls` is the minimum and the maximum number of model calls in one step, for the estimate before a run;
    None: unknown. `costs` describes in words the model calls that a step makes in addition to its attempts.
    """

    name: str
    show: ShowSeam = _no_show
    sample: SampleSeam
    act: ActSeam
    attempt: AttemptSeam
    reflect: ReflectSeam
    update: UpdateSeam
    accept: AcceptSeam
    roles: tuple[str, ...] = ()
    act_roles: tuple[str, ...] = ()
    show_roles: tuple[str, ...] = ()
    schedule: Schedule = field(default_factory=lambda: sequential)
    retrieval: Retrieval = DEFAULT
    models: Mapping[str, str] = field(default_factory=dict)
    act_calls: int = 1
    calls: tuple[int, int] | None = None
    costs: str = ""

    def __post_init__(self) -> None:
        if self.show is _no_show:
            raise UsageError(
                "method.no_show",
                f"method {self.name} has no `show`: pass the function that makes an agent's view of the context for a "
                "task, `async def show(context, task, run) -> View`, such as `practicum.methods.blocks.show.full_view`",
            )

    def __repr__(self) -> str:
        roles = f", asks {', '.join(self.roles)}" if self.roles else ""
        return f"<Method {self.name}{roles}>"


async def view_of(show: ShowSeam, context: Context, task: Task, run: Run) -> View:
    """Return the view that `show` makes of a context for a task. Raises MethodError if `show` fails."""
    try:
        view = await show(context, task, run)
    except PracticumError:
        raise
    except Exception as error:
        problem = f"`show` raised {error_line(error)} for task {task.id!r}"
        raise MethodError("method.wrong_result", f"{problem}{KEPT}") from error
    if not isinstance(view, View):
        returned = "None" if view is None else type(view).__name__
        raise MethodError(
            "method.wrong_result", f"`show` returned {returned} for task {task.id!r}; it must return a View{KEPT}"
        )
    return run.completed(view)


async def sequential(
    method: Method, tasks: Sequence[Task], context: Context, run: Run, validation: Validation | None = None
) -> AsyncIterator[StepReport]:
    """Run one step after the other, beginning with `context`. Yields the report of each step when the step is done.

    Ends when `sample` yields no more batches. Raises Stopped when a budget is spent or a stop was requested,
    ProviderError when three steps in a row were lost, and MethodError when a seam returns a wrong type. Reports that
    were yielded before the error remain valid.
    """
    history = Steps()
    losses = Losses(run)
    check = Check(method.name)
    for step, batch in enumerate(check.batches(method.sample(tasks, history, run.at("sample"))), 1):
        at = run.at(f"step {step}")
        losses.places.append(at.place)
        run.stepping(step, len(batch.tasks), batch.steps)
        opened = OpenStep(method, step, batch, context, Clock(at), validation)
        check = opened.check
        attempts = await check.each("attempt", Attempt, method.attempt, batch, context, at.at("attempt"))
        await at.require_working_agent()
        reflecting = at.at("reflect")
        lessons = await check.each("reflect", Lesson, method.reflect, attempts, context, reflecting)
        lessons = traced_lessons(lessons, attempts, context, reflecting.chain.playbook)
        losses.count(attempts, lessons, reflecting.unparsed)
        updating = at.at("update", sources_of(lessons))
        delta = await check.delta("update", context, method.update, lessons, context, updating)
        delta = traced(delta, lessons, context)
        report = await opened.close(attempts, lessons, delta)
        context = report.context
        history.append(report)
        yield report
    losses.close()


def resolutions_of(delta: Delta) -> tuple[Resolution, ...]:
    """Return the resolutions of a delta: the outcomes of lessons that led to no edit."""
    return delta.resolutions


@dataclass(frozen=True)
class OpenStep:
    """Step that has begun: the batch of the step, and the context to which the delta of the step is applied."""

    method: Method
    number: int
    batch: Batch
    context: Context
    clock: Clock
    validation: Validation | None

    @property
    def check(self) -> Check:
        return Check(self.method.name, self.number)

    async def close(
        self, attempts: Sequence[Attempt], lessons: Sequence[Lesson], delta: Delta, refused: Sequence[Refused] = (),
        resolve: Callable[[Delta], tuple[Resolution, ...]] = resolutions_of,
    ) -> StepReport:  # fmt: skip
        """End the step: check the delta by the admission and by `accept`, apply the accepted edits, and validate the
        new context if a validation is due. `refused` are edits that the schedule refused before this call. `resolve`
        computes the resolutions of the lessons from a delta that consists of the accepted edits and of the edits that
        wait for review."""
        run, method = self.clock.run, self.method
        # Edits that wait for review are removed before `accept`, because no prompt may show them, not even a prompt of
        # a gate.
        admitted = await run.admit(delta)
        accepting = run.at("accept")
        delta = await self.check.delta(
            "accept", self.context, method.accept, self.context, admitted.delta, attempts, accepting
        )
        waiting = Delta(tuple(edit for held in admitted.held for edit in held.edits))
        resolutions = resolve(delta + waiting)
        outcome = self.context.apply(delta)
        seconds, val = self.clock.stop(), None
        if self.validation is not None and self.number % self.validation.every == 0:
            val = await self.validation.score(method, outcome.context, run)
        return StepReport(
            self.number, self.batch, tuple(attempts), tuple(lessons), outcome.context, outcome.applied,
            (*refused, *admitted.refused, *outcome.refused), resolutions, seconds, val, delta.evidence,
            tuple(held.naming(outcome.refs) for held in admitted.held),
        )  # fmt: skip


class Steps(Sequence[StepReport]):
    """History of a run. The length is the number of all steps, but only the reports of the last `RECENT` steps are
    kept, because each report holds the attempts of its step. A sampler runs before each step, so it can read the report
    of every step while that report is kept. Reading a dropped report raises MethodError."""

    def __init__(self) -> None:
        self._last: deque[StepReport] = deque(maxlen=RECENT)
        self._count = 0

    def append(self, report: StepReport) -> None:
        self._last.append(report)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> StepReport: ...

    @overload
    def __getitem__(self, at: slice) -> list[StepReport]: ...

    def __getitem__(self, at: int | slice) -> StepReport | list[StepReport]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(self._count))]
        number = range(self._count)[at]
        first_stored = self._count - len(self._last)
        if number < first_stored:
            raise MethodError(
                "method.wrong_result",
                f"`sample` read step {number + 1} of {self._count} in the history, which keeps the last {RECENT}: read "
                f"each step while it is new (`history[read:]`){KEPT}",
            )
        return self._last[number - first_stored]


@dataclass(frozen=True)
class Check:
    """Checked calls of a method's seams. If a seam raises an exception or returns a value of a wrong type, a
    MethodError names the method, the seam and the step."""

    method: str
    step: int = 1

    def batches(self, batches: Any) -> Iterator[Batch]:
        if not isinstance(batches, Iterable):
            raise self._error("sample", batches, "an iterator of Batch")
        for step, batch in enumerate(batches, 1):
            if not isinstance(batch, Batch):
                raise replace(self, step=step)._error("sample", batch, "an iterator of Batch", "an iterator with ")
            yield batch

    async def each(self, seam: str, kind: type[T], function: Callable[..., Any], *arguments: Any) -> list[T]:
        """Call a seam that must return a list or tuple of values of type `kind`, and return these values as a list."""
        values = await self._call(seam, function, *arguments)
        if not isinstance(values, list | tuple):
            raise self._error(seam, values, f"a list of {kind.__name__}")
        for value in values:
            if not isinstance(value, kind):
                raise self._error(seam, value, f"a list of {kind.__name__}", "a list with ")
        return list(values)

    async def delta(self, seam: str, context: Context, function: Callable[..., Any], *arguments: Any) -> Delta:
        """Call a seam that must return a delta, and return the delta. Raises MethodError if an edit changes an entry
        that never existed in the context and that the delta does not add."""
        delta = await self._call(seam, function, *arguments)
        if not isinstance(delta, Delta):
            raise self._error(seam, delta, "a Delta")
        if unknown := unknown_ids(delta, context):
            raise MethodError(
                "method.wrong_result",
                f"method {self.method!r}: in step {self.step}, `{seam}` edits entry {unknown[0]!r}, which does not "
                f"exist{KEPT}",
            )
        return delta

    async def _call(self, seam: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            work = function(*arguments)
            if isinstance(work, Awaitable):
                return await work
        except PracticumError:
            raise
        except Exception as error:
            problem = f"`{seam}` raised {error_line(error)} in step {self.step}"
            raise MethodError("method.wrong_result", f"method {self.method!r}: {problem}{KEPT}") from error
        raise self._error(seam, work, "an awaitable: define it with `async def`")

    def _error(self, seam: str, value: Any, expected: str, prefix: str = "") -> MethodError:
        returned = "None" if value is None else type(value).__name__
        return MethodError(
            "method.wrong_result",
            f"method {self.method!r}: `{seam}` returned {prefix}{returned} in step {self.step}; it must return "
            f"{expected}{KEPT}",
        )


class Clock:
    """Clock that measures the duration of a step. If the duration was recorded before a resume, the clock returns the
    recorded duration, because repeating the step from the journal takes less time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._hits = run.hits
        self._began = time.monotonic()

    def stop(self) -> float | None:
        """Return the recorded duration of the step (s), if present. Otherwise record and return the seconds since this
        clock was created, or None if results since then came from the journal."""
        recorded = self.run.recall("seconds")
        if recorded is not None:
            return float(recorded)
        cut = self.run.hits > self._hits
        seconds = None if cut else time.monotonic() - self._began
        self.run.note("seconds", seconds)
        self.run.note(ENDED, time.time())
        return seconds


@dataclass
class Losses:
    """Counter of lost steps: steps that produced nothing because model calls failed or answers could not be parsed.
    `row` is the number of lost steps in a row. `ever`: whether any step succeeded. `refused`: whether there was a step
    whose attempts were all refused by the provider. `places` are the places of all work after the last step that
    succeeded. `over`: whether lost steps ended the run; a resume then repeats the lost effects at `places`."""

    run: Run
    row: int = 0
    ever: bool = False
    refused: bool = False
    places: list[str] = field(default_factory=list)
    over: bool = False

    def count(self, attempts: Sequence[Attempt], lessons: Sequence[Lesson], unparsed: bool = False) -> None:
        """Count a step; a step without attempts is not counted. Raises ProviderError at the third lost step in a row.

        A step is lost if every attempt was lost, or if reflections failed and no reflection gave a lesson or a vote.
        `unparsed`: whether a reflection could not be parsed. Unparsed answers stop the run only if no step succeeded
        before, because a resume would read the same unparsable answers from the journal.
        """
        if not attempts:
            return
        if all(r.trace.refused for r in attempts):
            # A provider that refused single requests may still answer later requests.
            self.refused = True
            return
        failed = self.run.provider_failed or unparsed
        lost = all(r.trace.lost for r in attempts) or (failed and not any(x.text or x.votes for x in lessons))
        if not lost:
            self.row, self.ever = 0, True
            self.places.clear()
            return
        self.row += 1
        if self.row >= LOST_STEPS and (self.run.provider_failed or not self.ever):
            raise self._error(f"{LOST_STEPS} steps in a row were lost")

    def close(self) -> None:
        """Raise ProviderError if every step of the run was lost, even if the run had fewer than three steps."""
        if (self.row or self.refused) and not self.ever:
            raise self._error("every step was lost")

    def _error(self, text: str) -> ProviderError:
        self.over = True
        self.note()
        return ProviderError("attempts.all_failed", f"{text}: {self.run.last_error}")

    def note(self) -> None:
        """If lost steps ended the run, mark `places`, so that a resume repeats the lost effects at these places that
        are already in the journal."""
        if self.over and self.places:
            self.run.try_again(self.places)


def unknown_ids(delta: Delta, context: Context) -> list[str]:
    """Return the ids of entries that a delta changes but that never existed: the context never had them, and the delta
    does not add them."""
    added = {edit.ref for edit in delta.edits if isinstance(edit, Add) and edit.ref}
    return [id for edit in delta.edits for id in changed_entries(edit) if id not in added and not context.issued(id)]


def sources_of(items: Iterable[Lesson | Attempt]) -> tuple[str, ...]:
    """Return the sources of these lessons or attempts, each source once."""
    return ordered_union(item.sources for item in items)


def by_reflection(lessons: Iterable[Lesson]) -> list[list[Lesson]]:
    reflections: dict[str, list[Lesson]] = {}
    for lesson in lessons:
        reflections.setdefault(lesson.of or lesson.id, []).append(lesson)
    return [*reflections.values()]


def mean_score(attempts: Sequence[Attempt]) -> float:
    """Return the mean of the first attempts' scores: of several attempts at a task in `attempts`, only the first one
    counts. A failed attempt scores 0; unscored attempts are left out."""
    return _mean([r.first for r in attempts])


def best_of_k(attempts: Sequence[Attempt]) -> float | None:
    """Return the mean score of attempts that a method chose, each from several attempts at one task; None if no attempt
    was chosen in this way."""
    return _mean(attempts) if any(r.choice for r in attempts) else None


def _mean(attempts: Sequence[Attempt]) -> float:
    scores = [r.score.value for r in attempts if r.score is not None]
    return sum(scores) / len(scores) if scores else 0.0
