"""The critical path of a run on the simulated server: how long it would take if the house took no time at all.

An iteration's stages follow one another: attempts with their reflections, the groups of level 1, each further level of
the join, lessons asked about again. The jobs of a stage go at once, so it lasts as long as its slowest one; a job's own
calls (an attempt and its reflection, an answer that had to be asked for again) follow one another. Which call belongs
where is in its place in the journal. How long it took is exact: the server waits for a time that its law makes of the
tokens it counted, and the journal has those tokens. That holds without a heavy tail only, and where there is a barrier
between iterations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import select

from practicum.bench.server import Options
from practicum.store import schema
from practicum.store.store import Store

_ATTEMPT = re.compile(r"(.*?/attempt/[^/]+)/")
"""The place of one attempt, under which all its calls are."""

_JOB = re.compile(r"(?:/|group |conflicts |, )\d+(?:\.[^/]*)?\Z")
"""The end of a job's place, without which it is the place of its stage."""


def critical_path(folder: Path, law: Options) -> float:
    """Seconds of the run's critical path, by this law."""
    if law.tail:
        raise ValueError("with a heavy tail a latency does not follow from the tokens")
    columns = schema.journal.c
    with Store.read(folder) as store:
        rows = store.rows(select(columns.place, columns.input_tokens, columns.output_tokens).where(columns.calls > 0))
    return longest((row.place, law.latency_of("", row.input_tokens, row.output_tokens)) for row in rows)


def longest(calls: Iterable[tuple[str, float]]) -> float:
    """The same for calls given as (place, seconds)."""
    jobs: dict[str, float] = defaultdict(float)
    for place, seconds in calls:
        attempt = _ATTEMPT.match(place)
        jobs[attempt[1] if attempt else place.rpartition("/")[0]] += seconds
    stages: dict[str, float] = defaultdict(float)
    for job, seconds in jobs.items():
        stage = _JOB.sub("", job)
        stages[stage] = max(stages[stage], seconds)
    return sum(stages.values())
