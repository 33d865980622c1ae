"""Versions as rows: every one is rebuilt exactly, also after a rollback."""

from __future__ import annotations

from refusals import refused

from practicum.core.context import Context, seed_context
from practicum.core.edits import Add, Delta, Merge, Update, Vote, entry_json
from practicum.store.versions import (
    Version,
    diff_contexts,
    entry_history,
    rebuild,
    seed_version,
)


def test_ids_go_on_counting_after_a_rollback() -> None:
    seed = seed_context([("rules", "one")])
    grown = seed.apply(Delta((Add("rules", "two"),)))
    back = rebuild([seed_version(seed), Version(1, 0, 1, 2, grown.applied), Version(2, 0, 1, 2, ())])
    assert [e.id for e in back] == ["e0"]
    assert back.apply(Delta((Add("rules", "three"),))).applied[0].id == "e2"
    with refused("version.unknown"):
        rebuild([seed_version(Context())], 3)
    assert len(rebuild([])) == 0


def test_a_learned_seed_keeps_its_counters() -> None:
    edits = Delta((Vote("e0", 2, 1, 4), Add("a", "y", key="k", data={"n": 1, "pair": (1, 2)})))
    learned = seed_context([("a", "x")]).apply(edits).context
    again = rebuild([seed_version(learned)])
    assert [entry_json(e) for e in again] == [{**entry_json(e), "born": 0, "changed": 0} for e in learned]
    assert entry_json([*again][1])["data"] == {"n": 1, "pair": [1, 2]}
    assert again.version == 0


def test_the_history_of_an_entry_and_the_difference_of_two_versions() -> None:
    seed = seed_context([("rules", "one"), ("rules", "two"), ("rules", "three")])
    outcome = seed.apply(Delta((Merge(("e0", "e1")), Update("e2", "3"), Vote("e2", 1), Add("rules", "four"))))
    versions = [seed_version(seed), Version(1, 0, 1, 4, outcome.applied)]
    histories = [[(e.version, e.done.edit.op) for e in entry_history(versions, id)] for id in ("e1", "e2")]
    assert histories == [[(0, "add"), (1, "merge")], [(0, "add"), (1, "update"), (1, "vote")]]
    added, removed, changed = diff_contexts(seed, outcome.context)
    assert ([e.id for e in added], [e.id for e in removed]) == (["e3"], ["e1"])
    assert [(b.text, a.text) for b, a in changed] == [("three", "3")]


def test_a_merged_text_loses_the_key_of_the_old_one() -> None:
    context = Context().apply(Delta((Add("s", "a", key="question"), Add("s", "b")))).context
    for merge, expected in ((Merge(("e0", "e1")), "question"), (Merge(("e0", "e1"), "both"), "both")):
        entry = context.apply(Delta((merge,))).context.get("e0")
        assert entry is not None
        assert entry.embedded_text == expected
