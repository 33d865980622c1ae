"""The journal's laws: paid answers are stored, a resumed run ends as an undisturbed one, and no call is paid twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from python_kit import LEARNED, TEST, Seen, learned, refused, resumed
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


def noted(log: Path, event: str) -> list[str]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
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


def parts(played: ScriptedClient) -> practicum.Parts:
    return practicum.Parts(clients={"agent": played})


@pytest.mark.parametrize(
    ("method", "settings", "concurrency", "kills"),
    [
        ("ace", {"batch": 3}, 1, (4, 23)),
        pytest.param("combee", {"batch": 8, "rounds": 0}, 3, (0, 5, 9), marks=pytest.mark.slow),
        pytest.param("unified", {}, 3, (3, 14), marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_at_any_call_ends_as_an_undisturbed_one(
    tmp_path: Path, method: str, settings: dict[str, Any], concurrency: int, kills: tuple[int, ...]
) -> None:
    """Kills are counted in calls since the previous kill: before the first answer, in a step, in the evaluation."""
    tasks, test = messages(*range(8)), messages(0, 1, 80)
    how: dict[str, Any] = {"method": method, "settings": settings, "test": test, "concurrency": concurrency}
    respond = model().respond
    whole = Seen(tmp_path / "whole", Logged(tmp_path / "whole.log", respond))
    whole.result = practicum.run_sync(practicum.learn(tasks, out=whole.folder, parts=parts(whole.model), **how))

    folder, log = tmp_path / "run", tmp_path / "log"
    for number_, calls in enumerate(kills):
        played = Logged(log, respond, kill_at=calls)
        begin = practicum.learn(tasks, out=folder, parts=parts(played), **how)
        work = begin if number_ == 0 else practicum.resume(folder, parts=parts(played))
        assert in_a_process(lambda: practicum.run_sync(work)) == signal.SIGKILL  # noqa: B023
        begin.close()
        work.close()
    last = resumed(folder, Logged(log, respond))

    assert last.exported == whole.exported
    assert last.result.scores == whole.result.scores
    assert versions(folder) == versions(whole.folder)
    # A stored answer is requested once; each kill repeats at most the calls in flight.
    once = len(noted(tmp_path / "whole.log", "asked"))
    asked = len(noted(log, "asked"))
    assert once + len(kills) <= asked <= once + concurrency * len(kills)
    assert len(noted(log, "answered")) <= asked - len(kills)
    assert sorted(set(noted(log, "asked"))) == sorted(set(noted(tmp_path / "whole.log", "asked")))
    # The budget counts the calls that were in flight at a kill, since they may have been paid for.
    left = last.result.errors["left_in_flight"]
    assert last.result.usage.calls == once + left
    assert asked <= once + left


def versions(folder: Path) -> list[str]:
    """Every version of a run, without loss."""
    last = practicum.load_context(folder).version
    return [practicum.export(practicum.load_context(folder, n), "json") for n in range(last + 1)]


# ---- determinism


def test_the_same_seed_gives_the_same_run_and_another_seed_another_order(tmp_path: Path) -> None:
    tasks = messages(*range(8))
    runs = [
        learned(tmp_path / str(n), tasks, settings={"batch": 4}, seed=seed, concurrency=concurrency)
        for n, (seed, concurrency) in enumerate([(1, 1), (1, 8), (2, 8)])
    ]
    one, eight, _ = runs
    assert one.exported == eight.exported
    assert one.result.by_role == eight.result.by_role
    assert sorted(call.text for call in one.model.calls) == sorted(call.text for call in eight.model.calls)
    order = [[attempt.task.id for r in seen.steps for attempt in r.attempts] for seen in runs]
    assert order[0] == order[1] != order[2]


def test_a_finished_run_that_is_resumed_calls_no_model_and_reports_the_same(tmp_path: Path) -> None:
    whole = learned(tmp_path, settings={"batch": 3}, test=TEST)
    again = resumed(whole.folder)
    assert again.model.calls == []
    assert again.exported == whole.exported
    facts = ("scores", "usage", "by_role", "errors", "refused", "steps", "stopped")
    assert [getattr(again.result, fact) for fact in facts] == [getattr(whole.result, fact) for fact in facts]
    assert again.result.hits >= len(whole.model.calls)


# ---- one writer


def test_a_run_that_is_being_written_is_busy_for_others_and_can_be_read(tmp_path: Path) -> None:
    answers: list[Any] = []

    def second() -> None:
        with pytest.raises(practicum.RunBusy) as busy:
            resumed(tmp_path / "run")
        answers.extend([busy.value.code, len(practicum.load_context(tmp_path / "run"))])

    class Concurrent(Seen):
        def stepped(self, report: Any, progress: Any) -> None:
            if report.step == 2:
                other = Thread(target=second)
                other.start()
                other.join()

    watch = Concurrent(tmp_path / "run", model())
    result = practicum.run_sync(practicum.learn(LEARNED, out=watch.folder, watch=watch, parts=parts(watch.model)))
    code, entries = answers
    assert code == "store.busy"
    assert 0 < entries < len(result.context) == 3


# ---- settings that may change at a resume


def test_only_settings_without_influence_on_results_can_change_at_a_resume(tmp_path: Path) -> None:
    """A refusal calls no model and changes nothing."""
    tasks, settings = messages(*range(4)), {"batch": 2}
    stopped = learned(tmp_path / "stopped", tasks, settings=settings, max_calls=14)
    for changed, code in (
        ({"temperature": 0.9}, "settings.fixed"),
        ({"agent": "somewhere:else"}, "settings.fixed"),
        ({"method": "rcl"}, "settings.unknown"),
        ({"seed": 7}, "settings.unknown"),
        ({"max_calls": 3}, "budget.spent"),
        ({"timeout": -1.0}, "settings.invalid"),
    ):
        played = model()
        with refused(code):
            resumed(stopped.folder, played, **changed)
        assert played.calls == []
    again = resumed(stopped.folder, max_calls=1000, concurrency=2, timeout=7.0, retries=1)
    whole = learned(tmp_path / "whole", tasks, settings=settings)
    assert (again.result.stopped, again.exported) == (None, whole.exported)
    assert len(again.model.calls) + len(stopped.model.calls) == len(whole.model.calls)


def test_a_folder_has_one_run_and_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    with refused("tasks.no_target"):
        learned(tmp_path, [practicum.Task("a", "Which word?")])
    assert not (tmp_path / "run").exists()
    assert learned(tmp_path).result.stopped is None
    with refused("run.exists"):
        learned(tmp_path)
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
        learned(tmp_path, messages(*range(6)), away, retries=0)
    assert len(away.calls) == 3
    again = resumed(tmp_path / "run")
    assert len(again.texts) == 6
    assert again.result.errors.get("lost_attempts", 0) == 0


@pytest.mark.parametrize(("role", "counter"), [("reflector", "lost_reflections"), ("curator", "lost_updates")])
def test_a_role_with_unreadable_output_is_asked_three_times_and_counted(
    tmp_path: Path, role: str, counter: str
) -> None:
    def garbled(call: Any) -> Any:
        return "no JSON" if len(seen_calls) < 3 and not seen_calls.append(call) else RULES[role](call)

    seen_calls: list[Any] = []
    seen = learned(tmp_path, LEARNED, model(**{role: garbled}), settings={"rounds": 0})
    assert len(seen_calls) == 3
    assert seen.result.errors[counter] == 1
    assert seen.result.errors["unparsed_outputs"] == 1
    assert seen.result.steps == 3


def test_an_agent_of_the_user_may_fail_on_a_task_but_not_on_all(tmp_path: Path) -> None:
    def failing(text: str, context: str) -> Any:
        return {"error": "no way there"} if "Message 1" in text else "unsure"

    seen = learned(tmp_path, LEARNED, parts={"agent": failing}, settings={"rounds": 0})
    assert seen.result.errors["failed_attempts"] == 1
    assert seen.result.steps == 3

    def broken(text: str, context: str) -> str:
        raise RuntimeError("no route to the warehouse")

    with refused("agent.always_failed"):
        learned(tmp_path / "broken", LEARNED, parts={"agent": broken})


# ---- versions
