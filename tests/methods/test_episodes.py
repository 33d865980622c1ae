"""Episodes: what is kept of an attempt, and which of it a later task is shown."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks

import practicum
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.session.result import Result

TRAIN = [
    Task("t0", "My bank card was stolen on the train", "Cards"),
    Task("t1", "Where is the parcel I ordered last week?", "Parcels"),
    Task("t2", "The card I use at the bank does not work", "Cards"),
    Task("t3", "The parcel came with a broken lamp in it", "Parcels"),
    Task("t4", "I cannot log in to my account any more", "Access"),
    Task("t5", "How do I block a lost card?", "Cards"),
]
HELD = [Task("h0", "Someone stole my bank card", "Cards"), Task("h1", "My parcel did not come", "Parcels")]


def learn(folder: Path, model: ScriptedClient, tasks: list[Task] = TRAIN, **how: Any) -> Result:
    how = {"parts": practicum.Parts(clients={"agent": model}), **how}
    return practicum.run_sync(practicum.learn(tasks, out=folder, method="episodes", **how))


def wrong(call: Call) -> str:
    return "wrong"


def turns(call: Call) -> list[tuple[str, str]]:
    return [(turn.user, turn.assistant) for turn in call.prompt.turns]


def by_similarity(tasks: list[Task], text: str) -> list[tuple[str, str | None]]:
    """Least similar first."""
    context = initial_context(Add("episodes", task.input, data={"answer": task.target}) for task in tasks)
    search = asyncio.run(Retriever(Vectors(WordLlama())).nearest(context, text, len(tasks)))
    return [(match.entry.text, match.entry.data["answer"]) for match in reversed(search.found)]


@pytest.mark.parametrize("k", [1, 2, 4, 50])
def test_the_k_most_similar_are_shown_the_most_similar_last(tmp_path: Path, k: int) -> None:
    model = client(wrong)
    learn(tmp_path / "run", model, test=HELD, settings={"k": k, "batch": 6})
    shown = {call.prompt.user: turns(call) for call in model.calls}
    assert shown == {task.input: by_similarity(TRAIN, task.input)[-k:] for task in HELD}


def test_a_pattern_is_no_answer_to_show(tmp_path: Path) -> None:
    tasks = [replace(task, target=f"^{task.target}$") for task in TRAIN]
    model = client(lambda call: "Cards" if "card" in call.prompt.user else "no idea")
    made = learn(tmp_path / "run", model, tasks, scorer="regex", settings={"batch": 6})
    assert len(model.calls) == len(TRAIN)
    kept = {entry.text: (entry.data["good"], entry.data["answer"]) for entry in made.context.in_section("episodes")}
    assert kept == {t.input: (True, "Cards") if t.target == "Cards" else (False, "no idea") for t in TRAIN}


def test_a_failure_is_kept_as_the_right_answer(tmp_path: Path) -> None:
    model = client(lambda call: "Cards")
    result = learn(tmp_path / "run", model, settings={"online": True})
    kept = {e.text: dict(e.data) for e in result.context}
    assert len(model.calls) == len(TRAIN)
    assert kept == {
        t.input: {"answer": t.target, "good": True, "corrected": t.target != "Cards"} for t in TRAIN
    }  # fmt: skip
    assert all(f"task:{t.id}" in e.sources for t in TRAIN for e in result.context if e.text == t.input)


def test_what_nothing_says_is_good_is_kept_and_not_shown(tmp_path: Path) -> None:
    model = client(lambda call: "Cards")
    result = learn(tmp_path / "run", model, labels=False, test=HELD)
    assert [e.data["good"] for e in result.context] == [False] * len(TRAIN)
    assert len(model.calls) == len(TRAIN) + len(HELD)
    assert not [call for call in model.calls if call.prompt.turns]


def test_without_labels_a_judge_says_what_is_good(tmp_path: Path) -> None:
    def judging(call: Call) -> str:
        if call.role == "agent":
            return "Cards"
        about, _, _ = call.prompt.user.partition("# Answer")
        return json.dumps({"reason": "so", "right": "card" in about})

    model = client(judging)
    result = learn(tmp_path / "run", model, labels=False, judged=True, test=HELD, settings={"k": 50})
    good = {t.input for t in TRAIN if "card" in t.input}
    assert {e.text for e in result.context if e.data["good"]} == good
    last = [call for call in model.calls if call.role == "agent"][-1]
    assert {user for user, _ in turns(last)} == good


def test_a_second_epoch_goes_over_the_same_episodes(tmp_path: Path) -> None:
    def improving(call: Call) -> str:
        return "Cards" if not call.prompt.turns else call.prompt.turns[-1].assistant

    once = learn(tmp_path / "once", client(improving), settings={"batch": 6})
    twice = learn(tmp_path / "twice", client(improving), settings={"batch": 6, "epochs": 2})
    assert sorted(e.text for e in twice.context) == sorted(t.input for t in TRAIN)
    assert {e.text: e.data["answer"] for e in twice.context} == {e.text: e.data["answer"] for e in once.context}
    # In the second epoch the very task is the nearest episode, so that it is right by itself.
    assert not [e for e in twice.context if e.data["corrected"]]


def test_a_batch_sees_the_episodes_of_earlier_batches_only(tmp_path: Path) -> None:
    model = client(wrong)
    tasks = [replace(task, target=None) for task in make_tasks(6)]
    parts = practicum.Parts(clients={"agent": model}, scorer=lambda task, answer: True)
    learn(tmp_path / "run", model, tasks, parts=parts, settings={"batch": 3, "k": 50})
    assert [len(call.prompt.turns) for call in model.calls] == [0] * 3 + [3] * 3


def test_an_entry_of_a_seed_that_has_no_answer_is_no_episode(tmp_path: Path) -> None:
    seed = initial_context([Add("episodes", "By hand"), Add("episodes", "Solved", data={"answer": "Cards"})])
    model = client(wrong)
    learn(tmp_path / "run", model, TRAIN[:1], seed_context=seed, settings={"online": True})
    assert turns(model.calls[0]) == [("Solved", "Cards")]


def put(thing: str) -> str:
    """Put a thing into the box."""
    if thing == "stone":
        raise ValueError("too heavy")
    return "put: " + "x" * 1000


def putting(call: Call) -> str:
    """Tries a stone first, then puts what the task names, and finishes."""
    *_, thing = call.prompt.user.split() if not call.prompt.turns else call.prompt.turns[0].user.split()
    said = [{"put": {"thing": "stone"}}, {"put": {"thing": thing}}, {"finish": {"answer": "done"}}]
    made = len(call.prompt.turns) % 3
    return json.dumps({"thought": f"thought {made}", "action": said[made]})


def test_an_agent_with_tools_is_shown_the_calls_that_solved_a_task(tmp_path: Path) -> None:
    model = client(putting)
    parts = practicum.Parts(clients={"agent": model}, tools=[put], scorer=lambda task, answer: "lamp" in task.input)
    tasks = [Task("t0", "Put in a lamp"), Task("t1", "Put in a chair")]
    how = {"test": HELD[:1], "out": tmp_path / "run", "method": "episodes", "trust_tools": True}
    result = practicum.run_sync(practicum.learn(tasks, parts=parts, **how))
    kept = {e.text: dict(e.data) for e in result.context}
    (thought, action, observation, end) = kept["Put in a lamp"]["steps"]
    assert (thought, action, end) == (
        ["thought", "thought 1"], ["action", 'put {"thing": "lamp"}'], ["thought", "thought 2"],
    )  # fmt: skip
    assert observation[0] == "observation"
    assert observation[1].startswith("put: xxx")
    assert len(observation[1]) < 400
    assert kept["Put in a chair"]["good"] is False
    told = next(e.solved for e in result.context if e.text == "Put in a lamp")
    assert told.startswith('Put in a lamp\nThought: thought 1\nAction: put {"thing": "lamp"}\nObservation: put: xxx')
    assert told.endswith("\nThought: thought 2\n→ done")
    first = next(call for call in model.calls if call.prompt.user == HELD[0].input)
    (acted, ended) = first.prompt.turns
    assert (acted.user, json.loads(acted.assistant)) == (
        "Put in a lamp", {"thought": "thought 1", "action": {"put": {"thing": "lamp"}}},
    )  # fmt: skip
    assert ended.user.startswith("Observation: put: xxx")
    assert json.loads(ended.assistant) == {"thought": "thought 2", "action": {"finish": {"answer": "done"}}}


def test_calls_of_another_agent_are_left_out_of_the_turns(tmp_path: Path) -> None:
    steps = [["action", "ls(-l)"], ["observation", "a b"], ["message", "hm"], ["action", 'put {"thing": "lamp"}']]
    context = initial_context([Add("episodes", "Put in a lamp", data={"answer": "done", "steps": steps})])
    model = client(lambda call: '{"thought": "", "action": {"finish": {"answer": "done"}}}')
    parts = practicum.Parts(clients={"agent": model}, tools=[put], scorer=lambda task, answer: True)
    practicum.run_sync(practicum.evaluate(HELD[:1], context, method="episodes", parts=parts))
    assert turns(model.calls[0]) == [("Put in a lamp", '{"thought":"","action":{"finish":{"answer":"done"}}}')]


def test_an_agent_from_outside_is_told_the_calls(tmp_path: Path) -> None:
    steps = [["action", 'put {"thing": "lamp"}'], ["observation", "put"]]
    context = initial_context([Add("episodes", "Put in a lamp", data={"answer": "done", "steps": steps})])
    shown = []

    def agent(input: str, context: str) -> str:
        shown.append(context)
        return "done"

    parts = practicum.Parts(agent=agent, scorer=lambda task, answer: True)
    practicum.run_sync(practicum.evaluate(HELD[:1], context, method="episodes", parts=parts))
    assert shown == ['Task: Put in a lamp\nAction: put {"thing": "lamp"}\nObservation: put\nAnswer: done']
