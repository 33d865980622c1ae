"""What came of one run of a comparison, read from the run's own folder, and kept beside it once the run is over.

Three times are told, since runs side by side share machines and limits, so that how long one took says little:

    wall      from its start to its end, with all that went on beside it
    work      what its calls took, added up: with one call at a time it cannot go faster
    critical  what those calls took of which each waited for the one before: it never can

Alone with c calls at once it takes at most critical + (work - critical) / c (Brent 1974), which is `alone`. What others
did to the speed of a call is in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import select

from practicum.analysis.compare.plan import Planned
from practicum.core.errors import PracticumError, StoreError
from practicum.core.files import write_atomic
from practicum.core.types import Usage
from practicum.session.learn import GO_ON
from practicum.session.records import RUN, step_data
from practicum.store import schema
from practicum.store.database import DATABASE_FILE, Store
from practicum.store.journal import Journal

if TYPE_CHECKING:
    from practicum.session.result import Result

MEASURED = "measured.json"
TEST = "evaluate test "
"""Begins the places of the final evaluation."""


class Point(BaseModel):
    """One step: training tasks tried so far, their score in this step, tokens of the context after it, and the score on
    the validation tasks where it was taken."""

    model_config = ConfigDict(frozen=True)

    tasks: int
    tried: int
    score: float
    tokens: int
    val: float | None = None


class Spent(BaseModel):
    """What calls cost; `usd` is None where a price is unknown. `work` in seconds."""

    model_config = ConfigDict(frozen=True)

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    work: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Outcome(BaseModel):
    """What came of one run. `by_task` has its scores on the tasks that count; `learning` and `testing` what each cost,
    `by_role` what each role cost in both; `stopped` why it ended early (a spent budget), `failed` why there is no
    score."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    by_task: dict[str, float] = Field(default_factory=dict)
    learning: Spent = Spent()
    testing: Spent = Spent()
    by_role: dict[str, Usage] = Field(default_factory=dict)
    at_once: int = 1
    wall: float = 0.0
    critical: float | None = None
    context_tokens: int = 0
    entries: int = 0
    steps: int = 0
    refused: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    curve: list[Point] = Field(default_factory=list)
    stopped: str | None = None
    failed: str | None = None

    @property
    def score(self) -> float | None:
        """Mean over the tasks."""
        return sum(self.by_task.values()) / len(self.by_task) if self.by_task else None

    @property
    def work(self) -> float:
        return self.learning.work + self.testing.work

    @property
    def alone(self) -> float:
        """Seconds it takes at most with nothing beside it."""
        critical = self.work if self.critical is None else self.critical
        return critical + max(self.work - critical, 0.0) / self.at_once


def finished(path: Path) -> Outcome | None:
    """What was kept of a run that is over; None where it is not. Raises StoreError where it cannot be read."""
    file = path / MEASURED
    if not file.exists():
        return None
    try:
        return Outcome.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise StoreError(
            f"cannot read {file}: delete it, and the run is measured again without paying for it"
        ) from error


def keep(outcome: Outcome, path: Path) -> None:
    """Write down what came of a run: from now on it is over."""
    write_atomic(path / MEASURED, outcome.model_dump_json())


def measured(run: Planned, path: Path, result: Result, by_task: dict[str, float], at_once: int) -> Outcome:
    """What came of a run that went to its end."""
    made = result.as_json()
    early = f"{result.stopped}, before every task was scored" if result.stopped else "no task could be scored"
    return Outcome(
        variant=run.variant.name, seed=run.seed, by_task=by_task, at_once=at_once, **_written(path)._asdict(),
        wall=result.seconds, critical=result.critical, context_tokens=made["context_tokens"],
        entries=len(result.context), steps=result.steps, refused=result.refused, errors=result.errors,
        stopped=result.stopped, failed=None if by_task else early,
    )  # fmt: skip


def lost(run: Planned, path: Path, error: Exception, at_once: int) -> Outcome:
    """What came of a run that broke off: why, and what it had cost until then."""
    # How a single run would be gone on with is not how this one is.
    known = str(error).partition(GO_ON)[0]
    why = known if isinstance(error, PracticumError) else f"{type(error).__name__}: {error}"
    try:
        written = _written(path) if (path / DATABASE_FILE).is_file() else _Written()
    except PracticumError:
        # What broke it off may be that very file.
        written = _Written()
    return Outcome(variant=run.variant.name, seed=run.seed, failed=why, at_once=at_once, **written._asdict())


class _Written(NamedTuple):
    """What a run wrote down of its costs and its course, in the fields of an outcome."""

    learning: Spent = Spent()
    testing: Spent = Spent()
    by_role: Mapping[str, Usage] = MappingProxyType({})
    curve: Sequence[Point] = ()


def _written(path: Path) -> _Written:
    table = schema.journal.c
    columns = (
        table.place, table.calls, table.input_tokens, table.cached_tokens, table.output_tokens, table.usd,
        table.seconds,
    )  # fmt: skip
    parts = {True: Usage(), False: Usage()}
    work = {True: 0.0, False: 0.0}
    with Store.read(path) as store:
        for row in store.rows(select(*columns)):
            testing = row.place.startswith(TEST)
            work[testing] += row.seconds
            if row.calls:
                parts[testing] += Usage(*row[1:6])
        by_role, curve = Journal(store, RUN).by_role(), _curve(store)
    return _Written(_spent(parts[False], work[False]), _spent(parts[True], work[True]), by_role, curve)


def _spent(usage: Usage, work: float) -> Spent:
    return Spent(
        calls=usage.calls, input_tokens=usage.input_tokens, cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens, usd=usage.usd, work=work,
    )  # fmt: skip


def _curve(store: Store) -> list[Point]:
    points: list[Point] = []
    done = 0
    for step in step_data(store):
        tried = len(step["tasks"])
        done += tried
        points.append(Point(tasks=done, tried=tried, score=step["score"], tokens=step["tokens"], val=step["val"]))
    return points
