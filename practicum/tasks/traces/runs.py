"""Runs of practicum: the recorded attempts with their scores.

Targets, scores and the tasks' own meta are kept. If a task was attempted several times, for example in several epochs,
each attempt is a separate trace. From the second attempt on, `meta.own_id` is the id of the task. Attempts lost to
provider errors are reported as problems, because nothing can be learned from them. An attempt that reuses an earlier
attempt (`Attempt.of`) is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from practicum.core.errors import StoreError
from practicum.core.types import Attempt, Recorded, Task
from practicum.store import schema
from practicum.store.database import Store
from practicum.tasks.traces.fields import text_at
from practicum.tasks.traces.trace import RecordPlace, Source, nonempty_values

_ATTEMPT: TypeAdapter[Attempt] = TypeAdapter(Attempt)


def read(source: Source) -> Iterator[Task]:
    """Yield the attempts of a run folder, in the order of its steps."""
    table, warn = schema.attempts, RecordPlace(source).warn
    try:
        with Store.read(Path(source.path)) as store:
            configs = store.rows(store.select(schema.spaces.c.config))
            config = from_json(configs[0].config) if configs and configs[0].config else {}
            rows = store.rows(store.select(table).order_by(table.c.step, table.c.place))
    except StoreError as error:
        warn(f"the run cannot be read: {error}")
        return
    settings = nonempty_values({key: text_at(config, key) for key in ("method", "model")})
    if not rows:
        warn("a run without attempts")
    for row in rows:
        try:
            attempt = _ATTEMPT.validate_json(row.data)
        except ValidationError as error:
            warn("an attempt that cannot be read", f"{row.place}: {error.errors()[0]['msg']}")
            continue
        if attempt.of:
            continue
        if attempt.trace.lost:
            warn("an attempt that was lost to the provider or could not be parsed")
            continue
        meta = {**attempt.task.meta, **settings, "step": row.step, "place": row.place}
        yield replace(attempt.task, meta=meta, recorded=Recorded(attempt.trace, attempt.score))
