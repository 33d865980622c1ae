"""Which tasks come next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from practicum.core.types import Task
from practicum.engine.loop import Batch, History, Sample
from practicum.engine.run import Run


def shuffled_epochs(epochs: int, batch: int) -> Sample:
    """All tasks, `epochs` times, each time in another order; `batch` tasks a step."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for epoch in range(1, epochs + 1):
            order = list(tasks)
            run.rng(f"epoch {epoch}").shuffle(order)
            yield from _cut(order, batch, epoch, epochs)

    return sample


def stream(batch: int) -> Sample:
    """Tasks in the order they come, once: online learning, where each is predicted before it is learned from."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        yield from _cut(tasks, batch)

    return sample


def batches(online: bool, epochs: int, batch: int) -> Sample:
    """A stream, or shuffled epochs: what most methods can be set to."""
    return stream(batch) if online else shuffled_epochs(epochs, batch)


def everything() -> Sample:
    """One step with all tasks."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        if tasks:
            yield Batch(tuple(tasks), steps=1)

    return sample


def nothing() -> Sample:
    """No step at all: for the agent without learning."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        return iter(())

    return sample


def _cut(order: Sequence[Task], batch: int, epoch: int = 1, epochs: int = 1) -> Iterator[Batch]:
    starts = range(0, len(order), batch)
    for start in starts:
        yield Batch(tuple(order[start : start + batch]), epoch, steps=epochs * len(starts))
