"""Sampling: laws of the replay buffer, of batches and their sizes, and of the batch size chosen from delays."""

from __future__ import annotations

import json
import random
from math import comb
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers import make_tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.core.context import Context
from practicum.core.types import Attempt, Feedback, Lesson, Trace
from practicum.engine.loop import Batch, SampleSeam, StepReport
from practicum.engine.run import Run
from practicum.methods.blocks.sample import (
    LIKELY,
    MOST,
    DelayFit,
    Point,
    TaskResult,
    attempts_needed,
    candidates,
    fit_delay,
    replay_buffer,
    replayed,
    share,
)

MARKS: dict[str, tuple[bool | None, bool]] = {
    "P": (True, False), "F": (False, True), "f": (False, False), "-": (None, False),
}  # fmt: skip


@given(st.text("PFf-", max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_laws_of_the_buffer(marks: str, graduate: int, evict: int) -> None:
    outcomes = [TaskResult(step, "t", *MARKS[mark]) for step, mark in enumerate(marks, 1)]
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


RUN = cast(Run, SimpleNamespace(rng=random.Random))


def batches(n: int, sample: SampleSeam, seed: int) -> list[Batch]:
    """The batches of a run in which chance decides which tasks pass, are not scored, or are reflected on."""
    history: list[StepReport] = []
    for step, batch in enumerate(sample(make_tasks(n), history, RUN), 1):
        attempts, lessons = list[Attempt](), list[Lesson]()
        for task in batch.tasks:
            chance = random.Random(f"{seed} {step} {task.id}")
            passed = chance.random() < 0.5
            feedback = Feedback(passed if chance.random() < 0.8 else None, "")
            attempts.append(Attempt(task, Trace(""), None, feedback, f"attempt/{task.id}"))
            if not passed and chance.random() < 0.7:
                lessons.append(Lesson("", "x", sources=attempts[-1].sources))
        history.append(StepReport(step, batch, tuple(attempts), tuple(lessons), Context(), (), (), (), None))
        assert len(history) < 5_000, "it does not end"
    return [report.batch for report in history]


def ids(batch: Batch) -> list[str]:
    return [task.id for task in batch.tasks]


SIZES = st.none() | st.just("auto") | st.integers(1, 12)


@settings(max_examples=examples(60))
@given(
    st.integers(0, 40), st.integers(1, 3), st.integers(1, 6), st.floats(0, 1), SIZES, st.integers(1, 4),
    st.integers(1, 4), st.integers(0, 99),
)  # fmt: skip
def test_laws_of_the_batches(
    n: int, epochs: int, batch: int, ratio: float, size: Any, graduate: int, evict: int, seed: int
) -> None:
    taken = batches(n, replayed(epochs, batch, ratio, size, graduate, evict), seed)
    assert len(taken) <= 2 * n * epochs
    for b in taken:
        assert 1 <= len(b.tasks) <= b.data["attempted"]
        assert len(set(ids(b))) == len(b.tasks)
        assert ids(b)[: len(b.data["replayed"])] == b.data["replayed"]
        assert len(b.data["replayed"]) <= min(share(ratio, b.data["attempted"]), len(b.data["buffer"]))
        assert ("why" in b.data) == (size == "auto")
    for epoch in range(1, epochs + 1):
        some = [b for b in taken if b.epoch == epoch]
        new = [id for b in some for id in ids(b) if id not in b.data["replayed"]]
        assert len(set(new)) == len(new)
        assert {id for b in some for id in ids(b)} >= {task.id for task in make_tasks(n)}
        # Only the end of an epoch cuts a batch short.
        assert all(len(b.tasks) == b.data["attempted"] for b in some[:-1])


@given(st.integers(1, 12), st.floats(0.01, 0.99))
def test_laws_of_the_size(batch: int, rate: float) -> None:
    size, chance = attempts_needed(batch, rate)
    assert batch <= size <= MOST * batch
    assert chance >= LIKELY or size == MOST * batch
    if size > batch:
        assert _chance(batch, rate, size - 1) < LIKELY
    assert _chance(batch, rate, size) == pytest.approx(chance, abs=1e-9)
    assert attempts_needed(batch, min(rate * 1.1, 0.999))[0] <= size


def _chance(batch: int, rate: float, size: int) -> float:
    """The same from the definition."""
    return 1 - sum(comb(size, k) * rate**k * (1 - rate) ** (size - k) for k in range(batch))


# ---- the delay curve


def test_too_few_measurements_for_a_curve() -> None:
    for points, chosen in (
        ([], 10), ([Point(40, 3.0), Point(40, 3.1)], 40), ([Point(400, 3.0)], 100),
        ([Point(99, 1e-3), Point(100, 1e3)], 10),
    ):  # fmt: skip
        fit = fit_delay(points, 1_000)
        assert (fit.chosen, bool(fit.why), fit.alpha) == (chosen, True, None)
        with pytest.raises(ValueError, match="at least two batch sizes"):
            fit.curve(10)


def test_a_larger_batch_is_only_chosen_if_it_clearly_shortens_an_epoch() -> None:
    unclear, clear = (
        fit_delay([Point(10 * 2**n, seconds) for n, seconds in enumerate(times)], 1_000, 10, 200)
        for times in ((10.0, 14.0, 40.0, 50.0), (10.0, 11.0, 12.5, 14.0))
    )
    assert (unclear.alpha, unclear.chosen) == (pytest.approx(0.152, abs=1e-3), 10)
    assert (clear.alpha, clear.chosen) == (pytest.approx(0.836, abs=1e-3), 51)


measured = st.lists(
    st.builds(Point, st.integers(1, 200), st.floats(1e-6, 1e6) | st.sampled_from([0.0, -1.0, float("nan")])),
    max_size=30,
)


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 300))
def test_the_sizes_to_try_double_and_take_at_most_half_of_the_tasks(tasks: int, first: int, most: int) -> None:
    sizes = candidates(tasks, first, most)
    assert sizes == [sizes[0] * 2**n for n in range(len(sizes))]
    assert sizes[-1] <= min(max(1, tasks // 4), most)
    assert sum(sizes) <= max(1, tasks / 2)


@given(measured, st.integers(1, 20), st.integers(0, 200), st.floats(0.01, 0.9))
def test_the_choice_is_allowed_explained_and_survives_json(
    points: list[Point], b_min: int, room: int, tau: float
) -> None:
    fit = fit_delay(points, 1_000, b_min, b_min + room, tau)
    assert b_min <= fit.chosen <= b_min + room
    assert fit.why
    assert len(fit.points) + len(fit.outliers) + fit.left_out == len(points)
    assert DelayFit.from_json(json.loads(json.dumps(fit.as_json(), allow_nan=False))) == fit


@settings(max_examples=examples(50))
@given(st.integers(0, 1_000), st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_change_the_choice(seed: int, unit: float) -> None:
    """Iterations on 1,000 tasks, whose epochs take 3,000 · b^-0.7 s except for the noise."""
    rng = random.Random(seed)
    points = [Point(b, 3.0 * b**0.3 * rng.lognormvariate(0, 0.3)) for b in (10, 20, 40, 80, 50, 50)]
    other = [Point(p.batch, p.seconds * unit) for p in points]
    assert fit_delay(other, 1_000).chosen == fit_delay(points, 1_000).chosen
