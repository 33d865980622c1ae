"""A run in a program: views, reports, learning, questions, evaluations and comparisons."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous
from python_kit import LEARNED, Seen, in_space, learned, parts, refused, reported
from python_roles import down, model
from python_tasks import again, lesson, message, messages, word

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


def test_a_variable_names_the_model_of_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = practicum.Parts(agent=lambda text, context: "first")
    practicum.run_sync(practicum.learn(messages(0), method="episodes", parts=own, out=tmp_path / "own"))
    for name in ("first", "second"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"role": "agent", "answer": name}), encoding="utf-8")
    monkeypatch.setenv("PRACTICUM_MODEL", f"scripted:{tmp_path / 'first.jsonl'}")
    tasks = [practicum.Task("a", "which?", "first"), practicum.Task("b", "which?", "second")]
    score = practicum.run_sync(practicum.evaluate(tasks, practicum.Context(), method="none")).score
    run = practicum.run_sync(practicum.learn(tasks, test=tasks, method="none", out=tmp_path / "run")).run
    monkeypatch.setenv("PRACTICUM_MODEL", f"scripted:{tmp_path / 'second.jsonl'}")
    assert (score, practicum.run_sync(practicum.ask("which?", run)).text) == (0.5, "first")

    async def model_of(space: Any) -> str | None:
        return (await space.show("which?")).config.model  # type: ignore[no-any-return]

    # A run that exists gets none by a resume.
    practicum.run_sync(practicum.resume(tmp_path / "own", parts=own))
    assert in_space(tmp_path / "own", model_of, parts=own) is None


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
    space, shown = in_space(run, work, silent)
    assert silent.calls == []
    with refused("space.closed"):
        practicum.run_sync(space.show(QUERY))
    in_space(run, lambda space: space.ask(QUERY), asked)
    (call,) = asked.calls
    assert all(text in shown.text and text in call.prompt.head for text in run.texts)
    assert (shown.version, shown.query, shown.ids) == (run.result.context.version, QUERY, ("e0", "e1", "e2"))
    assert [each["role"] for each in shown.messages] == ["system", "user"]
    assert shown.messages[-1]["content"] == call.prompt.user
    notes = re.compile(r"<notes-\w+>.*</notes-\w+>", re.DOTALL)
    assert notes.findall(shown.messages[0]["content"]) == notes.findall(call.prompt.head) != []


def test_messages_are_the_chat_of_the_agent_also_of_a_small_model(tmp_path: Path) -> None:
    how: dict[str, Any] = {"profile": "small", "choices": [word(n) for n in range(8)]}
    seen, asked = learned(tmp_path, messages(0, 1), model(), "episodes", **how), model()
    shown = in_space(seen, lambda space: space.show(QUERY))
    in_space(seen, lambda space: space.ask(QUERY), asked)
    # Without solved tasks the choices are listed.
    practicum.run_sync(practicum.evaluate([message(6)], practicum.Context(), parts=parts(asked), **how))
    assert word(7) in asked.calls[-1].prompt.head
    prompt = asked.calls[0].prompt
    assert word(7) not in prompt.head
    turns = [text for turn in prompt.turns for text in (turn.user, turn.assistant)]
    assert len(turns) == 4
    assert [each["content"] for each in shown.messages] == [text for text in (prompt.head, *turns, prompt.user) if text]


# ---- reports


def test_a_reported_outcome_is_learned_from_as_a_further_step_also_by_a_later_program(learned_run: Seen) -> None:
    async def first(space: Any) -> Any:
        shown = await space.show(QUERY)
        for score in (2.0, "good"):
            with refused("outcome.invalid"):
                await reported(space, shown, score=score)
        return shown

    async def later(space: Any) -> Any:
        await reported(space, shown.id, score=0.0, comment="It was read too fast.")
        await reported(space, shown.id, target="word7")
        with refused("interaction.unknown"):
            await reported(space, "q1", score=1.0)
        return await space.learn(), await space.learn(), await space.show(QUERY)

    played = model()
    shown = in_space(learned_run, first, played)
    result, nothing_more, after = in_space(learned_run, later, played)
    assert (result.steps, result.scores) == (1, {"reported": 0.0})
    assert [entry.text for entry in result.context] == [*learned_run.texts, lesson(7)]
    assert any("It was read too fast." in call.text for call in played.calls if call.role == "reflector")
    assert f"task:{shown.id}.2" in result.context.get("e3").sources
    assert (nothing_more.steps, len(played.calls)) == (0, 2)
    assert lesson(7) in after.text
    assert lesson(7) not in shown.text


@pytest.mark.slow
def test_reports_above_a_spent_budget_are_learned_from_next_time(learned_run: Seen) -> None:
    async def work(space: Any) -> Any:
        for n in (5, 6, 7):
            shown = await space.show(f"Message {n}: which word?")
            await reported(space, shown, score=0.0, target=word(n))
        cut = await space.learn(max_calls=4)
        return cut, await space.learn(max_calls=1000)

    played = model()
    cut, rest = in_space(learned_run, work, played)
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


def test_an_agent_that_fails_gives_an_error_in_place_of_a_text() -> None:
    def agent(text: str, context: str) -> str:
        raise ValueError(text)

    asked = practicum.ask("which?", practicum.Context(), method="episodes", parts=practicum.Parts(agent=agent))
    answered = practicum.run_sync(asked)
    assert answered.text == ""
    assert answered.error is not None
    assert answered.error.endswith("raised ValueError: which?")


# ---- versions and names


def test_a_name_refers_to_a_version_while_a_question_is_learned_from_as_one_more_step(learned_run: Seen) -> None:
    folder = learned_run.folder

    async def work(space: Any) -> None:
        assert space.name("prod") == 3
        assert space.names == {"prod": 3}
        answered = await space.ask(QUERY, learn=True, target="word7")
        assert (answered.text, answered.learned.step) == ("unsure", 4)
        assert (await space.ask(QUERY)).text == "word7"
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

    in_space(folder, work)
    with refused("version.unknown"):
        practicum.open(f"{folder}@prod")
    with refused("version.unknown"):
        practicum.load_context(folder, 77)
    assert [entry.text for entry in practicum.load_context(folder)] == [*learned_run.texts, lesson(7)]


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

    assert in_space(book, work).text == "word4"
    assert in_space(practicum.load(book), work).text == "word4"
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


@pytest.mark.parametrize(("answer", "score"), [("The dog and the cat run.", 0.6), ("A dog and a cat.", 0.4)])
def test_commongen_is_the_share_of_the_concepts_times_the_grade_of_a_judge(answer: str, score: float) -> None:
    grades = {"grammar": 6, "fluency": 6, "relevance": 8, "logic": 4}
    played = model(agent=lambda call: {"answer": answer}, judge=lambda call: grades)
    tasks = [practicum.Task("t", "dog, cat, run", meta={"concepts": ["dog", "cat", "run"]})]
    work = practicum.evaluate(tasks, practicum.Context(), scorer="commongen", parts=parts(played))
    assert practicum.run_sync(work).score == pytest.approx(score)


def test_an_evaluation_with_a_folder_resumes_after_its_budget(tmp_path: Path, run: Seen) -> None:
    played = model()

    def evaluated(**how: Any) -> Any:
        how |= {"out": tmp_path / "eval", "parts": parts(played)}
        return practicum.run_sync(practicum.evaluate(again(0, 1, 2, 9), run.result.context, **how))

    cut = evaluated(max_calls=2, concurrency=1)
    assert (cut.n, len(played.calls)) == (2, 2)
    whole = evaluated()
    assert (whole.n, whole.score, len(played.calls), whole.usage.calls) == (4, 0.75, 4, 4)


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
        # Without a source, an edit on top of its edit is dropped too.
        text = space.context.get("e0").text
        await space.edit(practicum.Update("e0", "Look.", sources=("task:x",)))
        await space.edit(practicum.Update("e0", "Look twice."))
        await space.forget(sources=["task:x"], keep_mixed=True)
        assert space.context.get("e0").text == text
        # The id of an entry that was rolled back is not used again.
        await space.edit(practicum.Add("rules", "Read slowly."))
        assert [one.id for one in space.context] == ["e0", "e2", "e4"]

    in_space(learned_run, work)


def test_a_merge_with_a_forgotten_entry_is_forgotten(learned_run: Seen) -> None:
    async def work(space: Any) -> None:
        (task,) = (source for source in space.context.get("e1").sources if source.startswith("task:"))
        await space.edit(practicum.Merge(("e0", "e1"), text="Look twice."))
        done = await space.forget(sources=[task])
        assert (done.left, [one.id for one in done.removed]) == (0, ["e0"])
        assert [one.id for one in space.context] == ["e2"]

    in_space(learned_run, work)


# ---- further tasks


def test_a_space_learns_from_further_tasks_and_traces_and_pays_once(learned_run: Seen, tmp_path: Path) -> None:
    def learn(tasks: Any, **rules: Any) -> tuple[list[str], Any]:
        played = model(**rules)
        result = in_space(learned_run, lambda space: space.learn(tasks), played)
        return [call.role for call in played.calls], result

    with refused("attempts.all_failed"):
        learn(messages(7), curator=down)
    assert learn(messages(7))[0] == ["curator"]
    line = {"id": "t8", "input": "Message 8: which word?", "target": word(8), "recorded": {"trace": {"answer": "x"}}}
    (tmp_path / "traces.jsonl").write_text(json.dumps(line), encoding="utf-8")
    roles, result = learn(practicum.load_traces(tmp_path / "traces.jsonl", trust="own").tasks)
    assert roles == ["reflector", "curator"]
    assert [entry.text for entry in result.context] == [*learned_run.texts, lesson(7), lesson(8)]
    assert (learn([])[1].steps, learn([])[0]) == (0, [])


@asynchronous
async def test_run_sync_refuses_to_run_in_a_loop(run: Seen) -> None:
    with pytest.raises(RuntimeError):
        practicum.run_sync(practicum.ask(QUERY, run.folder))
