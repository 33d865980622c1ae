"""What a run's context did: how its memories grew, how large it is, and how far what it says has moved.

Walked version by version over the entries that each changed, so that a long run costs as much as its edits. What
entries say is taken by the vectors that they are found by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sqlalchemy import select

from practicum.analysis.monitor.series import Cloud, Column, Part, distance
from practicum.blocks.update.memory_bank import MEMORIES
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.retrieval.vectors import Embedder, WordLlama
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.schema import text_key
from practicum.store.versions import Version

KEYS = 500
"""Vectors asked of the store at a time."""

OUTCOMES = {"success": "successes", "failure": "failures"}
"""A memory's outcome, and what memories of it are counted as."""

Vectors = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Change:
    """What one version took out of the context and brought into it; a reworded entry is both."""

    version: int
    gone: tuple[Entry, ...]
    come: tuple[Entry, ...]


def changes(versions: Sequence[Version]) -> Iterator[Change]:
    """The course of a context, oldest version first. Counters alone change nothing here."""
    parents = {later.parent for earlier, later in pairwise(versions) if later.parent != earlier.version}
    now, at, kept = Context(), None, dict[int | None, Context]()
    for version in versions:
        straight = version.parent == at
        new = (now if straight else kept.get(version.parent, Context())).replay(version.applied, version.version)
        ids = _touched(version) if straight else dict.fromkeys(entry.id for some in (now, new) for entry in some)
        pairs = [(now.get(id), new.get(id)) for id in ids]
        told = [(old, entry) for old, entry in pairs if _face(old) != _face(entry)]
        yield Change(version.version, tuple(old for old, _ in told if old), tuple(entry for _, entry in told if entry))
        now, at = new, version.version
        if at in parents:
            kept[at] = now


def _touched(version: Version) -> dict[str, None]:
    """The entries that a version's edits name, each once, in order."""
    return dict.fromkeys(id for done in version.applied for id in (done.id, *getattr(done.edit, "ids", ())))


def _face(entry: Entry | None) -> tuple[object, ...]:
    """What is watched of an entry."""
    return () if entry is None else (entry.section, entry.embedded, entry.data.get("outcome"))


def texts_of(course: Sequence[Change]) -> list[str]:
    """What the entries that were ever shown are found by, each text once."""
    return list(dict.fromkeys(entry.embedded for change in course for entry in change.come if not entry.hidden))


async def vectors_of(store: Store, texts: Sequence[str], embedder: Embedder | None) -> Vectors:
    """The vectors of texts, from the run's store. Those that it has not are made where that costs nothing, or by
    `embedder`; else they are missing. Nothing is written."""
    table = schema.vectors
    stored = store.rows(select(table.c.embedder).limit(1))
    name = stored[0].embedder if stored else embedder.name if embedder else WordLlama.name
    by_key = {text_key(text): text for text in texts}
    keys, found = list(by_key), dict[str, np.ndarray]()
    for start in range(0, len(keys) if stored else 0, KEYS):
        where = (table.c.embedder == name) & table.c.key.in_(keys[start : start + KEYS])
        for row in store.rows(select(table.c.key, table.c.vector).where(where)):
            found[by_key[row.key]] = np.frombuffer(row.vector, dtype=np.float32)
    missing = [text for text in texts if text not in found]
    free = WordLlama() if name == WordLlama.name else None
    maker = embedder if embedder is not None and embedder.name == name else free
    if missing and maker is not None:
        found.update(zip(missing, await maker.embed(missing), strict=True))
    return found


def walked(course: Sequence[Change], steps: Sequence[Mapping[str, Any]], vectors: Vectors) -> tuple[Part | None, Part]:
    """Memory growth, None where there never was a memory, and the context, both after each step. What has no vector
    has no part in drift and coherence."""
    rows = _by_version(course, vectors)
    last = course[-1].version if course else 0
    # A kill may come between a step and its version, which is then the one before.
    at = [rows[min(step["version"], last)] for step in steps if rows]
    memory = _memory(at, rows[last]) if rows else None
    return memory, _context(at, steps)


@dataclass(frozen=True, slots=True)
class _Row:
    """The context at one version."""

    memories: Mapping[str, int]
    coherence: float | None
    direction: np.ndarray | None
    from_first: float | None


def _by_version(course: Sequence[Change], vectors: Vectors) -> dict[int, _Row]:
    cloud, memories, first = Cloud(), Counter[str](), None
    rows: dict[int, _Row] = {}
    for change in course:
        for entries, sign in ((change.gone, -1), (change.come, 1)):
            for entry in entries:
                if entry.section == MEMORIES:
                    memories[OUTCOMES.get(entry.data.get("outcome", ""), "others")] += sign
                if not entry.hidden and (vector := vectors.get(entry.embedded)) is not None:
                    cloud.put(vector, sign)
        direction = cloud.direction
        first = direction if first is None else first
        rows[change.version] = _Row(dict(memories), cloud.coherence, direction, distance(first, direction))
    return rows


def _memory(at: Sequence[_Row], last: _Row) -> Part | None:
    if not any(row.memories for row in (*at, last)):
        return None
    names = [name for name in (*OUTCOMES.values(), "others") if last.memories.get(name) or name != "others"]
    columns: dict[str, Column] = {"entries": [sum(row.memories.values()) for row in at]}
    columns |= {name: [row.memories.get(name, 0) for row in at] for name in names}
    now = {name: last.memories.get(name, 0) for name in names}
    return Part({"entries": sum(last.memories.values()), **now}, columns)


def _context(at: Sequence[_Row], steps: Sequence[Mapping[str, Any]]) -> Part:
    """Size by step and, where there are vectors, drift from the step before and from the first words there were."""
    columns: dict[str, Column] = {name: [step[name] for step in steps] for name in ("version", "entries", "tokens")}
    numbers = {name: steps[-1][name] for name in columns}
    if any(row.direction is not None for row in at):
        before = [None, *(row.direction for row in at)]
        drift = [distance(old, row.direction) for old, row in zip(before, at, strict=False)]
        coherence, from_first = [row.coherence for row in at], [row.from_first for row in at]
        columns |= {"drift": drift, "from_first": from_first, "coherence": coherence}
        numbers |= {"from_first": from_first[-1], "coherence": coherence[-1]}
    return Part(numbers, columns)
