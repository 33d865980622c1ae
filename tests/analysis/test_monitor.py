"""The metrics of runs with known content: every number is the one counted by hand, or computed the slow way."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import client, make_tasks, world
from runs import Words
from scripts import FORM, Learned, learned, number, scripted

import practicum
from practicum.analysis.monitor import MonitorReport, monitor
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError, StoreError, UsageError
from practicum.models.scripted import Call, ScriptedClient, in_parts
from practicum.session.records import create_seed
from practicum.store import schema
from practicum.store.database import Store

ANSWERS = {0: "110", 1: "000", 2: "111", 3: "100"}
"""By task, which of its three attempts are right."""


def says(call: Call, made: Counter[int]) -> dict[str, Any]:
    """What each role says. The judge is right about all tasks but the last, where it is wrong every time."""
    if call.role == "agent":
        n = number(call)
        right = ANSWERS[n][made[n] % 3] == "1"
        made[n] += 1
        shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
        return {"answer": f"word{n}" if right else "wrong", "used": shown[:1]}
    if call.role == "judge":
        right = "# Answer\nword" in call.prompt.user
        return {"right": right != (number(call) == 3), "reason": "so"}
    title = "" if call.schema is None else call.schema["title"]
    if title == "Contrast":
        return {"holds": [], "separates": [], "spurious": [], "why": "so", "best": 1}
    words = f"attempt {number(call)} {'well' if 'went well' in call.prompt.user else 'badly'}"
    return {"items": [{"title": words, "description": words, "content": words}]}


def model() -> ScriptedClient:
    made: Counter[int] = Counter()

    def respond(call: Call) -> str:
        said = says(call, made)
        return in_parts(call.prompt, said) if call.schema is None else json.dumps({**FORM, **said})

    return client(respond)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Four tasks of two domains, three attempts each, judged without labels."""
    tasks = [replace(t, meta={"domain": "odd" if i % 2 else "even"}) for i, t in enumerate(make_tasks(4))]
    return learned(
        tmp_path_factory.mktemp("bank"), model(), tasks, {"online": True, "k": 3}, "reasoning_bank",
        {"embedder": Words()}, labels=False, judged=True,
    )  # fmt: skip


def watched(folder: Path, **how: Any) -> MonitorReport:
    return practicum.run_sync(monitor(folder, **how))


def columns(report: MonitorReport, part: str) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in report.groups[part].by_step.items()}


def numbers(report: MonitorReport, part: str) -> dict[str, Any]:
    return dict(report.groups[part].numbers)


def test_success_is_that_of_the_first_attempt_and_the_chosen_one_is_the_best_of_k(bank: Learned) -> None:
    report = watched(bank.folder)
    found = numbers(report, "success")
    assert (found["by"], found["attempts"], found["tries"], found["rate"]) == ("score", 4, 12, 3 / 4)
    assert (found["unknown"], found["errors"], found["lost"], found["best_of_k"]) == (0, 0, 0, 2 / 4)
    by_step = columns(report, "success")
    assert by_step["rate"] == [1, 1 / 2, 2 / 3, 3 / 4]
    # The judge is wrong about the last task, and chooses a wrong answer.
    assert by_step["best_of_k"] == [1, 1 / 2, 2 / 3, 2 / 4]
    assert all(
        low <= rate <= high for low, rate, high in zip(*(by_step[x] for x in ("low", "rate", "high")), strict=True)
    )
    assert (by_step["attempts"], by_step["errors"]) == ([1] * 4, [0] * 4)


def test_a_learning_curve_for_each_domain(bank: Learned) -> None:
    domains = numbers(watched(bank.folder), "learning")["domains"]
    found = {name: (one["rate"], one["best_of_k"], one["attempts"]) for name, one in domains.items()}
    assert found == {"even": (1, 1, 2), "odd": (1 / 2, 0, 2)}
    assert domains["odd"]["by_attempt"]["step"] == [2, 4]
    assert domains["odd"]["by_attempt"]["best_of_k"] == [0, 0]
    assert domains["even"]["by_attempt"]["rate"] == [1, 1]


