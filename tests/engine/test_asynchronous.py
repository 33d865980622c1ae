"""Learning without a barrier: what holds for every order in which attempts and groups may end."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from gate import gated_server
from helpers import Launcher, context_bytes, make_tasks, wait_until, write_tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from refusals import refused
from runs import Late, Memory, indoors, learner

import practicum
from practicum.blocks.accept.always import always
from practicum.blocks.accept.gate import WORSE, unshown_part
from practicum.blocks.sample.orders import shuffled_epochs
from practicum.blocks.update.append import votes
from practicum.blocks.update.coverage import LEFT_OUT, Uncovered, keep_or_drop
from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Resolution, Update, Vote, changed_entries, entry_json
from practicum.core.errors import JournalMismatch, ModelError, ProviderError, Stopped
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.engine.asynchronous import OVERTAKEN, reconcile, without_barrier
from practicum.engine.loop import Batch, Method, StepReport, Validation
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result
from practicum.store.journal import NOTE_ROLE, JournalRow
from practicum.testing import ServerProcess, start_process

RULES = seed_context([("rules", f"If case {n}, do this{n}.") for n in range(6)])


# ---- reconciling


IDS = st.integers(0, 5).map("e{}".format)
EDITS = st.lists(
    st.one_of(
        st.builds(Update, IDS, st.sampled_from(["x", "y", "z"]), lessons=st.tuples(st.sampled_from(["l1", "l2"]))),
        st.builds(Delete, IDS),
        st.builds(
            lambda ids, text: Merge(tuple(sorted(ids)), text), st.sets(IDS, min_size=2, max_size=3),
            st.sampled_from([None, "w"]),
        ),
        st.builds(lambda n: Add("rules", f"new {n}"), st.integers(0, 9)),
        st.builds(lambda id: Vote(id, 1, uses=1), IDS),
    ),
    max_size=5,
)  # fmt: skip
FATES = st.lists(st.builds(Resolution, st.sampled_from(["l3", "l4"]), st.just("") | IDS, st.just("said")), max_size=3)


def applicable(edits: Sequence[Edit], base: Context) -> Delta:
    return Delta(tuple(a.edit for a in base.apply(Delta(tuple(edits))).applied))


@settings(max_examples=examples(200))
@given(EDITS, FATES, st.lists(EDITS, max_size=3))
def test_what_holds_can_be_applied_and_what_does_not_says_why(
    edits: list[Edit], resolutions: list[Resolution], meanwhile: list[list[Edit]]
) -> None:
    base = now = RULES.apply(Delta((Update("e0", "later"),))).context
    delta = replace(applicable(edits, base), resolutions=tuple(resolutions))
    for others in meanwhile:
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
    assert all(f"version {base.version})" in f.reason for f in fails)

    # What holds is not undone by, and does not undo, what came meanwhile.
    refused = now.apply(held).refused
    assert not [r for r in refused if not isinstance(r.edit, Vote) and "there is no entry" in r.reason]
    assert reconcile(held, base.version, now) == (held, [])

    # Fates hold as long as the entry that covers the lesson is there.
    for was, is_ in zip(delta.resolutions, held.resolutions, strict=True):
        assert is_.lesson == was.lesson
        assert is_ == was if not was.entry or was.entry in now else (not is_.entry and was.entry in is_.reason)


@given(EDITS, FATES)
def test_where_nothing_came_meanwhile_all_of_it_holds(edits: list[Edit], resolutions: list[Resolution]) -> None:
    delta = Delta(tuple(edits), tuple(resolutions))
    assert reconcile(delta, RULES.version, RULES) == (delta, [])


def test_counters_are_no_change_and_a_merge_that_keeps_the_text_changes_only_what_it_takes_away() -> None:
    now = RULES.apply(Delta((Vote("e0", 1, uses=1), Merge(("e1", "e2"))))).context
    delta = Delta((Update("e0", "x"), Update("e1", "y"), Update("e2", "z")))
    held, fails = reconcile(delta, 0, now)
    assert [e.id for e in held.edits if isinstance(e, Update)] == ["e0", "e1"]
    assert [f.reason for f in fails] == ["an entry that it changes was deleted meanwhile (made from version 0)"]


def test_what_the_delta_itself_adds_is_there() -> None:
    delta = Delta((Add("rules", "x", ref="new0"), Merge(("e0", "new0")), Vote("new0", 1)), (Resolution("l1", "new0"),))
    assert reconcile(delta, 0, RULES.apply(Delta((Update("e1", "x"),))).context) == (delta, [])


@pytest.mark.parametrize("how", [{"slots": 0}, {"group": 0}, {"copies": 0}, {"copies": 4}, {"staleness": -1}], ids=str)
def test_a_schedule_that_cannot_be_is_refused(how: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="slots, group and copies must be at least 1"):
        without_barrier(**{"slots": 2, "group": 3, **how})


# ---- a stage on which the test decides who ends when


@dataclass
class Stage:
    """Attempts and reductions that end in an order drawn by `rng`, some of them at once."""

    rng: Random
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    flying: int = 0
    most: int = 0
    started: list[tuple[str, str, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    async def wait(self, run: Run) -> None:
        """Until it is this one's turn."""
        name = run.place.split("/")[0]
        future = self.waiting[name] = asyncio.get_running_loop().create_future()
        await future
        self.ended.append(name)

    async def conduct(self) -> None:
        while True:
            for _ in range(12):
                await asyncio.sleep(0)
            free = list(self.waiting)
            for name in self.rng.sample(free, min(len(free), self.rng.randint(1, 3))):
                self.waiting.pop(name).set_result(None)

    def attempt(self, fails: Callable[[Task], Exception | None] = lambda task: None) -> Any:
        async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
            (task,) = batch.tasks
            self.started.append((run.place.split("/")[0], task.id, context.version))
            self.flying += 1
            self.most = max(self.most, self.flying)
            try:
                await self.wait(run)
                error = fails(task)
                if isinstance(error, ProviderError):
                    run._lose(JournalRow(run.place, "agent", "", str(error), ok=False))
                    run._state.last_error = str(error)
                    return [Rollout(task, Trace("", error=str(error), lost=True), None, NOTHING, run.place)]
                if error is not None:
                    raise error
                return [Rollout(task, Trace("x"), None, NOTHING, run.place)]
            finally:
                self.flying -= 1

        return attempt

    def update(self, decide: Callable[[Sequence[Lesson], Context, Run], Delta]) -> Any:
        async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            await self.wait(run)
            return votes(lessons) + decide(lessons, context, run)

        return update


