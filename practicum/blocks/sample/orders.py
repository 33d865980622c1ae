"""Plain orders of the tasks: shuffled epochs, a stream, all at once, none."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import replace
from itertools import islice

from practicum.core.types import Task
from practicum.engine.loop import Batch, History, SampleSeam
from practicum.engine.run import Run
from practicum.tasks.stored import picked


def shuffled_epochs(epochs: int, batch: int) -> SampleSeam:
    """Go through all tasks `epochs` times, shuffled anew each time by the run's seed; each step takes `batch` tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for epoch in range(1, epochs + 1):
            yield from _cut(shuffled(tasks, epoch, run), batch, epoch, epochs)

    return sample


def stream(batch: int) -> SampleSeam:
    """Go through the tasks once, in the order given; each step takes `batch` tasks. This is online learning: each task
    is predicted before it is learned from."""
    return lambda tasks, history, run: _cut(tasks, batch)


def batches(online: bool, epochs: int, batch: int) -> SampleSeam:
    """Return `stream(batch)` for online learning, else `shuffled_epochs(epochs, batch)`."""
    return stream(batch) if online else shuffled_epochs(epochs, batch)


ENDLESS = 10**9
"""So many epochs that `first_steps` ends the learning."""


def first_steps(sample: SampleSeam, steps: int) -> SampleSeam:
    """The first `steps` batches of an order, each of which says how many there are. Without tasks there is none."""

    def first(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for batch in islice(sample(tasks, history, run), steps if tasks else 0):
            yield replace(batch, steps=steps)

    return first


def drawn(steps: int, most: int, anew: bool) -> SampleSeam:
    """Up to `most` tasks in each of `steps` steps, drawn by the run's seed: anew in each step, or always the same."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for step in range(1, steps + 1 if tasks else 1):
            yield Batch(tuple(shuffled(tasks, step if anew else 1, run)[:most]), steps=steps)

    return sample


def everything(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
    """Take all tasks in one step. Without tasks there is no step."""
    if tasks:
        yield Batch(tuple(tasks), steps=1)


def nothing(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
    """Make no step at all: the agent without learning."""
    return iter(())


def shuffled(tasks: Sequence[Task], epoch: int, run: Run) -> Sequence[Task]:
    """The tasks in the order of this epoch, which follows from the run's seed alone. All samplers share it. Tasks of a
    store are not read before they are taken."""
    return picked(tasks, shuffled_indices(tasks, epoch, run))


def shuffled_indices(tasks: Sequence[Task], epoch: int, run: Run) -> MutableSequence[int]:
    """The indices of the tasks in the order of `shuffled`."""
    order = array("q", range(len(tasks)))
    run.rng(f"epoch {epoch}").shuffle(order)
    return order


def _cut(order: Sequence[Task], batch: int, epoch: int = 1, epochs: int = 1) -> Iterator[Batch]:
    starts = range(0, len(order), batch)
    for start in starts:
        yield Batch(tuple(order[start : start + batch]), epoch, steps=epochs * len(starts))
