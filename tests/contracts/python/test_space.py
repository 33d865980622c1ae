"""A run in a program: views, reports, learning, questions, evaluations and comparisons."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from python_kit import LEARNED, Seen, learned, refused, reported
from python_roles import down, model
from python_tasks import again, lesson, messages, word

import practicum

QUERY = "Message 7: which word?"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run of ACE that learned messages 0, 1 and 2. Tests that write to it take `learned_run`."""
    return learned(tmp_path_factory.mktemp("run"), LEARNED, settings={"rounds": 0})


@pytest.fixture
def learned_run(tmp_path: Path, run: Seen) -> Seen:
    """A copy of it."""
    shutil.copytree(run.folder, tmp_path / "run")
    return replace(run, folder=tmp_path / "run")


def parts(played: Any = None) -> practicum.Parts:
    return practicum.Parts(clients={"agent": played or model()})


def use(source: Any, work: Any, played: Any = None, **how: Any) -> Any:
    """Do something with an open space."""

    async def inside() -> Any:
        async with practicum.open(source, parts=parts(played), **how) as space:
            return await work(space)

    return practicum.run_sync(inside())


# ---- ten lines of Python


def test_ten_lines_of_python_learn_from_a_file_with_a_model_by_name(tmp_path: Path) -> None:
    """As in README; a run whose parts have names is resumed by its folder."""
    script = [
        {"role": "agent", "match": r"answer (word\d)\.[\s\S]*more: which", "answer": r"\1"},
        {"role": "agent", "answer": "unsure"},
        {"role": "reflector", "match": r"Message (\d): [\s\S]*answer is: (word\d)", "answer": {
            "reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": [],
            "insights": [{"section": "", "text": r"If it is message \1, answer \2."}]}},
        {"role": "curator", "answer": {"changes": [{
            "op": "ADD", "insights": [1], "ids": [], "section": "", "text": "", "reason": "It is new."}]}},
    ]  # fmt: skip
    (tmp_path / "model.jsonl").write_text("\n".join(map(json.dumps, script)), encoding="utf-8")
    lines = [{"input": task.input, "target": task.target} for task in (*messages(0), *again(0))]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    tasks = practicum.load_tasks(tmp_path / "tasks.jsonl")
    cut = len(tasks) // 2
    result = practicum.run_sync(practicum.learn(
        tasks[:cut], test=tasks[cut:], method="ace", model=f"scripted:{tmp_path / 'model.jsonl'}", max_calls=20,
        settings={"rounds": 0}, out=tmp_path / "run",
    ))  # fmt: skip
    assert lesson(0) in practicum.export(result.context, "markdown")
    assert result.scores == {"test": 1.0}
    assert (result.usage.calls, result.run) == (4, tmp_path / "run")
    again_ = practicum.run_sync(practicum.resume(result.run))
    assert (again_.scores, again_.usage.calls, again_.stopped) == (result.scores, 4, None)


def test_a_variable_names_the_model_of_a_run_that_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"role": "agent", "answer": name}), encoding="utf-8")
    monkeypatch.setenv("PRACTICUM_MODEL", f"scripted:{tmp_path / 'first.jsonl'}")
    tasks = [practicum.Task("a", "which?", "first"), practicum.Task("b", "which?", "second")]
    score = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), method="none")).score
    run = practicum.run_sync(practicum.learn(tasks, test=tasks, method="none", out=tmp_path / "run")).run
    monkeypatch.setenv("PRACTICUM_MODEL", f"scripted:{tmp_path / 'second.jsonl'}")
    asked = practicum.run_sync(practicum.ask("which?", run))
    assert (score, asked.text) == (0.5, "first")


def test_the_variable_gives_no_model_to_a_run_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def own(input: str, context: str) -> str:
        return "first"

    async def model_of(run: Path) -> str | None:
        async with practicum.open(run, parts=parts) as space:
            return (await space.show("which?")).config.model

    parts, tasks = practicum.Parts(agent=own), [practicum.Task("a", "which?", "first")]
    run = practicum.run_sync(practicum.learn(tasks, method="episodes", parts=parts, out=tmp_path / "run")).run
    monkeypatch.setenv("PRACTICUM_MODEL", "openai:another")
    practicum.run_sync(practicum.resume(run, parts=parts))
    assert practicum.run_sync(model_of(run)) is None


# ---- views


