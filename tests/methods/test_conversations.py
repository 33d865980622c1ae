"""The teams that learn nothing, MAEL's rivals: who is asked, in which order, what each reads, and when it ends."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks
from scripts import Learned, learned, resumed, right, shape

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call
from practicum.session.result import Result

NAMES = ("chain", "group_chat", "evomac")
Say = Callable[[Call], str | Exception]


def talking(**forms: Callable[[Call], Any]) -> Say:
    """A model for all members: each form is filled in by its function; the answer to a task is right."""

    def respond(call: Call) -> str | Exception:
        said = forms[shape(call)](call) if call.schema is not None else right(call)
        return said if isinstance(said, Exception | str) else json.dumps(said)

    return respond


def numbered(**more: Any) -> Callable[[Call], Any]:
    """Contributions with numbers of their own: "text 1", "text 2"."""
    count = iter(range(1, 99))
    return lambda call: {"text": f"text {next(count)}", **more}


def answered(
    folder: Path, name: str, respond: Say, tasks: int = 1, settings: dict[str, Any] | None = None, **how: Any
) -> tuple[Result, list[Call]]:
    """The test tasks answered by a team, and all calls."""
    model = client(respond)
    result = practicum.run_sync(
        practicum.learn(
            [], test=make_tasks(tasks), out=folder / "run", method=name, settings=settings or {},
            parts=practicum.Parts(clients={"agent": model}), **how,
        )
    )  # fmt: skip
    return result, model.calls


# ---- a chain


def test_each_agent_of_a_chain_reads_what_the_one_before_it_hands_on_and_nothing_else(tmp_path: Path) -> None:
    _, calls = answered(tmp_path, "chain", talking(Contribution=numbered()))
    assert len(calls) == 4
    handed = [re.findall(r"text \d", call.prompt.user) for call in calls]
    assert handed == [[], ["text 1"], ["text 2"], ["text 3"]]
    assert len({call.prompt.system for call in calls[:3]}) == 3
    assert all("Message 0: say word0" in call.prompt.user for call in calls)


def test_the_last_answer_of_a_chain_counts(tmp_path: Path) -> None:
    result, _ = answered(tmp_path / "a", "chain", talking(Contribution=lambda call: {"text": "wrong"}))
    assert result.scores["test"] == 1
    late = client(lambda call: json.dumps({"text": right(call)}) if call.schema is not None else "wrong")
    parts = practicum.Parts(clients={"agent": late})
    work = practicum.learn([], test=make_tasks(1), out=tmp_path / "b", method="chain", parts=parts)
    assert practicum.run_sync(work).scores["test"] == 0


# ---- a group chat


def turns(*names: str) -> Callable[[Call], Any]:
    left = list(names)
    return lambda call: {"next": left.pop(0) if len(left) > 1 else left[0]}


def test_the_manager_says_who_speaks_and_everybody_reads_the_whole_chat(tmp_path: Path) -> None:
    respond = talking(Turn=turns("planner", "worker", "worker", "critic"), Message=numbered(done=False))
    _, calls = answered(tmp_path, "group_chat", respond, settings={"turns": 4})
    spoke = [call for call in calls if shape(call) == "Message"]
    for system, name in zip([c.prompt.system for c in spoke], ("planner", "worker", "worker", "critic"), strict=True):
        assert f"You are the {name}" in system
    for n, call in enumerate(spoke):
        assert re.findall(r"text \d", call.prompt.user) == [f"text {m + 1}" for m in range(n)]
    assert "planner: text 1\n\nworker: text 2" in spoke[-1].prompt.user
    assert re.findall(r"text \d", calls[-1].prompt.user) == [f"text {n}" for n in range(1, 5)]


def test_a_chat_ends_with_the_message_that_says_so(tmp_path: Path) -> None:
    said = iter([False, True, False])
    respond = talking(Turn=turns("worker"), Message=lambda call: {"text": "so", "done": next(said)})
    _, calls = answered(tmp_path, "group_chat", respond)
    assert Counter(map(shape, calls)) == {"Turn": 2, "Message": 2, "": 1}


def test_a_chat_that_is_never_done_ends_after_its_turns(tmp_path: Path) -> None:
    respond = talking(Turn=turns("critic"), Message=lambda call: {"text": "no", "done": False})
    result, calls = answered(tmp_path, "group_chat", respond, settings={"turns": 3})
    assert len(calls) == methods.build("group_chat", {"turns": 3}).act_calls == 7
    assert result.scores["test"] == 1


# ---- an evolving team


def team(*names: str) -> dict[str, Any]:
    return {"members": [{"name": name, "job": f"do the {name}"} for name in names]}


def teams(*rosters: dict[str, Any]) -> Callable[[Call], Any]:
    left = list(rosters)
    return lambda call: left.pop(0) if len(left) > 1 else left[0]


def faults(*found: list[str]) -> Callable[[Call], Any]:
    left = list(found)
    return lambda call: {"faults": left.pop(0) if len(left) > 1 else left[0]}


CHECKS = {"checks": ["it says a word"]}


def test_what_fails_a_check_changes_the_members(tmp_path: Path) -> None:
    respond = talking(
        Team=teams(team("draft", "print"), team("draft", "proof")), Checks=lambda call: CHECKS,
        Contribution=numbered(), Faults=faults(["no word"], ["print must proofread"], []),
    )  # fmt: skip
    _, calls = answered(tmp_path, "evomac", respond)
    found, changed = [c for c in calls if shape(c) == "Faults"], [c for c in calls if shape(c) == "Team"][1]
    # The checks are written before there is a result, and decide about it; the team is not in sight there.
    assert "# Checks\n- it says a word" in found[0].prompt.user
    assert "# The team" not in found[0].prompt.user
    assert "- no word" in found[1].prompt.user
    assert "- print: do the print" in found[1].prompt.user
    assert "- print must proofread" in changed.prompt.user
    jobs = [re.findall(r"# Your job\n(.*)", c.prompt.user)[0] for c in calls if shape(c) == "Contribution"]
    assert jobs == ["do the draft", "do the print", "do the draft", "do the proof"]
    # Members see the results of this round's members before them; the last result is what is answered from.
    read = [re.findall(r"text \d", c.prompt.user) for c in calls if shape(c) == "Contribution"]
    assert read == [[], ["text 1"], [], ["text 3"]]
    assert re.findall(r"text \d", calls[-1].prompt.user) == ["text 3", "text 4"]


def test_a_team_whose_result_passes_stays_as_it_is(tmp_path: Path) -> None:
    respond = talking(
        Team=lambda call: team("one"), Checks=lambda call: CHECKS, Contribution=numbered(), Faults=faults([])
    )
    _, calls = answered(tmp_path, "evomac", respond)
    assert Counter(map(shape, calls)) == {"Team": 1, "Checks": 1, "Contribution": 1, "Faults": 1, "": 1}


def test_a_team_is_changed_no_more_often_and_has_no_more_members_than_is_set(tmp_path: Path) -> None:
    respond = talking(
        Team=lambda call: team(*"abcdef"), Checks=lambda call: CHECKS, Contribution=numbered(), Faults=faults(["bad"])
    )
    settings = {"agents": 3, "iterations": 2}
    _, calls = answered(tmp_path, "evomac", respond, settings=settings)
    assert Counter(map(shape, calls)) == {"Team": 3, "Checks": 1, "Contribution": 9, "Faults": 4, "": 1}
    assert len(calls) == methods.build("evomac", settings).act_calls


# ---- all of them


def all_forms(call: Call) -> str:
    form = {
        "Contribution": {"text": f"as {call.prompt.user[-9:]}"}, "Turn": {"next": "worker"}, "Checks": CHECKS,
        "Message": {"text": "said", "done": "said" in call.prompt.user}, "Team": team("one", "two"),
        "Faults": {"faults": ["a fault"]},
    }  # fmt: skip
    return right(call) if call.schema is None else json.dumps(form[shape(call)])


@pytest.mark.parametrize("name", NAMES)
def test_a_team_learns_nothing_and_pays_for_evaluation_alone(tmp_path: Path, name: str) -> None:
    run = learned(tmp_path, client(all_forms), 6, {}, name, test=make_tasks(2, 50))
    assert (run.result.steps, len(run.result.context), run.result.scores["test"]) == (0, 0, 1)
    assert {call.prompt.user.count("Message 5") for call in run.model.calls} == {1}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_predicted_in_order_and_a_seed_is_shown(tmp_path: Path, name: str) -> None:
    seed = seed_context([("rules", "Say the last word.")])
    run = learned(tmp_path, client(all_forms), 3, {"online": True}, name, seed_context=seed)
    answers = [call for call in run.model.calls if call.schema is None]
    assert [number for call in answers for number in re.findall(r"Message (\d)", call.prompt.user)] == ["0", "1", "2"]
    assert all("Say the last word." in call.prompt.head for call in answers)
    assert run.result.scores["online"] == 1
    assert run.texts == ["Say the last word."]


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_fails_costs_the_attempt_and_not_the_run(tmp_path: Path, name: str) -> None:
    def shaky(call: Call) -> str | Exception:
        lost = call.schema is not None and "Message 1:" in call.prompt.user
        return ProviderError("provider.failed", "gone") if lost else all_forms(call)

    result, _ = answered(tmp_path, name, shaky, tasks=4)
    assert result.scores["test"] == 0.75


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_cut_off_evaluation_resumes_and_pays_for_nothing_twice(tmp_path: Path, name: str) -> None:
    whole, calls = answered(tmp_path / "whole", name, all_forms, tasks=3, concurrency=1)
    for n in range(1, len(calls), 4):
        left = iter(range(n))

        def killed(call: Call, left: Any = left) -> str:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return all_forms(call)

        with pytest.raises(KeyboardInterrupt):
            answered(tmp_path / str(n), name, killed, tasks=3, concurrency=1)
        again = resumed(Learned(client(all_forms), tmp_path / str(n) / "run"), client(all_forms))
        assert again.result.scores == whole.scores
        assert context_bytes(again.result) == context_bytes(whole)
        assert len(again.model.calls) == len(calls) - n


@pytest.mark.parametrize("name", NAMES)
def test_members_know_the_instructions_and_the_choices(tmp_path: Path, name: str) -> None:
    how: dict[str, Any] = {"choices": ("word0", "word1"), "instructions": "Be brief."}
    _, calls = answered(tmp_path, name, all_forms, **how)
    members = [call for call in calls if call.schema is not None]
    assert all("# What the agent is told\nBe brief.\n\n# Possible answers\nword0; word1" in c.text for c in members)


@pytest.mark.parametrize("name", NAMES)
def test_a_long_conversation_is_cut_and_the_task_stays_whole(tmp_path: Path, name: str) -> None:
    def wordy(call: Call) -> str:
        said = json.loads(all_forms(call)) if call.schema is not None else {}
        return json.dumps({**said, "text": "word " * 1_500}) if "text" in said else all_forms(call)

    model = client(wordy, window=2_500)
    parts = practicum.Parts(clients={"agent": model})
    work = practicum.learn([], test=make_tasks(1), out=tmp_path / "run", method=name, parts=parts)
    assert practicum.run_sync(work).scores["test"] == 1
    assert all("Message 0: say word0" in call.prompt.user for call in model.calls)


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_effect_is_refused(tmp_path: Path, name: str) -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
        ({"gate": True}, {"val": make_tasks(2)}, "changes nothing that a gate could hold back"),
        ({}, {"from_traces": True}, f"method {name} cannot learn from stored traces"),
    )
    for settings, how, match in cases:
        with pytest.raises(UsageError, match=match):
            learned(tmp_path, client(all_forms), 2, settings, name, **how)
