"""The loop: `Method`, and the schedule that runs a method step after step.

    sample -> attempt (wraps act, which begins with show) -> reflect -> update -> admission -> accept -> apply

A method is a value of `Method` with seven functions, the seams. Blocks fill the seams and wrap each other
(`methods/blocks/`). Recipes combine blocks (`methods/`). The loop has no branch for any method: a new method adds
blocks. `docs/extend/method.md` shows how to build a method.
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

    `arm` is the candidate to start from, for methods that keep several (GEPA). `data` describes the sampler's choice as
    JSON values and is stored with the step. `steps` is the total number of steps; None: not known yet.
    """

    tasks: tuple[Task, ...]
    epoch: int = 1
    arm: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one step: the attempts, the lessons, and the context after the step.

    `applied` are the edits that changed the context, `refused` the edits that did not, with reasons. `resolutions` give
    the outcome of each lesson. `held` are the edits that wait for review. `seconds` is the duration of the step; None:
    the run was stopped during the step. `val` is the mean validation score, in [0, 1]; None: the step was not
    validated.
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
    """Held-out tasks that are scored after every `every` steps, to keep the best context."""

    tasks: Sequence[Task]
    every: int = 1

    async def score(self, method: Method, context: Context, run: Run) -> float:
        """Return the mean score under `context`. No calls are made if a context with the same shown text was evaluated
        before."""
        return mean_score(await run.evaluate(method.act, "val", self.tasks, context))


RECENT = 20
"""Number of steps that a history keeps."""

History = Sequence[StepReport]
ShowSeam = Callable[[Context, Task, Run], Awaitable[View]]
SampleSeam = Callable[[Sequence[Task], History, Run], Iterator[Batch]]
"""Yields the batches of tasks to attempt, from the tasks and the history of steps."""
AttemptSeam = Callable[[Batch, Context, Run], Awaitable[list[Attempt]]]
"""Attempts the tasks of a batch under a context; it wraps `act`."""
ReflectSeam = Callable[[Sequence[Attempt], Context, Run], Awaitable[list[Lesson]]]
"""Turns attempts into lessons."""
UpdateSeam = Callable[[Sequence[Lesson], Context, Run], Awaitable[Delta]]
"""Turns lessons into a delta of the context."""
AcceptSeam = Callable[[Context, Delta, Sequence[Attempt], Run], Awaitable[Delta]]
"""Returns the delta to apply: the proposed one, a part of it, or an empty one."""
Schedule = Callable[["Method", Sequence[Task], Context, Run, Validation | None], AsyncIterator[StepReport]]