def test_a_program_sees_the_view_of_the_agent_without_a_call(run: Seen) -> None:
    async def work(space: Any) -> Any:
        with refused("query.empty"):
            await space.show(" \n")
        # Many tasks may use a space at once.
        many = await asyncio.gather(*(space.show(f"Message {n}: which word?") for n in range(20)))
        assert (len({each.id for each in many}), len({each.text for each in many})) == (20, 1)
        return space, await space.show(QUERY)

    silent, asked = model(agent=down, reflector=down, curator=down), model()
    space, shown = use(run.folder, work, silent)
    assert silent.calls == []
    with refused("space.closed"):
        practicum.run_sync(space.show(QUERY))
    use(run.folder, lambda space: space.ask(QUERY), asked)
    (call,) = asked.calls
    assert all(text in shown.text and text in call.prompt.head for text in run.texts)
    assert (shown.version, shown.query, shown.ids) == (run.result.context.version, QUERY, ("e0", "e1", "e2"))
    assert [each["role"] for each in shown.messages] == ["system", "user"]
    assert shown.messages[-1]["content"] == call.prompt.user


def test_a_network_of_agents_is_asked_and_not_shown(tmp_path: Path) -> None:
    seen = learned(tmp_path, messages(0), method="mael")

    async def ask(space: Any) -> Any:
        with refused("method.unsuitable"):
            await space.show(QUERY)
        return await space.ask(QUERY)

    assert use(seen.folder, ask).text == "unsure"


# ---- reports


def test_a_reported_outcome_is_learned_from_as_a_further_step(learned_run: Seen) -> None:
    async def work(space: Any) -> Any:
        shown = await space.show(QUERY)
        await reported(space, shown, score=0.0, target="word7", comment="It was read too fast.")
        result = await space.learn()
        again_ = await space.learn()
        return shown, result, again_, await space.show(QUERY)

    played = model()
    shown, result, nothing_more, after = use(learned_run.folder, work, played)
    assert (result.steps, result.scores) == (1, {"reported": 0.0})
    assert [entry.text for entry in result.context] == [*learned_run.texts, lesson(7)]
    assert any("It was read too fast." in call.text for call in played.calls if call.role == "reflector")
    assert f"task:{shown.id}.1" in result.context.get("e3").sources
    assert (nothing_more.steps, len(played.calls)) == (0, 2)
    assert lesson(7) in after.text
    assert lesson(7) not in shown.text


def test_a_report_by_id_survives_the_program_that_was_shown_it(learned_run: Seen) -> None:
    async def first(space: Any) -> str:
        shown = await space.show(QUERY)
        for score in (2.0, "good"):
            with refused("outcome.invalid"):
                await reported(space, shown, score=score)
        return str(shown.id)

    async def later(space: Any) -> Any:
        await reported(space, id_, answer="unsure", score=0.0)
        await reported(space, id_, target="word7")
        with refused("interaction.unknown"):
            await reported(space, "q1", score=1.0)
        return await space.learn()

    id_ = use(learned_run.folder, first)
    assert use(learned_run.folder, later).steps == 1


def test_reports_above_a_spent_budget_are_learned_from_next_time(learned_run: Seen) -> None:
    async def work(space: Any) -> Any:
        for n in (5, 6, 7):
            shown = await space.show(f"Message {n}: which word?")
            await reported(space, shown, score=0.0, target=word(n))
        cut = await space.learn(max_calls=4)
        return cut, await space.learn(max_calls=1000)

    played = model()
    cut, rest = use(learned_run.folder, work, played)
    assert cut.stopped is not None
    assert sorted(entry.text for entry in rest.context) == sorted([*learned_run.texts, *map(lesson, (5, 6, 7))])
    assert len(played.calls) == 6


# ---- questions


def test_an_answer_names_its_entries_and_writes_nothing(run: Seen) -> None:
    answered = practicum.run_sync(practicum.ask("Message 1: which word?", run.folder, parts=parts()))
    assert (answered.text, answered.as_json()["answer"]) == ("word1", "word1")
    assert [entry.text for entry in answered.used] == [lesson(1)]
    assert answered.context.version == run.result.context.version
    assert (answered.usage.calls, answered.learned) == (1, None)
    assert len(practicum.load_context(run.folder)) == 3
    with refused("settings.conflict"):
        # A target is only for learning.
        practicum.run_sync(practicum.ask(QUERY, run.folder, target="word7", parts=parts()))


