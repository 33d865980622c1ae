"""Learning without a barrier: laws for every order in which attempts and groups may end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from edits import EDITS, IDS, RULES, applicable
from helpers import asynchronous, make_tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import Memory, indoors

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Update, Vote, changed_entries, entry_json
from practicum.core.types import Attempt, Feedback, Lesson, Task, Trace
from practicum.engine.asynchronous import OVERTAKEN, reconcile, without_barrier
from practicum.engine.loop import Batch, Method, StepReport
from practicum.engine.run import Run
from practicum.methods.blocks.curate import votes
from practicum.methods.blocks.gate import WORSE, always, unshown_part
from practicum.methods.blocks.sample import shuffled_epochs
from practicum.methods.blocks.scan import LEFT_OUT, Uncovered, keep_or_drop
from practicum.methods.blocks.show import full_view

# ---- reconciling

FATES = st.lists(
    st.builds(Resolution, st.sampled_from(["l3", "l4"]), st.just("") | IDS, st.just("covered")), max_size=3
)


@settings(max_examples=examples(200))
@given(EDITS, FATES, st.lists(EDITS, max_size=3))
def test_reconciled_edits_can_be_applied_and_the_others_have_a_reason(
    edits: list[Edit], resolutions: list[Resolution], concurrent: list[list[Edit]]
) -> None:
    base = now = RULES.apply(Delta((Update("e0", "later"),))).context
    delta = replace(applicable(edits, base), resolutions=tuple(resolutions))
    for others in concurrent:
        now = now.apply(Delta(tuple(others))).context
    held, fails = reconcile(delta, base.version, now)

    # Every edit holds or fails; additions and votes hold.
    assert [e for e in delta.edits if e in held.edits or e in {f.edit for f in fails}] == list(delta.edits)
    assert len(held.edits) + len(fails) == len(delta.edits)
    assert not [f for f in fails if isinstance(f.edit, Add | Vote)]
    changed = {e.id for e in now if e.changed > base.version} | {e.id for e in base if e.id not in now}
    for edit in delta.edits:
        ids = set(changed_entries(edit))
        assert (edit in held.edits) is not bool(ids & changed)
    assert all(f"version {base.version}" in f.reason for f in fails)

    # Held edits neither undo the concurrent ones nor are undone by them.
    refused = now.apply(held).refused
    assert not [r for r in refused if not isinstance(r.edit, Vote) and "no entry has the id" in r.reason]
    assert reconcile(held, base.version, now) == (held, [])

    # A resolution holds as long as the entry that covers the lesson exists.
    for was, is_ in zip(delta.resolutions, held.resolutions, strict=True):
        assert is_.lesson == was.lesson
        assert is_ == was if not was.entry or was.entry in now else (not is_.entry and was.entry in is_.reason)


def test_an_edit_of_an_addition_of_the_same_delta_holds() -> None:
    delta = Delta((Add("rules", "x", ref="new0"), Merge(("e0", "new0")), Vote("new0", 1)), (Resolution("l1", "new0"),))
    assert reconcile(delta, 0, RULES.apply(Delta((Update("e1", "x"),))).context) == (delta, [])


# ---- a stage on which the test decides the order of ends


@dataclass
class Stage:
    """Attempts and reductions that end in an order drawn by `rng`, some of them at once."""

    rng: Random
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    flying: int = 0
    most: int = 0
    started: list[tuple[str, str, int]] = field(default_factory=list)

    async def wait(self, run: Run) -> None:
        """Wait for the turn of this attempt or reduction."""
        name = run.place.split("/")[0]
        future = self.waiting[name] = asyncio.get_running_loop().create_future()
        await future

    async def conduct(self) -> None:
        while True:
            for _ in range(12):
                await asyncio.sleep(0)
            free = list(self.waiting)
            for name in self.rng.sample(free, min(len(free), self.rng.randint(1, 3))):
                self.waiting.pop(name).set_result(None)

    async def attempt(self, batch: Batch, context: Context, run: Run) -> list[Attempt]:
        (task,) = batch.tasks
        self.started.append((run.place.split("/")[0], task.id, context.version))
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await self.wait(run)
            return [Attempt(task, Trace("x"), None, NOTHING, run.place)]
        finally:
            self.flying -= 1

    def update(self, decide: Callable[[Sequence[Lesson], Context, Run], Delta]) -> Any:
        async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            await self.wait(run)
            return votes(lessons) + decide(lessons, context, run)

        return update


NOTHING = Feedback(None, "")


def reflecting(per: int = 1, silent: int = 0) -> Any:
    """`per` lessons an attempt, and `silent` ones without words; each votes on e0."""

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        return [
            Lesson(
                f"{r.place}/{n}", f"If {r.task.id}.{n}, do it." if n < per else "", votes={"e0": "helpful"},
                sources=r.sources,
            )
            for r in attempts if not r.trace.lost for n in range(per + silent)
        ]  # fmt: skip

    return reflect


def adding(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    return Delta(tuple(Add("rules", x.text, lessons=(x.id,), sources=x.sources) for x in lessons if x.text))


def changing(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Every group appends its lessons to one entry."""
    entry = context.get("e0")
    assert entry is not None
    worded = [x for x in lessons if x.text]
    text = " ".join([entry.text, *(x.text for x in worded)])
    return Delta((Update("e0", text, lessons=tuple(x.id for x in worded)),) if worded else ())


