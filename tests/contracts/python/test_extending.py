"""The user's methods, agents, scorers and watches, as docs/extend/method.md describes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from python_kit import LEARNED, TEST, learned, playbook, refused, resumed, slow
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


@pytest.mark.parametrize("seam", ["attempt", "accept", *map(slow, ("reflect", "update"))])
def test_a_seam_with_a_wrong_result_is_named_and_paid_answers_are_stored(tmp_path: Path, seam: str) -> None:
    with refused("method.wrong_result") as raised:
        learned(tmp_path, LEARNED, method=notes(**{seam: nothing}))
    assert f"`{seam}`" in str(raised.value)
    fixed = resumed(tmp_path / "run", parts={"method": NOTES})
    assert len(fixed.texts) == 3
    assert len(fixed.model.calls) <= 3


async def failing(context: Context, task: Task, run: Run) -> View:
    """A view with a mistake."""
    raise ZeroDivisionError


@pytest.mark.parametrize("bad", [failing, slow(nothing)])
def test_a_view_that_fails_or_is_none_is_named_in_learning_and_for_a_query(tmp_path: Path, bad: Any) -> None:
    """No attempt is made with it, and the run continues once the method is corrected."""
    played = model()
    with refused("method.wrong_result") as raised:
        learned(tmp_path, LEARNED, played, notes(bad))
    assert "'notes'" in str(raised.value)
    assert played.calls == []
    assert len(resumed(tmp_path / "run", parts={"method": NOTES}).texts) == 3

    async def query() -> None:
        async with practicum.open(tmp_path / "run", method=notes(bad)) as space:
            await space.show("Message 1: which word?")

    with refused("method.wrong_result") as raised:
        practicum.run_sync(query())
    assert "`show`" in str(raised.value)
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


def test_a_function_is_an_agent_that_receives_the_task_and_the_context(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def own(text: str, context: str) -> dict[str, Any]:
        calls.append((text, context))
        return {"answer": "word0" if "word0" in context else "unsure", "used": ["e0"] if context else [], "steps": [
            {"kind": "action", "text": "looked it up"}]}  # fmt: skip

    seen = learned(tmp_path, messages(0), parts={"agent": own}, settings={"rounds": 0}, trust_tools=True, test=again(0))
    assert calls[0] == ("Message 0: which word?", "")
    assert lesson(0) in calls[-1][1]
    assert seen.result.scores["test"] == 1.0
    assert seen.result.attempts["test"][0].trace.used == ("e0",)
    assert "looked it up" in seen.calls("reflector")[0].text
    assert "agent" not in seen.roles


def test_an_agent_may_be_async_a_function_a_trace_maker_or_a_program_of_json_lines(tmp_path: Path) -> None:
    async def asynchronous(text: str, context: str) -> str:
        return "word0"

    program = tmp_path / "own.py"
    program.write_text(
        "import json, sys\n"
        "given = json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'answer': 'word0' if 'word0' in given['context'] else 'unsure'}))\n"
    )
    book = playbook(tmp_path, lesson(0))
    for how in (
        {"parts": practicum.Parts(agent=asynchronous)},
        {"parts": practicum.Parts(agent=lambda text, context: "word0")},
        {"parts": practicum.Parts(agent=lambda text, context: practicum.Trace("word0"))},
        {"agent": f"command:{sys.executable} -I {program}"},
    ):
        done = practicum.run_sync(practicum.evaluate(again(0, 1), book, method="ace", **how))
        assert [attempt.trace.answer for attempt in done.attempts] == ["word0", "word0"]
        assert done.score == 0.5


def look_up(name: str) -> str:
    """Find the word of a message.

    Args:
        name: the message, such as "message 3"
    """
    return f"{name} has word{name.split()[-1]}"


def test_an_agent_with_tools_acts_and_observes_in_turns(tmp_path: Path) -> None:
    def acting(call: Any) -> Any:
        observed = "has word0" in call.text
        action = {"finish": {"answer": "word0"}} if observed else {"look_up": {"name": "message 0"}}
        return json.dumps({"thought": "I look.", "used": [], "action": action})

    work = practicum.evaluate(
        messages(0), Context(), method="none",
        parts=practicum.Parts(tools=[look_up], clients={"agent": practicum.ScriptedClient(acting)}),
    )  # fmt: skip
    done = practicum.run_sync(work)
    assert done.score == 1.0
    steps = [(step.kind, step.text) for step in done.attempts[0].trace.steps]
    assert any(kind == "observation" and "message 0 has word0" in text for kind, text in steps)
    assert done.attempts[0].trace.trust == "tool"


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"agent": lambda text: "x"}, "agent.invalid"),
        ({"agent": lambda text, context: None}, "agent.always_failed"),
        ({"scorer": lambda task, answer: 17}, "scorer.failed"),
        ({"scorer": lambda: 1.0}, "scorer.invalid"),
    ],
    ids=["one parameter", "returns nothing", "17 of 1", "no parameter"],
)
def test_an_agent_or_scorer_that_cannot_be_used_is_named(tmp_path: Path, parts: dict[str, Any], code: str) -> None:
    with refused(code):
        learned(tmp_path, LEARNED, parts=parts)


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


@pytest.mark.parametrize(
    ("scorer", "target", "right", "wrong"),
    [
        ("exact", "The Falcon team", '"the falcon  team."', "The Falcons team"),
        ("numeric", "12.50", "So it is 12.5.", "It is 13."),
        ("contains", "falcon", "Ask the Falcon team.", "Ask the Heron team."),
        ("regex", r"^\d{3}$", "123", "1234"),
        ("list", "a, b", "a, b", "a"),
    ],
)
def test_built_in_scorers_compare_answers(scorer: str, target: str, right: str, wrong: str) -> None:
    tasks, own = [Task(text, text, target) for text in (right, wrong)], lambda text, context: text
    work = practicum.evaluate(tasks, Context(), method="none", scorer=scorer, parts=practicum.Parts(agent=own))
    assert [attempt.score.correct for attempt in practicum.run_sync(work).attempts] == [True, False]


@pytest.mark.parametrize(
    ("text", "score", "answer", "unclear"),
    [("It goes to the Falcon team.", 1.0, "Falcon", 0), ("Falcon or Heron", 0.0, "Falcon or Heron", 1)],
)
def test_choices_are_in_the_prompt_and_read_from_an_answer(text: str, score: float, answer: str, unclear: int) -> None:
    played = model(agent=lambda call: {"answer": text})
    parts, choices = practicum.Parts(clients={"agent": played}), ("Falcon", "Heron")
    work = practicum.evaluate([Task("a", "Who?", "Falcon")], Context(), method="none", choices=choices, parts=parts)
    done = practicum.run_sync(work)
    assert (done.score, done.attempts[0].trace.answer) == (score, answer)
    assert done.counts.get("unclear_choices", 0) == unclear
    assert "Heron" in played.calls[0].text


# ---- a watch


class Everything(practicum.Watch):
    """Records every event."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def began(self, run: Any) -> None:
        self.events.append(f"began {run.folder.name}")

    def stepped(self, report: Any, progress: Any) -> None:
        self.events.append(f"stepped {report.step}")

    def called(self, call: Any) -> None:
        self.events.append(f"called {call.role}")

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        self.events.append(f"evaluated {name} {score}")

    def ended(self, result: Any) -> None:
        self.events.append(f"ended {result is not None}")

    async def flush(self) -> None:
        self.events.append("flushed")


def test_a_watch_receives_the_run_its_calls_steps_and_scores(tmp_path: Path) -> None:
    first, second, failed = Everything(), Everything(), Everything()

    def watched(name: str, watch: Any, **rules: Any) -> None:
        parts = practicum.Parts(clients={"agent": model(**rules)})
        how: dict[str, Any] = {"settings": {"rounds": 0}, "retries": 0, "parts": parts, "watch": watch}
        practicum.run_sync(practicum.learn(messages(0), test=again(0), out=tmp_path / name, **how))

    watched("run", [first, second])
    assert first.events == second.events == [
        "began run", "called agent", "called reflector", "called curator", "stepped 1", "called agent",
        "evaluated test 1.0", "ended True", "flushed",
    ]  # fmt: skip
    with refused("attempts.all_failed"):
        watched("failed", failed, agent=down)
    assert failed.events[-2:] == ["ended False", "flushed"]
    with refused("settings.invalid"):
        watched("invalid", print)
