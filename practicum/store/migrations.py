"""Migrations: named functions, applied in order and counted in SQLite's `user_version`.

A function never changes once it is released; a new one is appended. A file of a newer format is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from sqlalchemy import Connection, text

from practicum.core.errors import StoreError
from practicum.store import schema

_M002_TABLES = (schema.snapshots, schema.entries)
_M004_TABLES = (schema.prompts, schema.texts, schema.names, schema.outcomes)
_M006_TABLES = (schema.reviews,)


def m001_first_tables(db: Connection) -> None:
    """The tables of the first release."""
    later = (*_M002_TABLES, *_M004_TABLES, *_M006_TABLES)
    first = [table for table in schema.metadata.sorted_tables if table not in later]
    schema.metadata.create_all(db, tables=first, checkfirst=False)


def m002_snapshots(db: Connection) -> None:
    """The last context, entry by entry, beside the log of edits that it follows from."""
    schema.metadata.create_all(db, tables=_M002_TABLES, checkfirst=False)


def m003_counter_keys(db: Connection) -> None:
    """The counters in a run's result have keys (those of `core.counts.Count`) in place of English phrases."""
    for run_id, result in db.execute(text("SELECT run_id, result FROM runs WHERE result IS NOT NULL")).all():
        report = json.loads(result)
        if "errors" in report:
            counts: Counter[str] = Counter()
            for phrase, count in report["errors"].items():
                counts[_M003_KEYS.get(phrase, phrase.replace(" ", "_"))] += count
            report["errors"] = dict(sorted(counts.items()))
            new = {"run_id": run_id, "result": json.dumps(report, ensure_ascii=False)}
            db.execute(text("UPDATE runs SET result = :result WHERE run_id = :run_id"), new)


_M003_KEYS = {
    "additions that another copy had made": "repeated_additions",
    "answers whose code was stopped": "stopped_programs",
    "attempts not reflected on": "unreflected_attempts",
    "attempts of unknown outcome, not learned from": "unknown_outcomes",
    "attempts reused": "reused_attempts",
    "attempts that gave no memory": "no_memories",
    "bad output": "unparsed_outputs",
    "batch size lowered to the tasks there are": "batch_lowered",
    "bullets not relied on, left out": "uncited_bullets",
    "calls beyond fan_in, to keep to levels": "widened_joins",
    "candidates tried": "tried_candidates",
    "clusters lowered to the lessons there were": "clusters_lowered",
    "copies lowered to the groups there were": "copies_lowered",
    "decisions held back: an earlier decision changed the rule": "held_back_changed_entry",
    "decisions held back: it gives no text": "held_back_no_text",
    "decisions held back: it helped as often as it harmed": "held_back_helpful_entry",
    "decisions held back: it names fewer than two rules": "held_back_single_merge",
    "decisions held back: it names no lesson": "held_back_unknown_lesson",
    "decisions held back: it would join different answers": "held_back_answer_conflict",
    "decisions held back: it would lose a number or a name": "held_back_lost_detail",
    "decisions held back: no such rule": "held_back_unknown_entry",
    "decisions held back: the rule answers otherwise": "held_back_answer_conflict",
    "decisions held back: the rule does not say all of it": "held_back_partial_cover",
    "deltas dropped by the gate": "gated_deltas",
    "duplicates": "duplicate_entries",
    "edits in conflict": "conflicting_edits",
    "edits redone on a newer context": "redone_edits",
    "experiences too long to show": "overlong_experiences",
    "failed attempts of annotated runs": "annotated_failed_attempts",
    "failures attributed to actionable gap": "actionable_gaps",
    "failures attributed to execution variance": "execution_variance",
    "failures attributed to intractable": "intractable_failures",
    "faults of the traces": "trace_faults",
    "groups lowered to the lessons there were": "groups_lowered",
    "groups raised to keep to fan_in": "groups_raised",
    "lessons asked about again": "repeated_lessons",
    "lessons dropped": "dropped_lessons",
    "lessons kept as they were": "kept_lessons",
    "lessons left out of the clusters' middles": "lessons_outside_centers",
    "lost attempts of annotated runs": "annotated_lost_attempts",
    "memories beyond the limit, left out": "excess_memories",
    "operations on no such insight": "unknown_insights",
    "prompts cut to fit": "shortened_prompts",
    "prompts with a trace cut": "shortened_prompts",
    "pruned": "pruned_entries",
    "repairs": "repaired_outputs",
    "rollouts lowered to the tasks there are": "rollouts_lowered",
    "searches of many entries without an index, which is slower: pip install 'practicum[index]'": "unindexed_search",
    "similar but not the same": "similar_kept_apart",
    "steps too long to ask": "overlong_steps",
    "traces cut": "shortened_prompts",
    "unjudged": "unjudged_attempts",
    "unknown ids of annotated runs": "annotated_unknown_ids",
    "unscored": "unscored_attempts",
}
"""The key of each phrase. Of the other phrases ("lost updates") the key is the phrase with underscores."""


def m004_prompts_names_outcomes(db: Connection) -> None:
    """What models were asked, names of versions, and what users reported about what their agents were shown."""
    schema.metadata.create_all(db, tables=_M004_TABLES, checkfirst=False)


def m005_steps_indexed(db: Connection) -> None:
    """What belongs to a step is found without reading all rows."""
    for table in (schema.rollouts, schema.lessons, schema.versions):
        for index in table.indexes:
            # Where the first tables were made today, they had it at once.
            index.create(db, checkfirst=True)


def m006_reviews_marks(db: Connection) -> None:
    """Edits that wait for review, and who wrote a run's configuration."""
    schema.metadata.create_all(db, tables=_M006_TABLES, checkfirst=False)
    columns = {row.name for row in db.execute(text("PRAGMA table_info(runs)"))}
    # Where the first tables were made today, they had it at once.
    if "mark" not in columns:
        db.execute(text("ALTER TABLE runs ADD COLUMN mark TEXT"))


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    m001_first_tables, m002_snapshots, m003_counter_keys, m004_prompts_names_outcomes, m005_steps_indexed,
    m006_reviews_marks,
)  # fmt: skip

READABLE = 1
"""The oldest format that can be read without a migration: what later ones add can be missing."""


def migrate(db: Connection, folder: str) -> None:
    """Bring an open database up to date. Raises StoreError if a newer practicum wrote it."""
    version = int(db.execute(text("PRAGMA user_version")).scalar_one())
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{folder} was written by a newer practicum (format {version}, this one knows {len(MIGRATIONS)}): "
            "upgrade practicum to open it"
        )
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        migration(db)
        db.execute(text(f"PRAGMA user_version = {number}"))