@dataclass
class Ran:
    """The outcome of a run on a stage."""

    stage: Stage
    run: Run
    journal: Memory
    steps: list[StepReport] = field(default_factory=list)

    def report(self) -> list[Any]:
        """Step by step, all values that do not depend on durations."""
        return [
            (replace(step, seconds=None, context=Context()), [entry_json(e) for e in step.context])
            for step in self.steps
        ]


async def unused(task: Task, context: Context, run: Run) -> Attempt:
    raise AssertionError("nothing is evaluated")


def staging(
    seed: int = 0, n: int = 10, *, slots: int = 4, group: int = 3, copies: int = 1, staleness: int = 0, epochs: int = 1,
    decide: Any = adding, reflect: Any = None, journal: Memory | None = None, accept: Any = always, again: Any = None,
    left: Any = None,
) -> tuple[Ran, Callable[[], Any]]:  # fmt: skip
    """A run on a stage, and the function that runs it."""
    stage, journal = Stage(Random(seed)), journal or Memory()
    ran = Ran(stage, indoors(lambda call: "", journal=journal), journal)
    method = Method(
        name="staged", show=full_view, sample=shuffled_epochs(epochs, 1), act=unused, attempt=stage.attempt,
        reflect=reflect or reflecting(), update=stage.update(decide), accept=accept,
    )  # fmt: skip
    schedule = without_barrier(
        slots=slots, group=group, copies=copies, staleness=staleness, again=again and stage.update(again), left=left
    )

    async def learn() -> None:
        async for step in schedule(method, make_tasks(n), RULES, ran.run, None):
            ran.steps.append(step)

    return ran, learn


@asynchronous
async def staged(seed: int, **how: Any) -> Ran:
    """The same run, ended."""
    ran, learn = staging(seed, **how)
    conductor = asyncio.create_task(ran.stage.conduct())
    try:
        await learn()
    finally:
        conductor.cancel()
    return ran


SHAPES = st.fixed_dictionaries(
    {
        "n": st.integers(0, 14), "slots": st.integers(1, 6), "group": st.integers(1, 6), "epochs": st.integers(1, 2),
        "copies": st.integers(1, 3), "staleness": st.sampled_from([0, 1, 5]),
    }
).filter(lambda shape: shape["copies"] <= shape["group"])  # fmt: skip


