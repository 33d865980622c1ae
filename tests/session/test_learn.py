"""Runs through the library: determinism, budgets, the best context, and what is refused before anything is paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, world
from refusals import refused

import practicum
from practicum.core.context import seed_context
from practicum.core.counts import Count
from practicum.core.errors import PracticumError, ProviderError, UsageError
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result


def learn(folder: Path, model: ScriptedClient | None = None, n: int = 12, **config: Any) -> Result:
    parts = config.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    tasks = config.pop("tasks", None) or make_tasks(n)
    return practicum.run_sync(practicum.learn(tasks, out=folder, parts=parts, **config))


def test_concurrency_bounds_the_calls_in_flight(tmp_path: Path) -> None:
    import asyncio

    class Counting(ScriptedClient):
        flying = 0
        most = 0

        async def complete(self, *asked: Any) -> Any:
            self.flying += 1
            self.most = max(self.most, self.flying)
            await asyncio.sleep(0.001)
            reply = await super().complete(*asked)
            self.flying -= 1
            return reply

    model = Counting(world)
    learn(tmp_path / "run", model, settings={"batch": 12}, concurrency=5)
    assert model.most == 5


def test_a_budget_that_ends_in_the_first_step_ends_the_run_and_what_was_paid_is_kept(tmp_path: Path) -> None:
    held, settings = make_tasks(5, 50), {"rounds": 0, "batch": 3}
    whole = learn(tmp_path / "whole", n=3, test=held, settings=settings)
    model = client()
    result = learn(tmp_path / "run", model, n=3, test=held, settings=settings, max_calls=10)
    assert result.stopped == "the budget of 10 calls is spent"
    assert (result.steps, len(result.context), result.usage.calls) == (0, 0, 10)
    assert "test" in result.scores
    parts = practicum.Parts(clients={"agent": model})
    again = practicum.run_sync(practicum.resume(tmp_path / "run", max_calls=1000, parts=parts))
    assert context_bytes(again) == context_bytes(whole)
    # The evaluation of the seed is the only work that an unlimited run does not do.
    assert len(model.calls) == whole.usage.calls + 5


def test_a_stop_before_anything_was_learned_is_a_result_too(tmp_path: Path) -> None:
    """The first evaluation spends it all: there is no best context yet but the seed."""
    held = {"test": make_tasks(4, 50), "val": make_tasks(4, 80)}
    result = learn(tmp_path / "run", max_calls=8, before=True, settings={"rounds": 0}, **held)
    assert result.stopped
    assert len(result.context) == 0


def test_an_evaluation_in_which_nothing_was_answered_is_no_score(tmp_path: Path) -> None:
    dead = client(lambda call: ProviderError("provider.failed", "the line is dead"))
    with refused("attempts.all_failed"):
        learn(tmp_path / "run", dead, method="icl", test=make_tasks(4, 50))
    with refused("attempts.all_failed"):
        evaluate(make_tasks(4), dead)


def test_one_unparsed_answer_does_not_stop_an_evaluation_with_others(tmp_path: Path) -> None:
    """The gate tries eight tasks at once, and the last one alone."""

    def careless(call: Call) -> str:
        judging = call.role == "judge" and "word88" in call.text
        return "no JSON at all" if judging else world(call)

    settings = {"gate": True, "rounds": 0}
    model = client(careless)
    result = learn(tmp_path / "run", model, 6, val=make_tasks(9, 80), settings=settings, scorer="judge")
    assert result.errors["unparsed_outputs"] == result.errors["unscored_attempts"] > 0
    assert result.steps == 6
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=practicum.Parts(clients={"agent": client()})))
    assert (again.scores, again.errors) == (result.scores, result.errors)


def evaluate(tasks: list[Task], model: ScriptedClient, **config: Any) -> practicum.Evaluation:
    context = config.pop("context", seed_context([("rules", "Say the last word.")]))
    parts = config.pop("parts", practicum.Parts(clients={"agent": model}))
    return practicum.run_sync(practicum.evaluate(tasks, context, parts=parts, **config))


MENDING = "does not fit the asked-for JSON"


def test_occasional_invalid_json_is_repaired_and_counted(tmp_path: Path) -> None:
    def careless(call: Call) -> str:
        return world(call) if call.role == "agent" or MENDING in call.prompt.user else '{"answer"'

    model = client(careless)
    result = learn(tmp_path / "run", model, n=4, settings={"rounds": 0})
    mended = [call.prompt for call in model.calls if MENDING in call.prompt.user]
    assert result.errors["repaired_outputs"] == len(mended) == 8
    assert "unparsed_outputs" not in result.errors
    assert all(prompt.turns[-1].assistant == '{"answer"' for prompt in mended)


def test_an_unparsed_verdict_is_counted_and_not_scored(tmp_path: Path) -> None:
    def judge(call: Call) -> str:
        if call.role != "judge":
            return world(call)
        said = json.dumps({"reason": "as asked", "right": "Message 1:" in call.text})
        return "hm" if "Message 2:" in call.text else said

    found = evaluate(make_tasks(4), client(judge), scorer="judge")
    assert (found.errors, found.n, len(found.rollouts)) == (1, 3, 4)
    # Not a 0: the judge was away, and the answer may be right.
    assert found.score == pytest.approx(1 / 3)
    result = learn(tmp_path / "run", client(judge), scorer="judge", tasks=[Task("x", "Message 9: say word9")],
                   test=make_tasks(4), method="none", settings={})  # fmt: skip
    assert result.scores == {"test": pytest.approx(1 / 3)}


def test_without_scored_attempts_there_is_no_score(tmp_path: Path) -> None:
    def mumbling(call: Call) -> str:
        return "hm" if call.role == "judge" else world(call)

    with refused("attempts.all_failed"):
        evaluate(make_tasks(4), client(mumbling), scorer="judge")
    tasks = [Task("x", "Message 9: say word9")]
    result = learn(tmp_path / "run", client(mumbling), scorer="judge", tasks=tasks, test=make_tasks(4), method="none",
                   settings={})  # fmt: skip
    assert result.scores == {}


def test_an_evaluation_that_was_stopped_keeps_what_was_paid_for() -> None:
    model = client()
    found = evaluate(make_tasks(6), model, max_tokens=700, concurrency=1, max_output_tokens=200)
    assert 0 < found.n < 6
    assert found.stopped == "the budget of 700 tokens is spent"
    assert (found.n, found.usage.calls) == (len(found.rollouts), len(model.calls))
    assert found.score == pytest.approx(sum(r.score.correct for r in found.rollouts if r.score) / found.n)
    nothing = evaluate(make_tasks(6), client(), max_tokens=10)
    assert (nothing.n, nothing.as_json()["score"], nothing.as_json()["ci95"]) == (0, None, None)


def test_an_agent_that_is_a_function_can_be_judged(tmp_path: Path) -> None:
    parts = practicum.Parts(agent=lambda text, context: text, clients={"judge": client()})
    work = practicum.learn(make_tasks(3), out=tmp_path / "run", method="episodes", scorer="judge", parts=parts)
    assert practicum.run_sync(work).by_role.keys() == {"judge"}


def test_the_context_of_a_run_is_scored_as_the_run_was_set_up(tmp_path: Path) -> None:
    learn(tmp_path / "run", n=4, instructions="Say it.", method="episodes", settings={"k": 1})
    model = client()
    evaluate(make_tasks(2), model, context=tmp_path / "run")
    evaluate(make_tasks(2), model, context=tmp_path / "run", instructions="Shout it.", settings={"k": 2})
    heads, turns = ([f(call.prompt) for call in model.calls] for f in (lambda p: p.head, lambda p: len(p.turns)))
    assert ["Say it." in head for head in heads] == [True, True, False, False]
    assert turns == [1, 1, 2, 2]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "magic"}, "unknown method 'magic'"),
    "setting": ({"settings": {"batches": 3}}, "has no setting 'batches'"),
    "value": ({"settings": {"batch": "many"}}, "setting batch='many'"),
    "unused setting": ({"method": "icl", "settings": {"batch": 3}}, "method icl has no setting 'batch'"),
    "keyword": ({"concurency": 3}, "there is no setting 'concurency'"),
    "range": ({"concurrency": 0}, "concurrency=0"),
    "role": ({"roles": {"critic": "local"}}, "unknown role 'critic'"),
    "role twice": ({"roles": {"agent": "local", "generator": "local"}}, "two models"),
    "unused role": ({"method": "episodes", "roles": {"reflector": "local"}}, "asks no reflector"),
    "scorer": ({"scorer": "vibes"}, "unknown scorer 'vibes'"),
    "own scorer": ({"scorer": "nowhere:fn"}, "nowhere"),
    "agent": ({"agent": "robot"}, "known are chat"),
    "program": ({"agent": "command:/no/such/program"}, "no such program"),
    "labels": ({"method": "icl", "labels": False}, "cannot learn without labels"),
    "judge": ({"judged": True}, "add `labels=False`"),
    "before": ({"before": True}, "give `test`"),
    "validate": ({"validate_every": 2}, "give `val`"),
    "reasoning": ({"agent": "os.path:join", "reasoning": True}, "for the chat agent"),
    "epochs online": ({"settings": {"online": True, "epochs": 2}}, "online learning sees each task once"),
}


@pytest.mark.parametrize(("config", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_configuration_is_refused_before_a_folder_is_made(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    model = client()
    with pytest.raises(UsageError) as caught:
        learn(tmp_path / "run", model, **config)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert model.calls == []
    assert not (tmp_path / "run").exists()


def test_no_model_is_opened_that_nobody_named(tmp_path: Path) -> None:
    with refused("model.missing"):
        practicum.run_sync(practicum.learn(make_tasks(2), out=tmp_path / "run", roles={"agent": "scripted:x"}))
    with refused("model.missing"):
        practicum.run_sync(practicum.evaluate(make_tasks(2), practicum.Context(), out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_very_large_task_is_warned_of_or_refused_where_the_window_is_known(tmp_path: Path) -> None:
    said: list[str] = []

    class Warned(practicum.Watch):
        def warned(self, text: str) -> None:
            said.append(text)

    tasks, watch = [Task("long", "word " * 100_000, "x"), Task("b", "Why?", "y")], Warned()
    learn(tmp_path / "run", tasks=tasks[1:], test=tasks[:1], method="none", settings={}, watch=watch)
    evaluate(tasks, client(), watch=watch)
    assert said == ["task 'long' has about 125,000 tokens: is it meant to be that large?"] * 2
    small = client()
    small.window = 4000
    with refused("window.exceeded"):
        learn(tmp_path / "other", small, tasks=tasks, test=tasks[1:])
    assert small.calls == []
    assert not (tmp_path / "other").exists()


def test_tasks_are_checked_before_anything_is_paid(tmp_path: Path) -> None:
    with refused("tasks.no_target"):
        learn(tmp_path / "run", tasks=[Task("a", "What?")])
    with refused("tasks.duplicate_id"):
        learn(tmp_path / "run", tasks=[Task("a", "What?", "x"), Task("a", "Why?", "y")])
    with refused("tasks.missing"):
        practicum.run_sync(practicum.learn([], out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_tasks_without_targets_can_be_learned_from_without_labels(tmp_path: Path) -> None:
    result = learn(tmp_path / "run", tasks=[Task(f"repo/{n}%2F", f"What? {n}") for n in range(4)], labels=False)
    assert result.steps == 4


@pytest.mark.parametrize(
    ("method", "settings", "lowered"),
    [
        ("combee", {"asynchronous": True, "batch": 40}, [Count.BATCH_LOWERED]),
        ("rcl", {"batch": 12}, [Count.BATCH_LOWERED]),
        ("rcl", {"batch": "12"}, [Count.BATCH_LOWERED]),
        ("rcl", {"batch": 8, "rollouts": "auto"}, []),
        ("ace", {"rollouts": 100}, [Count.ROLLOUTS_LOWERED]),
        ("ace", {"batch": 9, "rollouts": 100}, [Count.BATCH_LOWERED, Count.ROLLOUTS_LOWERED]),
        ("ace", {"batch": 8, "rollouts": 8}, []),
        ("combee", {"asynchronous": True}, []),
        ("combee", {"batch": "auto"}, []),
        ("naive", {}, []),
    ],
    ids=str,
)
def test_a_size_above_the_tasks_is_counted_where_it_was_asked_for(
    tmp_path: Path, method: str, settings: dict[str, Any], lowered: list[Count]
) -> None:
    found = learn(tmp_path / "run", n=8, method=method, settings=settings).errors
    counted = {name: n for name, n in found.items() if name in (Count.BATCH_LOWERED, Count.ROLLOUTS_LOWERED)}
    assert counted == dict.fromkeys(lowered, 1)


def test_ids_that_look_like_places_do_not_collide(tmp_path: Path) -> None:
    ids = ["a", "a/agent", "a/agent~1", "a%2Fagent", "evaluate", "step 1"]
    tasks = [Task(id, f"Message {n}: say word{n}", f"word{n}") for n, id in enumerate(ids)]
    assert learn(tmp_path / "run", tasks=tasks, test=tasks, settings={"batch": 6}).steps == 1


def test_a_run_in_five_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text('{"input": "one", "target": "two"}\n')
    insights = [{"section": "facts and formulas", "text": "If one, say two."}]
    found = dict.fromkeys(("reasoning", "diagnosis", "cause", "correction"), "x")
    changes = [{"op": "ADD", "insights": [1]}]
    answers = {
        "agent": "three", "reflector": {**found, "tags": [], "insights": insights}, "curator": {"changes": changes}
    }  # fmt: skip
    lines = [json.dumps({"role": role, "answer": answer}) for role, answer in answers.items()]
    (tmp_path / "script").write_text("\n".join(lines))
    tasks = practicum.load_tasks("tasks.jsonl")
    work = practicum.learn(tasks, method="ace", model="scripted:script", settings={"rounds": 0})
    result = practicum.run_sync(work)
    assert "If one, say two." in practicum.export(result.context, "markdown")
    assert result.run.parent == Path("runs")


def test_errors_are_of_one_tree() -> None:
    assert issubclass(UsageError, PracticumError)
