"""Metrics of a run's context: its memories, its size, and how far its content drifted.

The versions are replayed one by one, and only the entries that each version changed are looked at, so that a long run
costs as much as its edits. The content of entries is compared by the vectors they are retrieved by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sqlalchemy import select

from practicum.analysis.monitor.series import Centroid, MetricGroup, Series, cosine_distance
from practicum.blocks.update.memory_bank import MEMORIES
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.retrieval.vectors import Embedder, WordLlama
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.schema import text_key
from practicum.store.versions import Version

KEYS_PER_QUERY = 500

OUTCOMES = {"success": "successes", "failure": "failures"}
"""The outcome stored with a memory, and the name of the metric that counts such memories."""

VectorsByText = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class ContextChange:
    """The entries that one version removed and added; a changed entry is in both."""

    version: int
    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]


def context_changes(versions: Sequence[Version]) -> Iterator[ContextChange]:
    """The changes of each version, oldest first. An edit of counters alone changes nothing here."""
    branch_points = {later.parent for earlier, later in pairwise(versions) if later.parent != earlier.version}
    context, at, kept = Context(), None, dict[int | None, Context]()
    for version in versions:
        linear = version.parent == at
        new = (context if linear else kept.get(version.parent, Context())).replay(version.applied, version.version)
        # In a line of versions only the entries that the edits name can change.
        edited = (id for done in version.applied for id in (done.id, *getattr(done.edit, "ids", ())))
        ids = dict.fromkeys(edited if linear else (entry.id for entries in (context, new) for entry in entries))
        pairs = [(context.get(id), new.get(id)) for id in ids]
        changed = [(old, entry) for old, entry in pairs if _content(old) != _content(entry)]
        yield ContextChange(
            version.version, tuple(old for old, _ in changed if old), tuple(entry for _, entry in changed if entry)
        )
        context, at = new, version.version
        if at in branch_points:
            kept[at] = context


def _content(entry: Entry | None) -> tuple[object, ...]:
    return () if entry is None else (entry.section, entry.embedded_text, entry.data.get("outcome"))


def shown_texts(changes: Sequence[ContextChange]) -> list[str]:
    """The texts that all entries ever shown are retrieved by, each once."""
    return list(dict.fromkeys(entry.embedded_text for change in changes for entry in change.added if not entry.hidden))


async def read_vectors(store: Store, texts: Sequence[str], embedder: Embedder | None) -> VectorsByText:
    """The vectors of texts from the run's store. Missing ones are computed by `embedder` if the run used it, or by the
    embedder of this package, which costs nothing; otherwise they stay missing. Nothing is written."""
    table = schema.vectors
    stored = store.rows(select(table.c.embedder).limit(1))
    name = stored[0].embedder if stored else embedder.name if embedder else WordLlama.name
    by_key = {text_key(text): text for text in texts}
    keys, vectors = list(by_key), dict[str, np.ndarray]()
    for start in range(0, len(keys) if stored else 0, KEYS_PER_QUERY):
        where = (table.c.embedder == name) & table.c.key.in_(keys[start : start + KEYS_PER_QUERY])
        for row in store.rows(select(table.c.key, table.c.vector).where(where)):
            vectors[by_key[row.key]] = np.frombuffer(row.vector, dtype=np.float32)
    missing = [text for text in texts if text not in vectors]
    if missing and embedder is not None and embedder.name == name:
        vectors.update(zip(missing, await embedder.embed(missing), strict=True))
    elif missing and name == WordLlama.name:
        vectors.update(zip(missing, await WordLlama().embed(missing), strict=True))
    return vectors


def context_metrics(
    changes: Sequence[ContextChange], records: Sequence[Mapping[str, Any]], vectors: VectorsByText
) -> tuple[MetricGroup | None, MetricGroup]:
    """The memories (None where there never was one) and the context after each step. Entries without a vector are left
    out of drift and coherence."""
    states = _states(changes, vectors)
    last = changes[-1].version if changes else 0
    # A kill may come between a step and its version; the version before holds then.
    at = [states[min(record["version"], last)] for record in records if states]
    return _memory(at, states[last]) if states else None, _context(at, records)


@dataclass(frozen=True, slots=True)
class _State:
    """The context at one version: memories by outcome, and where its content lies."""

    memories: Mapping[str, int]
    coherence: float | None
    direction: np.ndarray | None
    from_first: float | None


def _states(changes: Sequence[ContextChange], vectors: VectorsByText) -> dict[int, _State]:
    centroid, memories, first = Centroid(), Counter[str](), None
    states: dict[int, _State] = {}
    for change in changes:
        for entries, sign in ((change.removed, -1), (change.added, 1)):
            for entry in entries:
                if entry.section == MEMORIES:
                    memories[OUTCOMES.get(entry.data.get("outcome", ""), "others")] += sign
                if not entry.hidden and (vector := vectors.get(entry.embedded_text)) is not None:
                    centroid.add(vector, sign)
        direction = centroid.direction
        first = direction if first is None else first
        from_first = cosine_distance(first, direction)
        states[change.version] = _State(dict(memories), centroid.coherence, direction, from_first)
    return states


def _memory(at: Sequence[_State], last: _State) -> MetricGroup | None:
    if not any(state.memories for state in (*at, last)):
        return None
    names = [*OUTCOMES.values(), *(["others"] if last.memories.get("others") else [])]
    series: dict[str, Series] = {"entries": [sum(state.memories.values()) for state in at]}
    series |= {name: [state.memories.get(name, 0) for state in at] for name in names}
    counts = {name: last.memories.get(name, 0) for name in names}
    return MetricGroup({"entries": sum(last.memories.values()), **counts}, series)


def _context(at: Sequence[_State], records: Sequence[Mapping[str, Any]]) -> MetricGroup:
    """The size after each step and, where there are vectors, the drift from the step before and from the start."""
    series: dict[str, Series] = {name: [r[name] for r in records] for name in ("version", "entries", "tokens")}
    numbers = {name: records[-1][name] for name in series}
    if any(state.direction is not None for state in at):
        before = [None, *(state.direction for state in at)]
        series["drift"] = [cosine_distance(old, state.direction) for old, state in zip(before, at, strict=False)]
        series["from_first"] = [state.from_first for state in at]
        series["coherence"] = [state.coherence for state in at]
        numbers |= {"from_first": at[-1].from_first, "coherence": at[-1].coherence}
    return MetricGroup(numbers, series)