async def _no_show(context: Context, task: Task, run: Run) -> View:
    """Serve as the default of a missing `show`, which `Method` refuses."""
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Method:
    """Learning method: seven functions, the seams, and facts about them.

    `show` makes the view that an agent sees of the context for a task. It may search. It may ask the models of
    `show_roles`, and no others. `act` makes one attempt, exactly as in evaluation: show, then the agent, then the
    score. `attempt` wraps `act` and may make several attempts. `schedule` calls the seven functions; `sequential` runs
    one step after the other.

    `roles` are the models that learning asks in addition to the agent. `act_roles` are the models that `act` asks, such
    as a judge that chooses among attempts. `models` names models of seats that are not roles, such as single agents of
    a network.

    `retrieval` is the similarity measure of all searches of a run: "cosine", "words" or "mixed".

    `act_calls` is the maximum number of model calls of one `act`. The budget reserves this number for each test task.
    `calls` is the minimum and maximum number of model calls of a step, for the estimate before a run. `costs` describes
    in words the model calls of a step other than the attempts.
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

    Ends when the method has no more batches. Raises Stopped when a budget is spent or a stop was requested,
    ProviderError when three steps in a row were lost, and MethodError when a seam returns a wrong type. Steps that were
    yielded before remain valid.
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
    """Return the resolutions of a delta: the outcome of each lesson."""
    return delta.resolutions


@dataclass(frozen=True)
class OpenStep:
    """Step that has begun: its batch, and the context that its delta is applied to."""

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
        """End the step: check the delta by the admission and by `accept`, apply it, and validate the new context.
        `refused` are edits that were refused before. `resolve` returns the resolutions of lessons, from the accepted
        delta together with the edits that wait for review."""
        run, method = self.clock.run, self.method
        # Edits that wait for review are in no prompt, including the prompts of a gate.
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
    """History of a run. Its length is the number of all steps, but it keeps only the last `RECENT` steps, because a
    step holds its attempts. A sampler runs before each step, so the sampler can read every step while the step is new.
    Raises MethodError for a step that was dropped."""

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
    """Caller of the seams of a method. It checks the types of their results. A mistake raises MethodError, whose
    message names the method, the seam and the step."""

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
        """Call a seam that must return a list or tuple of this type, and return it as a list."""
        values = await self._call(seam, function, *arguments)
        if not isinstance(values, list | tuple):
            raise self._error(seam, values, f"a list of {kind.__name__}")
        for value in values:
            if not isinstance(value, kind):
                raise self._error(seam, value, f"a list of {kind.__name__}", "a list with ")
        return list(values)

    async def delta(self, seam: str, context: Context, function: Callable[..., Any], *arguments: Any) -> Delta:
        """Call a seam that must return a delta whose edits change only entries that exist or existed."""
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
    """Clock of a step. It measures once: a resume returns the recorded time, because the resume itself takes less
    time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._hits = run.hits
        self._began = time.monotonic()

    def stop(self) -> float | None:
        """Return the seconds since the start, or None if part of the work came from the journal."""
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
    """Counter of steps in a row that produced nothing, through no fault of the agent. `places` are the places of the
    work since the last step that produced something. If the run stops, a resume repeats the lost effects at these
    places."""

    run: Run
    row: int = 0
    ever: bool = False
    refused: bool = False
    places: list[str] = field(default_factory=list)
    over: bool = False

    def count(self, attempts: Sequence[Attempt], lessons: Sequence[Lesson], unparsed: bool = False) -> None:
        """Count a step that had attempts. Raises ProviderError at the third lost step in a row.

        A step is lost if every attempt or every reflection was lost. `unparsed`: whether a reflection could not be
        parsed. Unparsed answers stop the run only if no step succeeded before, because a resume reads the same answers
        from the journal.
        """
        if not attempts:
            return
        if all(r.trace.refused for r in attempts):
            # A provider that refuses single requests may still answer the next ones.
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
        """Raise ProviderError if every step of the run was lost, even if there were fewer than three."""
        if (self.row or self.refused) and not self.ever:
            raise self._error("every step was lost")

    def _error(self, text: str) -> ProviderError:
        self.over = True
        self.note()
        return ProviderError("attempts.all_failed", f"{text}: {self.run.last_error}")

    def note(self) -> None:
        """If losses ended the run, mark the places so that a resume repeats the lost effects written there so far."""
        if self.over and self.places:
            self.run.try_again(self.places)


def unknown_ids(delta: Delta, context: Context) -> list[str]:
    """Return the ids that a delta edits and that neither the context nor the delta itself ever had."""
    added = {edit.ref for edit in delta.edits if isinstance(edit, Add) and edit.ref}
    return [id for edit in delta.edits for id in changed_entries(edit) if id not in added and not context.issued(id)]


def sources_of(items: Iterable[Lesson | Attempt]) -> tuple[str, ...]:
    """Return the sources of lessons or attempts, each once."""
    return ordered_union(item.sources for item in items)


def by_reflection(lessons: Iterable[Lesson]) -> list[list[Lesson]]:
    reflections: dict[str, list[Lesson]] = {}
    for lesson in lessons:
        reflections.setdefault(lesson.of or lesson.id, []).append(lesson)
    return [*reflections.values()]


def mean_score(attempts: Sequence[Attempt]) -> float:
    """Return the mean score of the first attempt at each task. A failed attempt scores 0; unscored attempts are left
    out."""
    return _mean([r.first for r in attempts])


def best_of_k(attempts: Sequence[Attempt]) -> float | None:
    """Return the mean score of the attempts that were chosen from several per task, or None if no attempt was
    chosen."""
    return _mean(attempts) if any(r.choice for r in attempts) else None


def _mean(attempts: Sequence[Attempt]) -> float:
    scores = [r.score.value for r in attempts if r.score is not None]
    return sum(scores) / len(scores) if scores else 0.0
