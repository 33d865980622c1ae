"""A run, watched: everything the specification of the unified learner asks to be tracked, for a run of any method.

(METHODS, section 5: memory growth and retrieval relevance, context size and drift, success, steps and latency, quality
signals, tokens and cost, learning curves by domain.) All is read from what the run stored, also while it works; only
judging again asks a model. What a method does not have is left out and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from practicum import methods
from practicum.analysis.monitor import attempts, costs, course
from practicum.analysis.monitor.judging import judged_again
from practicum.analysis.monitor.series import Part, rounded
from practicum.core.errors import UsageError
from practicum.methods.remembering import Remembering
from practicum.session.components import Parts
from practicum.session.config import Config
from practicum.session.records import RUN, read_run, step_data, step_records
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.versions import read_versions


@dataclass(frozen=True)
class Report:
    """A run as it stands. `parts` by name, those that there are; `steps` are the numbers of the steps, to which each
    column belongs; `ended` says when each was done (seconds since 1970); `notes` what to know of what is left out."""

    run: Path
    method: str
    model: str
    state: str
    steps: tuple[int, ...]
    parts: Mapping[str, Part]
    ended: Mapping[int, float]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        about = {"run": str(self.run), "method": self.method, "model": self.model, "state": self.state}
        parts = {name: part.as_json() for name, part in self.parts.items()}
        return {**about, "steps": list(self.steps), **_shortened(parts), "notes": list(self.notes)}


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(inner) for inner in value]
    return rounded(value) if isinstance(value, float) else value


async def monitor(
    run: Path | str,
    *,
    judge_again: int | None = None,
    seed: int = 0,
    parts: Parts | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Report:
    """Everything watched of a run, which may still be at work.

    `judge_again` shows so many of its attempts to its judge once more, drawn by `seed`, within `limits` (max_calls,
    max_tokens, max_usd, max_minutes); it is the only thing that costs. `parts` are those the run was made with. Raises
    StoreError where there is no run, UsageError where it has no steps yet or no verdict to judge again.
    """
    if judge_again is not None and judge_again < 1:
        raise UsageError(f"judge_again={judge_again}: at least one attempt has to be judged again")
    folder, parts = Path(run), parts or Parts()
    with Store.read(folder) as store:
        return await _report(store, folder, judge_again, seed, parts, limits or {})


async def _report(
    store: Store, folder: Path, again: int | None, seed: int, parts: Parts, limits: Mapping[str, Any]
) -> Report:
    config, _, state = read_run(store)
    numbers, steps = _steps(store)
    if not steps:
        raise UsageError(f"{folder} has no steps yet, so there is nothing to watch: see practicum show {folder}")
    known = dict.fromkeys(numbers)
    records = {step: rollouts for step, rollouts, _ in step_records(store) if step in known}
    tried = [(step, records.get(step, [])) for step in numbers]
    fresh, calls = attempts.made(tried), costs.read_calls(store)
    marks = attempts.Marks.of(tried)
    remembers = issubclass(methods.settings_of(config.method), Remembering)
    found: dict[str, Part | None] = {
        "success": attempts.success(tried, marks),
        "learning": attempts.learning(tried, marks),
        "retrieval": attempts.retrieval(fresh, cites=config.asks and remembers),
        "contrast": attempts.contrast(fresh),
        "agent": attempts.actions(fresh),
        "latency": costs.latency(calls, remembers, tried, steps),
        "tokens": costs.tokens(calls, tried, steps),
    }
    notes: list[str] = []
    found["memory"], found["context"] = await _walked(store, steps, parts, notes)
    found["judge"] = await _judge(fresh, calls, config, again, seed, parts, limits, notes)
    order = ("success", "learning", "memory", "retrieval", "context", "contrast", "judge", "agent", "latency", "tokens")
    there = {name: part for name in order if (part := found[name]) is not None}
    return Report(
        folder, config.method, config.model, state, tuple(numbers), there, costs.read_ends(store), tuple(notes)
    )


def _steps(store: Store) -> tuple[list[int], list[dict[str, Any]]]:
    """The numbers of the steps and what each said of itself."""
    table = schema.steps
    rows = store.rows(select(table.c.step).where(table.c.run_id == RUN).order_by(table.c.step))
    data = step_data(store)
    # Another step may have come between the two looks at a run at work.
    return [row.step for row in rows][: len(data)], data[: len(rows)]


async def _walked(
    store: Store, steps: list[dict[str, Any]], parts: Parts, notes: list[str]
) -> tuple[Part | None, Part]:
    changes = list(course.changes(read_versions(store, RUN)))
    texts = course.texts_of(changes)
    vectors = await course.vectors_of(store, texts, parts.embedder)
    if missing := len(texts) - len(vectors):
        notes.append(
            f"{missing:,} of {len(texts):,} entries have no vector in the store and no part in drift and coherence: "
            "making vectors would cost"
        )
    return course.walked(changes, steps, vectors)


async def _judge(
    tried: attempts.Tried,
    calls: list[costs.Call],
    config: Config,
    again: int | None,
    seed: int,
    parts: Parts,
    limits: Mapping[str, Any],
    notes: list[str],
) -> Part | None:
    """The judge against the scorer, and against itself. A judge that scores is watched by its scores."""
    found = list(attempts.judged(tried, costs.verdict_places(calls)))
    numbers: dict[str, Any] = {}
    if (compared := attempts.against_scorer(found)) is not None:
        numbers["against_scorer"] = compared
    told = not found and config.scorer == "judge"
    found = attempts.scored(tried) if told else found
    if again is not None:
        numbers["again"] = await judged_again(found, again, config, told=told, seed=seed, parts=parts, limits=limits)
    elif found:
        notes.append(f"whether the judge says the same twice is left out: --judge-again N asks it, N of {len(found):,}")
    return Part(numbers) if numbers else None


__all__ = ["Part", "Report", "monitor"]
