"""The journal's laws: paid answers are stored, a resumed run ends as an undisturbed one, and no call is paid twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from python_kit import LEARNED, TEST, Seen, learned, parts, refused, resumed
from python_roles import RULES, agent, down, model
from python_tasks import lesson, messages, number

import practicum
from practicum import ScriptedClient

# ---- kills


class Logged(ScriptedClient):
    """A model that logs its requests and its answers in a file, which survives a kill."""

    def __init__(self, log: Path, respond: Callable[[Any], Any], kill_at: int | None = None) -> None:
        super().__init__(respond)
        self.log, self.kill_at = log, kill_at

    async def complete(self, role: str, prompt: Any, schema: Any, options: Any) -> Any:
        key = json.dumps([role, prompt.head, prompt.user, str(schema), options.seed])
        self._note("asked", key)
        if self.kill_at is not None and len(self.calls) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await super().complete(role, prompt, schema, options)
        self._note("answered", key)
        return reply

    def _note(self, event: str, key: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{event} {key}\n")

    def noted(self, event: str) -> list[str]:
        """The calls that were asked or answered, by all models with this log."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.startswith(f"{event} ")]


def in_a_process(work: Callable[[], Any]) -> int:
    """Do something in a separate process; the number of the signal that ended it, 0 if none did."""
    if (pid := os.fork()) == 0:
        signal.alarm(60)
        try:
            work()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


TASKS, PAIRS = messages(*range(4)), {"batch": 2}


def whole_run(folder: Path, tasks: Any = TASKS, **how: Any) -> Seen:
    """An undisturbed run, with one call at a time."""
    seen = Seen(folder / "whole", Logged(folder / "whole.log", model().respond))
    how = {"test": TEST, "concurrency": 1, **how}
    seen.result = practicum.run_sync(
        practicum.learn(tasks, out=seen.folder, watch=seen, parts=parts(seen.model), **how)
    )
    return seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return whole_run(tmp_path_factory.mktemp("whole"), settings=PAIRS)


def killed(folder: Path, whole: Seen, tasks: Any, kills: tuple[int, ...], **how: Any) -> None:
    """Kills are counted in calls since the previous kill: before the first answer, in a step, in the evaluation."""
    log, respond, concurrency = folder / "log", model().respond, how["concurrency"]
    for sitting, calls in enumerate(kills):
        played = Logged(log, respond, kill_at=calls)
        begin = practicum.learn(tasks, out=folder / "run", test=TEST, parts=parts(played), **how)
        work = begin if sitting == 0 else practicum.resume(folder / "run", parts=parts(played))
        assert in_a_process(lambda: practicum.run_sync(work)) == signal.SIGKILL  # noqa: B023
        begin.close()
        work.close()
    last = resumed(folder / "run", Logged(log, respond))

    assert last.exported == whole.exported
    assert last.result.scores == whole.result.scores
    assert versions(last.folder) == versions(whole.folder)
    # A stored answer is requested once; each kill repeats at most the calls in flight.
    once, asked = whole.model.noted("asked"), last.model.noted("asked")
    assert len(once) + len(kills) <= len(asked) <= len(once) + concurrency * len(kills)
    assert len(last.model.noted("answered")) <= len(asked) - len(kills)
    assert {*asked} == {*once}
    # The budget counts the calls that were in flight at a kill, since they may have been paid for.
    left = last.result.errors["left_in_flight"]
    assert last.result.usage.calls == len(once) + left
    assert len(asked) <= len(once) + left


def test_a_run_that_is_killed_at_any_call_ends_as_an_undisturbed_one(tmp_path: Path, whole: Seen) -> None:
    killed(tmp_path, whole, TASKS, (13,), settings=PAIRS, concurrency=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "kills"),
    [("combee", {"batch": 8, "rounds": 0}, (0, 5, 9)), ("unified", {}, (3, 14))],
)
def test_a_run_with_many_calls_in_flight_may_be_killed_too(
    tmp_path: Path, method: str, settings: dict[str, Any], kills: tuple[int, ...]
) -> None:
    tasks, how = messages(*range(8)), {"method": method, "settings": settings}
    killed(tmp_path, whole_run(tmp_path, tasks, **how), tasks, kills, concurrency=3, **how)


def versions(folder: Path) -> list[str]:
    """Every version of a run, without loss."""
    last = practicum.load_context(folder).version
    return [practicum.export(practicum.load_context(folder, n), "json") for n in range(last + 1)]