def test_memories_from_successes_and_failures_are_counted_apart(bank: Learned) -> None:
    report = watched(bank.folder)
    assert numbers(report, "memory") == {"entries": 6, "successes": 3, "failures": 3}
    # Of the first and the last task attempts of both kinds; and the judge takes the last one's the wrong way round.
    assert columns(report, "memory") == {"entries": [2, 3, 4, 6], "successes": [1, 1, 2, 3], "failures": [1, 2, 2, 3]}


def test_similarity_of_retrieved_entries_and_the_share_relied_on(bank: Learned) -> None:
    report = watched(bank.folder)
    found = [[near for _, near in rollout.retrieved] for rollout in bank.rollouts]
    assert [len(near) for near in found] == [0, 2, 3, 4]
    by_step = columns(report, "retrieval")
    assert by_step["similarity"] == [None, *(pytest.approx(sum(near) / len(near)) for near in found[1:])]
    assert by_step["best"] == [None, *(max(near) for near in found[1:])]
    assert by_step["relied_on"] == [None, 1 / 2, 1 / 3, 1 / 4]
    assert numbers(report, "retrieval")["relied_on"] == 3 / 9


def slow_drift(contexts: Sequence[Context], embedder: Words) -> dict[str, list[Any]]:
    """Drift and coherence from all vectors of each context."""
    directions: list[np.ndarray] = []
    coherence: list[float] = []
    for context in contexts:
        vectors = practicum.run_sync(embedder.embed([e.embedded_text for e in context if not e.hidden])).astype(float)
        mean = vectors.mean(axis=0)
        directions.append(mean / np.linalg.norm(mean))
        coherence.append(float((vectors @ directions[-1]).mean()))
    before = [None, *(1 - float(a @ b) for a, b in pairwise(directions))]
    first = [1 - float(directions[0] @ d) for d in directions]
    return {"drift": before, "from_first": first, "coherence": coherence}


def near(column: Sequence[float | None]) -> list[Any]:
    return [None if value is None else pytest.approx(value, abs=1e-5) for value in column]


def test_size_drift_and_coherence_of_the_context(bank: Learned) -> None:
    by_step = columns(watched(bank.folder, parts=practicum.Parts(embedder=Words())), "context")
    assert by_step["entries"] == [len(r.context) for r in bank.reports]
    assert by_step["version"] == [1, 2, 3, 4]
    slow = slow_drift([r.context for r in bank.reports], Words())
    assert {name: by_step[name] for name in slow} == {name: near(column) for name, column in slow.items()}


def test_agreement_and_who_chose(bank: Learned) -> None:
    report = watched(bank.folder)
    found = numbers(report, "contrast")
    assert (found["tasks"], found["tries"], found["unanimous"]) == (4, 3, 0.5)
    assert columns(report, "contrast")["agreement"] == pytest.approx([2 / 3, 1, 1, 2 / 3])
    assert found["by"] == dict(Counter(r.choice["by"] for r in bank.rollouts))


def test_the_judge_against_the_scorer_each_outcome_once(bank: Learned) -> None:
    found = numbers(watched(bank.folder), "judge")["against_scorer"]
    assert (found["n"], found["same"], found["lenient"], found["strict"]) == (6, 4 / 6, 1, 1)
    assert found["ci95"][0] < 4 / 6 < found["ci95"][1]


def test_the_calls_of_each_component(bank: Learned) -> None:
    report = watched(bank.folder)
    found = {row["component"]: row for row in numbers(report, "latency")["components"]}
    assert {name: row["calls"] for name, row in found.items()} == {
        "agent": 12, "judge": len(bank.calls("judge")), "extraction": 6,
        "contrast": sum("Contrast" in str(call.schema) for call in bank.calls("reflector")),
    }  # fmt: skip
    assert sum(row["share"] for row in found.values()) == pytest.approx(1)
    assert all(row["median"] <= row["p95"] for row in found.values())
    assert numbers(report, "latency")["attempt_seconds"]["n"] == 12
    assert numbers(report, "latency")["step_seconds"]["n"] == 4


