"""Tasks with recorded attempts, as `practicum export --format traces` writes them: lines of a task file with a field
`recorded`, which holds the trace and the score of the attempt.

Targets, scores, notes, steps and the task's own meta are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from practicum.core.types import Recorded, Task
from practicum.tasks.scoring.registry import as_score
from practicum.tasks.stored import TASK
from practicum.tasks.traces.messages import conversation_of, is_conversation
from practicum.tasks.traces.trace import RecordPlace


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record has this format."""
    return "input" in record and isinstance(record.get("recorded"), Mapping)


def read(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
    try:
        talk = conversation_of(record["input"]) if is_conversation(record["input"]) else None
        task = TASK.validate_python(record if talk is None else {**record, "input": talk.input})
        score = None if (attempt := task.recorded) is None or attempt.score is None else as_score(attempt.score)
    except ValidationError as error:
        first = error.errors()[0]
        place.warn("a recorded attempt that cannot be read", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        return
    except ValueError as error:
        place.warn("a recorded attempt whose score cannot be used", str(error))
        return
    if attempt is None or not task.id.strip() or not task.input.strip():
        place.warn("a recorded attempt without an id or an input")
        return
    # Keep only the trace and the score of the attempt: the entry ids in the attempt belong to another run.
    if talk is not None:
        task = replace(task, system=talk.system, history=talk.history, images={**task.images, **talk.images})
    yield replace(task, recorded=Recorded(attempt.trace, score))
