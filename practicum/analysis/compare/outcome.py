"""The outcome of one run of a comparison, read from the run's folder and kept beside it once the run is over.

Runs side by side share machines and limits, so how long one took says little. Three times are measured:

    wall      from start to end, with everything that went on beside it
    work      the durations of its calls, added up: with one call at a time it cannot be faster
    critical  the longest chain of calls that each waited for the one before: it can never be faster

With c calls at once and nothing beside it, a run takes at most critical + (work - critical) / c (Brent 1974). This is
`alone`. Other runs can still have slowed single calls, which all three times include.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import select

from practicum.analysis.compare.plan import PlannedRun
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

OUTCOME_FILE = "measured.json"

TEST_PREFIX = "evaluate test "
"""How the places of the final evaluation begin."""


class CurvePoint(BaseModel):
    """One step of training: tasks tried so far, tasks tried in this step and their mean score, tokens of the context
    afterwards, and the score on the validation tasks where it was measured."""

    model_config = ConfigDict(frozen=True)

    tasks: int
    tried: int
    score: float
    tokens: int
    val: float | None = None


class RunCost(BaseModel):
    """The cost of some calls: `usd` is None where a price is unknown, `work` is in seconds."""

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


class RunOutcome(BaseModel):
    """The outcome of one run.

    `by_task` has the scores that count, by task id. `learning` and `testing` are the costs of the two stages, `by_role`
    those of each role in both. `stopped` says why the run ended early (a spent budget), `failed` why it has no score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    by_task: dict[str, float] = Field(default_factory=dict)
    learning: RunCost = RunCost()
    testing: RunCost = RunCost()
    by_role: dict[str, Usage] = Field(default_factory=dict)
    at_once: int = 1
    wall: float = 0.0
    critical: float | None = None
    context_tokens: int = 0
    entries: int = 0
    steps: int = 0
    refused: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    curve: list[CurvePoint] = Field(default_factory=list)
    stopped: str | None = None
    failed: str | None = None

    @property
    def score(self) -> float | None:
        """The mean over the tasks."""
        return sum(self.by_task.values()) / len(self.by_task) if self.by_task else None

    @property
    def work(self) -> float:
        return self.learning.work + self.testing.work

    @property
    def alone(self) -> float:
        """The most seconds that the run takes with nothing beside it."""
        critical = self.work if self.critical is None else self.critical
        return critical + max(self.work - critical, 0.0) / self.at_once


def read_outcome(path: Path) -> RunOutcome | None:
    """The outcome kept in a run's folder, or None where the run is not over. Raises StoreError for a damaged file."""
    file = path / OUTCOME_FILE
    if not file.exists():
        return None
    try:
        return RunOutcome.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise StoreError(
            f"cannot read {file}: delete it, and the run is measured again without paying for it"
        ) from error


def save_outcome(outcome: RunOutcome, path: Path) -> None:
    """Write the outcome into the run's folder; from now on the run is over."""
    write_atomic(path / OUTCOME_FILE, outcome.model_dump_json())


def completed_outcome(
    run: PlannedRun, path: Path, result: Result, by_task: dict[str, float], at_once: int
) -> RunOutcome:
    """The outcome of a run that came to its end."""
    early = f"{result.stopped}, before every task was scored" if result.stopped else "no task could be scored"
    return RunOutcome(
        variant=run.variant.name, seed=run.seed, by_task=by_task, at_once=at_once, **_stored_parts(path)._asdict(),
        wall=result.seconds, critical=result.critical, context_tokens=result.as_json()["context_tokens"],
        entries=len(result.context), steps=result.steps, refused=result.refused, errors=result.errors,
        stopped=result.stopped, failed=None if by_task else early,
    )  # fmt: skip


def failed_outcome(run: PlannedRun, path: Path, error: Exception, at_once: int) -> RunOutcome:
    """The outcome of a run that an error ended: why, and what it had cost until then."""
    # The advice on how to continue a single run does not apply here.
    message = str(error).partition(GO_ON)[0]
    why = message if isinstance(error, PracticumError) else f"{type(error).__name__}: {error}"
    try:
        stored = _stored_parts(path) if (path / DATABASE_FILE).is_file() else _StoredParts()
    except PracticumError:
        # The error may be about this very file.
        stored = _StoredParts()
    return RunOutcome(variant=run.variant.name, seed=run.seed, failed=why, at_once=at_once, **stored._asdict())


class _StoredParts(NamedTuple):
    """The fields of an outcome that are read from the run's database."""

    learning: RunCost = RunCost()
    testing: RunCost = RunCost()
    by_role: Mapping[str, Usage] = MappingProxyType({})
    curve: Sequence[CurvePoint] = ()


def _stored_parts(path: Path) -> _StoredParts:
    table = schema.journal.c
    columns = (
        table.place, table.calls, table.input_tokens, table.cached_tokens, table.output_tokens, table.usd,
        table.seconds,
    )  # fmt: skip
    usage = {True: Usage(), False: Usage()}
    work = {True: 0.0, False: 0.0}
    with Store.read(path) as store:
        for row in store.rows(select(*columns)):
            testing = row.place.startswith(TEST_PREFIX)
            work[testing] += row.seconds
            if row.calls:
                usage[testing] += Usage(*row[1:6])
        by_role, steps = Journal(store, RUN).by_role(), step_data(store)
    tried, curve = 0, []
    for step in steps:
        tried += len(step["tasks"])
        curve.append(
            CurvePoint(
                tasks=tried, tried=len(step["tasks"]), score=step["score"], tokens=step["tokens"], val=step["val"]
            )
        )
    return _StoredParts(_cost(usage[False], work[False]), _cost(usage[True], work[True]), by_role, curve)


def _cost(usage: Usage, work: float) -> RunCost:
    return RunCost(
        calls=usage.calls, input_tokens=usage.input_tokens, cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens, usd=usage.usd, work=work,
    )  # fmt: skip