def test_tokens_and_cost_for_each_task(bank: Learned) -> None:
    report = watched(bank.folder)
    found, usage = numbers(report, "tokens")["learning"], bank.result.usage
    assert (found["tasks"], found["calls"], found["tokens"]) == (4, usage.calls, usage.tokens)
    assert found["tokens_per_task"] == usage.tokens / 4
    assert {role: usage["tokens"] for role, usage in found["by_role"].items()} == {
        role: used.tokens for role, used in bank.result.by_role.items()
    }
    by_step = columns(report, "tokens")
    assert sum(by_step["tokens"]) == usage.tokens
    assert by_step["tokens"] == [sum(x) for x in zip(*(by_step[role] for role in found["by_role"]), strict=True)]
    assert "evaluation" not in numbers(report, "tokens")


def test_the_report_is_json_and_notes_what_is_left_out(bank: Learned) -> None:
    value = json.loads(json.dumps(watched(bank.folder).as_json(), allow_nan=False))
    assert (value["method"], value["state"], value["steps"]) == ("reasoning_bank", "done", [1, 2, 3, 4])
    assert value["memory"]["by_step"]["entries"] == [2, 3, 4, 6]
    assert {len(part["by_step"][name]) for part in value.values() if "by_step" in part for name in part["by_step"]} == {
        4
    }
    assert "`judge_again=N` asks it, N of 6" in value["notes"][-1]


def test_metrics_that_a_method_does_not_have_are_left_out(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(), 3)
    report = watched(run.folder)
    assert list(report.groups) == ["success", "learning", "context", "latency", "tokens"]
    assert {row["component"] for row in numbers(report, "latency")["components"]} == {
        {"reflector": "reflection", "curator": "curation"}.get(role, role) for role in run.result.by_role
    }
    assert list(numbers(report, "learning")["domains"]) == ["all"]
    assert report.notes == ()


def test_drift_is_measured_from_the_seed_context(tmp_path: Path) -> None:
    start = seed_context([("rules", "Be brief."), ("rules", "Count from one.")])
    parts = {"embedder": Words()}
    run = learned(tmp_path, scripted(), 2, {"online": True}, parts=parts, seed_context=start)
    found = columns(watched(run.folder, parts=practicum.Parts(**parts)), "context")
    assert found["from_first"] == near(
        slow_drift([start, *(r.context for r in run.reports)], Words())["from_first"][1:]
    )


def test_missing_vectors_are_computed_if_that_is_free(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(), 3, {"dedupe": "proactive"})
    before = columns(watched(run.folder), "context")
    assert before["coherence"][-1] is not None
    with Store.open(run.folder) as store:
        store.execute(schema.vectors.delete())
    assert columns(watched(run.folder), "context")["coherence"] == near(before["coherence"])
    with Store.read(run.folder) as store:
        assert store.rows(schema.vectors.select()) == []


def test_missing_vectors_of_a_paid_embedder_are_not_computed(bank: Learned) -> None:
    # Nothing was looked up after the last step, so its memories were not embedded.
    report = watched(bank.folder)
    assert any("2 of 6 entries have no vector in the store" in note for note in report.notes)
    by_step = columns(report, "context")
    contexts = [r.context for r in bank.reports]
    slow = slow_drift([*contexts[:3], contexts[2]], Words())
    assert {name: by_step[name] for name in slow} == {name: near(column) for name, column in slow.items()}


def copied(folder: Path, to: Path) -> Path:
    """A run of its own, to change."""
    (to / "copy").mkdir()
    with sqlite3.connect(folder / "run.sqlite") as here, sqlite3.connect(to / "copy" / "run.sqlite") as there:
        here.backup(there)
    here.close()
    there.close()
    return to / "copy"