@settings(max_examples=examples(80))
@given(st.integers(0, 10**6), SHAPES, st.integers(0, 2), st.integers(0, 1))
def test_for_every_order_of_arrival_nothing_is_left_out(
    seed: int, shape: dict[str, int], per: int, silent: int
) -> None:
    ran = staged(seed, reflect=reflecting(per, silent), **shape)
    tasks, epochs = shape["n"], shape["epochs"]

    # Every task once an epoch, and every slot is in use while there is work.
    attempts = [r for step in ran.steps for r in step.attempts]
    assert Counter(r.task.id for r in attempts) == dict.fromkeys((f"t{i}" for i in range(tasks)), epochs)
    assert {task for _, task, _ in ran.stage.started[:tasks]} == {f"t{i}" for i in range(tasks)}
    assert ran.stage.most == min(shape["slots"], tasks * epochs)
    assert [name for name, _, _ in ran.stage.started] == [f"attempt {i + 1}" for i in range(tasks * epochs)]

    # Every lesson is in a step's report, each copy in another group, and its votes and words count once.
    lessons = [lesson for step in ran.steps for lesson in step.lessons]
    worded = {x.id for x in lessons if x.text}
    assert len({x.id for x in lessons}) == len(lessons) == tasks * epochs * (per + silent)
    members = Counter(id for step in ran.steps for id in step.batch.data["members"])
    assert members == {x.id: shape["copies"] if x.text else 1 for x in lessons}
    entries = list(ran.steps[-1].context if ran.steps else RULES)
    assert (entries[0].id, entries[0].helpful) == ("e0", len(lessons))
    assert Counter(e.text for e in entries[len(RULES) :]) == Counter(x.text for x in lessons if x.text)

    # Groups keep their limit, and steps follow each other.
    assert all(len(worded & {*step.batch.data["members"]}) <= shape["group"] for step in ran.steps)
    assert [step.step for step in ran.steps] == list(range(1, len(ran.steps) + 1))
    versions = [0, *(step.context.version for step in ran.steps)]
    for step, version in zip(ran.steps, versions, strict=False):
        assert step.batch.data["behind"] == version - step.batch.data["base"] >= 0
    at = [step.batch.epoch for step in ran.steps]
    assert at == sorted(at)
    assert at[-1:] in ([], [epochs])


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.integers(0, 10**6), st.integers(0, 10**6), SHAPES, st.data())
def test_the_order_of_arrival_decides_all_and_the_journal_keeps_it(
    seed: int, other: int, shape: dict[str, int], data: st.DataObject
) -> None:
    """A resume in which everything would end in another order repeats the order of the journal and continues it."""
    first = staged(seed, decide=changing, **shape)
    events = sorted(
        (row for row in first.journal.rows.values() if "event" in row.place), key=lambda row: int(row.place.split()[-1])
    )
    again = staged(other, decide=changing, journal=Memory(first.journal.rows), **shape)
    assert again.report() == first.report()
    assert again.stage.started == first.stage.started

    cut = data.draw(st.integers(0, len(events)))
    rows = {row.place: row for row in events[:cut]}
    resumed = staged(other, decide=changing, journal=Memory(rows), **shape)
    reductions = sum("group" in json.loads(row.answer) for row in events[:cut])
    assert resumed.report()[:reductions] == first.report()[:reductions]
    assert [resumed.journal.rows[place] for place in rows] == list(rows.values())
    assert Counter(r.task.id for step in resumed.steps for r in step.attempts) == Counter(
        r.task.id for step in first.steps for r in step.attempts
    )


# ---- accounting over all copies

DULL = "it is dull"


@dataclass
class Whim:
    """A curator that adds a lesson in other words, takes it into a rule or both, calls it covered or dull, deletes a
    rule or leaves the lesson out, depending on the group that reads it."""

    seed: int
    added: int = 0

    def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        rng, delta = Random(f"{self.seed} {run.place}"), Delta()
        into = ["e0", "e1", "e2"]
        for lesson in (x for x in lessons if x.text):
            rule = rng.choice(["e3", "e4", "e5"])
            does = rng.choice(["add", "take", "both", "covered", "dull", "delete", "leave"])
            if does in ("add", "both"):
                self.added += 1
                delta += Delta((Add("rules", f"{run.place}: {lesson.text}", lessons=(lesson.id,)),))
            match does:
                case "take" | "both" if into:
                    delta += Delta((Update(into.pop(), f"{run.place}: {lesson.text}", lessons=(lesson.id,)),))
                case "covered" if rule in context:
                    delta += Delta(resolutions=(Resolution(lesson.id, rule, "it says so"),))
                case "dull":
                    delta += Delta(resolutions=(Resolution(lesson.id, reason=DULL),))
                case "delete" if rule in context:
                    delta += Delta((Delete(rule),))
        return delta


