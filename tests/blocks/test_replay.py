"""Failure replay: which tasks enter and leave the buffer, what a step draws from it, how large a step is, and the
command that shows the buffer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers import Done, client, make_tasks, number_of, world
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import method, steps
from profiles import examples
from scripts import Learned

import practicum
from practicum.blocks.reflect.per_trace import tagged
from practicum.blocks.sample import replay
from practicum.blocks.sample.orders import shuffled_epochs
from practicum.blocks.sample.replay import (
    LIKELY,
    MOST,
    BufferedTask,
    TaskResult,
    replay_buffer,
    replayed,
    rollouts_needed,
    share,
    task_results,
)
from practicum.cli.app import main
from practicum.core.context import Context
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.engine.loop import Batch, SampleSeam, StepReport
from practicum.engine.run import Run
from practicum.models.scripted import Call
from practicum.session.components import Parts
from practicum.session.learn import learn, resume
from practicum.session.records import create_seed

STREAKS: dict[str, tuple[str, BufferedTask | None]] = {
    # P passed; F failed and was reflected on; f failed and was not; - nothing is known. One a step, from step 1.
    "a task enters when it fails": ("f", BufferedTask("t", 1)),
    "a failure that is reflected on counts from the first": ("F", BufferedTask("t", 1, failures=1)),
    "a task that passes never enters": ("PPP", None),
    "it enters at the step of the failure": ("P-PF", BufferedTask("t", 4, failures=1)),
    "nothing known leaves all as it is": ("F-P--P-", BufferedTask("t", 1, passes=2)),
    "it graduates after three passes in a row": ("FPPP", BufferedTask("t", 1, passes=3, graduated=4)),
    "a failure resets the passes": ("FPPFPP", BufferedTask("t", 1, passes=2)),
    "a failure not reflected on resets them too": ("FPPfPP", BufferedTask("t", 1, passes=2)),
    "and then counts anew": ("FPPfPPP", BufferedTask("t", 1, passes=3, graduated=7)),
    "it is evicted after three failures in a row": ("FFF", BufferedTask("t", 1, failures=3, evicted=3)),
    "two are too few": ("FF", BufferedTask("t", 1, failures=2)),
    "failures not reflected on never evict": ("ffffffff", BufferedTask("t", 1)),
    "nor do they count between others": ("FffFff", BufferedTask("t", 1, failures=2)),
    "but they do not break the row of the others": ("FfFfF", BufferedTask("t", 1, failures=3, evicted=5)),
    "a pass resets the failures": ("FFPFF", BufferedTask("t", 1, failures=2)),
    "a pass, then three failures": ("FFPFFF", BufferedTask("t", 1, failures=3, evicted=6)),
    "nothing known breaks no row": ("F-F-F", BufferedTask("t", 1, failures=3, evicted=5)),
    "what graduated and passes stays away": ("FPPPPP", BufferedTask("t", 1, passes=3, graduated=4)),
    "what graduated and fails enters anew": ("FPPPF", BufferedTask("t", 5, failures=1)),
    "what was evicted and passes stays away": ("FFFPPPP", BufferedTask("t", 1, failures=3, evicted=3)),
    "what was evicted and fails enters anew": ("FFFf", BufferedTask("t", 4)),
    "and can leave again": ("FFFFPPP", BufferedTask("t", 4, passes=3, graduated=7)),
}

MARKS: dict[str, tuple[bool | None, bool]] = {
    "P": (True, False), "F": (False, True), "f": (False, False), "-": (None, False),
}  # fmt: skip


def told(marks: str, task: str = "t") -> list[TaskResult]:
    return [TaskResult(step, task, *MARKS[mark]) for step, mark in enumerate(marks, 1)]


@pytest.mark.parametrize(("marks", "row"), STREAKS.values(), ids=STREAKS)
def test_streaks(marks: str, row: BufferedTask | None) -> None:
    assert replay_buffer(told(marks)) == ({} if row is None else {"t": row})


def test_both_thresholds_can_be_set() -> None:
    assert replay_buffer(told("FP"), graduate=1)["t"].graduated == 2
    assert replay_buffer(told("F"), evict=1)["t"] == BufferedTask("t", 1, failures=1, evicted=1)
    assert replay_buffer(told("FPPP"), graduate=4)["t"].inside
    assert replay_buffer(told("FFFFF"), evict=5)["t"].evicted == 5


def test_a_task_that_comes_back_is_the_newest() -> None:
    one, two = told("FPPP-F", "a"), told("-F", "b")
    rows = replay_buffer(sorted(one + two, key=lambda outcome: outcome.step))
    assert [(row.task, row.entered) for row in rows.values()] == [("b", 2), ("a", 6)]


@given(st.text("PFf-", max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_laws_of_the_buffer(marks: str, graduate: int, evict: int) -> None:
    outcomes = told(marks)
    for end in range(len(outcomes) + 1):
        row = replay_buffer(outcomes[:end], graduate, evict).get("t")
        assert (row is None) == (not {"F", "f"} & set(marks[:end]))
        if row is None:
            continue
        assert 1 <= row.entered <= end
        assert outcomes[row.entered - 1].passed is False
        assert not (row.passes and row.failures)
        assert 0 <= row.passes <= graduate
        assert 0 <= row.failures <= evict
        assert (row.graduated is not None) == (row.passes == graduate)
        assert (row.evicted is not None) == (row.failures == evict)
        left = row.graduated or row.evicted
        since = marks[row.entered - 1 : left or end].replace("-", "")
        assert row.passes == len(since) - len(since.rstrip("P"))
        assert row.failures == ("" if row.passes else since.rpartition("P")[2]).count("F")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("PFf-")), max_size=40))
def test_tasks_do_not_touch_each_other(events: list[tuple[str, str]]) -> None:
    outcomes = [TaskResult(step, task, *MARKS[mark]) for step, (task, mark) in enumerate(events, 1)]
    rows = replay_buffer(outcomes)
    alone = [replay_buffer(o for o in outcomes if o.task == task) for task in "abc"]
    assert rows == {task: row for some in alone for task, row in some.items()}
    assert [row.entered for row in rows.values()] == sorted(row.entered for row in rows.values())


def attempt(task: Task, *passed: bool | None, lost: bool = False) -> Rollout:
    """A rollout, with siblings where there are several outcomes; `lost` is about the first."""
    one, *others = (Rollout(task, Trace(""), None, Feedback(ok, ""), f"attempt/{task.id}") for ok in passed)
    return replace(one, trace=Trace("", error="gone" if lost else None, lost=lost), siblings=tuple(others))


def report(step: int, rollouts: Sequence[Rollout], lessons: Sequence[Lesson] = (), batch: Batch | None = None) -> Any:
    batch = batch or Batch(tuple(r.task for r in rollouts))
    return StepReport(step, batch, tuple(rollouts), tuple(lessons), Context(), (), (), (), None)


def results_of(step: StepReport) -> list[TaskResult]:
    return task_results(step.step, step.rollouts, step.lessons)


TASK = make_tasks(1)[0]


@pytest.mark.parametrize(
    ("group", "passed"),
    [
        ([True], True), ([False], False), ([None], None),
        ([False, True, False], True), ([False, False, False], False), ([None, False], False), ([None, None], None),
        ([False, None, True], True),
    ],
)  # fmt: skip
def test_the_best_run_of_a_group_decides(group: list[bool | None], passed: bool | None) -> None:
    (found,) = results_of(report(4, [attempt(TASK, *group)]))
    assert found == TaskResult(4, "t0", passed)


def test_a_lost_attempt_has_no_outcome() -> None:
    assert results_of(report(1, [attempt(TASK, False, lost=True)])) == [TaskResult(1, "t0", None)]
    assert results_of(report(1, [attempt(TASK, False, False, lost=True)])) == [TaskResult(1, "t0", False)]
    assert results_of(report(1, [attempt(TASK, False, True, lost=True)])) == [TaskResult(1, "t0", True)]


@pytest.mark.parametrize(
    ("made", "reused", "passed"),
    [
        ([], [True], None),
        ([], [False, False], None),
        ([], [True, False], None),
        ([False], [False], False),
        ([True], [False], True),
        ([True], [True], True),
        ([False], [True], None),
        ([None], [True], None),
        ([None], [False], None),
    ],
)
def test_reused_attempts_make_no_streak(made: list[bool | None], reused: list[bool], passed: bool | None) -> None:
    group = list(attempt(TASK, *made, *reused).group)
    runs = [replace(one, siblings=(), of="step 1" if n >= len(made) else "") for n, one in enumerate(group)]
    for first in range(len(runs)):
        one, *others = runs[first:] + runs[:first]
        (found,) = results_of(report(4, [replace(one, siblings=tuple(others))]))
        assert found.passed is passed


def test_a_task_that_is_replayed_under_one_context_neither_graduates_nor_is_evicted() -> None:
    """The attempts after the first are reused, so they are no evidence that the playbook holds, or does not."""
    for passed in (True, False):
        first = replace(attempt(TASK, passed), place="step 1")
        again = [replace(first, place=f"step {n}", of="step 1") for n in range(2, 7)]
        entered = attempt(TASK, False)
        lessons = [Lesson("", "x", sources=first.sources)]
        steps = [report(n, [one], lessons) for n, one in enumerate([entered, first, *again], 1)]
        (row,) = replay_buffer(result for step in steps for result in results_of(step)).values()
        assert row == (BufferedTask("t0", 1, passes=1) if passed else BufferedTask("t0", 1, failures=2))


def test_what_counts_as_reflected_on() -> None:
    tried = attempt(TASK, False)
    used = replace(tried, trace=Trace("", used=("e1",)))
    said = Lesson("x", "a rule", sources=tried.sources)
    cases: list[tuple[list[Lesson], bool]] = [
        ([], False),
        ([tagged(used, "x")], False),
        ([said], True),
        ([tagged(used, "x"), said], True),
        ([replace(said, sources=("task:t00", "rollout:t0"))], False),
        ([replace(said, sources=("task:t9", "task:t0"))], True),
        ([replace(said, sources=("task:t9", "task:t0"), data={"task_id": "t9"})], False),
        ([replace(said, sources=("task:t9", "task:t0"), data={"task_id": "t0"})], True),
        ([replace(said, text="", data={"diagnosis": "too hasty"})], True),
        ([replace(said, text="", data={"attribution": "execution_variance", "cause": "chance"})], True),
        ([replace(said, text="", data={"root_cause": "what the reflection says under any name"})], True),
        ([replace(said, text="", data={"diagnosis": "", "kind": "k"})], False),
    ]
    for lessons, reflected in cases:
        assert results_of(report(1, [tried], lessons)) == [TaskResult(1, "t0", False, reflected)], lessons


Fate = Callable[[int, Task], tuple[bool | None, bool]]
"""Whether a task passes in a step, and whether it is reflected on."""

RUN = cast(Run, SimpleNamespace(rng=random.Random))


def always(step: int, task: Task) -> tuple[bool | None, bool]:
    """Nothing ever passes, and nothing is reflected on: a buffer that no task leaves."""
    return False, False


def by_chance(seed: int, known: float = 1.0) -> Fate:
    def fate(step: int, task: Task) -> tuple[bool | None, bool]:
        chance = random.Random(f"{seed} {step} {task.id}")
        passed = chance.random() < 0.5
        return (passed if chance.random() < known else None), not passed and chance.random() < 0.7

    return fate


def drive(n: int, sample: SampleSeam, fate: Fate = always) -> list[StepReport]:
    """The steps of a run in which tasks fare so."""
    history: list[StepReport] = []
    for step, batch in enumerate(sample(make_tasks(n), history, RUN), 1):
        fates = [fate(step, task) for task in batch.tasks]
        rollouts = [attempt(task, passed) for task, (passed, _) in zip(batch.tasks, fates, strict=True)]
        lessons = [Lesson("", "x", sources=r.sources) for r, (_, told) in zip(rollouts, fates, strict=True) if told]
        history.append(report(step, rollouts, lessons, batch))
        assert len(history) < 5_000, "it does not end"
    return history


def batches(n: int, sample: SampleSeam, fate: Fate = always) -> list[Batch]:
    return [step.batch for step in drive(n, sample, fate)]


def ids(batch: Batch) -> list[str]:
    return [task.id for task in batch.tasks]


def fresh(batch: Batch) -> list[str]:
    return [id for id in ids(batch) if id not in batch.data["replayed"]]


def test_half_of_a_batch_is_replayed_as_soon_as_there_are_enough() -> None:
    found = batches(40, replayed(1, 4, 0.5))
    assert [len(b.data["replayed"]) for b in found] == [0] + [2] * 18
    assert [len(fresh(b)) for b in found] == [4] + [2] * 18
    assert [len(b.data["buffer"]) for b in found] == [0, *range(4, 40, 2)]
    assert all(b.data["rollouts"] == 4 and "why" not in b.data for b in found)


def test_a_buffer_with_too_few_tasks_is_replayed_whole() -> None:
    def one(step: int, task: Task) -> tuple[bool | None, bool]:
        return task.id != "t7", False

    found = batches(24, replayed(1, 6, 0.5), one)
    failed = next(i for i, b in enumerate(found) if "t7" in ids(b))
    assert [b.data["replayed"] for b in found] == [[]] * (failed + 1) + [["t7"]] * (len(found) - failed - 1)
    assert all(len(b.tasks) == 6 for b in found[:-1])
    assert found[-1].data["buffer"] == [{"task": "t7", "entered": failed + 1, "passes": 0, "failures": 0}]
    assert json.loads(json.dumps(found[-1].data)) == found[-1].data


@pytest.mark.parametrize(
    ("ratio", "size", "replays"),
    [(0.5, 3, 2), (0.5, 5, 3), (0.5, 1, 1), (0.25, 10, 3), (0.4, 1, 0), (0.1, 4, 0), (0, 9, 0), (1, 9, 9)],
)
def test_the_share_rounds_halves_up(ratio: float, size: int, replays: int) -> None:
    assert share(ratio, size) == replays


def test_tasks_that_left_the_buffer_are_not_replayed() -> None:
    def learned(step: int, task: Task) -> tuple[bool | None, bool]:
        return step > 1, True

    found = drive(60, replayed(1, 4, 0.5, graduate=2), learned)
    gone: dict[str, int] = {}
    for step in found:
        assert not gone.keys() & set(step.batch.data["replayed"])
        assert not gone.keys() & {row["task"] for row in step.batch.data["buffer"]}
        for row in replay_buffer((o for past in found[: step.step] for o in results_of(past)), graduate=2).values():
            if row.graduated is not None:
                gone[row.task] = row.graduated
    assert sorted(gone) == sorted(ids(found[0].batch))
    evicting = batches(60, replayed(1, 4, 0.5, evict=2), lambda step, task: (step > 1, True))
    assert evicting[-1].data["buffer"] == []


def test_each_task_once_an_epoch_and_none_twice_in_a_batch() -> None:
    found = batches(30, replayed(3, 5, 0.5), by_chance(1))
    for epoch in (1, 2, 3):
        some = [b for b in found if b.epoch == epoch]
        new = [id for b in some for id in fresh(b)]
        assert len(set(new)) == len(new)
        assert {id for b in some for id in ids(b)} >= {task.id for task in make_tasks(30)}
    assert all(len(set(ids(b))) == len(b.tasks) for b in found)
    first = [id for b in found if b.epoch == 1 for id in fresh(b)]
    assert len(first) == 30


def test_new_tasks_come_in_the_order_of_other_samplers() -> None:
    order = [id for batch in batches(30, shuffled_epochs(1, 5)) for id in ids(batch)]
    assert [id for batch in batches(30, replayed(1, 5, 0.5), by_chance(2)) for id in fresh(batch)] == order


def test_without_replay_it_is_shuffled_epochs() -> None:
    plain, same = batches(31, shuffled_epochs(3, 4)), batches(31, replayed(3, 4, 0.0))
    assert [(b.tasks, b.epoch) for b in same] == [(b.tasks, b.epoch) for b in plain]
    assert all(b.data == {"rollouts": 4, "replayed": [], "buffer": []} for b in same)
    wide = batches(31, replayed(2, 4, 0.0, rollouts=10))
    assert [len(b.tasks) for b in wide] == [10, 10, 10, 1] * 2
    assert batches(0, replayed(2, 4, 0.5)) == []


def test_replay_takes_its_share_of_the_rollout_batch() -> None:
    found = batches(60, replayed(1, 1, 0.5, rollouts=10))
    assert [len(b.data["replayed"]) for b in found] == [0] + [5] * 10
    assert all(len(b.tasks) == 10 for b in found)


def test_every_step_draws_anew_and_every_failed_task_is_drawn() -> None:
    first = {task.id for task in batches(90, shuffled_epochs(1, 6))[0].tasks}
    found = batches(90, replayed(1, 6, 0.5), lambda step, task: (task.id not in first, False))
    drawn = [tuple(b.data["replayed"]) for b in found[1:]]
    assert {id for some in drawn for id in some} == first
    assert len(set(drawn)) > len(drawn) / 2


def test_a_batch_of_one_replays_every_other_step() -> None:
    found = batches(6, replayed(1, 1, 0.5))
    assert [bool(b.data["replayed"]) for b in found] == [False] + [True, False] * 5
    assert all(len(b.tasks) == 1 for b in found)


def test_a_run_that_replays_all_it_can_ends() -> None:
    found = batches(12, replayed(2, 3, 1.0))
    assert any(not fresh(b) for b in found)
    assert all(fresh(b) or fresh(after) for b, after in pairwise(found) if b.epoch == after.epoch == 1)


def test_a_rebuild_from_the_same_history_draws_the_same() -> None:
    sample = replayed(2, 3, 0.5, "auto")
    first = drive(25, sample, by_chance(3))
    assert drive(25, sample, by_chance(3)) == first
    assert drive(25, replayed(2, 3, 0.5, "auto"), by_chance(3)) == first
    assert drive(25, sample, by_chance(4)) != first


def test_each_step_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(step: int, rollouts: Sequence[Rollout], lessons: Sequence[Lesson]) -> list[TaskResult]:
        read.append(step)
        return task_results(step, rollouts, lessons)

    monkeypatch.setattr(replay, "task_results", counted)
    found = drive(50, replayed(1, 2, 0.5))
    assert read == [step.step for step in found[:-1]]


def test_the_data_of_a_batch_holds_the_buffer() -> None:
    found = drive(40, replayed(2, 4, 0.5), by_chance(5))
    for i, step in enumerate(found):
        rows = replay_buffer(o for past in found[:i] for o in results_of(past)).values()
        inside = {row.task: row for row in rows if row.inside}
        assert {r["task"]: BufferedTask(**r) for r in step.batch.data["buffer"]} == inside
        assert set(step.batch.data["replayed"]) <= inside.keys()


SIZES = st.none() | st.just("auto") | st.integers(1, 12)


@settings(max_examples=examples(60))
@given(
    st.integers(0, 40), st.integers(1, 3), st.integers(1, 6), st.floats(0, 1), SIZES, st.integers(1, 4),
    st.integers(1, 4), st.integers(0, 99),
)  # fmt: skip
def test_laws_of_the_batches(
    n: int, epochs: int, batch: int, ratio: float, size: Any, graduate: int, evict: int, seed: int
) -> None:
    found = batches(n, replayed(epochs, batch, ratio, size, graduate, evict), by_chance(seed, known=0.8))
    assert len(found) <= 2 * n * epochs
    for b in found:
        assert 1 <= len(b.tasks) <= b.data["rollouts"]
        assert len(set(ids(b))) == len(b.tasks)
        assert ids(b)[: len(b.data["replayed"])] == b.data["replayed"]
        assert len(b.data["replayed"]) <= min(share(ratio, b.data["rollouts"]), len(b.data["buffer"]))
        assert ("why" in b.data) == (size == "auto")
    for epoch in range(1, epochs + 1):
        some = [b for b in found if b.epoch == epoch]
        new = [id for b in some for id in fresh(b)]
        assert len(set(new)) == len(new)
        assert {id for b in some for id in ids(b)} >= {task.id for task in make_tasks(n)}
        # Only the end of an epoch cuts a batch short.
        assert all(len(b.tasks) == b.data["rollouts"] for b in some[:-1])


@pytest.mark.parametrize(
    ("batch", "rate", "size"), [(1, 0.5, 3), (3, 0.5, 8), (3, 0.98, 3), (1, 0.8, 1), (3, 0.01, 30), (1, 0.2, 8)]
)
def test_as_many_tasks_as_make_the_failures_likely(batch: int, rate: float, size: int) -> None:
    assert rollouts_needed(batch, rate)[0] == size


@given(st.integers(1, 12), st.floats(0.01, 0.99))
def test_laws_of_the_size(batch: int, rate: float) -> None:
    size, chance = rollouts_needed(batch, rate)
    assert batch <= size <= MOST * batch
    assert chance >= LIKELY or size == MOST * batch
    if size > batch:
        _, one_less = _chance(batch, rate, size - 1)
        assert one_less < LIKELY
    assert _chance(batch, rate, size)[1] == pytest.approx(chance, abs=1e-9)
    assert rollouts_needed(batch, min(rate * 1.1, 0.999))[0] <= size


def _chance(batch: int, rate: float, size: int) -> tuple[int, float]:
    """The same from the definition."""
    from math import comb

    fewer = sum(comb(size, k) * rate**k * (1 - rate) ** (size - k) for k in range(batch))
    return size, 1 - fewer


def test_the_rollout_batch_follows_the_failure_rate() -> None:
    def improving(step: int, task: Task) -> tuple[bool | None, bool]:
        return step > 12, True

    found = batches(800, replayed(1, 3, 0.0, "auto"), improving)
    sizes = [len(b.tasks) for b in found]
    assert sizes[:3] == [8, 4, 3]
    assert sizes[8] == 3
    rising = sizes[12:]
    assert all(a <= b for a, b in pairwise(rising[:-1]))
    assert rising[-2] == 30
    assert found[0].data["why"] == "at least 3 failures among 8 tasks at a failure rate of 50%: a chance of 86%"
    assert found[-2].data["why"].startswith("at least 3 failures among 30 tasks at a failure rate of 2%: a chance of ")
    assert found[-2].data["why"].endswith("%, but more are never tried at once")
    single = batches(9, replayed(1, 1, 0.0, "auto"))[0].data["why"]
    assert single == "1 failure among 3 tasks at a failure rate of 50%: a chance of 88%"


def test_the_bounds_of_the_rollout_batch() -> None:
    never = batches(500, replayed(1, 4, 0.5, "auto"), lambda step, task: (True, False))
    assert {b.data["rollouts"] for b in never[8:]} == {40}
    ever = batches(500, replayed(1, 4, 0.5, "auto"), always)
    assert {b.data["rollouts"] for b in ever[15:]} == {4}
    assert len(batches(5, replayed(1, 3, 0.5, "auto"))[0].tasks) == 5


def test_an_attempt_whose_outcome_is_unknown_does_not_count_in_the_rate() -> None:
    unknown = batches(100, replayed(1, 3, 0.5, "auto"), lambda step, task: (None, False))
    assert {b.data["rollouts"] for b in unknown} == {8}


def test_a_group_with_one_failed_run_can_be_reflected_on() -> None:
    history: list[StepReport] = []
    steps = replayed(1, 1, 0.5, "auto")(make_tasks(9), history, RUN)
    first = next(steps)
    history.append(report(1, [attempt(task, True, False) for task in first.tasks], batch=first))
    second = next(steps)
    assert "at a failure rate of 80%" in second.data["why"]
    assert second.data["buffer"] == []


def test_invalid_settings_are_refused() -> None:
    for wrong in (
        {"epochs": 0}, {"batch": 0}, {"ratio": -0.1}, {"ratio": 1.1}, {"graduate": 0}, {"evict": 0},
        {"rollouts": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="at least 1"):
            replayed(**{"epochs": 1, "batch": 1, "ratio": 0.5, **wrong})  # type: ignore[arg-type]


def test_a_resume_draws_the_same(tmp_path: Path) -> None:
    made = method(sample=replayed(2, 3, 0.5, "auto"))
    first = steps(tmp_path / "run", client(), made, n=20)
    model = client()
    again = steps(tmp_path / "run", model, made, n=20)
    assert [r.batch for r in again] == [r.batch for r in first]
    assert any(r.batch.data["replayed"] for r in first)
    assert not model.calls


KEYS = {"task", "entered", "passes", "failures", "graduated", "evicted"}
LIGHT: dict[str, Any] = {
    "heads": False, "twin": False, "state": False, "group": 1, "rollouts": 6, "batch": 2, "curator": "append",
}  # fmt: skip
"""RCL with replay alone. Every lesson becomes an entry, so that the agent reads something new in every step."""


def often(call: Call) -> str | Exception:
    """The agent is right about every other time."""
    if call.role == "agent":
        return call.prompt.user.split()[-1] if number_of(call.text) % 10 < 5 else "no"
    return world(call)


def trained(folder: Path, **how: Any) -> list[StepReport]:
    """The steps of a run of the method `rcl` in a folder. A run that is there is resumed."""
    watch = Learned(client(often), folder)
    parts = Parts(clients={"agent": watch.model})
    if folder.exists():
        practicum.run_sync(resume(folder, parts=parts, watch=watch, **how))
    else:
        how = {"method": "rcl", "settings": LIGHT, **how}
        practicum.run_sync(learn(make_tasks(24), out=folder, parts=parts, watch=watch, **how))
    return watch.reports


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`practicum show` in the folder of the test."""

    def go(*arguments: object, code: int = 0) -> Done:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as end:
            main(["show", *map(str, arguments)])
        assert end.value.code == code
        return Done(code, *capsys.readouterr())

    return go