def test_labels_are_not_verdicts_of_a_judge(tmp_path: Path) -> None:
    run = learned(tmp_path, model(), 4, {"k": 3}, "reasoning_bank", {"embedder": Words()})
    assert not run.calls("judge")
    report = watched(run.folder)
    assert "judge" not in report.groups
    assert not any("judge" in note for note in report.notes)


def test_verdicts_count_as_success_if_nothing_is_scored(tmp_path: Path) -> None:
    tasks = [replace(t, target=None) for t in make_tasks(4)]
    run = learned(
        tmp_path, model(), tasks, {"online": True, "k": 3}, "reasoning_bank", {"embedder": Words()}, labels=False,
        judged=True,
    )  # fmt: skip
    report = watched(run.folder)
    found = numbers(report, "success")
    assert (found["by"], found["rate"], found["best_of_k"]) == ("verdict", 2 / 4, 3 / 4)
    assert "judge" not in report.groups


def test_unknown_outcomes_are_not_failures(tmp_path: Path) -> None:
    tasks = [replace(t, target=None) for t in make_tasks(3)]
    report = watched(learned(tmp_path, scripted(), tasks, labels=False).folder)
    assert numbers(report, "success") == {
        "by": "verdict", "attempts": 3, "tries": 3, "unknown": 3, "errors": 0, "lost": 0, "reused": 0,
        "stopped": 0,
    }  # fmt: skip
    assert columns(report, "success") == {}
    assert "learning" not in report.groups


def test_reused_attempts_are_counted_and_have_no_calls(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(reflector=lambda call: {"insight": ""}), 3, {"epochs": 2, "replay": 0.5})
    report = watched(run.folder)
    found, calls = numbers(report, "success"), numbers(report, "latency")["attempt_seconds"]["n"]
    assert found["reused"] == sum(bool(r.of) for r in run.rollouts) > 0
    assert found["attempts"] - found["reused"] == calls == len(run.calls("agent"))


def test_attempts_and_calls_that_failed_are_counted(tmp_path: Path) -> None:
    def answers(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "busy") if number(call) == 1 else f"word{number(call)}"

    report = watched(learned(tmp_path, scripted(answers), 4, {"online": True}).folder)
    assert (numbers(report, "success")["errors"], numbers(report, "success")["lost"]) == (1, 1)
    assert columns(report, "success")["errors"] == [0, 1, 0, 0]
    (agent,) = [row for row in numbers(report, "latency")["components"] if row["component"] == "agent"]
    assert (agent["calls"], agent["failures"], numbers(report, "latency")["attempt_seconds"]["n"]) == (4, 1, 3)


def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


def test_actions_and_tool_seconds_of_an_agent_with_tools(tmp_path: Path) -> None:
    def acts(call: Call) -> str:
        if call.role != "agent":
            return world(call)
        turns = sum('"action"' in turn.assistant for turn in call.prompt.turns)
        action = {"add": {"a": turns}} if turns < 2 else {"finish": {"answer": "done"}}
        assert call.schema is not None
        said = {"used": [], "thought": "so", "action": action}
        return json.dumps({name: value for name, value in said.items() if name in call.schema["properties"]})

    run = learned(tmp_path, client(acts), 3, {"rounds": 0}, parts={"tools": [add]})
    report = watched(run.folder)
    found = numbers(report, "agent")
    assert (found["n"], found["mean"], found["p95"]) == (3, 2, 2)
    assert columns(report, "agent")["actions"] == [2, 2, 2]
    components = {row["component"]: row for row in numbers(report, "latency")["components"]}
    assert (components["agent"]["calls"], components["tools"]["calls"]) == (9, 3)
    attempts = numbers(report, "latency")["attempt_seconds"]
    spent = components["agent"]["seconds"] + components["tools"]["seconds"]
    assert (attempts["n"], attempts["mean"]) == (3, pytest.approx(spent / 3))