def test_a_question_may_be_learned_from_as_one_more_step(learned_run: Seen) -> None:
    answered = practicum.run_sync(
        practicum.ask(QUERY, learned_run.folder, learn=True, target="word7", parts=parts())
    )  # fmt: skip
    assert (answered.text, answered.learned.step) == ("unsure", 4)
    assert lesson(7) in [entry.text for entry in practicum.load_context(learned_run.folder)]
    assert practicum.run_sync(practicum.ask(QUERY, learned_run.folder, parts=parts())).text == "word7"


# ---- versions and names


def test_a_name_refers_to_a_version_while_the_run_continues_to_learn(learned_run: Seen) -> None:
    folder = learned_run.folder

    async def work(space: Any) -> None:
        assert space.name("prod") == 3
        assert space.names == {"prod": 3}
        await space.ask(QUERY, learn=True, target="word7")
        async with practicum.open(f"{folder}@prod") as pinned, practicum.open(folder, version=1) as first:
            assert len(pinned.context) == 3
            assert [one.text for one in first.context] == learned_run.texts[:1]
            with refused("settings.conflict"):
                # An earlier version does not learn.
                await first.ask(QUERY, learn=True)
            assert len(space.context) == 4
            assert space.name("prod", 4) == 4
            assert len(pinned.context) == 4
            with refused("version.invalid_name"):
                space.name("12")
            with refused("version.unknown"):
                space.name("prod", 99)
        space.unname("prod")
        assert space.names == {}

    use(folder, work)
    with refused("version.unknown"):
        practicum.open(f"{folder}@prod")
    with refused("version.unknown"):
        practicum.load_context(folder, 77)
    assert len(practicum.load_context(folder)) == 4


# ---- playbooks


def test_a_playbook_file_is_shown_and_asked_but_stores_nothing(tmp_path: Path) -> None:
    book = tmp_path / "book.md"
    book.write_text("## rules\n\n- If it is message 4, answer word4.\n", encoding="utf-8")

    async def work(space: Any) -> Any:
        shown = await space.show("Message 4: which word?")
        assert "If it is message 4" in shown.text
        with refused("run.needed"):
            await reported(space, shown, score=1.0)
        for work in (space.learn, lambda: space.rollback(0), lambda: space.edit(practicum.Delete("e0")),
                     lambda: space.forget(entries=["e0"])):  # fmt: skip
            with refused("run.needed"):
                await work()
        assert space.versions() == []
        return await space.ask("Message 4: which word?")

    assert use(book, work).text == "word4"
    assert use(practicum.load(book), work).text == "word4"
    with refused("playbook.not_found"):
        practicum.open(tmp_path / "nothing")


# ---- evaluation


def test_an_evaluation_is_a_score_with_its_interval(run: Seen) -> None:
    done = practicum.run_sync(practicum.evaluate(again(0, 1, 2, 9), run.folder, repeat=2, parts=parts()))
    assert (done.score, done.n, done.repeat, done.errors) == (0.75, 4, 2, 0)
    assert 0 < done.ci95[0] < 0.75 < done.ci95[1] < 1
    assert done.usage.calls == 8
    values = json.loads(json.dumps(done.as_json()))
    assert [attempt["value"] for attempt in values["attempts"]] == [1, 1, 1, 0] * 2
    assert len(practicum.load_context(run.folder)) == 3
    with refused("attempts.all_failed"):
        practicum.run_sync(practicum.evaluate(again(0, 1), run.folder, retries=0, parts=parts(model(agent=down))))


def test_an_evaluation_with_a_folder_resumes_after_its_budget(tmp_path: Path, run: Seen) -> None:
    played = model()

    def evaluated(**how: Any) -> Any:
        how |= {"out": tmp_path / "eval", "parts": parts(played)}
        return practicum.run_sync(practicum.evaluate(again(0, 1, 2, 9), run.result.context, **how))

    cut = evaluated(max_calls=2, concurrency=1)
    assert (cut.n, len(played.calls)) == (2, 2)
    whole = evaluated()
    assert (whole.n, whole.score, len(played.calls), whole.usage.calls) == (4, 0.75, 4, 4)


# ---- comparisons


