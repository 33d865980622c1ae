"""Runs of practicum: the attempts of their tasks, as they were made and scored.

Targets, scores and the tasks' own meta are kept. A task that was tried again (in another epoch or group) is another
trace of the same task, whose `meta.own_id` names it. Attempts that were lost to the provider have nothing to teach:
they are told, not read. Where an attempt stood for another that was not made, there is one trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from sqlalchemy import select

from practicum.core.errors import StoreError
from practicum.core.types import Rollout
from practicum.store import schema
from practicum.store.database import Store
from practicum.tasks.traces.trace import Found, Notes, Place, text_of

_ROLLOUT: TypeAdapter[Rollout] = TypeAdapter(Rollout)


def read(folder: Path, notes: Notes) -> Iterator[Found]:
    """The attempts of a run folder, in the order of its steps."""
    table = schema.rollouts
    try:
        with Store.read(folder) as store:
            known = _settings(store)
            rows = store.rows(select(table).order_by(table.c.step, table.c.place))
    except StoreError as error:
        notes.add(f"not a run that can be read: {error}")
        return
    if not rows:
        notes.add("a run without an attempt")
    for row in rows:
        try:
            rollout = _ROLLOUT.validate_json(row.data)
        except ValidationError as error:
            notes.add("an attempt that cannot be read", detail=f"{row.place}: {error.errors()[0]['msg']}")
            continue
        if rollout.of:
            continue
        if rollout.trace.lost:
            notes.add("an attempt that was lost to the provider or could not be read")
            continue
        yield _found(rollout, {**known, "step": row.step, "place": row.place})


def _found(rollout: Rollout, meta: dict[str, Any]) -> Found:
    task = rollout.task
    return Found(Place(), task.id, task.input, rollout.trace, rollout.score, task.target, {**task.meta, **meta})


def _settings(store: Store) -> dict[str, Any]:
    """What the run was made with."""
    found = store.rows(select(schema.runs.c.config))
    config = from_json(found[0].config) if found else {}
    return {key: value for key in ("method", "model") if (value := text_of(config, key))}