RUNS: dict[str, dict[str, Any]] = {
    "unified": {"method": "unified", "settings": {"online": True, "k": 2}},
    "in sequence": {"method": "reasoning_bank", "settings": {"scaling": "sequential", "k": 2}},
    "ace": {"settings": {"batch": 4, "rounds": 2}},
    "critique": {"settings": {"batch": 3, "refine": "critique"}},
    "rcl": {"method": "rcl", "settings": {}},
    "episodes": {"method": "episodes", "settings": {"online": True}},
    "without a barrier": {"method": "combee", "settings": {"batch": 5, "asynchronous": True}},
    "a scorer that is a judge": {"scorer": "judge"},
    "evaluated": {"val": make_tasks(3, 50), "test": make_tasks(2, 60), "validate_every": 3},
}


@pytest.mark.parametrize("config", RUNS.values(), ids=RUNS)
@pytest.mark.slow
def test_every_call_of_any_run_is_counted_once(tmp_path: Path, config: dict[str, Any]) -> None:
    how = {"method": "ace", **config}
    settings = {**({"dedupe": "never"} if how["method"] in ("ace", "combee", "rcl") else {}), **how.pop("settings", {})}
    parts = practicum.Parts(clients={"agent": client(world)})
    work = practicum.learn(make_tasks(12), out=tmp_path / "run", settings=settings, parts=parts, **how)
    result = practicum.run_sync(work)
    report = watched(tmp_path / "run")
    found = numbers(report, "tokens")
    stages = [found[stage] for stage in ("learning", "evaluation") if stage in found]
    assert sum(stage["tokens"] for stage in stages) == result.usage.tokens
    rows = numbers(report, "latency")["components"]
    assert sum(row["calls"] for row in rows) == sum(stage["calls"] for stage in stages) == result.usage.calls
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    sizes = columns(report, "success").get("attempts", [])
    spent = columns(report, "tokens")["tokens"]
    by_step = sum((tokens or 0) * size for tokens, size in zip(spent, sizes, strict=True))
    assert by_step == pytest.approx(found["learning"]["tokens"])
    assert columns(report, "context")["entries"][-1] == report.groups["context"].numbers["entries"]
    if config.get("scorer") != "judge":
        assert ("evaluation" in found) == ("val" in config)


def test_versions_that_no_step_made_change_only_the_totals(bank: Learned, tmp_path: Path) -> None:
    from practicum.cli.app import main

    folder = copied(bank.folder, tmp_path)
    with pytest.raises(SystemExit):
        main(["rollback", str(folder), "1", "--yes"])
    report = watched(folder)
    assert numbers(report, "memory") == {"entries": 2, "successes": 1, "failures": 1}
    assert columns(report, "memory") == columns(watched(bank.folder), "memory")
    assert columns(report, "context") == columns(watched(bank.folder), "context")


def test_a_run_at_work_can_be_monitored(tmp_path: Path) -> None:
    seen: list[MonitorReport] = []

    watch = Learned(scripted(), tmp_path / "run")

    async def work() -> None:
        await practicum.learn(
            make_tasks(5), out=watch.folder, method="ace", settings={"online": True}, watch=watch,
            parts=practicum.Parts(clients={"agent": looking}),
        )  # fmt: skip

    inner = scripted()

    class Looking(ScriptedClient):
        async def complete(self, role: str, *asked: Any) -> Any:
            if role == "agent" and "Message 4" in asked[0].user and not seen:
                seen.append(await monitor(watch.folder))
            return await super().complete(role, *asked)

    looking = Looking(inner.respond)
    practicum.run_sync(work())
    (report,) = seen
    assert report.state == "running"
    assert 2 <= len(report.steps) <= 4
    assert report.steps == tuple(range(1, len(report.steps) + 1))


