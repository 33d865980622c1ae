"""The critical path of a run on the simulated server: how long it would take if the house took no time at all.

An iteration's stages follow one another: attempts with their reflections (the runs of a group and the twin among them;
the tries of one that is scaled go at once, then the verdicts on them, then their contrast; and so do the parts of a
network's task, where none needs another and none is divided again),
reflections that wait for all of them (each head among them), the groups of level 1, each further level of the join,
lessons asked about again, the state. The jobs of a stage go at once, so it lasts as long as its slowest one; a job's
own calls (an attempt and its reflection, an answer that had to be asked for again) follow one another. Which belongs
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

from practicum.store import schema
from practicum.store.database import Store
from practicum.testing.server import ServerOptions

_ATTEMPT = re.compile(r"((.*?/attempt)/(?:(?:plain|annotated|run \d+)/)*[^/]+)/")
"""The place of one attempt, under which all its calls are, and that of all attempts of its iteration."""

_AT_ONCE = re.compile(r"(try |verdicts/|network/part )(\d+)/")
"""Within an attempt: what is done several times at once."""

_REFLECTION = re.compile(r".*?/reflect(?=/)")
"""The place of all reflections of an iteration, and of their heads."""

_JOB = re.compile(r"(?:/|group |conflicts |, )\d+(?:\.[^/]*)?\Z")
"""The end of a job's place, without which it is the place of its stage."""


def critical_path(folder: Path, law: ServerOptions) -> float:
    """Seconds of the run's critical path, by this law."""
    if law.tail:
        raise ValueError("with a heavy tail a latency does not follow from the tokens")
    columns = schema.journal.c
    with Store.read(folder) as store:
        rows = store.rows(select(columns.place, columns.input_tokens, columns.output_tokens).where(columns.calls > 0))
    return longest((row.place, law.latency_of("", row.input_tokens, row.output_tokens)) for row in rows)


def longest(calls: Iterable[tuple[str, float]]) -> float:
    """The same for calls given as (place, seconds)."""
    seconds: dict[tuple[str, ...], float] = defaultdict(float)
    for place, spent in calls:
        seconds[_where(place)] += spent
    # The parts of a job follow one another, each as long as its slowest lane; so do the stages, by their slowest job.
    for how in (max, sum, max, sum):
        within: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for where, spent in seconds.items():
            within[where[:-1]].append(spent)
        seconds = defaultdict(float, {where: how(each) for where, each in within.items()})
    return seconds[()]


def _where(place: str) -> tuple[str, str, str, str]:
    """The stage that a call is in, the job of that stage, the part of that job, and the lane of that part."""
    if attempt := _ATTEMPT.match(place):
        several = _AT_ONCE.match(place, attempt.end())
        return attempt[2], attempt[1], *((several[1], several[2]) if several else ("", ""))
    job = place.rpartition("/")[0]
    reflection = _REFLECTION.match(place)
    return reflection[0] if reflection else _JOB.sub("", job), job, "", ""