# ---- determinism


def test_the_same_seed_gives_the_same_run_and_another_seed_another_order(tmp_path: Path, whole: Seen) -> None:
    """Also with eight calls at a time; and a finished run that is resumed calls no model and reports the same."""
    same, other = (
        learned(tmp_path / str(seed), TASKS, settings=PAIRS, test=TEST, seed=seed, concurrency=8) for seed in (0, 1)
    )
    assert whole.exported == same.exported
    assert whole.result.by_role == same.result.by_role
    assert sorted(call.text for call in whole.model.calls) == sorted(call.text for call in same.model.calls)
    order = [[attempt.task.id for r in seen.steps for attempt in r.attempts] for seen in (whole, same, other)]
    assert order[0] == order[1] != order[2]
    again = resumed(same.folder)
    assert again.model.calls == []
    assert again.exported == same.exported
    facts = ("scores", "usage", "by_role", "errors", "refused", "steps", "stopped")
    assert [getattr(again.result, fact) for fact in facts] == [getattr(same.result, fact) for fact in facts]
    assert again.result.hits >= len(same.model.calls)


# ---- one writer


def test_a_run_that_is_being_written_is_busy_for_others_and_can_be_read(tmp_path: Path) -> None:
    def second() -> int:
        with refused("store.busy"):
            resumed(tmp_path / "run")
        return len(practicum.load_context(tmp_path / "run"))

    class Concurrent(Seen):
        def stepped(self, report: Any, progress: Any) -> None:
            if report.step == 2:
                with ThreadPoolExecutor() as threads:
                    self.steps.append(threads.submit(second).result())

    watch = Concurrent(tmp_path / "run", model())
    result = practicum.run_sync(practicum.learn(LEARNED, out=watch.folder, watch=watch, parts=parts(watch.model)))
    (entries,) = watch.steps
    assert 0 < entries < len(result.context) == 3


def test_a_folder_has_one_run_and_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    with refused("tasks.no_target"):
        learned(tmp_path, [practicum.Task("a", "Which word?")])
    assert not (tmp_path / "run").exists()
    assert learned(tmp_path, TASKS[:1]).result.stopped is None
    with refused("run.exists"):
        learned(tmp_path, TASKS[:1])
    with refused("run.not_found"):
        resumed(tmp_path / "nothing")


# ---- failures


def test_a_failure_of_the_provider_is_counted_and_the_run_goes_on(tmp_path: Path) -> None:
    def flaky(call: Any) -> Any:
        return down() if number(call) == 1 else agent(call)

    seen = learned(tmp_path, LEARNED, model(agent=flaky), settings={"batch": 3}, retries=0, test=messages(0, 1))
    assert seen.result.errors["lost_attempts"] == 2
    assert sorted(seen.texts) == [lesson(0), lesson(2)]
    # A lost attempt counts as 0 in a score of the test.
    assert seen.result.scores["test"] == 0.5
    lost = [attempt for report in seen.steps for attempt in report.attempts if attempt.trace.lost]
    assert [attempt.task.id for attempt in lost] == ["t1"]


def test_three_lost_steps_in_a_row_stop_the_run_and_a_resume_tries_them_again(tmp_path: Path) -> None:
    away = model(agent=down)
    with refused("attempts.all_failed"):
        learned(tmp_path, TASKS, away, retries=0)
    assert len(away.calls) == 3
    again = resumed(tmp_path / "run")
    assert len(again.texts) == 4
    assert again.result.errors.get("lost_attempts", 0) == 0


def test_a_role_with_unreadable_output_is_asked_three_times_and_counted(tmp_path: Path) -> None:
    def garbled(call: Any) -> Any:
        """No JSON in a reflection on message 1, and about the lesson of message 2."""
        unreadable = "Message 1" in call.text if call.role == "reflector" else lesson(2) in call.text
        return "no JSON" if unreadable else RULES[call.role](call)

    seen = learned(tmp_path, LEARNED, model(reflector=garbled, curator=garbled), settings={"rounds": 0})
    # A lost reflection is not requested again by the step.
    assert seen.roles == {"agent": 3, "reflector": 3 + 2, "curator": 3 + 1}
    counts = ("lost_reflections", "lost_updates", "unparsed_outputs", "dropped_lessons")
    assert [seen.result.errors[name] for name in counts] == [1, 1, 2, 1]
    assert seen.texts == [lesson(0)]
    assert seen.result.steps == 3