def test_a_resume_keeps_the_time_at_which_a_step_ended(bank: Learned, tmp_path: Path) -> None:
    ended = watched(bank.folder).ended
    assert list(ended) == [1, 2, 3, 4]
    assert sorted(ended.values()) == list(ended.values())
    practicum.run_sync(
        practicum.resume(
            folder := copied(bank.folder, tmp_path),
            parts=practicum.Parts(clients={"agent": model()}, embedder=Words()),
        )
    )
    assert watched(folder).ended == ended


def again(
    run: Learned, judge: Callable[[Call], str | Exception], n: int, **how: Any
) -> tuple[dict[str, Any], list[Call]]:
    """What is said of `n` attempts that are judged again, and what this judge was asked."""
    asked = client(judge)
    report = watched(run.folder, judge_again=n, parts=practicum.Parts(clients={"agent": asked}), **how)
    return numbers(report, "judge")["again"], asked.calls


def verdict(right: bool) -> str:
    return json.dumps({"right": right, "reason": "so"})


def test_the_judge_is_asked_again_and_nothing_is_stored(bank: Learned) -> None:
    before = (bank.folder / "run.sqlite").read_bytes()
    # It has come to its senses about the last task.
    found, asked = again(bank, lambda call: verdict("# Answer\nword" in call.prompt.user), 6)
    assert (found["n"], found["of"], found["same"], found["no_verdict"]) == (6, 6, 4 / 6, 0)
    assert (found["usage"]["calls"], found["temperature"]) == (6, 0.0)
    assert {(call.role, call.options.temperature) for call in asked} == {("judge", 0.0)}
    assert sorted(call.prompt.user for call in asked) == sorted(call.prompt.user for call in bank.calls("judge"))
    assert (bank.folder / "run.sqlite").read_bytes() == before


def test_the_seed_draws_the_attempts_that_are_judged_again(bank: Learned) -> None:
    def drawn(seed: int, n: int) -> tuple[str, ...]:
        found, asked = again(bank, lambda call: verdict(True), n, seed=seed)
        assert found["n"] == min(n, 6)
        return tuple(sorted(call.prompt.user for call in asked))

    assert drawn(0, 2) == drawn(0, 2)
    assert len({drawn(seed, 2) for seed in range(9)}) > 1
    assert len(drawn(0, 99)) == 6


def test_a_judge_without_verdicts_and_a_judge_that_is_stopped(bank: Learned) -> None:
    found, _ = again(bank, lambda call: ProviderError("provider.failed", "busy"), 3)
    assert (found["n"], found["no_verdict"], "same" in found) == (0, 3, False)
    found, asked = again(bank, lambda call: verdict(True), 5, limits={"max_calls": 2})
    assert (found["n"], found["usage"]["calls"], len(asked)) == (2, 2, 2)
    assert "budget of 2 calls" in found["stopped"]


def test_a_judge_that_scores_is_asked_with_the_right_answer(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(judge=lambda call: {"right": number(call) != 2}), 4, scorer="judge")
    found, _ = again(run, lambda call: verdict("# Reference answer\nword" in call.prompt.user), 4)
    assert found["same"] == 3 / 4
    assert "judge" not in watched(run.folder).groups


def test_wrong_usage_is_refused(bank: Learned, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        watched(tmp_path / "nowhere")
    create_seed(tmp_path / "seed", seed_context([("rules", "Be brief.")]))
    with pytest.raises(UsageError, match="has no steps yet"):
        watched(tmp_path / "seed")
    with pytest.raises(UsageError, match="judge_again=0"):
        watched(bank.folder, judge_again=0)
    with pytest.raises(UsageError, match="unknown model 'scripted'"):
        watched(bank.folder, judge_again=1)
    run = learned(tmp_path, scripted(), 2)
    with pytest.raises(UsageError, match="the run has no verdicts of a judge"):
        again(run, lambda call: verdict(True), 1)
