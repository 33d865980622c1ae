"""Names that are unique within one run: whatever contexts meet, none stands for two traces, attempts or tasks."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import scripts
from helpers import client, context_bytes, make_tasks
from scripts import Learned, scripted
from serving import asynchronous, served
from teams import SHOWING, learned, team

from practicum import Parts, export, learn, load, load_context, load_tasks, load_traces, run_sync
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Entry
from practicum.core.types import Task
from practicum.session.amend import roll_back
from practicum.session.forget import ForgetReport, forget
from practicum.session.memories import add
from practicum.session.records import create_seed
from practicum.session.review import approve, read_reviews
from practicum.session.story import Story
from practicum.store.database import Store

LIVED = {"kind": "solve", "reward": 1.0}


def lines(path: Path, *numbers: int) -> list[Task]:
    """The tasks of a file whose records have no ids."""
    records = ({"input": f"Message {n}: say word{n}", "target": f"word{n}"} for n in numbers)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return load_tasks(path)


def about(entry: Entry) -> int:
    """The message that an experience is about."""
    return int(re.findall(r"Message (\d+)", entry.key)[0])


def traces(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """The messages that each stored trace is about."""
    found: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        found[entry.data["trace"]].add(about(entry))
    return found


def sources(entries: Iterable[Entry], kind: str) -> set[str]:
    return {source for entry in entries for source in entry.sources if source.startswith(kind)}


def forgotten(folder: Path, **named: Any) -> ForgetReport:
    with Store.open(folder) as store:
        return forget(store, store.run_id, **named)


@pytest.fixture
def first(tmp_path: Path) -> Learned:
    return learned(tmp_path / "a", lines(tmp_path / "one.jsonl", 1, 3))


def following(folder: Path, first: Learned, respond: Any = None, **how: Any) -> Learned:
    """A run on other tasks at the same places, on the context of the first."""
    tasks, settings = lines(folder.parent / "two.jsonl", 5, 7), {**SHOWING, "experience": "task"}
    return learned(folder, tasks, settings, respond, seed_context=first.result.context, **how)


# ---- runs that follow each other


def test_a_run_on_the_context_of_another_keeps_their_traces_apart(tmp_path: Path, first: Learned) -> None:
    then = following(tmp_path / "b", first)
    last = learned(tmp_path / "c", lines(tmp_path / "three.jsonl", 9), seed_context=load_context(then.folder))
    ids = [traces(run.result.context) for run in (first, then, last)]
    assert [sorted(map(tuple, found.values())) for found in ids] == [
        [(1,), (3,)], [(1,), (3,), (5,), (7,)], [(1,), (3,), (5,), (7,), (9,)]
    ]  # fmt: skip
    assert ids[0].items() <= ids[1].items() <= ids[2].items()
    # The places are the same, and the ids still tell them.
    places = {r.place for r in first.rollouts}
    assert places == {r.place for r in then.rollouts} == {id.partition("/")[2] for id in ids[1]}
    for rollout in then.rollouts:
        shown = [then.result.context.get(move["experience"]) for move in rollout.trace.data["moves"]]
        assert len({entry.data["trace"] for entry in shown if entry is not None}) == 1
    kept = [(e.sources, e.data) for e in then.result.context if about(e) < 5]
    assert [(e.sources, e.data) for e in last.result.context if about(e) < 5] == kept


def test_equal_runs_are_equal_at_any_concurrency_and_after_any_kill(tmp_path: Path, first: Learned) -> None:
    whole = following(tmp_path / "whole", first)
    again = following(tmp_path / "again", first, concurrency=1)
    assert context_bytes(again.result) == context_bytes(whole.result)
    scripts.same_after_any_kill(whole, team(), tmp_path / "cut", lambda at, model: following(at, first, model))


def test_a_story_names_no_attempt_of_this_run_as_the_origin_of_what_came_before(tmp_path: Path, first: Learned) -> None:
    then = following(tmp_path / "b", first)
    with Story.open(then.folder) as story:
        origins = {about(e): {*story.entry(e.id).attempts} for e in then.result.context}
    assert (origins[1], origins[3]) == (set(), set())
    assert {f"1.{then.rollouts[0].task.id}"} <= origins[about_task(then, 0)]


def about_task(run: Learned, number: int) -> int:
    return int(re.findall(r"Message (\d+)", run.rollouts[number].task.input)[0])


@pytest.mark.parametrize("kind", ["rollout", "task"])
def test_forgetting_removes_what_is_named_and_tells_what_had_its_name_before(
    kind: str, tmp_path: Path, first: Learned
) -> None:
    then = following(tmp_path / "b", first)
    rollout = then.rollouts[0]
    name = {"rollout": f"rollout:{rollout.place}", "task": f"task:{rollout.task.id}"}[kind]
    found = forgotten(then.folder, sources=[name])
    assert {about(e) for e in found.removed if name in e.sources} == {about_task(then, 0)}
    assert not {about(e) for e in found.removed} & {1, 3}
    assert found.left == 0
    # The place of the attempt is in other traces too, and is no text that was learned.
    assert not [word for _, words in found.alike.entries for word in words if "attempt" in word]
    (before,) = found.namesakes
    assert before != name
    again = forgotten(then.folder, sources=[before])
    assert about_task(first, 0) in {about(e) for e in again.removed}
    assert (again.left, again.namesakes) == (0, ())


def test_the_name_of_a_user_for_a_task_is_its_name_in_all_runs(tmp_path: Path) -> None:
    first = learned(tmp_path / "a", make_tasks(2)[1:])
    then = learned(tmp_path / "b", [Task("t1", "Message 5: say word5", "word5")], seed_context=first.result.context)
    assert sources(then.result.context, "task:") == {"task:t1"}
    assert sorted(map(tuple, traces(then.result.context).values())) == [(1,), (5,)]
    found = forgotten(then.folder, tasks=["t1"])
    assert ({about(e) for e in found.removed}, found.namesakes) == ({1, 5}, ())


# ---- every way by which a context becomes the start of a run


async def by_learning(folder: Path, context: Context, run: Path) -> Context:
    await learn(
        make_tasks(1), method="none", out=folder, seed_context=context, parts=Parts(clients={"agent": client()})
    )
    return load_context(folder)


async def by_import(folder: Path, context: Context, run: Path) -> Context:
    create_seed(folder, context)
    return load_context(folder)


async def by_import_from_a_stranger(folder: Path, context: Context, run: Path) -> Context:
    assert create_seed(folder, context, "foreign") == len(context)
    with Store.open(folder) as store:
        approved = approve(store, read_reviews(store))
    assert not approved.refused
    return load_context(folder)


async def by_a_file(folder: Path, context: Context, run: Path) -> Context:
    folder.with_suffix(".json").write_text(export(context, "json"))
    create_seed(folder, load(folder.with_suffix(".json")))
    return load_context(folder)


async def by_serving(folder: Path, context: Context, run: Path) -> Context:
    async with served(folder, context=str(run)) as at:
        return load_context(at.service.spaces["default"].folder)


@pytest.mark.parametrize("way", [by_learning, by_import, by_import_from_a_stranger, by_a_file, by_serving])
@asynchronous
async def test_a_seed_has_one_identity_by_whatever_way_it_came(way: Any, tmp_path: Path) -> None:
    at, lived = "step 1/attempt/0.t1", {**LIVED, "trace": "step 1/attempt/0.t1"}
    entries = [
        Add("rules", "Say the word.", sources=("task:line-2", "rollout:step 1/attempt/1.line-2", "tag:a")),
        Add("rules", "Say it once.", sources=("task:asked-3", "task:logs/new.jsonl:7", "task:t1", "file:notes")),
        Add("pool agent1", "word1", "Message 1", lived, sources=("task:t1", f"rollout:{at}")),
        Add(".feedback", "Too long.", data={"lesson": "step 1/reflect/0"}, sources=(f"rollout:{at}",)),
    ]
    context = Context().apply(Delta(tuple(entries))).context
    create_seed(tmp_path / "run", context)
    found = await way(tmp_path / "new", context, tmp_path / "run")
    seed, trace = "seed c08fe935/", "trace 4ccbaa3a/"
    kept = [(tuple(s for s in e.sources if not s.startswith("trust:")), dict(e.data)) for e in found]
    assert kept == [
        ((f"task:{seed}line-2", f"rollout:{seed}step 1/attempt/1.line-2", "tag:a"), {}),
        ((f"task:{seed}asked-3", f"task:{seed}logs/new.jsonl:7", "task:t1", "file:notes"), {}),
        (("task:t1", f"rollout:{trace}{at}"), {**lived, "trace": f"{trace}{at}"}),
        ((f"rollout:{trace}{at}",), {"lesson": f"{seed}step 1/reflect/0"}),
    ]


# ---- contexts that are joined, and traces that are written by hand


def joined(one: Context, other: Context) -> Context:
    adds = (Add(e.section, e.text, e.key, e.data, sources=e.sources) for e in other)
    return one.apply(Delta(tuple(adds))).context


def test_contexts_that_are_joined_bring_two_traces_of_one_place(tmp_path: Path) -> None:
    runs = [learned(tmp_path / str(n), lines(tmp_path / f"{n}.jsonl", n)) for n in (1, 3)]
    assert runs[0].rollouts[0].place == runs[1].rollouts[0].place
    context = joined(runs[0].result.context, runs[1].result.context)
    then = learned(tmp_path / "both", lines(tmp_path / "5.jsonl", 5), seed_context=context)
    assert sorted(map(tuple, traces(then.result.context).values())) == [(1,), (3,), (5,)]
    (one,) = (e for e in then.result.context if about(e) == 1 and e.data["kind"] == "aggregate")
    found = forgotten(then.folder, sources=sorted(sources([one], "rollout:")))
    # What the run itself learned rests on some of it.
    assert {about(e) for e in found.removed} >= {1}
    assert 3 not in {about(e) for e in found.removed}


def test_two_files_by_hand_are_two_traces_and_the_same_file_is_one(tmp_path: Path) -> None:
    create_seed(tmp_path / "run", Context())

    def by_hand(*numbers: int, trace: str = "by hand") -> set[str]:
        file = tmp_path / f"hand-{numbers[0]}"
        made = ({"text": f"word{n}", "key": f"Message {n}", "data": {**LIVED, "trace": trace}} for n in numbers)
        file.write_text("".join(f"{json.dumps(line)}\n" for line in made))
        return {e.data["trace"] for e in run_sync(add(tmp_path / "run", file, "pool agent1")).entries}

    (one,), (other,) = by_hand(1, 3), by_hand(5)
    assert one != other
    assert by_hand(1, 3) == {one}
    # As in a line of an exported context.
    assert by_hand(7, trace=one) == {one}
    then = learned(tmp_path / "then", make_tasks(1), seed_context=load_context(tmp_path / "run"))
    assert {one, other} < {*traces(then.result.context)}


# ---- other names


def test_reflections_on_another_task_of_the_same_line_are_not_its_own(tmp_path: Path) -> None:
    model = scripted(scripts.wrong, lambda call: {"reflection": f"reflected on {scripts.number(call)}"})
    how: dict[str, Any] = {"settings": {"epochs": 1, "keep": 1}, "method": "reflexion"}
    first = scripts.learned(tmp_path / "a", model, lines(tmp_path / "one.jsonl", 1, 3), **how)
    then = scripts.learned(
        tmp_path / "b", model, lines(tmp_path / "two.jsonl", 5, 7), seed_context=first.result.context, **how
    )
    assert sorted(then.texts) == [f"reflected on {n}" for n in (1, 3, 5, 7)]
    again = scripts.learned(
        tmp_path / "c", model, lines(tmp_path / "new.jsonl", 0, 7), seed_context=then.result.context, **how
    )
    assert sorted(again.texts) == [f"reflected on {n}" for n in (0, 1, 3, 5, 7)]


def test_remembered_criticism_is_not_judged_by_what_a_later_criticism_of_its_name_did(tmp_path: Path) -> None:
    def run(name: str, criticism: list[str], instructions: list[str], **how: Any) -> Learned:
        said, written = iter(criticism), iter(instructions)

        model = scripted(
            scripts.obeying,
            lambda call: {"feedback": [next(said, "nothing")]},
            lambda call: {"instruction": next(written, "do 0")},
        )
        settings = {"batch": 4, "beam": 2, "feedback": 1, "recalled": 0, "steps": 2}
        return scripts.learned(tmp_path / name, model, 4, settings, "erm", **how)

    first = run("a", ["read the units", "count every spider leg twice"], ["solve 2", "solve 1"])
    then = run("b", ["colours are unclear", "ships sail at night"], [], seed_context=first.result.context)
    known, now = (r.result.context.in_section(".feedback") for r in (first, then))
    assert {e.data["lesson"] for e in known} & {x.id for report in then.reports for x in report.lessons}
    assert [(e.text, e.helpful, e.harmful) for e in now] == [(e.text, 0, 0) for e in known]


def test_traces_of_one_line_are_of_one_task_only_where_its_input_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name, numbers in (("one", (1, 3)), ("two", (5, 3))):
        tasks = lines(tmp_path / f"{name}.jsonl", *numbers)
        made = scripts.learned(tmp_path / name, scripted(), tasks, {"epochs": 2})
        made.folder.rename(tmp_path / "runs" / name)
    found = [(t.id, t.input[8], t.meta.get("own_id")) for t in load_traces(tmp_path / "runs").tasks]
    # Both runs end with the same line of their files, and begin with different ones.
    assert sorted(found) == [
        ("line-1", "1", None), ("line-1#2", "1", "line-1"), ("line-1#3", "5", None), ("line-1#4", "5", "line-1#3"),
        ("line-2", "3", None), *((f"line-2#{n}", "3", "line-2") for n in (2, 3, 4)),
    ]  # fmt: skip


def test_a_leg_after_a_removal_has_places_of_its_own(tmp_path: Path) -> None:
    """The ids of the tasks are long enough to be looked for, and the note about a leg names them."""
    tasks = [Task(f"ticket-00000{n}", f"Message {n}: say word{n}", f"word{n}") for n in range(4)]
    run = scripts.learned(tmp_path, scripted(scripts.wrong), tasks, {"batch": 1, "rounds": 0})

    def next_leg() -> list[str]:
        with Store.open(run.folder) as store:
            roll_back(store, 1)
        return [r.place for r in scripts.resumed(run, scripted(scripts.wrong)).rollouts]

    places = next_leg()
    found = forgotten(run.folder, tasks=[places[-1].partition(".")[2]])
    assert found.left == 0
    assert not {*places} & {*next_leg()}
