"""Learning without a barrier: no attempt waits for a slower attempt (Combee, appendix B).

This is a second schedule for the same seams. Attempts are numbered in the order they start, and each attempt starts
from the newest context. The lessons of the attempts fill groups in the order of arrival. As soon as a group is full,
the method's update makes a delta from all lessons of the group; this is the reduction of the group. The base of a delta
is the version of the context that the update read. The delta is reconciled with the changes that were made after the
base, and applied to the newest context. An edit covers a lesson if it writes the lesson into an entry. If several
groups hold a copy of the same lesson, only the first copy that an edit covers counts (see `Copies`).

The result depends on the order in which attempts and reductions end. The journal stores this order, and a resume
repeats the stored order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Edit, Refused, Resolution, changed_entries
from practicum.core.errors import JournalMismatch
from practicum.core.types import Attempt, Lesson, Task
from practicum.engine.loop import (
    Batch,
    Clock,
    Losses,
    Method,
    OpenStep,
    Schedule,
    StepReport,
    UpdateSeam,
    Validation,
    by_reflection,
    sources_of,
)
from practicum.engine.provenance import traced, traced_lessons
from practicum.engine.run import Run

OVERTAKEN = "another group changed the same entry first"


class Fallback(Protocol):
    """Function that returns a delta for lessons that no edit covers. The delta adds the lessons to the context, or
    reports the lessons as dropped, with the reason `why`."""

    def __call__(self, lessons: Sequence[Lesson], run: Run, why: str = ...) -> Delta: ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """Attempts and lessons of one or more batches. `unparsed`: whether an output of a reflector could not be parsed."""

    attempts: list[Attempt]
    lessons: list[Lesson]
    unparsed: bool = False

    def __add__(self, other: Arrival) -> Arrival:
        return Arrival(self.attempts + other.attempts, self.lessons + other.lessons, self.unparsed or other.unparsed)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Delta that was made from the lessons of one group. `group` is the number of the group, `base` the context that
    the update read. `again`: whether this update was the second update of the lessons."""

    group: int
    lessons: Sequence[Lesson]
    base: Context
    delta: Delta
    again: bool = False