def rows_of(done: Done) -> list[dict[str, Any]]:
    found = done.json["replay"]
    assert all(set(row) == KEYS for row in found)
    return cast(list[dict[str, Any]], found)


@pytest.mark.slow
def test_show_prints_the_buffer_of_a_run(tmp_path: Path, show: Callable[..., Done]) -> None:
    found = trained(tmp_path / "run", settings={**LIGHT, "epochs": 3, "group": 2, "graduate": 2, "evict": 2})
    rows = rows_of(show("run", "--replay", "--json"))
    expected = replay_buffer((o for step in found for o in results_of(step)), graduate=2, evict=2)
    assert {row["task"]: BufferedTask(**row) for row in rows} == expected
    inside = [row["graduated"] is None and row["evicted"] is None for row in rows]
    assert inside == sorted(inside, reverse=True)
    assert 0 < sum(inside) < len(rows)
    assert any(row["graduated"] for row in rows)
    assert any(row["evicted"] for row in rows)
    out = show("run", "--replay").out
    assert all(word in out for word in (*KEYS, "in the buffer", "graduated"))
    assert all(row["task"] in out for row in rows)


def test_show_prints_the_buffer_of_an_interrupted_run_and_a_resume_continues_it(
    tmp_path: Path, show: Callable[..., Done]
) -> None:
    whole = trained(tmp_path / "whole")
    half = trained(tmp_path / "run", max_calls=40)
    assert 1 < len(half) < len(whole)
    expected = replay_buffer(o for step in half for o in results_of(step))
    assert {row["task"]: BufferedTask(**row) for row in rows_of(show("run", "--replay", "--json"))} == expected
    again = trained(tmp_path / "run", max_calls=9_999)
    assert [step.batch for step in again] == [step.batch for step in whole]
    assert rows_of(show("run", "--replay", "--json")) == rows_of(show("whole", "--replay", "--json"))