@pytest.mark.slow
def test_a_comparison_runs_every_method_with_every_seed_under_one_budget(tmp_path: Path) -> None:
    played = model()

    def compared() -> Any:
        work = practicum.compare(
            LEARNED, test=again(0, 1, 2, 9), methods=["none", "episodes", "ace"], seeds=2, out=tmp_path / "c",
            settings={"ace.rounds": 0}, max_calls=40, parts=parts(played),
        )  # fmt: skip
        return practicum.run_sync(work)

    done = compared()
    rows = {row["name"]: row for row in done.report["variants"]}
    assert {name: row["score"] for name, row in rows.items()} == {"none": 0.0, "episodes": 0.75, "ace": 0.75}
    assert {name: row["by_seed"] for name, row in rows.items()}["ace"] == {"0": 0.75, "1": 0.75}
    assert {name: row["calls"] for name, row in rows.items()} == {"none": 4, "episodes": 4, "ace": 3 + 3 + 3 + 4}
    assert done.report["runs"] == {"planned": 6, "done": 6}
    assert done.failed == ()
    assert len(played.calls) == sum(2 * row["calls"] for row in rows.values())
    # Four tasks and two seeds allow no claim, and the report says so.
    assert len(done.report["warnings"]) == 2
    assert {"report.html", "report.json", "report.md"} <= {path.name for path in (tmp_path / "c").iterdir()}
    # The same comparison again pays nothing.
    paid = len(played.calls)
    assert compared().report["variants"] == done.report["variants"]
    assert len(played.calls) == paid


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"methods": ["ace", "ace"]}, "comparison.duplicate"),
        ({"methods": ["none", "nothing_of_that_name"]}, "method.unknown"),
        ({"test": LEARNED}, "tasks.overlap"),
        ({"seed": 3}, "settings.conflict"),
    ],
    ids=str,
)
def test_an_unfair_comparison_is_refused(tmp_path: Path, how: dict[str, Any], code: str) -> None:
    played, out = model(), tmp_path / "c"
    how = {"test": again(0, 1), "methods": ["none", "ace"], **how}
    with refused(code):
        practicum.run_sync(practicum.compare(LEARNED, out=out, parts=parts(played), **how))
    assert (played.calls, out.exists()) == ([], False)


# ---- versions, edits, forgetting


def test_a_program_edits_rolls_back_and_forgets(learned_run: Seen) -> None:
    async def work(space: Any) -> None:
        versions = space.versions()
        assert versions[-1].version == space.context.version == learned_run.result.context.version
        edited = await space.edit(practicum.Add("rules", "Read twice."), practicum.Delete("e0"), practicum.Delete("e9"))
        assert [one.text for one in space.context] == [*learned_run.texts[1:], "Read twice."]
        assert [one.edit.id for one in edited.refused] == ["e9"]
        assert "Read twice." in space.export("markdown")
        rollback = await space.rollback(versions[-1].version)
        assert [one.text for one in space.context] == learned_run.texts
        assert space.versions()[-1].version == rollback == versions[-1].version + 2
        done = await space.forget(entries=["e1"])
        assert (done.left, [one.id for one in done.removed]) == (0, ["e1"])
        assert [one.text for one in space.context] == [learned_run.texts[0], learned_run.texts[2]]
        assert len(space.corrections) == 0

    use(learned_run.folder, work)


# ---- further tasks


def test_a_space_learns_from_further_tasks_and_pays_nothing_twice_after_a_failure(learned_run: Seen) -> None:
    with refused("attempts.all_failed"):
        use(learned_run.folder, lambda space: space.learn(messages(7)), model(curator=down))
    for n, roles in ((7, ["curator"]), (8, ["agent", "reflector", "curator"])):
        played, tasks = model(), messages(n)
        result = use(learned_run.folder, lambda space, tasks=tasks: space.learn(tasks), played)
        assert [call.role for call in played.calls] == roles
    assert [entry.text for entry in result.context] == [*learned_run.texts, lesson(7), lesson(8)]
    empty = use(learned_run.folder, lambda space: space.learn([]))
    assert (empty.steps, empty.usage.calls) == (0, 0)


def test_a_space_learns_from_further_traces_as_they_were_answered(learned_run: Seen, tmp_path: Path) -> None:
    (task,) = messages(7)
    line = {"id": task.id, "input": task.input, "target": task.target, "recorded": {"trace": {"answer": "unsure"}}}
    (tmp_path / "traces.jsonl").write_text(json.dumps(line), encoding="utf-8")
    tasks = practicum.load_traces(tmp_path / "traces.jsonl", trust="own").tasks
    played = model()
    result = use(learned_run.folder, lambda space: space.learn(tasks), played)
    assert [entry.text for entry in result.context] == [*learned_run.texts, lesson(7)]
    assert [call.role for call in played.calls] == ["reflector", "curator"]


def test_run_sync_refuses_to_run_in_a_loop(run: Seen) -> None:
    async def notebook() -> None:
        with pytest.raises(RuntimeError):
            practicum.run_sync(practicum.ask(QUERY, run.folder))

    asyncio.run(notebook())
