"""Attempts at a batch: their places, lost tries, and what each kind of refinement keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from helpers import client, make_tasks
from runs import indoors

from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import NOTE, Refine, once, refined, shown_answers
from practicum.core.context import Context
from practicum.core.errors import ProviderError
from practicum.core.types import Lesson, Rollout, Round, Task
from practicum.engine.loop import AttemptSeam, Batch
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

ACT = answer(full_view)


def attempted(model: ScriptedClient, attempt: AttemptSeam, tasks: Sequence[Task]) -> list[Rollout]:
    return asyncio.run(attempt(Batch(tuple(tasks)), Context(), indoors(model).at("attempt")))


class Reflector:
    """Says "hint 1", "hint 2" and so on, or what it is given to say; keeps what it was shown."""

    def __init__(self, say: Callable[[int], str | None] = lambda n: f"hint {n}") -> None:
        self.say = say
        self.seen: list[tuple[str, list[str]]] = []

    async def __call__(self, rollout: Rollout, context: Context, earlier: Sequence[Round], run: Run) -> Lesson | None:
        self.seen.append((rollout.trace.answer, [round.lesson.text for round in earlier]))
        text = self.say(len(self.seen))
        return None if text is None else Lesson(run.place, text, votes={"e0": "harmful"}, sources=rollout.sources)


def last_line(call: Call) -> str:
    """The agent repeats the last line it reads."""
    return call.prompt.user.splitlines()[-1]


def test_once_attempts_each_task_at_its_own_place_with_its_own_sources() -> None:
    tasks = make_tasks(3, tags=["a", "b"])
    rollouts = attempted(client(lambda call: call.prompt.user.split()[-1]), once(ACT), tasks)
    assert [r.task.id for r in rollouts] == ["t0", "t1", "t2"]
    assert [r.place for r in rollouts] == ["attempt/0.t0", "attempt/1.t1", "attempt/2.t2"]
    assert rollouts[1].sources == ("task:t1", "rollout:attempt/1.t1", "tag:a", "tag:b")
    assert all(r.feedback.success for r in rollouts)


def test_the_same_task_twice_in_a_batch_is_two_attempts() -> None:
    model = client(last_line)
    rollouts = attempted(model, once(ACT), [*make_tasks(1), *make_tasks(1)])
    assert len({r.place for r in rollouts}) == len(model.calls) == 2


def test_each_retry_reads_the_newest_insight_and_is_reflected_on() -> None:
    model, reflector = client(last_line), Reflector()
    (rollout,) = attempted(model, once(refined(ACT, reflector, 3, "retry")), make_tasks(1))
    task = make_tasks(1)[0].input
    assert [call.prompt.user for call in model.calls] == [
        task, *(f"{task}\n\n{NOTE.format(f'hint {n}')}" for n in (1, 2, 3)),
    ]  # fmt: skip
    told = [task, NOTE.format("hint 1"), NOTE.format("hint 2")]
    assert reflector.seen == [(answer, [f"hint {n + 1}" for n in range(i)]) for i, answer in enumerate(told)]
    assert rollout.trace.answer == task
    assert [r.trace.answer for r in rollout.rounds if r.trace] == [NOTE.format(f"hint {n}") for n in (1, 2, 3)]


@pytest.mark.parametrize("refine", ["retry", "critique"])
def test_a_success_is_not_refined(refine: Refine) -> None:
    reflector = Reflector()
    model = client(lambda call: call.prompt.user.split()[-1])
    (rollout,) = attempted(model, once(refined(ACT, reflector, 3, refine)), make_tasks(1))
    assert (rollout.rounds, reflector.seen, len(model.calls)) == ((), [], 1)


@pytest.mark.parametrize("refine", ["retry", "critique"])
def test_a_lost_attempt_is_not_reflected_on(refine: Refine) -> None:
    reflector = Reflector()
    gone = client(lambda call: ProviderError("provider.failed", "gone"))
    (rollout,) = attempted(gone, once(refined(ACT, reflector, 3, refine)), make_tasks(1))
    assert rollout.trace.lost
    assert (rollout.rounds, reflector.seen) == ((), [])


def test_an_attempt_with_an_unknown_outcome_is_not_retried() -> None:
    """A task without a target cannot be scored."""
    reflector = Reflector()
    model = client(last_line)
    tasks = [Task("t0", "What?")]
    (rollout,) = attempted(model, once(refined(ACT, reflector, 3, "retry")), tasks)
    assert rollout.feedback.success is None
    assert (rollout.rounds, reflector.seen) == ((), [])


def test_after_a_lost_retry_the_earlier_try_is_reflected_on_again() -> None:
    def flaky(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "gone") if "hint 1" in call.prompt.user else last_line(call)

    reflector = Reflector(lambda n: "hint 1" if n == 1 else "word0")
    rollout = attempted(client(flaky), once(refined(ACT, reflector, 3, "retry")), make_tasks(1))[0]
    assert [text for text, _ in reflector.seen][:2] == [make_tasks(1)[0].input] * 2
    assert [round.lesson.confirmed for round in rollout.rounds] == [False] * 3


def test_an_empty_insight_or_a_lost_reflection_ends_the_retries() -> None:
    silent = Reflector(lambda n: "hint" if n == 1 else "")
    (rollout,) = attempted(client(last_line), once(refined(ACT, silent, 5, "retry")), make_tasks(1))
    assert [round.lesson.text for round in rollout.rounds] == ["hint", ""]
    absent = Reflector(lambda n: "hint" if n == 1 else None)
    (rollout,) = attempted(client(last_line), once(refined(ACT, absent, 5, "retry")), make_tasks(1))
    assert [round.lesson.text for round in rollout.rounds] == ["hint"]


def test_every_retry_votes_and_only_the_last_critique_votes() -> None:
    votes = {}
    both: tuple[Refine, ...] = ("retry", "critique")
    for refine in both:
        attempt = once(refined(ACT, Reflector(), 3, refine))
        (rollout,) = attempted(client(last_line), attempt, make_tasks(1))
        votes[refine] = [dict(round.lesson.votes) for round in rollout.rounds]
    harmed = {"e0": "harmful"}
    assert votes == {"retry": [harmed] * 3, "critique": [{}, {}, harmed]}


def test_known_right_answers_are_shown_without_a_call() -> None:
    model = client()
    tasks = [*make_tasks(1), Task("t1", "What?")]
    known, attempt = attempted(model, shown_answers(ACT), tasks)
    assert len(model.calls) == 1
    assert (known.trace.answer, known.score, known.feedback.success) == ("word0", None, True)
    assert (attempt.task.id, attempt.feedback.success) == ("t1", None)