def test_without_a_failure_the_buffer_is_empty(tmp_path: Path, show: Callable[..., Done]) -> None:
    parts = Parts(clients={"agent": client(lambda call: call.prompt.user.split()[-1])})
    practicum.run_sync(learn(make_tasks(4), out=tmp_path / "run", parts=parts, method="rcl", settings=LIGHT))
    assert rows_of(show("run", "--replay", "--json")) == []
    assert "no task has failed" in show("run", "--replay").out


def test_show_of_a_run_without_replay_says_how_to_switch_it_on(tmp_path: Path, show: Callable[..., Done]) -> None:
    trained(tmp_path / "off", settings={**LIGHT, "replay": 0})
    assert show("off", "--replay", code=2).line.endswith("learn with --set replay=0.5")
    create_seed(tmp_path / "none", Context())
    said = show("none", "--replay", code=2).line
    assert said.endswith("(method none): learn with --method rcl, or --method ace with --set replay=0.5")


def test_the_buffer_is_not_shown_together_with_other_views(tmp_path: Path, show: Callable[..., Done]) -> None:
    create_seed(tmp_path / "run", Context())
    for other in (("--version", 1), ("--entry", "e1"), ("--output", "o.png")):
        assert f"{other[0]} " in show("run", "--replay", *other, code=2).line
