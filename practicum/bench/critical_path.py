"""The critical path of a run on the simulated server: its duration if practicum itself took no time at all.

The stages of an iteration follow one another: attempts with their reflections, reflections that wait for all attempts,
the groups of level 1, each further level of the join, lessons that are asked about again, the state. The jobs of a
stage run at once, so it lasts as long as its slowest job. The calls of a job (an attempt and its reflection, a repaired
answer) follow one another, except that some parts of an attempt run at once: the tries of a scaled attempt, the
verdicts on them, and the parts of a network's task, if none needs another and none is divided again. A call's place in
the journal says what it belongs to.

The times are exact: the server waits for a time that follows from the tokens, and the journal has the tokens. This
holds only without a heavy tail of latencies, and with a barrier between iterations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import select

from practicum.store import schema
from practicum.store.database import Store
from practicum.testing.server import ServerOptions

_ATTEMPT = re.compile(r"((.*?/attempt)/(?:(?:plain|annotated|run \d+)/)*[^/]+)/")
"""The place of one attempt, which all its calls are under, and that of all attempts of its iteration."""

_AT_ONCE = re.compile(r"(try |verdicts/|network/part )(\d+)/")
"""Within an attempt: the parts that run at once."""

_REFLECTION = re.compile(r".*?/reflect(?=/)")
"""The place of all reflections of an iteration, and of their heads."""

_JOB = re.compile(r"(?:/|group |conflicts |, )\d+(?:\.[^/]*)?\Z")
"""The end of a job's place; without it, the place is that of its stage."""


def critical_path(folder: Path, latencies: ServerOptions) -> float:
    """Seconds of the critical path of the run in `folder`, which was served with these latencies. Raises ValueError if
    they have a heavy tail."""
    if latencies.tail:
        raise ValueError("with a heavy tail, a latency does not follow from the tokens")
    columns = schema.journal.c
    with Store.read(folder) as store:
        rows = store.rows(select(columns.place, columns.input_tokens, columns.output_tokens).where(columns.calls > 0))
    return longest_path((row.place, latencies.latency_of("", row.input_tokens, row.output_tokens)) for row in rows)


def longest_path(calls: Iterable[tuple[str, float]]) -> float:
    """Seconds of the critical path of calls, given as (place, seconds)."""
    seconds: dict[tuple[str, ...], float] = defaultdict(float)
    for place, spent in calls:
        seconds[_levels(place)] += spent
    # From the inside: a part lasts as long as its slowest lane, a job as its parts together, a stage as its slowest
    # job, and the run as its stages together.
    for combine in (max, sum, max, sum):
        inner: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for levels, spent in seconds.items():
            inner[levels[:-1]].append(spent)
        seconds = defaultdict(float, {levels: combine(each) for levels, each in inner.items()})
    return seconds[()]


def _levels(place: str) -> tuple[str, str, str, str]:
    """The stage of a call, the job in that stage, the part of that job, and the lane of that part."""
    if attempt := _ATTEMPT.match(place):
        lane = _AT_ONCE.match(place, attempt.end())
        return attempt[2], attempt[1], *((lane[1], lane[2]) if lane else ("", ""))
    job = place.rpartition("/")[0]
    reflection = _REFLECTION.match(place)
    return reflection[0] if reflection else _JOB.sub("", job), job, "", ""
