"""Metrics of a run's context: memories, size, and drift of the content.

The versions are replayed one by one, and only changed entries are read, so that the time depends on the number of
edits. The content of entries is compared by the vectors that retrieval uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from practicum.analysis.monitor.series import MetricGroup, Series
from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.methods.blocks.memory import MEMORIES
from practicum.retrieval.vectors import Embedder, WordLlama, stored_vectors
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.versions import Version
from practicum.view.read import StepStory

OUTCOMES = {"success": "successes", "failure": "failures"}
"""Outcome stored with a memory → name of the metric that counts such memories."""

VectorArray = npt.NDArray[np.float64]
VectorsByText = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class ContextChange:
    """Entries that one version removed and added; a changed entry is both in `removed` and in `added`. `helpful`: total
    helpful votes of all entries at this version."""

    version: int
    helpful: int
    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]


def context_changes(versions: Sequence[Version]) -> Iterator[ContextChange]:
    """Yield the changes of each version, oldest first. An edit that only changes counters of an entry, such as votes,
    does not count as a change of the entry."""
    branch_points = {later.parent for earlier, later in pairwise(versions) if later.parent != earlier.version}
    context, at, helpful, contexts = Context(), None, 0, dict[int | None, Context]()
    for version in versions:
        linear = version.parent == at
        new = (context if linear else contexts.get(version.parent, Context())).replay(version.applied, version.version)
        # If the version was made from the previous version, only the entries named in its edits can have changed.
        edited = (id for done in version.applied for id in (done.id, *getattr(done.edit, "ids", ())))
        ids = dict.fromkeys(edited if linear else (entry.id for entries in (context, new) for entry in entries))
        pairs = [(context.get(id), new.get(id)) for id in ids]
        changed = [(old, entry) for old, entry in pairs if _content(old) != _content(entry)]
        helpful += sum((entry.helpful if entry else 0) - (old.helpful if old else 0) for old, entry in pairs)
        removed, added = tuple(old for old, _ in changed if old), tuple(entry for _, entry in changed if entry)
        yield ContextChange(version.version, helpful, removed, added)
        context, at = new, version.version
        if at in branch_points:
            contexts[at] = context


def _content(entry: Entry | None) -> tuple[object, ...]:
    return () if entry is None else (entry.section, entry.embedded_text, entry.data.get("outcome"))


async def read_vectors(store: Store, texts: Sequence[str], embedder: Embedder | None) -> VectorsByText:
    """Read the vectors of texts from the run's store. Missing vectors are computed if the run used `embedder` or
    WordLlama (which has no cost); else texts without a stored vector are missing from the result. The store is not
    changed."""
    stored = store.rows(store.select(schema.vectors.c.embedder).limit(1))
    name = stored[0].embedder if stored else embedder.name if embedder else WordLlama.name
    vectors = stored_vectors(store, name, texts)
    missing = [text for text in texts if text not in vectors]
    available = next((e for e in (embedder, WordLlama()) if e is not None and e.name == name), None)
    if missing and available is not None:
        vectors.update(zip(missing, await available.embed(missing), strict=True))
    return vectors


def context_metrics(
    changes: Sequence[ContextChange], records: Sequence[StepStory], vectors: VectorsByText
) -> tuple[MetricGroup | None, MetricGroup]:
    """Return the metrics of memories (None if there never was a memory) and of the context after each step: the size of
    the context and, if the entries have vectors, the coherence of the entries and the drift of the context from the
    previous step and from the first context with vectors."""
    series: dict[str, Series] = {name: [getattr(r, name) for r in records] for name in ("version", "entries", "tokens")}
    numbers = {name: values[-1] for name, values in series.items()}
    if not changes:
        return None, MetricGroup(numbers, series)
    # If the process was killed after it stored a step and before it stored the version of the step, use the last stored
    # version.
    row_of = {change.version: i for i, change in enumerate(changes)}
    at = [row_of[min(record.version, changes[-1].version)] for record in records]
    series["helpful"] = [changes[i].helpful for i in at]
    numbers["helpful"] = series["helpful"][-1]
    directions, coherence = _directions(changes, vectors)
    if not np.isnan(directions[at]).all():
        now, first = directions[at], directions[~np.isnan(directions).any(axis=1)][0]
        # The cosine distance of two directions (unit vectors) is 1 minus their scalar product.
        drift = 1.0 - (now[1:] * now[:-1]).sum(axis=1)
        series["drift"] = [None, *_without_nan(drift.clip(0.0, 2.0))]
        series["from_first"] = _without_nan((1.0 - now @ first).clip(0.0, 2.0))
        series["coherence"] = _without_nan(coherence[at])
        numbers |= {name: series[name][-1] for name in ("from_first", "coherence")}
    return _memories(changes, at), MetricGroup(numbers, series)


def _directions(changes: Sequence[ContextChange], vectors: VectorsByText) -> tuple[VectorArray, VectorArray]:
    """Return, for each version, the direction (a unit vector) of the mean of its entries' unit vectors, and the mean
    similarity of the entries to this direction. An undefined value is NaN. Entries without a vector are left out.

    The mean similarity of n unit vectors v to the direction of their mean m is |m|, since the mean of v·m/|m| over all
    v is m·m/|m|. Therefore the sum and the number of the vectors are sufficient to compute both values.
    """
    width = max((len(vector) for vector in vectors.values()), default=1)
    added, counts = np.zeros((len(changes), width)), np.zeros(len(changes))
    for i, change in enumerate(changes):
        for entries, sign in ((change.removed, -1), (change.added, 1)):
            for entry in entries:
                if not entry.hidden and (vector := vectors.get(entry.embedded_text)) is not None:
                    added[i] += sign * vector
                    counts[i] += sign
    sums, n = added.cumsum(axis=0), counts.cumsum()
    lengths = np.linalg.norm(sums, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        coherence = np.where(n > 0, np.minimum(lengths / n, 1.0), np.nan)
        # The sum of opposite vectors consists of rounding errors, so it has no direction.
        directions = np.where((n > 0) & (lengths > 1e-6 * n), sums.T / lengths, np.nan).T
    return directions, coherence


def _without_nan(values: VectorArray) -> Series:
    return [None if np.isnan(value) else float(value) for value in values]


def _memories(changes: Sequence[ContextChange], at: Sequence[int]) -> MetricGroup | None:
    count, counts = Counter[str](), []
    for change in changes:
        for entries, sign in ((change.removed, -1), (change.added, 1)):
            for entry in entries:
                if entry.section == MEMORIES:
                    count[OUTCOMES.get(entry.data.get("outcome", ""), "others")] += sign
        counts.append(Counter(count))
    if not any(counts):
        return None
    names = [*OUTCOMES.values(), *(["others"] if count["others"] else [])]
    series: dict[str, Series] = {"entries": [counts[i].total() for i in at]}
    series |= {name: [counts[i][name] for i in at] for name in names}
    return MetricGroup({"entries": count.total(), **{name: count[name] for name in names}}, series)