def ends(ran: Ran) -> tuple[Counter[str], Counter[str]]:
    """Lessons that were added, and lessons reported as dropped; each has one end, or this fails."""
    resolutions = [resolution for step in ran.steps for resolution in step.resolutions]
    edits = [done.edit for step in ran.steps for done in step.applied]
    adds = Counter(id for edit in edits if isinstance(edit, Add) for id in edit.lessons)
    taken = {id for edit in edits if isinstance(edit, Update) for id in edit.lessons}
    covered = Counter(resolution.lesson for resolution in resolutions if resolution.entry)
    dropped = Counter(resolution.lesson for resolution in resolutions if not resolution.entry)
    assert {*adds, *covered, *taken, *dropped} == {x.id for step in ran.steps for x in step.lessons if x.text}
    # Two copies never add an entry each, or add one while the other is called covered.
    assert {*(adds + covered + dropped).values()} <= {1}
    assert not taken & dropped.keys()
    return adds, dropped


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), SHAPES, st.sampled_from(["keep", "drop"]), st.booleans())
def test_every_lesson_is_once_covered_added_or_dropped_over_all_its_copies(
    seed: int, shape: dict[str, int], uncovered: Uncovered, again: bool
) -> None:
    def ran_with(order: int, journal: Memory | None = None) -> tuple[Ran, int]:
        whim = Whim(seed)
        repeat, left = whim if again else None, keep_or_drop(uncovered, "kept")
        ran = staged(order, decide=whim, reflect=reflecting(2, 1), again=repeat, left=left, journal=journal, **shape)
        return ran, whim.added

    ran, added = ran_with(seed)
    adds, _ = ends(ran)
    counts = ran.run.counts
    added_edits = [done.edit for step in ran.steps for done in step.applied if isinstance(done.edit, Add)]
    added_by_code = [edit for edit in added_edits if edit.section == "kept"]
    lost = [f.reason for step in ran.steps for f in step.resolutions if not f.entry and f.reason != DULL]
    assert not (uncovered == "keep" and lost)
    assert {*lost, *(edit.reason for edit in added_by_code)} <= {LEFT_OUT, OVERTAKEN}
    assert counts["kept_lessons"] == len(added_by_code)
    assert counts["dropped_lessons"] == len(lost)
    assert counts["repeated_additions"] == added - (adds.total() - len(added_by_code))

    # It all follows from the order of arrival.
    repeated, _ = ran_with(seed + 1, Memory(ran.journal.rows))
    assert repeated.report() == ran.report()
    assert repeated.run.counts == counts


@settings(max_examples=examples(15))
@given(st.integers(0, 10**6), SHAPES)
def test_a_lesson_dropped_in_one_copy_may_still_be_accepted_in_another(seed: int, shape: dict[str, int]) -> None:
    async def gate(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        choice = run.rng("gate").choice(["take", "drop", "prune"])
        covering = [x.entry for x in delta.resolutions[:1] if x.entry in context] if choice == "prune" else []
        return unshown_part(context, delta) if choice == "drop" else delta + Delta(tuple(map(Delete, covering)))

    whim, left = Whim(seed), keep_or_drop("keep", "kept")
    ran = staged(seed, decide=whim, again=whim, left=left, reflect=reflecting(2), accept=gate, **shape)
    _, dropped = ends(ran)
    assert {f.reason for step in ran.steps for f in step.resolutions if f.lesson in dropped} <= {WORSE, DULL}


@asynchronous
async def test_a_cancelled_run_cancels_its_attempts_in_flight() -> None:
    ran, learn = staging()
    running = asyncio.create_task(learn())
    for _ in range(20):
        await asyncio.sleep(0)
    assert ran.stage.flying == 4
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ran.stage.flying == 0
