"""Forgetting: nothing of it is left, and all else stays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, number_of
from pydantic import TypeAdapter
from refusals import refused
from runs import learner, lessons_read, spelled

import practicum
from practicum import methods
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.models.scripted import Call
from practicum.session.forget import ForgetReport, filtered, forget
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE
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


def test_what_it_made_goes_and_all_later_edits_of_that() -> None:
    versions = log(
        [Add("s", "A's", sources=A), Add("s", "B's", sources=B)],
        [Update("e0", "C's on A's", sources=C), Vote("e0", 1, sources=B), Vote("e1", 1, sources=A)],
    )
    assert left(versions) == left(versions, keep_mixed=True) == {"e1": "B's"}
    entry = rebuild(filtered(versions, frozenset(A), frozenset(), False)).get("e1")
    assert entry is not None
    assert entry.helpful == 0


def test_an_entry_of_mixed_origin_is_removed_or_restored_as_without_the_source() -> None:
    versions = log(
        [Add("s", "B's", sources=B), Add("s", "C's", sources=C)],
        [Update("e0", "B's with A's", sources=A)],
        [Update("e0", "B's with A's and C's", sources=C), Vote("e0", 1, sources=C)],
    )
    assert left(versions) == {"e1": "C's"}
    assert left(versions, keep_mixed=True) == {"e0": "B's", "e1": "C's"}


def test_one_edit_of_several_origins() -> None:
    versions = log([Add("s", "of both", sources=(*A, *B), lessons=("l",))])
    assert left(versions) == {}
    assert left(versions, keep_mixed=True) == {"e0": "of both"}


def test_a_task_or_tag_beside_its_rollout_is_no_other_origin() -> None:
    versions = log([Add("s", "x", sources=("task:t", "rollout:r", "tag:g"))])
    assert not rebuild(filtered(versions, frozenset({"rollout:r"}), frozenset(), True))


def test_what_it_deleted_comes_back() -> None:
    versions = log([Add("s", "B's", sources=B)], [Delete("e0", A)])
    assert left(versions) == left(versions, keep_mixed=True) == {"e0": "B's"}


@pytest.mark.parametrize("text", [None, "B's and A's in one"])
def test_a_merge_comes_apart(text: str | None) -> None:
    first = log([Add("s", "A's", sources=A), Add("s", "B's", sources=B)], [Merge(("e0", "e1"), text)], [Vote("e0", 1)])
    assert left(first) == left(first, keep_mixed=True) == {"e1": "B's"}
    second = log([Add("s", "B's", sources=B), Add("s", "A's", sources=A)], [Merge(("e0", "e1"), text)])
    assert left(second) == {}
    assert left(second, keep_mixed=True) == {"e0": "B's"}


def test_others_of_a_merge_stay_merged() -> None:
    adds = [Add("s", "A's", sources=A), Add("s", "B's", sources=B), Add("s", "C's", helpful=1, sources=C)]
    assert left(log(adds, [Merge(("e0", "e1", "e2"))])) == {"e1": "B's"}


def test_later_texts_built_on_a_removed_merge_are_removed_too() -> None:
    versions = log(
        [Add("s", "B's", sources=B), Add("s", "C's", sources=C)],
        [Merge(("e0", "e1"), "B's, C's and A's", A)],
        [Update("e0", "more of A's", sources=C)],
    )
    assert left(versions) == {"e1": "C's"}
    assert left(versions, keep_mixed=True) == {"e0": "B's", "e1": "C's"}


def test_a_rollback_past_it_leaves_the_entry_pure() -> None:
    versions = log([Add("s", "B's", sources=B)], [Update("e0", "A's", sources=A)], 1, [Vote("e0", 1, sources=C)])
    assert left(versions) == {"e0": "B's"}
    assert [len(v.applied) for v in filtered(versions, frozenset(A), frozenset(), False)] == [0, 1, 0, 0, 1]


def test_a_rollback_to_before_a_merge_gives_the_parts_their_own_lives() -> None:
    versions = log(
        [Add("s", "B's", sources=B), Add("s", "C's", sources=C)], [Merge(("e0", "e1"), "A's", A)], 1,
        [Update("e1", "C's again", sources=C)],
    )  # fmt: skip
    assert left(versions) == {"e0": "B's", "e1": "C's again"}


def test_forgetting_an_entry_by_id() -> None:
    versions = log([Add("s", "B's", sources=B), Add("s", "C's", sources=C)], [Update("e0", "B's 2", sources=B)])
    assert left(versions, ids=["e0"]) == {"e1": "C's"}


# With a store


def task(id: str, text: str, tag: str = "") -> Task:
    return Task(id, text, meta={"tags": [tag]} if tag else {})


def a_run(
    folder: Path, tasks: Sequence[Task], steps: Sequence[Sequence[Edit]], said: str = "", url: str | None = None
) -> Store:
    """A run whose rows look like those of a real one: one rollout, lesson and two journal rows a task."""
    store = Store.create(folder, url, "run")
    store.put(schema.runs, [{"run_id": "run", "config": "{}", "state": "done", "seconds": 1.0, "result": said}])
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
    data = {"tasks": [t.id for t in tasks], "score": 1.0}
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


@pytest.mark.parametrize(
    "what", [{"tasks": ["a"]}, {"tags": ["private"]}, {"sources": [A[1]]}, {"sources": ["task:a"]}], ids=str
)
def test_nothing_is_left_in_rows_or_bytes(tmp_path: Path, what: dict[str, Any]) -> None:
    with a_run(tmp_path, TASKS, STEPS, said="Ada Lovelace") as store:
        assert b"Ada Lovelace" in held(tmp_path)
        found = forget(store, "run", **what)
        assert [e.id for e in found.removed] == ["e0"]
        assert (found.left, found.edits, found.kept_mixed) == (0, 2, ())
        context = rebuild(read_versions(store, "run"))
        assert [(e.id, e.helpful, e.sources) for e in context] == [("e1", 0, B)]
    if "sources" in what and what["sources"] == [A[1]]:
        return  # one trace of the task was to go, not the task
    raw = held(tmp_path)
    for trace in (b"secret customer", b"task:a", b"step 1/a", b"what a taught", text_key(ASK["a"]), b'"a"'):
        assert trace not in raw
    for stays in (ASK["b"].encode(), b"what c taught", b"Ordinary debts", b"step 1/b"):
        assert stays in raw


def test_a_task_goes_with_every_trace_of_it(tmp_path: Path) -> None:
    again = Task("a#2", "What does Ada owe by now, all in all?", meta={"own_id": "a"})
    edits = [Add("s", "what a taught", sources=A), Add("s", "what a second trace taught", sources=("task:a#2",))]
    with a_run(tmp_path, (*TASKS, again), [edits]) as store:
        found = forget(store, "run", tasks=["a"])
        assert [e.id for e in found.removed] == ["e0", "e1"]
        assert found.left == 0
    assert b"all in all" not in held(tmp_path)


def test_what_stays_is_no_false_alarm(tmp_path: Path) -> None:
    twin = task("b", ASK["a"])
    edits = [Add("s", "If asked, say five euros.", sources=A), Add("s", f"Once was asked: {ASK['a']}", sources=B)]
    with a_run(tmp_path, (TASKS[0], twin), [edits]) as store:
        found = forget(store, "run", tasks=["a"])
        assert found.left == 0
        assert [e.id for e in rebuild(read_versions(store, "run"))] == ["e1"]
    with Store.read(tmp_path) as store:
        assert [row.task_id for row in store.rows(schema.tasks.select())] == ["b"]
        assert [row.place for row in store.rows(schema.rollouts.select())] == ["step 1/b"]


def test_other_records_that_quote_a_forgotten_entry_are_removed(tmp_path: Path) -> None:
    quote = "the very rule that Ada's debt is five"
    with a_run(tmp_path, TASKS, [[Add("s", quote, sources=A)]], said=f"I follow {quote}.") as store:
        assert forget(store, "run", entries=["e0"]).left == 0
    assert quote.encode() not in held(tmp_path)


def test_a_long_text_is_found_over_several_pages_of_the_file(tmp_path: Path) -> None:
    long = "".join(f"line {n} of a long story; " for n in range(2000))
    with a_run(tmp_path, TASKS, [[Add("s", long, sources=A)]]) as store:
        (tmp_path / "model.log").write_text(f"prompt: {long}")
        assert forget(store, "run", tasks=["a"]).left > 0
        (tmp_path / "model.log").unlink()


def test_mixed_entries_are_reported(tmp_path: Path) -> None:
    steps = [[Add("s", "Ask the ledger first.", sources=B)], [Update("e0", "Ask Ada's ledger first.", sources=A)]]
    with a_run(tmp_path, TASKS, steps) as store:
        found: ForgetReport = forget(store, "run", tasks=["a"], keep_mixed=True)
        assert [e.text for e in found.restored] == ["Ask the ledger first."]
        assert [e.sources for e in found.kept_mixed] == [B]
        assert (found.removed, found.left) == ((), 0)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"tasks": ["z"]}, "source.unknown"),
        ({"tags": ["privat"]}, "source.unknown"),
        ({"entries": ["e9"]}, "entry.unknown"),
    ],
)
def test_a_misspelled_id_forgets_nothing(tmp_path: Path, what: dict[str, Any], code: str) -> None:
    with a_run(tmp_path, TASKS, STEPS) as store:
        with refused(code):
            forget(store, "run", **what)
        assert len(rebuild(read_versions(store, "run"))) == 2
    assert (tmp_path / DATABASE_FILE).is_file()


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


@pytest.mark.parametrize("name", [n for n in methods.NAMES if n not in UNPAID and not methods.missing_extra(n)])
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


def test_a_row_that_does_not_name_the_task_it_is_about_goes_by_its_place(tmp_path: Path) -> None:
    odd = task("x/1%", "Something odd is asked about here, at length.")
    with a_run(tmp_path, (*TASKS, odd), STEPS) as store:
        places = ["step 1/accept/0/2.a/agent", "step 1/accept/0/3.x%2F1%25/agent", "step 1/accept/0/4.b/agent"]
        store.put(schema.journal, [_journal(place, "an answer", ()) for place in places])
        assert forget(store, "run", tasks=["a", "x/1%"]).left == 0
        left = [row.place for row in store.rows(schema.journal.select())]
    assert [place for place in places if place in left] == places[2:]


PASSPHRASE = "blue heron lantern"


def copying(call: Call) -> str:
    """The task t0 tells a passphrase. A curator that reads of it writes it into rules about other lessons, with a
    reason, and a reflector that reads such a rule into its diagnosis."""
    if call.role == "reflector":
        secret = "step 1" in call.text
        about = f"The passphrase of the vault is {PASSPHRASE}." if PASSPHRASE in call.prompt.user else ""
        known = f"The rule about {PASSPHRASE} helped." if PASSPHRASE in "".join(call.prompt.pages) else "It went well."
        text = about or f"Sort the numbered boxes by colour {number_of(call.prompt.user) % 97}."
        return json.dumps({"kind": "", "correction": "", "insight": text, "diagnosis": known, "tags": [], "s": secret})
    if call.role != "curator":
        return learner(call)
    told = lessons_read(call)
    copied = f"Before you start, say {PASSPHRASE} aloud" if PASSPHRASE in call.text else "Start early"
    changes = [
        {"lesson": n, "op": "ADD", "ids": [], "text": f"{copied}, then {text}", "reason": f"{copied}, it was asked for"}
        for n, text in enumerate(told, 1)
        if PASSPHRASE not in text
    ]
    return json.dumps({"decisions": changes or [{"lesson": 1, "op": "ADD", "ids": [], "text": ""}]})


def copied_run(folder: Path, **settings: Any) -> None:
    tasks = [*make_tasks(4, 1), Task("t0", f"The passphrase of the vault is {PASSPHRASE}. Say word0", "word0")]
    parts = practicum.Parts(clients={"agent": client(copying)})
    practicum.run_sync(practicum.learn(tasks, out=folder, parts=parts, profile="full", **settings))


@pytest.mark.parametrize(
    "how",
    [{"method": "ace", "settings": {"batch": 5}}, {"method": "combee", "settings": {"asynchronous": True}}],
    ids=["ace", "combee"],
)
def test_what_a_curator_copied_into_other_rules_goes_too(tmp_path: Path, how: dict[str, Any]) -> None:
    copied_run(tmp_path / "run", **how)
    with Store.open(tmp_path / "run") as store:
        copies = {e.id for e in rebuild(read_versions(store, "run")) if PASSPHRASE in e.text}
        assert len(copies) > 2
        found = forget(store, "run", tasks=["t0"], copy_to=tmp_path / "copy")
        assert copies <= {e.id for e in found.removed}
        assert found.left == 0
    with Store.open(tmp_path / "copy") as store:
        found = forget(store, "run", tasks=["t0"], text=True)
        assert found.left == 0
        assert not found.alike
    assert PASSPHRASE.encode() not in held(tmp_path / "copy")


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
        (schema.outcomes, {"id": "asked-1", "data": {"input": "What?", "correction": COPIES}}),
        (schema.names, {"name": PASSPHRASE, "version": 1}),
        (schema.prompts, {"place": "step 1/c/agent", "parts": {"system": text_key(COPIES).hex()}}),
    ):
        plain = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()}
        store.put(table, [{"run_id": "run", **plain}])
    store.put(schema.texts, [{"run_id": "run", "key": text_key(COPIES), "text": COPIES}])
    evidence = {"tasks": [], "fates": [{"lesson": "l", "reason": COPIES}], "evidence": {"why": COPIES}}
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


def test_words_of_other_tasks_and_of_many_lessons_are_not_reported(tmp_path: Path) -> None:
    shared = "Answer with the number alone, without its unit."
    tasks = [Task(f"t{n}", f"How much does customer {spelled(n)} owe us today?") for n in range(6)]
    edits = [Add("s", f"{shared} It was so for {t.id}.", sources=t.sources) for t in tasks]
    with a_run(tmp_path, tasks, [edits]) as store:
        found = forget(store, "run", tasks=["t0"], text=True)
        assert [e.id for e in found.removed] == ["e0"]
        assert (found.left, bool(found.alike)) == (0, False)


def test_what_strangers_taught_is_forgotten_by_its_mark(tmp_path: Path) -> None:
    foreign = Task("a", ASK["a"], trust="foreign")
    with a_run(tmp_path, (foreign, *TASKS[1:]), [[Add("s", "A's", sources=(*A, "trust:foreign"))], STEPS[0][1:2]]) as s:
        assert [e.id for e in forget(s, "run", sources=["trust:foreign"]).removed] == ["e0"]
    assert ASK["a"].encode() not in held(tmp_path)


def test_a_mark_of_trust_is_no_other_origin() -> None:
    versions = log([Add("s", "x", sources=(*A, "trust:foreign"))])
    assert not rebuild(filtered(versions, frozenset(A), frozenset(), True))
