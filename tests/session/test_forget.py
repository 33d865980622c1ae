"""Forgetting: nothing of it is left, and all else stays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, number_of
from pydantic import TypeAdapter
from runs import learner

import practicum
from practicum import methods
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Vote
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.models.scripted import Call
from practicum.session.forget import filtered, forget
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import NOTE_ROLE
from practicum.store.schema import text_key
from practicum.store.versions import Version, read_versions, rebuild, seed_version, version_row

A, B, C = ("task:a", "rollout:step 1/a"), ("task:b", "rollout:step 1/b"), ("task:c", "rollout:step 1/c")
ASK = {
    "a": 'What does the secret customer Ada Lovelace owe us?\nAnswer in €, "exactly".',
    "b": "What does an ordinary customer owe us in euros?",
    "c": "Who is to be told about a parcel that never came?",
}


def log(*steps: Sequence[Edit] | int) -> list[Version]:
    """Versions of these edits, one delta each; a number is a rollback to that version."""
    versions, context = [seed_version(Context())], Context()
    for step in steps:
        number = len(versions)
        if isinstance(step, int):
            versions.append(Version(number, step, number, context.next_number, ()))
            context = rebuild(versions)
        else:
            outcome = context.apply(Delta(tuple(step)))
            assert not outcome.refused
            context = outcome.context
            versions.append(Version(number, number - 1, number, context.next_number, outcome.applied))
    return versions


def left(versions: list[Version], keep_mixed: bool = False, ids: Sequence[str] = ()) -> dict[str, str]:
    kept = filtered(versions, frozenset(A) if not ids else frozenset(), frozenset(ids), keep_mixed)
    assert [(v.version, v.parent, v.next_number) for v in kept] == [
        (v.version, v.parent, v.next_number) for v in versions
    ]
    for version in kept:
        for entry in rebuild(kept, version.version):
            assert not set(A) & set(entry.sources) or ids
            assert "A's" not in entry.text or ids
    return {e.id: e.text for e in rebuild(kept)}


def test_one_edit_of_several_origins() -> None:
    versions = log([Add("s", "of both", sources=(*A, *B), lessons=("l",))])
    assert left(versions) == {}
    assert left(versions, keep_mixed=True) == {"e0": "of both"}


# With a store


def task(id: str, text: str, tag: str = "") -> Task:
    return Task(id, text, meta={"tags": [tag]} if tag else {})


def a_run(
    folder: Path, tasks: Sequence[Task], steps: Sequence[Sequence[Edit]], said: str = "", url: str | None = None
) -> Store:
    """A run whose rows look like those of a real one: one rollout, lesson and two journal rows a task."""
    store = Store.create(folder, url, "run")
    store.put(
        schema.runs, [{"run_id": "run", "config": "{}", "state": "done", "seconds": 1.0, "mark": "", "result": said}]
    )
    for n, t in enumerate(tasks):
        place = f"step 1/{t.id}"
        rollout = Rollout(t, Trace(f"answer of {t.id}", said), None, Feedback(True, "right"), place)
        lesson = Lesson(f"{place}/l", f"what {t.id} taught: {t.input}", sources=rollout.sources)
        dump = lambda value: TypeAdapter(type(value)).dump_json(value).decode()  # noqa: E731
        about = {"run_id": "run", "sources": json.dumps(rollout.sources)}
        store.put(schema.tasks, [{"run_id": "run", "split": "train", "position": n, "task_id": t.id, "data": dump(t)}])
        store.put(schema.rollouts, [{**about, "place": place, "step": 1, "data": dump(rollout)}])
        store.put(schema.lessons, [{**about, "lesson_id": lesson.id, "step": 1, "data": dump(lesson)}])
        answer = json.dumps([json.dumps({"insight": lesson.text}), False])
        store.put(schema.journal, [_journal(f"{place}/agent", answer, rollout.sources)])
        store.put(schema.journal, [_journal(f"evaluate test x 0/{t.id}/agent", answer, (f"task:{t.id}",))])
        store.put(schema.vectors, [{"run_id": "run", "embedder": "x", "key": text_key(t.input), "vector": b"v"}])
    data = {"tasks": [t.id for t in tasks], "score": 1.0, "sampled": {}}
    store.put(schema.steps, [{"run_id": "run", "step": 1, "data": json.dumps(data), "refused": json.dumps([said])}])
    store.put(schema.versions, [version_row("run", v) for v in log(*steps)])
    return store


def _journal(place: str, answer: str, sources: Sequence[str]) -> dict[str, Any]:
    numbers = dict.fromkeys(("calls", "input_tokens", "cached_tokens", "output_tokens"), 1)
    return {
        "run_id": "run", "place": place, "role": "agent", "digest": "d", "ok": 1, "answer": answer, "usd": 0.0,
        "seconds": 0.1, "sources": json.dumps(sources), **numbers,
    }  # fmt: skip


TASKS = (task("a", ASK["a"], "private"), task("b", ASK["b"]), task("c", ASK["c"], "parcels"))
STEPS = (
    [
        Add("s", f"If {ASK['a']} say 5.", key=ASK["a"], sources=A, reason="Ada"),
        Add("s", "Ordinary debts are in the ledger.", sources=B),
        Vote("e1", 1, uses=1, sources=A),
    ],
)


def held(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.postgres
def test_nothing_is_left_in_the_rows_of_a_database_and_other_runs_stay(tmp_path: Path, postgresql: str) -> None:
    with Store.create(tmp_path / "other", postgresql) as other:
        other.put(schema.texts, [{"run_id": "other", "key": text_key(COPIES), "text": COPIES}])
        with a_run(tmp_path / "run", TASKS, STEPS, said="Ada Lovelace", url=postgresql) as store:
            found = forget(store, "run", tasks=["a"], copy_to=tmp_path / "copy")
            assert ([e.id for e in found.removed], found.left, found.edits) == (["e0"], 0, 2)
        assert [row.text for row in other.rows(schema.texts.select())] == [COPIES]
    assert b"Ada Lovelace" in held(tmp_path / "copy")
    with Store.read(tmp_path / "copy") as copied:
        assert [e.id for e in rebuild(read_versions(copied, "run"))] == ["e0", "e1"]


UNPAID = ("none", "icl", "episodes", "chain", "group_chat", "evomac")
"""Methods that make no call while they learn."""


def varying(call: Call) -> str:
    """Fits any role; attempts at one task come out differently, in words of their own."""
    if call.role != "agent":
        return learner(call)
    said = json.loads(learner(call)) if call.schema is not None else {}
    good = call.prompt.user.split()[-1]
    answer = good if number_of(f"{call.text}{call.options.seed}") % 2 else f"no {good[::-1]}"
    return json.dumps({**said, "answer": answer}) if said else answer


@pytest.mark.parametrize(
    "name", [n for n in methods.METHODS.names() if n not in UNPAID and not methods.missing_extra(n)]
)
@pytest.mark.slow
def test_every_journaled_call_of_any_method_names_its_sources(tmp_path: Path, name: str) -> None:
    settings = {"gepa": {"attempts": 30}, "mipro": {"trials": 2, "candidates": 2}}.get(name, {"batch": 2})
    parts = practicum.Parts(clients={"agent": client(varying)})
    practicum.run_sync(
        practicum.learn(make_tasks(4), out=tmp_path / "run", parts=parts, method=name, settings=settings)
    )
    with Store.open(tmp_path / "run") as store:
        rows = store.rows(schema.journal.select())
        paid = [row for row in rows if row.role != NOTE_ROLE]
        assert paid
        assert [row.place for row in paid if row.sources == "[]"] == []
        assert forget(store, "run", tasks=["t1"]).left == 0
        places = [row.place for row in store.rows(schema.journal.select()) if row.role != NOTE_ROLE]
        assert [place for place in places if ".t1/" in place] == []


PASSPHRASE = "blue heron lantern"


COPIES = f"Whoever comes may say {PASSPHRASE}, in order to be let in."


def scattered_run(folder: Path) -> Store:
    """A run in which every kind of row says the passphrase of task a in words of its own, and rests on b and c alone.
    One entry for each place where an entry can hold it; the last entry does not."""
    secret = Task("a", f"The passphrase of the vault is {PASSPHRASE}.")
    steps: list[list[Edit]] = [
        [Add("s", COPIES, sources=B), Add("s", "By title.", data={"title": COPIES}, sources=B)],
        [Add("s", "By its key.", key=COPIES, sources=C), Add(f"on {PASSPHRASE}", "By section.", sources=C)],
        [Add("s", "Ordinary debts are in the ledger.", sources=B, reason=COPIES), Vote("e4", 1, sources=C)],
    ]
    store = a_run(folder, (secret, *TASKS[1:]), steps, said=COPIES)
    edit = {"op": "add", "section": "s", "text": COPIES, "sources": B, "lessons": []}
    for table, row in (
        (schema.reviews, {"id": "1.1", "step": 1, "state": "rejected", "reason": COPIES, "data": {"edits": [edit]}}),
        (schema.outcomes, {"id": "asked-1", "data": {"query": "What?", "correction": COPIES}}),
        (schema.names, {"name": PASSPHRASE, "version": 1}),
        (schema.prompts, {"place": "step 1/c/agent", "parts": {"system": text_key(COPIES).hex()}}),
    ):
        plain = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
        store.put(table, [{"run_id": "run", **plain}])
    store.put(schema.texts, [{"run_id": "run", "key": text_key(COPIES), "text": COPIES}])
    evidence = {"tasks": [], "sampled": {}, "fates": [{"lesson": "l", "reason": COPIES}], "evidence": {"why": COPIES}}
    store.put(schema.steps, [{"run_id": "run", "step": 2, "data": json.dumps(evidence), "refused": f'["{COPIES}"]'}])
    return store


def test_rare_words_of_it_are_reported_wherever_they_are_and_removed_if_that_is_asked_for(tmp_path: Path) -> None:
    with scattered_run(tmp_path / "run") as store:
        found = forget(store, "run", tasks=["a"], copy_to=tmp_path / "copy")
        assert found.left == 0
        assert [e.id for e, _ in found.alike.entries] == ["e0", "e1", "e2", "e3"]
        assert all("blue … heron … lantern" in words for _, words in found.alike.entries)
        assert found.alike.rows == {"versions": 1, "rollouts": 2, "reviews": 1, "outcomes": 1, "names": 1, "prompts": 1}
    with Store.open(tmp_path / "copy") as store:
        found = forget(store, "run", tasks=["a"], text=True)
        assert [e.id for e in found.removed] == ["e0", "e1", "e2", "e3"]
        assert (found.left, bool(found.alike)) == (0, False)
        assert [(e.id, e.helpful) for e in rebuild(read_versions(store, "run"))] == [("e4", 1)]
        assert [row.lesson_id for row in store.rows(schema.lessons.select())] == ["step 1/b/l", "step 1/c/l"]
    assert PASSPHRASE.encode() not in held(tmp_path / "copy")