NOTHING = Feedback(None, "")


def reflecting(per: int = 1, silent: int = 0) -> Any:
    """So many lessons a rollout, the last of them without words; each votes on e0."""

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        return [
            Lesson(
                f"{r.place}/{n}", f"If {r.task.id}.{n}, do it." if n < per else "", votes={"e0": "helpful"},
                sources=r.sources,
            )
            for r in rollouts if not r.trace.lost for n in range(per + silent)
        ]  # fmt: skip

    return reflect


def adding(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    return Delta(tuple(Add("rules", x.text, lessons=(x.id,), sources=x.sources) for x in lessons if x.text))


def changing(id: str) -> Any:
    """Every group takes its lessons into one entry, after what it says."""

    def decide(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        entry = context.get(id)
        told = [x for x in lessons if x.text]
        if entry is None or not told:
            return adding(lessons, context, run)
        text = " ".join([entry.text, *(x.text for x in told)])
        return Delta((Update(id, text, lessons=tuple(x.id for x in told)),))

    return decide


@dataclass
class Ran:
    """What came of a run on a stage."""

    stage: Stage
    run: Run
    journal: Memory
    steps: list[StepReport] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def context(self) -> Context:
        return self.steps[-1].context if self.steps else RULES

    @property
    def texts(self) -> list[str]:
        return [e.text for e in self.context if e.number >= RULES.next_number]

    def said(self) -> list[Any]:
        """Step by step, all that does not depend on how long things took."""
        return [
            (replace(step, seconds=None, context=Context()), [entry_json(e) for e in step.context])
            for step in self.steps
        ]


def staged(
    seed: int = 0, n: int = 10, *, slots: int = 4, group: int = 3, copies: int = 1, staleness: int = 0, epochs: int = 1,
    decide: Any = adding, reflect: Any = None, fails: Any = lambda task: None, journal: Memory | None = None,
    validation: Validation | None = None, accept: Any = always, each: Callable[[StepReport], None] | None = None,
    again: Any = None, left: Any = None,
) -> Ran:  # fmt: skip
    stage, journal = Stage(Random(seed)), journal or Memory()
    run = indoors(lambda call: "", journal=journal)
    attempt = stage.attempt(fails)
    made = Method(
        name="staged", sample=shuffled_epochs(epochs, 1), act=shown, attempt=attempt, reflect=reflect or reflecting(),
        update=stage.update(decide), accept=accept,
    )  # fmt: skip
    schedule = without_barrier(
        slots=slots, group=group, copies=copies, staleness=staleness, again=again and stage.update(again), left=left
    )
    ran = Ran(stage, run, journal)

    async def work() -> None:
        conductor = asyncio.create_task(stage.conduct())
        try:
            async for step in schedule(made, make_tasks(n), RULES, run, validation):
                ran.steps.append(step)
                if each is not None:
                    each(step)
        except Exception as error:
            ran.error = error
        finally:
            conductor.cancel()

    asyncio.run(work())
    return ran


async def shown(task: Task, context: Context, run: Run) -> Rollout:
    """How an evaluation goes: the score is how much was learned."""
    from practicum.core.types import Score

    return Rollout(task, Trace("x"), Score(min(len(context) / 20, 1.0), False), NOTHING, run.place)


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
    assert ran.error is None
    tasks, epochs, slots = shape["n"], shape["epochs"], shape["slots"]

    # Every task once an epoch, never more in flight than there are slots, and never fewer where there is work.
    rollouts = [r for step in ran.steps for r in step.rollouts]
    assert Counter(r.task.id for r in rollouts) == dict.fromkeys((f"t{i}" for i in range(tasks)), epochs)
    assert [task for _, task, _ in ran.stage.started[:tasks]] != [] or not tasks
    assert {task for _, task, _ in ran.stage.started[:tasks]} == {f"t{i}" for i in range(tasks)}
    assert ran.stage.most == min(slots, tasks * epochs)
    assert [name for name, _, _ in ran.stage.started] == [f"attempt {i + 1}" for i in range(tasks * epochs)]

    # Every lesson is in a step's report, in as many groups as there are copies, and its votes and words count once.
    lessons = [lesson for step in ran.steps for lesson in step.lessons]
    assert len({x.id for x in lessons}) == len(lessons) == tasks * epochs * (per + silent)
    members = Counter(id for step in ran.steps for id in step.batch.data["members"])
    assert members == {x.id: shape["copies"] if x.text else 1 for x in lessons}
    assert ran.context.get("e0") is not None
    assert next(iter(ran.context)).helpful == len(lessons)
    assert Counter(ran.texts) == Counter(x.text for x in lessons if x.text)

    # Groups are no larger than they may be, and steps follow each other.
    telling = {x.id for x in lessons if x.text}
    assert all(len(telling & {*step.batch.data["members"]}) <= shape["group"] for step in ran.steps)
    assert [step.step for step in ran.steps] == list(range(1, len(ran.steps) + 1))
    version = 0
    for step in ran.steps:
        assert step.batch.data["behind"] == version - step.batch.data["base"] >= 0
        version = step.context.version
    at = [step.batch.epoch for step in ran.steps]
    assert at == sorted(at)
    assert at[-1:] in ([], [epochs])


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.integers(0, 10**6), st.integers(0, 10**6), SHAPES, st.data())
def test_the_order_of_arrival_decides_all_and_the_journal_keeps_it(
    seed: int, other: int, shape: dict[str, int], data: st.DataObject
) -> None:
    """A resume in which everything would end in another order repeats the order that was, and goes on from there."""
    first = staged(seed, decide=changing("e0"), **shape)
    events = sorted(
        (row for row in first.journal.rows.values() if "event" in row.place), key=lambda row: int(row.place.split()[-1])
    )
    again = staged(other, decide=changing("e0"), journal=Memory(first.journal.rows), **shape)
    assert again.said() == first.said()
    assert again.stage.started == first.stage.started

    cut = data.draw(st.integers(0, len(events)))
    kept = {row.place: row for row in events[:cut]}
    resumed = staged(other, decide=changing("e0"), journal=Memory(kept), **shape)
    reductions = sum("group" in json.loads(row.answer) for row in events[:cut])
    assert resumed.said()[:reductions] == first.said()[:reductions]
    assert [resumed.journal.rows[place] for place in kept] == list(kept.values())
    assert Counter(r.task.id for step in resumed.steps for r in step.rollouts) == Counter(
        r.task.id for step in first.steps for r in step.rollouts
    )


def test_attempts_start_from_the_newest_context() -> None:
    for seed in range(10):
        ran = staged(seed, 30, slots=5, group=3)
        version_of = {f"group {step.batch.data['group']}": step.context.version for step in ran.steps}
        events = [json.loads(row.answer) for row in ran.journal.rows.values() if "event" in row.place]
        version, started = 0, {name: version for name, _, version in ran.stage.started}
        next_one = 6
        for name in events:
            version = version_of.get(name, version)
            if name.startswith("attempt") and next_one <= 30:
                assert started[f"attempt {next_one}"] == version
                next_one += 1
        assert max(started.values()) > 3


def test_the_copies_of_a_lesson_meet_other_neighbours() -> None:
    ran = staged(3, 40, slots=8, group=4, copies=2)
    groups = [frozenset(step.batch.data["members"]) for step in ran.steps if step.batch.data["members"]]
    assert len(groups) == len(set(groups))
    assert max(len(a & b) for a in groups for b in groups if a != b) <= 2


@pytest.mark.parametrize("copies", [1, 2])
def test_the_insights_of_a_reflection_are_reduced_together(copies: int) -> None:
    """Reflections of one to three insights, three reflections a group."""

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        (rollout,) = rollouts
        id, n = rollout.place, int(rollout.task.id[1:]) % 3
        first = Lesson(id, f"If {rollout.task.id}, do it.", votes={"e0": "helpful"}, sources=rollout.sources)
        return [first, *(replace(first, id=f"{id}.{m}", text=f"{first.text} {m}", votes={}, of=id) for m in range(n))]

    ran = staged(1, 12, slots=4, group=3, copies=copies, reflect=reflect)
    lessons = {x.id: x for step in ran.steps for x in step.lessons}
    told = Counter(x.of or x.id for x in lessons.values())
    groups = [Counter(lessons[id].of or id for id in step.batch.data["members"]) for step in ran.steps]
    assert all(len(members) <= 3 and members == {id: told[id] for id in members} for members in groups)
    assert Counter(id for members in groups for id in members) == dict.fromkeys(told, copies)
    assert sorted(ran.texts) == sorted(x.text for x in lessons.values())
    assert [e.uses for e in ran.context][:1] == [12]


def test_the_rest_of_the_groups_is_reduced_in_the_end() -> None:
    ran = staged(0, 7, slots=3, group=5)
    assert [len(step.batch.data["members"]) for step in ran.steps] == [5, 2]
    assert len(ran.texts) == 7


def test_votes_without_words_are_counted_though_no_group_is_ever_full() -> None:
    ran = staged(0, 7, slots=3, group=5, reflect=reflecting(0, 1))
    (step,) = ran.steps
    assert (len(step.batch.data["members"]), step.context.version) == (7, 1)
    assert next(iter(ran.context)).helpful == 7


def test_attempts_that_teach_nothing_are_reported_all_the_same() -> None:
    ran = staged(0, 7, slots=3, group=5, reflect=reflecting(0, 0))
    (step,) = ran.steps
    assert len(step.rollouts) == 7
    assert step.context is RULES
    assert (step.applied, step.batch.data["members"]) == ((), [])


def test_no_tasks_are_no_steps() -> None:
    assert staged(0, 0).steps == []


# ---- accounting over all copies

DULL = "it is dull"


@dataclass
class Whim:
    """A curator that adds a lesson in words of its own, takes it into a rule or both, calls it covered or dull, deletes
    a rule or leaves the lesson out; what it does depends on the group that reads it."""

    seed: int
    added: int = 0

    def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        rng, made = Random(f"{self.seed} {run.place}"), Delta()
        into = ["e0", "e1", "e2"]
        for lesson in (x for x in lessons if x.text):
            rule = rng.choice(["e3", "e4", "e5"])
            does = rng.choice(["add", "take", "both", "covered", "dull", "delete", "leave"])
            if does in ("add", "both"):
                self.added += 1
                made += Delta((Add("rules", f"{run.place}: {lesson.text}", lessons=(lesson.id,)),))
            match does:
                case "take" | "both" if into:
                    made += Delta((Update(into.pop(), f"{run.place}: {lesson.text}", lessons=(lesson.id,)),))
                case "covered" if rule in context:
                    made += Delta(resolutions=(Resolution(lesson.id, rule, "it says so"),))
                case "dull":
                    made += Delta(resolutions=(Resolution(lesson.id, reason=DULL),))
                case "delete" if rule in context:
                    made += Delta((Delete(rule),))
        return made


def ends(ran: Ran) -> tuple[Counter[str], Counter[str]]:
    """Lessons that were added, and lessons told as dropped; each came to one end, or this fails."""
    resolutions = [resolution for step in ran.steps for resolution in step.resolutions]
    edits = [done.edit for step in ran.steps for done in step.applied]
    adds = Counter(id for edit in edits if isinstance(edit, Add) for id in edit.lessons)
    taken = {id for edit in edits if isinstance(edit, Update) for id in edit.lessons}
    said = Counter(resolution.lesson for resolution in resolutions if resolution.entry)
    dropped = Counter(resolution.lesson for resolution in resolutions if not resolution.entry)
    assert {*adds, *said, *taken, *dropped} == {x.id for step in ran.steps for x in step.lessons if x.text}
    # No two copies made an entry each, or an entry and the word that a rule says it.
    assert {*(adds + said + dropped).values()} <= {1}
    assert not taken & dropped.keys()
    return adds, dropped


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), SHAPES, st.sampled_from(["keep", "drop"]), st.booleans())
def test_every_lesson_is_once_covered_kept_or_dropped_over_all_its_copies(
    seed: int, shape: dict[str, int], uncovered: Uncovered, again: bool
) -> None:
    """And what is counted is what happened."""

    def ran_with(order: int, journal: Memory | None = None) -> tuple[Ran, int]:
        whim = Whim(seed)
        asked, left = whim if again else None, keep_or_drop(uncovered, "kept")
        ran = staged(order, decide=whim, reflect=reflecting(2, 1), again=asked, left=left, journal=journal, **shape)
        return ran, whim.added

    ran, added = ran_with(seed)
    assert ran.error is None
    adds, _ = ends(ran)
    counts = ran.run.counts
    kept = [a.edit for step in ran.steps for a in step.applied if isinstance(a.edit, Add) and a.edit.section == "kept"]
    lost = [f.reason for step in ran.steps for f in step.resolutions if not f.entry and f.reason != DULL]
    assert not (uncovered == "keep" and lost)
    assert {*lost, *(edit.reason for edit in kept)} <= {LEFT_OUT, OVERTAKEN}
    assert counts["kept_lessons"] == len(kept)
    assert counts["dropped_lessons"] == len(lost)
    assert counts["repeated_additions"] == added - (adds.total() - len(kept))

    # It all follows from the order of arrival.
    repeated, _ = ran_with(seed + 1, Memory(ran.journal.rows))
    assert repeated.said() == ran.said()
    assert repeated.run.counts == counts


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), SHAPES)
def test_what_is_dropped_of_one_copy_as_it_is_accepted_another_may_still_bring(
    seed: int, shape: dict[str, int]
) -> None:
    async def gate(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        match run.rng("gate").choice(["take", "drop", "prune"]):
            case "drop":
                return unshown_part(context, delta)
            case "prune":
                return delta + Delta(
                    tuple(
                        Delete(resolution.entry) for resolution in delta.resolutions[:1] if resolution.entry in context
                    )
                )
        return delta

    whim, left = Whim(seed), keep_or_drop("keep", "kept")
    ran = staged(seed, decide=whim, again=whim, left=left, reflect=reflecting(2), accept=gate, **shape)
    assert ran.error is None
    adds, dropped = ends(ran)
    assert {f.reason for step in ran.steps for f in step.resolutions if f.lesson in dropped} <= {WORSE, DULL}
    assert not adds.keys() & dropped.keys()


def test_only_what_no_copy_covered_is_asked_about_again_and_once() -> None:
    for seed in range(10):
        covered, asked = set[str](), list[str]()

        def first(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            covered.add(lessons[0].id)  # noqa: B023
            return adding(lessons[:1], context, run)

        def rest(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            asked.extend(x.id for x in lessons)  # noqa: B023
            return adding(lessons, context, run)

        ran = staged(seed, 8, group=4, copies=2, decide=first, again=rest, left=keep_or_drop("keep", "kept"))
        lessons = sorted(x.id for step in ran.steps for x in step.lessons)
        assert sorted([*covered, *asked]) == lessons
        assert asked
        assert len({*ran.texts}) == len(ran.texts) == 8
        assert ran.run.counts["kept_lessons"] == 0


# ---- conflicts


def conflicts(staleness: int, seed: int = 0, decide: Any = None) -> Ran:
    """Groups of one lesson that all change e0, many of them at once."""
    return staged(seed, 6, slots=6, group=1, staleness=staleness, decide=decide or changing("e0"))


def test_a_change_of_what_changed_meanwhile_is_redone_against_it_once() -> None:
    asked: list[tuple[str, str]] = []

    def decide(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        entry = context.get("e0")
        assert entry is not None
        asked.append((run.place, entry.text))
        made: Delta = changing("e0")(lessons, context, run)
        return made

    for seed in range(20):
        asked.clear()
        ran = conflicts(0, seed, decide)
        entry = ran.context.get("e0")
        assert entry is not None
        taken = re.findall(r"t\d", entry.text)
        refused = [r for step in ran.steps for r in step.refused]
        # Nothing is overwritten: what was taken in once stays, and the rest is refused with its reason.
        assert len(taken) == len(set(taken))
        assert len(taken) + len(refused) == 6
        assert all("e0 was changed in version" in r.reason for r in refused)
        again = [place for place, _ in asked if place.endswith("again")]
        assert len(asked) == 6 + len(again)
        assert len(set(again)) == len(again) == ran.run.counts["redone_edits"]
        assert {place.removesuffix(" again") for place in again} <= {f"group {n}" for n in range(1, 7)}
        # The second time the group reads what the first one changed.
        assert all(text != "If case 0, do this0." for place, text in asked if place.endswith("again"))
        # Votes are cast the first time only.
        assert entry.helpful == 6
    assert any(conflicts(0, seed).run.counts["redone_edits"] for seed in range(5))


def test_with_enough_staleness_nothing_is_reconciled() -> None:
    ran = conflicts(100)
    assert ran.run.counts["redone_edits"] == 0
    assert not [r for step in ran.steps for r in step.refused]
    assert max(step.batch.data["behind"] for step in ran.steps) > 0


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_delta_that_is_further_behind_is_applied_as_it_is(staleness: int) -> None:
    for seed in range(10):
        changed = 0
        for step in conflicts(staleness, seed).steps:
            if any(isinstance(a.edit, Update) for a in step.applied):
                assert changed <= step.batch.data["base"] or step.batch.data["behind"] <= staleness
                changed = step.context.version


def test_what_does_not_conflict_is_kept_while_the_rest_is_redone() -> None:
    def both(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return adding(lessons, context, run) + changing("e1")(lessons, context, run)

    ran = conflicts(0, 1, both)
    assert {*ran.texts} == {f"If t{n}.0, do it." for n in range(6)}
    # An edit that rests on no lesson cannot be asked about again.
    named = conflicts(0, 1, lambda *a: Delta(tuple(replace(e, lessons=()) for e in changing("e1")(*a).edits)))
    assert named.run.counts["redone_edits"] == 0
    refused, applied = (sum(len(getattr(step, what)) for step in named.steps) for what in ("refused", "applied"))
    assert refused > 0
    assert refused + applied == 6 + 6


def test_a_lesson_covered_by_what_went_meanwhile_is_asked_about_again() -> None:
    """The second time it is kept; had it been covered by another rule that went, it would count as dropped."""

    def decide(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        if "t0." in lessons[0].text:
            return Delta((Delete("e5"),))
        if context.get("e5") is None:
            return adding(lessons, context, run)
        return Delta(resolutions=tuple(Resolution(x.id, "e5", "it says so") for x in lessons))

    asked_again = 0
    for seed in range(20):
        ran = conflicts(0, seed, decide)
        resolutions = [resolution for step in ran.steps for resolution in step.resolutions]
        late = [step for step in ran.steps if "e5" not in step.context]
        covered_after = [f for step in late[1:] for f in step.resolutions]
        assert not covered_after
        assert len(resolutions) + len(ran.texts) == 5
        asked_again += sum("again" in place for place in ran.run._state.opened)
    assert asked_again

    def always_covered(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        last = list(context)[-1].id
        if int(lessons[0].text[4]) < 3:
            return Delta((Delete(last),))
        return Delta(resolutions=(Resolution(lessons[0].id, last, "it says so"),))

    resolutions = [
        f for seed in range(20) for step in conflicts(0, seed, always_covered).steps for f in step.resolutions
    ]
    assert any("deleted meanwhile" in f.reason and not f.entry for f in resolutions)


# ---- what goes wrong


def test_a_lost_provider_stops_the_run_and_what_is_in_flight_ends() -> None:
    ran = staged(0, 60, slots=4, group=3, fails=lambda task: ProviderError("provider.failed", "the line is dead"))
    assert isinstance(ran.error, ProviderError)
    assert "3 steps in a row were lost: the line is dead" in str(ran.error)
    assert 9 <= len(ran.stage.started) <= 9 + 4
    assert ran.stage.flying == 0
    assert len(ran.stage.ended) == len(ran.stage.started)


def test_now_and_then_a_lost_attempt_stops_nothing() -> None:
    lost = {f"t{n}" for n in range(0, 30, 3)}
    ran = staged(0, 30, fails=lambda task: ProviderError("provider.failed", "busy") if task.id in lost else None)
    assert ran.error is None
    assert len(ran.texts) == 20
    assert sum(len(step.rollouts) for step in ran.steps) == 30


@pytest.mark.parametrize("n", [2, 3, 6])
def test_a_run_too_short_for_three_losses_says_so_too(n: int) -> None:
    ran = staged(0, n, fails=lambda task: ProviderError("provider.failed", "the line is dead"))
    assert "every step was lost: the line is dead" in str(ran.error)


@pytest.mark.parametrize("where", ["attempt", "update"])
@pytest.mark.parametrize(
    "error", [ModelError("model.unusable", "the prompt is too long"), Stopped("budget.spent", "the budget is spent")]
)
def test_a_job_that_fails_ends_the_run_after_its_siblings(where: str, error: Exception) -> None:
    def decide(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        if where == "update" and run.place.startswith("group 2"):
            raise error
        return adding(lessons, context, run)

    fails = (lambda task: error if task.id == "t7" else None) if where == "attempt" else (lambda task: None)
    for seed in range(5):
        ran = staged(seed, 30, slots=5, decide=decide, fails=fails)
        assert ran.error is error
        assert ran.stage.flying == 0
        assert not ran.stage.waiting
        begun = {name for name, _, _ in ran.stage.started}
        assert begun <= {*ran.stage.ended}
        assert len(begun) < 30
        # What arrived before it is in the journal, so that a resume goes on there.
        again = staged(seed + 1, 30, slots=5, journal=Memory(ran.journal.rows))
        assert again.error is None
        assert again.said()[: len(ran.steps)] == ran.said()
        assert len(again.texts) == 30


def test_a_cancelled_run_cancels_what_is_in_flight() -> None:
    stage = Stage(Random(0))
    cancelled: list[str] = []

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        try:
            await stage.wait(run)
        except asyncio.CancelledError:
            cancelled.append(run.place)
            raise
        return []

    made = Method(
        name="staged", sample=shuffled_epochs(1, 1), act=shown, attempt=attempt, reflect=reflecting(),
        update=stage.update(adding), accept=always,
    )  # fmt: skip

    async def work() -> None:
        async def learn() -> None:
            run, schedule = indoors(lambda call: ""), without_barrier(slots=4, group=3)
            async for _ in schedule(made, make_tasks(9), RULES, run, None):
                pass

        running = asyncio.create_task(learn())
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(work())
    assert len(cancelled) == 4


def test_a_journal_of_another_program_is_named() -> None:
    row = JournalRow("/event 1", NOTE_ROLE, NOTE_ROLE, json.dumps("group 9"))
    ran = staged(journal=Memory({row.place: row}))
    assert isinstance(ran.error, JournalMismatch)
    assert "has 'group 9' as the next result" in str(ran.error)


# ---- validation


def test_the_context_of_every_so_many_steps_is_validated() -> None:
    ran = staged(0, 20, validation=Validation(make_tasks(2, 50), every=2))
    scores = [step.val for step in ran.steps]
    assert [score is not None for score in scores] == [step.step % 2 == 0 for step in ran.steps]
    assert all(step.val in (None, min(len(step.context) / 20, 1)) for step in ran.steps)


# ---- size


@pytest.mark.slow
def test_a_thousand_in_flight_cost_no_more_each_than_a_hundred() -> None:
    """Counted in the work of the scheduler: turns of the event loop."""

    def turns(slots: int) -> float:
        count = 0

        async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
            await asyncio.sleep(0)
            return [Rollout(batch.tasks[0], Trace("x"), None, NOTHING, run.place)]

        async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
            return adding(lessons, context, run)

        made = Method(
            name="staged", sample=shuffled_epochs(1, 1), act=shown, attempt=attempt, reflect=reflecting(),
            update=update, accept=always,
        )  # fmt: skip

        async def work() -> None:
            nonlocal count
            loop = asyncio.get_running_loop()
            original = loop.call_soon

            def counting(*args: Any, **how: Any) -> asyncio.Handle:
                nonlocal count
                count += 1
                return original(*args, **how)

            loop.call_soon = counting  # type: ignore[method-assign]
            schedule = without_barrier(slots=slots, group=20)
            async for _ in schedule(made, make_tasks(2000), RULES, indoors(lambda call: ""), None):
                pass

        asyncio.run(work())
        return count / 2000

    assert turns(1000) <= 1.5 * turns(100)


# ---- whole runs


ASYNC: dict[str, Any] = {"asynchronous": True, "batch": 5, "rounds": 1}


def learned(folder: Path, model: ScriptedClient, n: int = 30, settings: Any = None, **how: Any) -> Result:
    work = practicum.learn(
        make_tasks(n), out=folder, method="combee", settings={**ASYNC, **(settings or {})},
        parts=practicum.Parts(clients={"agent": model}), **how,
    )  # fmt: skip
    return practicum.run_sync(work)


def resumed(folder: Path, model: ScriptedClient, **limits: Any) -> Result:
    return practicum.run_sync(practicum.resume(folder, **limits, parts=practicum.Parts(clients={"agent": model})))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "run.sqlite") as db:
        found = db.execute(query).fetchall()
        db.commit()
    db.close()
    return found


def order_of(folder: Path) -> list[str]:
    """What ended when, as the journal has it."""
    noted = rows(folder, "select place, answer from journal where place like '/event %'")
    return [json.loads(answer) for _, answer in sorted(noted, key=lambda row: int(row[0].split()[-1]))]


def with_order_only(folder: Path, to: Path) -> Path:
    """A copy of a run that knows in which order things ended, and nothing of what came of them."""
    shutil.copytree(folder, to)
    rows(to, "delete from journal where role != 'noted'")
    rows(to, "update runs set state = 'stopped'")
    return to


@pytest.mark.slow
def test_what_was_learned_follows_from_the_order_alone(tmp_path: Path) -> None:
    first = learned(tmp_path / "first", Late(seed=1))
    other = learned(tmp_path / "other", Late(seed=2))
    assert order_of(tmp_path / "first") != order_of(tmp_path / "other")
    assert context_bytes(first) != context_bytes(other)

    model = Late(seed=3)
    again = resumed(with_order_only(tmp_path / "first", tmp_path / "again"), model)
    assert context_bytes(again) == context_bytes(first)
    assert len(model.calls) == first.usage.calls
    assert order_of(tmp_path / "again") == order_of(tmp_path / "first")


def test_a_finished_run_resumed_repeats_no_call(tmp_path: Path) -> None:
    whole = learned(tmp_path / "run", Late(), test=make_tasks(3, 50), val=make_tasks(2, 80), validate_every=2)
    model = Late(seed=5)
    again = resumed(tmp_path / "run", model)
    assert model.calls == []
    assert context_bytes(again) == context_bytes(whole)
    assert (again.scores, again.usage, again.steps, again.refused) == (
        whole.scores, whole.usage, whole.steps, whole.refused,
    )  # fmt: skip
    assert {"test", "val_best"} <= whole.scores.keys()


def test_every_attempt_is_in_the_store_and_slots_are_kept(tmp_path: Path) -> None:
    model = Late()
    result = learned(tmp_path / "run", model, settings={"epochs": 2, "rounds": 0}, concurrency=100)
    stored = [json.loads(data)["task"]["id"] for (data,) in rows(tmp_path / "run", "select data from rollouts")]
    assert Counter(stored) == dict.fromkeys((f"t{i}" for i in range(30)), 2)
    asked = Counter(call.prompt.user.split(":")[0] for call in model.calls if call.role == "agent")
    assert set(asked.values()) == {2}
    attempts = [name for name in order_of(tmp_path / "run") if name.startswith("attempt")]
    assert len(attempts) == len(set(attempts)) == 60
    assert result.steps == rows(tmp_path / "run", "select count(*) from steps")[0][0]
    assert model.most == 5
    distinct, lessons = rows(tmp_path / "run", "select count(distinct lesson_id), count(*) from lessons")[0]
    assert distinct == lessons >= 60


@pytest.mark.slow
@pytest.mark.parametrize("calls", [12, 40, 75])
def test_a_spent_budget_leaves_a_run_that_goes_on_without_paying_twice(tmp_path: Path, calls: int) -> None:
    model = Late(seed=1)
    cut = learned(tmp_path / "run", model, max_calls=calls)
    assert cut.stopped == f"the budget of {calls} calls is spent"
    assert cut.usage.calls == len(model.calls) <= calls
    known = order_of(tmp_path / "run")
    later = Late(seed=2)
    done = resumed(tmp_path / "run", later, max_calls=1000)
    assert done.stopped is None
    assert order_of(tmp_path / "run")[: len(known)] == known
    assert len(model.calls) + len(later.calls) == done.usage.calls
    assert context_bytes(resumed(with_order_only(tmp_path / "run", tmp_path / "again"), Late())) == context_bytes(done)
    stored = [json.loads(data)["task"]["id"] for (data,) in rows(tmp_path / "run", "select data from rollouts")]
    assert Counter(stored) == dict.fromkeys((f"t{i}" for i in range(30)), 1)


@pytest.mark.slow
def test_a_provider_that_dies_stops_the_run_and_a_resume_goes_on(tmp_path: Path) -> None:
    paid: list[Call] = []

    def dying(call: Call) -> str | Exception:
        paid.append(call)
        return ProviderError("provider.failed", "the line is dead") if len(paid) > 30 else learner(call)

    with pytest.raises(ProviderError, match=r"3 steps in a row were lost: the line is dead.*practicum resume"):
        learned(tmp_path / "run", Late(dying), 60)
    done = resumed(tmp_path / "run", Late())
    assert done.stopped is None
    assert len(rows(tmp_path / "run", "select * from rollouts")) == 60


NO_JSON = "I'd rather not say."


def test_what_could_not_be_read_elsewhere_is_no_lost_reflection(tmp_path: Path) -> None:
    """Nearly all goes well and nothing has to be learned, which is no reason to stop."""

    def able(call: Call) -> str:
        (word,) = re.findall(r"say (word\d+)", call.text)
        if call.role == "agent":
            return word
        return NO_JSON if word.endswith("3") else json.dumps({"reason": "so", "right": True})

    how = {"asynchronous": True, "learn_from": "failures", "rounds": 0}
    held = {"before": True, "test": make_tasks(4, 300), "scorer": "judge"}
    result = learned(tmp_path / "run", ScriptedClient(able), 60, how, **held)
    assert (result.stopped, result.errors["unscored_attempts"]) == (None, 6 + 1)
    assert len(rows(tmp_path / "run", "select * from rollouts where step > 0")) == 60


def test_a_reflector_nobody_can_read_stops_the_run_before_all_is_spent(tmp_path: Path) -> None:
    model = Late(lambda call: NO_JSON if call.role == "reflector" else learner(call))
    with refused("attempts.all_failed"):
        learned(tmp_path / "run", model, 200, {"rounds": 0})
    assert sum(call.role == "agent" for call in model.calls) < 100


def test_a_stream_is_predicted_before_it_is_learned_from(tmp_path: Path) -> None:
    model = Late()
    result = learned(tmp_path / "run", model, 20, {"online": True})
    first = [call for call in model.calls if call.role == "agent" and "An earlier answer" not in call.prompt.user]
    assert 0 < result.scores["online"] < 1
    assert len({call.prompt.user for call in first}) == 20
    stored = [json.loads(data) for (data,) in rows(tmp_path / "run", "select data from rollouts")]
    assert result.scores["online"] == pytest.approx(sum(r["score"]["value"] for r in stored) / 20)


# ---- killed and interrupted


DIGEST_LINE = 65
"""Bytes of a line in the server's log."""


def received(log: Path) -> int:
    return log.stat().st_size // DIGEST_LINE if log.exists() else 0


def journaled(folder: Path) -> int:
    try:
        return int(rows(folder, "select coalesce(sum(calls), 0) from journal where role <> 'in flight'")[0][0])
    except sqlite3.OperationalError:
        return 0


def exported(launcher: Launcher, folder: str, where: Path) -> str:
    done = launcher.run(("export", folder, "--format", "json"), where)
    assert done.code == 0, done.err
    return done.out


def holds_a_run(folder: Path) -> bool:
    try:
        return folder.exists() and bool(rows(folder, "select * from runs"))
    except sqlite3.OperationalError:
        return False


@pytest.mark.slow
@pytest.mark.durable
def test_kills_keep_the_order_in_which_things_ended(
    tmp_path: Path, fast_server: ServerProcess, launcher: Launcher
) -> None:
    """A run is killed in an attempt, as an event is noted and between two steps."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(12))
    how = ("--method", "combee", "--asynchronous", "--batch-size", "4", "--set", "rounds=1", "--concurrency", "8")
    command: tuple[str, ...] = ("learn", "tasks.jsonl", *how, "--model", f"{fast_server.url}#sim", "--out", "run")
    folder, known = tmp_path / "run", list[str]()
    for moment in (("journal", "attempt 3", 1), ("journal", "/event", 3), ("steps", "", 1)):
        ended = launcher.start(command, tmp_path, kill_before=moment).end()
        assert ended.code == -signal.SIGKILL, (moment, ended.err)
        order = order_of(folder)
        assert order[: len(known)] == known
        command, known = ("resume", "run"), order
    assert known
    last = launcher.run(("resume", "run", "--json"), tmp_path)
    assert last.code == 0, last.err
    assert order_of(folder)[: len(known)] == known
    assert last.json["usage"]["calls"] == journaled(folder) + last.json["errors"].get("left_in_flight", 0)
    stored = [json.loads(data)["task"]["id"] for (data,) in rows(folder, "select data from rollouts")]
    assert Counter(stored) == dict.fromkeys((f"t{i}" for i in range(12)), 1)


@pytest.mark.slow
@pytest.mark.durable
def test_kills_amid_a_heavy_tail_repeat_only_what_was_in_flight(tmp_path: Path, launcher: Launcher) -> None:
    log, folder, rng = tmp_path / "log", tmp_path / "run", Random(11)
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(24))
    how = ("--method", "combee", "--asynchronous", "--batch-size", "6", "--set", "rounds=1", "--concurrency", "8")
    with start_process(latency=0.03, tail=1.0, log=str(log)) as server:
        first = ("learn", "tasks.jsonl", *how, "--model", f"{server.url}#sim", "--out", "run")
        lost, orders = [], [list[str]()]
        for _ in range(6):
            command = ("resume", "run") if holds_a_run(folder) else first
            before = received(log), journaled(folder)
            target = before[0] + rng.randint(3, 12)
            running = launcher.start(command, tmp_path)
            wait_until(lambda: running.ended() or received(log) >= target, what="the moment of the kill")  # noqa: B023
            assert not running.ended(), running.errors
            running.kill()
            assert running.end().code == -signal.SIGKILL
            lost.append((received(log) - before[0]) - (journaled(folder) - before[1]))
            assert 0 <= lost[-1] <= 8
            orders.append(order_of(folder) if holds_a_run(folder) else [])
            # What was known stays known.
            assert orders[-1][: len(orders[-2])] == orders[-2]

        last = launcher.run(("resume", "run", "--json"), tmp_path)
        assert last.code == 0, last.err
        assert received(log) == journaled(folder) + sum(lost) <= last.json["usage"]["calls"]
        assert sum(lost) > 0
        assert order_of(folder)[: len(orders[-1])] == orders[-1]
        whole = exported(launcher, "run", tmp_path)
        stored = [json.loads(data)["task"]["id"] for (data,) in rows(folder, "select data from rollouts")]
        assert Counter(stored) == dict.fromkeys((f"t{i}" for i in range(24)), 1)

        paid = received(log)
        assert practicum.run_sync(practicum.resume(folder)).stopped is None
        assert received(log) == paid
        assert exported(launcher, "run", tmp_path) == whole

        # An uninterrupted run in which things end in the same order comes out the same.
        with_order_only(folder, tmp_path / "again")
        again = launcher.run(("resume", "again", "--json"), tmp_path)
        assert again.code == 0, again.err
        assert again.json["usage"]["calls"] == received(log) - paid == journaled(folder)
        assert exported(launcher, "again", tmp_path) == whole


@pytest.mark.slow
def test_ctrl_c_lets_what_is_in_flight_finish_and_a_resume_goes_on(tmp_path: Path, launcher: Launcher) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(20))
    how = ("--method", "combee", "--asynchronous", "--batch-size", "6", "--set", "rounds=1", "--json")
    with gated_server() as server:
        server.answer(10)
        command = ("learn", "tasks.jsonl", *how, "--model", f"{server.url}#sim", "--out", "run")
        running = launcher.start(command, tmp_path)
        wait_until(lambda: server.received >= 14 or running.ended(), what="calls in flight")
        running.kill(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in running.errors or running.ended(), what="the first word")
        server.answer()
        stopped = running.end()
        assert stopped.code == 130, stopped.err
        assert stopped.json["stopped"] == "interrupted"
        assert journaled(tmp_path / "run") == server.received == stopped.json["usage"]["calls"]
        known = order_of(tmp_path / "run")
        done = launcher.run(("resume", "run", "--json"), tmp_path)
        assert done.code == 0, done.err
        assert "stopped" not in done.json
        assert journaled(tmp_path / "run") == server.received == done.json["usage"]["calls"]
        assert order_of(tmp_path / "run")[: len(known)] == known
