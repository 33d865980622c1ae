"""The user's methods, agents, scorers and watches, as docs/extend/method.md describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from python_kit import LEARNED, TEST, in_space, learned, playbook, refused, resumed, slow
from python_roles import down, model
from python_tasks import again, lesson, messages, number

import practicum
from practicum import Add, Attempt, Batch, Context, Delta, Feedback, Lesson, Method, Run, Task, View

# ---- a method: its seams, by hand


async def show(context: Context, task: Task, run: Run) -> View:
    """All notes."""
    notes = "\n".join(f"[{entry.id}] ({entry.section}) {entry.text}" for entry in context)
    return View(pages=(notes,) if notes else (), ids=context, citable=bool(notes))


def notes(show: Any = show, **changed: Any) -> Method:
    """A method that notes every right answer, with this view or with other seams."""

    def sample(tasks: Sequence[Task], history: Any, run: Run) -> Any:
        for task in tasks:
            yield Batch((task,))

    async def act(task: Task, context: Context, run: Run) -> Attempt:
        trace = await run.agent(task, await show(context, task, run))
        score = await run.score(task, trace)
        right = score is not None and score.correct
        feedback = Feedback(right, f"The right answer is {task.target}.", task.target)
        return Attempt(task, trace, score, feedback, run.place)

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return [await act(task, context, run.at(task.id, about=task.sources)) for task in batch.tasks]

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        return [
            Lesson(f"{r.place}/note", f"It is {r.task.target}: {r.task.input}", sources=r.sources) for r in attempts
        ]

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return Delta(tuple(Add("notes", x.text, sources=x.sources, lessons=(x.id,)) for x in lessons))

    async def accept(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        return delta

    seams = {"sample": sample, "act": act, "attempt": attempt, "reflect": reflect, "update": update, "accept": accept}
    return Method(**{"name": "notes", "show": show, **seams, **changed})


NOTES = notes()


def test_a_method_of_the_user_learns_and_is_evaluated_and_asked(tmp_path: Path) -> None:
    seen = learned(tmp_path, LEARNED, method=NOTES, test=TEST)
    assert seen.roles == {"agent": 6}
    assert seen.texts == [f"It is word{n}: Message {n}: which word?" for n in (0, 1, 2)]
    assert seen.result.scores["test"] == pytest.approx(2 / 3)
    parts = practicum.Parts(clients={"agent": model()})
    done = practicum.run_sync(practicum.evaluate(again(0, 9), seen.result.context, method=NOTES, parts=parts))
    assert done.score == 0.5
    asked = practicum.run_sync(practicum.ask("Message 1: which word?", seen.folder, method=NOTES, parts=parts))
    assert asked.text == "word1"


def test_a_resume_needs_the_unchanged_method_and_pays_nothing_twice(tmp_path: Path) -> None:
    cut = learned(tmp_path, messages(*range(4)), method=NOTES, max_calls=2)

    async def brief(context: Context, task: Task, run: Run) -> View:
        return replace(await show(context, task, run), pages=("Be brief.",))

    with refused("run.needs_objects"):
        resumed(cut.folder)
    with refused("journal.mismatch"):
        resumed(cut.folder, parts={"method": notes(brief)}, max_calls=100)
    whole = resumed(cut.folder, parts={"method": NOTES}, max_calls=100)
    assert len(whole.texts) == 4
    assert len(cut.model.calls) + len(whole.model.calls) == 4


async def nothing(*arguments: Any) -> Any:
    return None


async def failing(context: Context, task: Task, run: Run) -> View:
    """A view with a mistake."""
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("seam", "wrong"),
    [
        ("attempt", nothing), ("show", failing),
        slow("show", nothing), slow("reflect", nothing), slow("update", nothing), slow("accept", nothing),
    ],
)  # fmt: skip
def test_a_seam_with_a_wrong_result_is_named_and_paid_answers_are_stored(tmp_path: Path, seam: str, wrong: Any) -> None:
    """A view that fails costs no attempt, and is named for a query too."""
    bad, played = notes(**{seam: wrong}), model()
    with refused("method.wrong_result") as raised:
        learned(tmp_path, LEARNED, played, bad)
    assert ("'notes'" if seam == "show" else f"`{seam}`") in str(raised.value)
    fixed = resumed(tmp_path / "run", parts={"method": NOTES})
    assert len(fixed.texts) == 3
    assert len(played.calls) + len(fixed.model.calls) == 3
    if seam == "show":
        assert played.calls == []
        with refused("method.wrong_result") as raised:
            in_space(fixed, lambda space: space.show("Message 1: which word?"), method=bad)
        assert "`show`" in str(raised.value)


def test_a_method_needs_a_view() -> None:
    seams = ("name", "sample", "act", "attempt", "reflect", "update", "accept")
    with refused("method.no_show"):
        Method(**{seam: getattr(NOTES, seam) for seam in seams})


def test_an_effect_needs_a_unique_place(tmp_path: Path) -> None:
    async def twice(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        return [await NOTES.act(task, context, run.at("the same")) for task in (*batch.tasks, *batch.tasks)]

    with refused("journal.place_taken"):
        learned(tmp_path, LEARNED, method=notes(attempt=twice))


def test_a_run_offers_models_chance_notes_and_counters(tmp_path: Path) -> None:
    """Each is journaled or seeded, so another run with the same seed repeats it."""
    drawn: list[float] = []

    async def reflecting_(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        drawn.append(run.rng("draw").random())
        thought = await run.at("thought").ask_text("reflector", practicum.Prompt("Be brief.", attempts[0].task.input))
        vectors = await run.embed([thought, "another"])
        assert vectors.shape[0] == 2
        return [Lesson(f"{attempts[0].place}/l", thought, sources=attempts[0].sources)]

    thinking = notes(reflect=reflecting_, roles=("reflector",))
    played = model(reflector=lambda call: {"answer": f"Thought about {lesson(number(call))}"})
    seen = learned(tmp_path, LEARNED, played, thinking)
    assert seen.texts == [f"Thought about {lesson(n)}" for n in (0, 1, 2)]
    assert len(set(drawn)) == 3
    first = drawn[:]
    drawn.clear()
    learned(tmp_path / "again", LEARNED, played, thinking)
    assert drawn == first


# ---- an agent


def test_a_function_is_an_agent_that_receives_the_task_and_the_context_and_may_fail(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def own(text: str, context: str) -> dict[str, Any]:
        calls.append((text, context))
        if "Message 1" in text:
            return {"error": "no way there"}
        steps = [{"kind": "action", "text": "looked it up"}]
        return {
            "answer": "word0" if "word0" in context else "unsure",
            "used": ["e0"] if context else [],
            "steps": steps,
        }

    how: dict[str, Any] = {"settings": {"rounds": 0, "online": True}, "trust_tools": True, "test": again(0)}
    seen = learned(tmp_path, messages(0, 1), parts={"agent": own}, **how)
    assert calls[0] == ("Message 0: which word?", "")
    assert lesson(0) in calls[-1][1]
    assert seen.result.scores["test"] == 1.0
    assert seen.result.attempts["test"][0].trace.used == ("e0",)
    assert "looked it up" in seen.calls("reflector")[0].text
    assert "agent" not in seen.roles
    assert (seen.result.errors["failed_attempts"], seen.result.steps) == (1, 2)


def test_an_agent_may_be_async_a_function_or_a_maker_of_traces(tmp_path: Path) -> None:
    async def asynchronous(text: str, context: str) -> str:
        return "word0"

    book = playbook(tmp_path, lesson(0))
    for own in (asynchronous, lambda text, context: "word0", lambda text, context: practicum.Trace("word0")):
        done = practicum.run_sync(practicum.evaluate(again(0, 1), book, method="ace", parts=practicum.Parts(agent=own)))
        assert [attempt.trace.answer for attempt in done.attempts] == ["word0", "word0"]
        assert done.score == 0.5


# ---- a scorer


def test_a_function_is_a_scorer_of_a_number_a_bool_or_a_score_with_measures(tmp_path: Path) -> None:
    def graded(task: Task, answer: str, trace: practicum.Trace) -> practicum.Score:
        assert trace.answer == answer
        right = answer == task.target
        return practicum.Score(1.0 if right else 0.25, right, "It is a start.", {"letters": float(len(answer))})

    seen = learned(tmp_path, messages(0), parts={"scorer": graded}, settings={"rounds": 0}, test=again(0, 9))
    assert seen.result.scores["test"] == pytest.approx((1 + 0.25) / 2)
    assert "It is a start." in seen.calls("reflector")[0].text
    work = practicum.evaluate(
        again(0, 9), seen.result.context, method="ace",
        parts=practicum.Parts(scorer=graded, clients={"agent": model()}),
    )  # fmt: skip
    assert practicum.run_sync(work).measures == {"letters": pytest.approx((5 + 6) / 2)}
    yes = practicum.Parts(scorer=lambda task, answer: answer == "unsure", clients={"agent": model()})
    assert practicum.run_sync(practicum.evaluate(again(9), Context(), method="none", parts=yes)).score == 1.0


def test_built_in_scorers_compare_answers() -> None:
    for scorer, target, right, wrong in (
        ("exact", "The Falcon team", '"the falcon  team."', "The Falcons team"),
        ("numeric", "12.50", "So it is 12.5.", "It is 13."),
        ("contains", "falcon", "Ask the Falcon team.", "Ask the Heron team."),
        ("regex", r"^\d{3}$", "123", "1234"),
        ("list", "a, b", "a, b", "a"),
    ):
        own = practicum.Parts(agent=lambda text, context: text)
        tasks = [Task(text, text, target) for text in (right, wrong)]
        done = practicum.run_sync(practicum.evaluate(tasks, Context(), method="none", scorer=scorer, parts=own))
        assert [attempt.score.correct for attempt in done.attempts] == [True, False], scorer


def test_choices_are_in_the_prompt_and_read_from_an_answer() -> None:
    answers = {"Who?": "It goes to the Falcon team.", "Which?": "Falcon or Heron"}
    played = model(agent=lambda call: {"answer": answers[call.prompt.user.split()[-1]]})
    parts, tasks = practicum.Parts(clients={"agent": played}), [Task(text, text, "Falcon") for text in answers]
    work = practicum.evaluate(tasks, Context(), method="none", choices=("Falcon", "Heron"), parts=parts)
    done = practicum.run_sync(work)
    assert [(a.score.value, a.trace.answer) for a in done.attempts] == [(1.0, "Falcon"), (0.0, "Falcon or Heron")]
    assert done.counts["unclear_choices"] == 1
    assert "Heron" in played.calls[0].text


# ---- a watch


def test_a_watch_receives_the_run_its_calls_steps_and_scores(tmp_path: Path) -> None:
    first, second, failed = (create_autospec(practicum.Watch, instance=True) for _ in range(3))

    def watched(name: str, watch: Any, **rules: Any) -> None:
        parts = practicum.Parts(clients={"agent": model(**rules)})
        how: dict[str, Any] = {"settings": {"rounds": 0}, "retries": 0, "parts": parts, "watch": watch}
        practicum.run_sync(practicum.learn(messages(0), test=again(0), out=tmp_path / name, **how))

    watched("run", [first, second])
    for watch in (first, second):
        assert [name for name, *_ in watch.method_calls] == [
            "began", "stepping", "called", "attempted", "scored", "called", "called", "stepped",
            "evaluating", "called", "attempted", "scored", "evaluated", "ended", "flush",
        ]  # fmt: skip
        roles = [call.args[0].role for call in watch.called.call_args_list]
        assert roles == ["agent", "reflector", "curator", "agent"]
        last = {name: arguments for name, arguments, _ in watch.method_calls}
        assert (last["began"][0].folder, last["stepped"][0].step) == (tmp_path / "run", 1)
        assert (last["evaluated"][:2], last["ended"][0].scores) == (("test", 1.0), {"test": 1.0})
    with refused("attempts.all_failed"):
        watched("failed", failed, agent=down)
    assert [event[:2] for event in failed.method_calls[-2:]] == [("ended", (None,)), ("flush", ())]
    with refused("settings.invalid"):
        watched("invalid", print)