def without_barrier(
    *, slots: int, group: int, copies: int = 1, staleness: int = 0, again: UpdateSeam | None = None,
    left: Fallback | None = None,
) -> Schedule:  # fmt: skip
    """Return a schedule with up to `slots` attempts in flight and groups of `group` reflections. Each reflection joins
    `copies` groups.

    Before a delta is applied, it is reconciled if its base is more than `staleness` versions older than the newest
    context. If no edit of any group covers a lesson, the lesson goes once through the second update `again`. If `again`
    is None, the method's own update is the second update, and only lessons whose edits conflict with another group's
    edits go through it. `left` makes the delta for lessons that remain uncovered and go through no further update;
    None: such lessons are not reported. Raises ValueError for values out of range.
    """
    if min(slots, group, copies) < 1 or copies > group or staleness < 0:
        raise ValueError(
            "`slots`, `group` and `copies` must be at least 1, `copies` at most `group`, `staleness` at least 0"
        )

    def schedule(
        method: Method, tasks: Sequence[Task], context: Context, run: Run, validation: Validation | None = None
    ) -> AsyncIterator[StepReport]:
        # For each copy, the first group has a different size, so that each copy of a lesson is grouped with different
        # lessons.
        groups = [OpenGroup(group, group - copy * group // copies) for copy in range(copies)]
        return _Flow(method, run, validation, context, slots, staleness, groups, again, left).steps(tasks)

    return schedule


def reconcile(delta: Delta, base: int, now: Context) -> tuple[Delta, list[Refused]]:
    """For a delta made from version `base`, return the part that still applies to the context `now`, and the refused
    edits with reasons.

    Additions and votes always apply. A change of an entry does not apply if the entry was deleted or changed after
    `base`. If a resolution names an entry that was deleted, the lesson of this resolution counts as dropped.
    """
    added_refs = {edit.ref for edit in delta.edits if isinstance(edit, Add)}
    applicable: list[Edit] = []
    fails: list[Refused] = []
    for edit in delta.edits:
        entries = [now.get(id) for id in changed_entries(edit) if id not in added_refs]
        changed = [e for e in entries if e is not None and e.changed > base]
        if None in entries:
            fails.append(
                Refused(edit, f"the edit was made from version {base}, and changes an entry that was deleted later")
            )
        elif changed:
            why = f"{changed[0].id} was changed in version {changed[0].changed} (the edit was made from version {base})"
            fails.append(Refused(edit, why))
        else:
            applicable.append(edit)
    resolutions = tuple(
        Resolution(r.lesson, reason=f"{r.entry}, which covered the lesson, was deleted in the meantime")
        if r.entry and r.entry not in added_refs and r.entry not in now
        else r
        for r in delta.resolutions
    )
    return Delta(tuple(applicable), resolutions), fails


@dataclass
class OpenGroup:
    """Group that is being filled. `room` is the number of reflections with lessons that the group still needs."""

    size: int
    room: int
    lessons: list[Lesson] = field(default_factory=list)

    def take(self, reflection: Sequence[Lesson]) -> list[Lesson] | None:
        """Add the lessons of a reflection. Returns all lessons of the group if the group is full, else None."""
        self.lessons += reflection
        self.room -= any(lesson.text for lesson in reflection)
        return self.close() if self.room <= 0 else None

    def close(self) -> list[Lesson]:
        """Return the lessons of the group, and begin the next group of `size` reflections."""
        full, self.lessons, self.room = self.lessons, [], self.size
        return full


@dataclass
class Copies:
    """Record of the lessons that several groups hold copies of. The deltas of these groups are applied at different
    times.

    A lesson is covered as soon as an applied edit covers one of its copies. A lesson counts as dropped only after the
    deltas of all groups that hold a copy of the lesson were applied. `held` maps the id of a lesson to the number of
    copies that are not counted yet, because the delta of the group that holds the copy is not applied yet. `covered`
    holds the ids of lessons that an applied edit covered. After the last copy of a lesson was counted, the lesson is
    removed from `held` and from `covered`.
    """

    held: Counter[str] = field(default_factory=Counter)
    covered: set[str] = field(default_factory=set)

    def without_repeats(self, delta: Delta) -> tuple[Delta, int]:
        """Remove an addition if all lessons that the addition names are in `covered` already. Additions with a ref are
        kept, because other edits of the delta may refer to them. Also remove resolutions that name an entry that the
        delta deletes. Returns the rest of the delta, and the number of removed additions."""

        def repeats(edit: Edit) -> bool:
            return (
                isinstance(edit, Add) and not edit.ref and bool(edit.lessons) and self.covered.issuperset(edit.lessons)
            )

        edits = tuple(edit for edit in delta.edits if not repeats(edit))
        deleted = delta.deleted
        resolutions = tuple(resolution for resolution in delta.resolutions if resolution.entry not in deleted)
        return replace(delta, edits=edits, resolutions=resolutions), len(delta.edits) - len(edits)

    def last_copies(self, lessons: Iterable[Lesson]) -> list[Lesson]:
        """Return the lessons in `lessons` that no applied edit covered and that have no other copy left to count."""
        return [x for x in lessons if x.text and self.held[x.id] == 1 and x.id not in self.covered]

    def count_applied(self, lessons: Sequence[Lesson], delta: Delta, asked: Collection[str]) -> tuple[Resolution, ...]:
        """Record that this delta was applied for the copies `lessons`. Lessons in `asked` are not counted yet, because
        they go through a second update. Returns the resolutions to report: a lesson is reported as dropped only with
        its last copy, and as covered only with the first copy that is covered."""
        covered = delta.covered
        pending = {x.id for x in lessons if self.held[x.id] > 1} | {*asked} | covered
        resolutions = tuple(
            r
            for r in delta.resolutions
            if r.lesson not in self.covered and (r.lesson not in pending or (r.entry and r.lesson in covered))
        )
        for lesson in lessons:
            if lesson.text and lesson.id not in asked:
                self.held[lesson.id] -= 1
            if lesson.id in covered:
                self.covered.add(lesson.id)
            if not self.held[lesson.id]:
                del self.held[lesson.id]
                self.covered.discard(lesson.id)
        return resolutions


@dataclass
class _Flow:
    """State of a running schedule, such as the running jobs, the open groups, and the newest context. `trying` is the
    number of attempts in flight, `started` the number of attempts started so far, `reductions` the number of reductions
    started so far. `arrived` holds the attempts and lessons that ended since the last step."""

    method: Method
    run: Run
    validation: Validation | None
    context: Context
    slots: int
    staleness: int
    groups: list[OpenGroup]
    again: UpdateSeam | None
    left: Fallback | None
    copies: Copies = field(default_factory=Copies)
    running: dict[str, tuple[Run, asyncio.Task[Arrival | Reduction]]] = field(default_factory=dict)
    arrived: Arrival = field(default_factory=lambda: Arrival([], []))
    ended: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    epoch: int = 1
    trying: int = 0
    started: int = 0
    reductions: int = 0
    step: int = 0
    losses: Losses = field(init=False)

    def __post_init__(self) -> None:
        self.losses = Losses(self.run)

    async def steps(self, tasks: Sequence[Task]) -> AsyncIterator[StepReport]:
        """Run until no attempt and no reduction is left. Each applied delta is one step."""
        unchecked = Arrival([], [])
        batches = self.method.sample(tasks, (), self.run.at("sample"))
        event = 0
        try:
            self._fill(batches)
            clock = self._clock()
            while self.running:
                event += 1
                done = await self._next(event)
                if isinstance(done, Reduction):
                    yield await self._apply(done, clock)
                    clock = self._clock()
                else:
                    self.trying -= 1
                    self._take(done)
                    unchecked += done
                    if len(unchecked.attempts) >= self.groups[0].size:
                        self._count(unchecked)
                        unchecked = Arrival([], [])
                self._fill(batches)
            if self.arrived.attempts:
                yield await self._apply(Reduction(0, (), self.context, Delta()), clock)
        finally:
            await self._drain()
            self.losses.note()  # note the losses again: the jobs in flight may have lost effects, too
        self._count(unchecked)
        self.losses.close()

    def _count(self, done: Arrival) -> None:
        """Count these attempts as one step in `losses`. If the step was not lost, `losses.places` was emptied, and the
        places of the jobs in flight are added to it again, because the results of these jobs count for the next
        step."""
        self.losses.count(done.attempts, done.lessons, done.unparsed)
        if not self.losses.places:
            self.losses.places += [at.place for at, _ in self.running.values()]

    def _clock(self) -> Clock:
        self.step += 1
        at = self.run.at(f"step {self.step}")
        self.losses.places.append(at.place)
        return Clock(at)

    def _fill(self, batches: Iterator[Batch]) -> None:
        """Start attempts from the newest context while slots are free. When no attempt is in flight and no batch is
        left, start the reductions of all groups that hold lessons, including groups that are not full."""
        while self.trying < self.slots and (batch := next(batches, None)) is not None:
            self.started, self.trying, self.epoch = self.started + 1, self.trying + 1, batch.epoch
            self._start(f"attempt {self.started}", partial(self._attempt, batch, self.context))
        if not self.trying:
            for group in self.groups:
                self._reduce(group.close())

    def _start(
        self, name: str, work: Callable[[Run], Awaitable[Arrival | Reduction]], about: tuple[str, ...] | None = None
    ) -> None:
        at = self.run.apart(name, about)
        self.losses.places.append(at.place)
        at.begins()
        job = asyncio.ensure_future(at.do(work))
        job.add_done_callback(lambda _: self.ended.put_nowait(name))
        self.running[name] = at, job

    async def _attempt(self, batch: Batch, context: Context, at: Run) -> Arrival:
        attempts = await self.method.attempt(batch, context, at.at("attempt"))
        await at.require_working_agent()
        reflecting = at.at("reflect")
        lessons = await self.method.reflect(attempts, context, reflecting)
        lessons = traced_lessons(lessons, attempts, context, reflecting.chain.playbook)
        return Arrival(attempts, lessons, reflecting.unparsed)

    def _reduce(self, lessons: Sequence[Lesson], repeated: Reduction | None = None) -> None:
        """Start a job that makes a delta from the lessons of a group. If `repeated` is an earlier reduction, the
        lessons are a part of the lessons of that reduction, and go through a second update."""
        if not lessons:
            return
        self.reductions += repeated is None
        number = repeated.group if repeated else self.reductions
        name = f"group {number} again" if repeated else f"group {number}"
        update = self.again if repeated and self.again else self.method.update
        base = self.context

        async def reduce(at: Run) -> Reduction:
            delta = traced(await update(lessons, base, at), lessons, base)
            return Reduction(number, lessons, base, delta, again=repeated is not None)

        self._start(name, reduce, sources_of(lessons))

    async def _next(self, event: int) -> Arrival | Reduction:
        """Wait for the next job that ends, and return the result of the job. A resume returns results in the order that
        the journal stores. After the last stored result, results are returned in the order in which the jobs end, and
        this order is stored in the journal."""
        self.losses.places.append(f"{self.run.place}/event {event}")
        name = self.run.recall(f"event {event}")
        if name is None:
            while (name := await self.ended.get()) not in self.running:
                pass  # the result of this job was returned before, in the stored order
            if self.running[name][1].exception() is None:
                self.run.note(f"event {event}", name)
        elif name not in self.running:
            raise JournalMismatch(
                "journal.mismatch",
                f"the journal names {name!r} as the next result, but this run did not start that job: start a new run",
            )
        at, job = self.running.pop(name)
        done = await job
        self.run.chain.join([at.chain])
        return done

    def _take(self, done: Arrival) -> None:
        """Add one copy of each reflection to each open group, and start the reductions of full groups. Only the copy in
        the first group carries the votes."""
        self.arrived += done
        self.copies.held.update({lesson.id: len(self.groups) for lesson in done.lessons if lesson.text})
        for reflection in by_reflection(done.lessons):
            for copy, group in enumerate(self.groups):
                reflection_copy = [replace(x, votes={}) for x in reflection if x.text] if copy else reflection
                if full := group.take(reflection_copy):
                    self._reduce(full)

    async def _apply(self, done: Reduction, clock: Clock) -> StepReport:
        """Apply the delta of a group to the newest context."""
        behind = self.context.version - done.base.version
        delta, fails = done.delta, list[Refused]()
        if behind > self.staleness:
            delta, fails = reconcile(delta, done.base.version, self.context)
        delta, refused, again = self._account(done, delta, fails)
        arrived, self.arrived = self.arrived, Arrival([], [])
        members = [lesson.id for lesson in done.lessons]
        data = {"group": done.group, "base": done.base.version, "behind": behind, "members": members}
        batch = Batch(tuple(r.task for r in arrived.attempts), self.epoch, data=data)
        asked = {lesson.id for lesson in again}
        step = OpenStep(self.method, self.step, batch, self.context, clock, self.validation)
        report = await step.close(
            arrived.attempts,
            arrived.lessons,
            delta,
            refused,
            lambda delta: self.copies.count_applied(done.lessons, delta, asked),
        )
        self.context = report.context
        self._reduce(again, done)
        return report

    def _account(
        self, done: Reduction, delta: Delta, fails: Sequence[Refused]
    ) -> tuple[Delta, list[Refused], list[Lesson]]:
        """Return the delta to apply, the refused edits, and the lessons for a second update. The delta has no repeated
        additions, and includes the delta of `left` for lessons that no edit covers. A lesson goes through a second
        update only if no copy of the lesson was covered and all other copies were counted before.

        The edits in `fails` conflict with another group's edits. The second update makes new edits from the same
        lessons and the changed entries.
        """
        overtaken = {id for fail in fails for id in fail.edit.lessons}
        overtaken.update(
            was.lesson for was, now in zip(done.delta.resolutions, delta.resolutions, strict=True) if was != now
        )
        dropped = {resolution.lesson for resolution in done.delta.resolutions if not resolution.entry}
        delta, repeated = self.copies.without_repeats(delta)
        settled = delta.covered | dropped
        last = self.copies.last_copies(done.lessons)
        again = [] if done.again else [
            replace(x, votes={}) for x in last if x.id in overtaken or (self.again and x.id not in settled)
        ]  # fmt: skip
        asked = {lesson.id for lesson in again}
        refused = [fail for fail in fails if asked.isdisjoint(fail.edit.lessons)]
        self.run.count(Count.REDONE_EDITS, len(fails) - len(refused))
        self.run.count(Count.REPEATED_ADDITIONS, repeated)
        if self.left is not None:
            uncovered = [x for x in last if x.id not in settled | asked]
            delta = replace(delta, resolutions=tuple(f for f in delta.resolutions if f.entry or f.lesson in dropped))
            delta += self.left([x for x in uncovered if x.id not in overtaken], self.run)
            delta += self.left([x for x in uncovered if x.id in overtaken], self.run, OVERTAKEN)
        return delta, refused, again

    async def _drain(self) -> None:
        """Wait for the jobs in flight, so that results that were paid for are stored. Cancel the jobs only if the run
        is cancelled."""
        jobs = [job for _, job in self.running.values()]
        try:
            await asyncio.gather(*jobs, return_exceptions=True)
        except asyncio.CancelledError:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            raise
