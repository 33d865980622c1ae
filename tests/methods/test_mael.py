"""MAEL as METHODS section 6 has it, in whole runs: pools that grow, what is retrieved from them, and who is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scripts
from helpers import client, context_bytes, make_tasks
from profiles import cases
from scripts import Learned, material, shape
from teams import SHOWING, critique, divided, learned, number, plan, quality, solution, team, written

import practicum
from practicum import methods
from practicum.agents.team import make_team
from practicum.analysis.monitor import monitor
from practicum.blocks.act.network import AVOID, EXPERIENCE
from practicum.core.context import Context, initial_context
from practicum.core.edits import Add, Entry
from practicum.core.errors import ProviderError, UsageError, WindowError
from practicum.core.types import Profile, Rollout, Task
from practicum.models.scripted import Call

SHOWN = "# From your experience"
POOLS = "pool "


def pools(context: Context) -> list[tuple[str, str, float]]:
    return [(e.section.removeprefix(POOLS), e.data["kind"], e.data["reward"]) for e in context]


def moves(rollout: Rollout) -> list[dict[str, Any]]:
    return list(rollout.trace.data["moves"])


# ---- pools


@pytest.mark.parametrize(
    ("failing", "mean"), [(("first",), 0.25), (("second",), 0.45), (("first", "second"), 0.0)], ids=str
)
def test_a_part_that_no_agent_solves_counts_zero(tmp_path: Path, failing: tuple[str, ...], mean: float) -> None:
    def solve(call: Call) -> dict[str, Any] | Exception:
        said: Any = solution(call)
        return (
            ProviderError("provider.failed", "away")
            if any(f"{half} half" in material(call.prompt) for half in failing)
            else said
        )

    plans = {"parts": [{"text": f"{half} half of Message 1"} for half in ("first", "second")]}
    run = learned(tmp_path, divided(1), respond=team(Plan=lambda call: plans, Answered=solve))
    found = {kind: reward for _, kind, reward in pools(run.result.context)}
    assert (found["judge"], found["decompose"], found["aggregate"]) == (mean, mean, 1.0)


def test_a_critique_without_feedback_neither_accepts_nor_rejects(tmp_path: Path) -> None:
    """The first critique finds fault and names none. It is asked again; a critic that never does is counted."""

    def once(call: Call) -> dict[str, Any]:
        asked = "# A part of it\nfirst half" in call.text and "is called inadequate" not in call.text
        said: Any = critique(call)
        return {"feedback": " ", "adequate": False} if asked and "better" not in call.prompt.user else said

    mended = learned(tmp_path / "mended", divided(1), respond=team(Critique=once))
    assert pools(mended.result.context) == pools(learned(tmp_path / "plain", divided(1)).result.context)
    assert mended.result.errors == {"repaired_outputs": 1}
    never = team(Critique=lambda call: {"feedback": "", "adequate": False})
    run = learned(tmp_path / "never", divided(1), respond=never)
    assert [kind for _, kind, _ in pools(run.result.context)] == ["judge", "decompose", "solve", "solve", "aggregate"]
    assert run.result.errors == {"repaired_outputs": 4, "unparsed_outputs": 2}


# ---- retrieval


def experiences(run: Learned, rollout: Rollout) -> list[Entry]:
    found = (run.result.context.get(move["experience"]) for move in moves(rollout) if move["experience"])
    return [entry for entry in found if entry is not None]


@pytest.mark.parametrize("profile", ["small", "full"])
@pytest.mark.parametrize(("settings", "avoided"), [({}, False), ({"follow_from": 0.95}, True)], ids=["well", "badly"])
def test_what_is_shown_says_what_it_was_worth_and_how_to_use_it(
    tmp_path: Path, profile: Profile, settings: dict[str, Any], avoided: bool
) -> None:
    """Also beside the whole task, whose answer is scored. A gain is not measured by the reward of a solution."""
    right = team(Quality=lambda call: {"reason": "", "points": 9 if "better" in call.text else 8})
    run = learned(tmp_path, divided(2), {**SHOWING, **settings}, right, profile=profile)
    shown = [call for call in run.calls("agent") if SHOWN in call.text]
    assert {shape(call) for call in shown} >= {"Ability", "Plan", "Critique", ""}
    assert all(EXPERIENCE.text(profile) in call.text for call in shown)
    headings = [call.prompt.turns[-1].user.splitlines()[0] for call in shown]
    marked = {heading for heading in headings if heading.endswith(AVOID)}
    assert {heading for heading in headings if "1.00 of 1" in heading or "gained" in heading} - marked
    assert bool(marked) == avoided


def test_by_similarity_alone_the_nearest_or_the_farthest_is_shown(tmp_path: Path) -> None:
    tasks = [
        Task("a", "Message 1: the train to the coast is late", "word1"),
        Task("b", "Message 3: bake bread with rye and salt", "word3"),
        Task("c", "Message 5: bake bread with wheat and salt", "word5"),
    ]

    def shown(similarity: str) -> str:
        run = learned(tmp_path / similarity, tasks, {**SHOWING, "similarity": similarity, "alpha": 1.0}, seed=1)
        return next(e.key for e in experiences(run, run.rollouts[-1]) if e.data["kind"] == "judge")

    order = [r.task.id for r in learned(tmp_path / "order", tasks, seed=1).rollouts]
    rest = {task.id: task.input for task in tasks if task.id != order[-1]}
    near, far = ("b", "a") if order[-1] == "c" else ("c", "a") if order[-1] == "b" else ("", "")
    assert near, "take another seed: the odd one came last"
    assert (shown("high"), shown("low")) == (rest[near], rest[far])


@pytest.mark.parametrize("strategy", ["step", "task"])
def test_a_hint_without_a_reward_is_no_experience(tmp_path: Path, strategy: str) -> None:
    hint = Add("pool agent1", "Do it so.", "Message 1", data={"kind": "judge"})
    run = learned(tmp_path, divided(1), {**SHOWING, "experience": strategy}, seed_context=initial_context([hint]))
    assert not experiences(run, run.rollouts[0])
    assert run.result.errors == {}


@pytest.mark.parametrize(("reward", "number_of"), [("high", 3), ("low", 1)])
def test_by_task_the_trace_with_the_best_whole_solution_is_shown(tmp_path: Path, reward: str, number_of: int) -> None:
    """The parts of message 1 are perfect and its whole is wrong; those of message 3 are poor and its whole is right."""

    def graded(call: Call) -> dict[str, Any]:
        return {"reason": "", "points": 10 if "Message 1:" in call.prompt.user else 2}

    respond = team(**{"": lambda call: "wrong" if number(call) == 1 else f"word{number(call)}"}, Quality=graded)
    test = make_tasks(10)[9:]
    settings = {"experience": "task", "alpha": 0.0, "reward": reward}
    run = learned(tmp_path, divided(2), settings, respond, test=test)
    judged = {e.key: (e.data["reward"], e.data["whole"]) for e in run.result.context if e.data["kind"] == "judge"}
    assert judged == {"Message 1: say word1": (1.0, 0.0), "Message 3: say word3": (0.2, 1.0)}
    tested = [call for call in run.calls("agent") if "Message 9: say word9" in call.prompt.user]
    shown = [call.prompt.turns[-1].user for call in tested if SHOWN in call.text]
    assert len(shown) == len(tested)
    assert {int(n) for text in shown for n in re.findall(r"Message (\d+)", text)} == {number_of}


def test_shown_experiences_are_reported_with_their_similarity(tmp_path: Path) -> None:
    run = learned(tmp_path, divided(3), SHOWING)
    for rollout in run.rollouts:
        assert {id for id, _ in rollout.retrieved} == {e.id for e in experiences(run, rollout)}
    parts = practicum.Parts(clients={"agent": client(team())})
    found = practicum.run_sync(practicum.ask("Message 9: say word9", run.folder, parts=parts))
    told = found.as_json()["memories"]
    assert {memory["id"] for memory in told} == {e.id for e in experiences(run, found.rollout)}
    nearness = [memory["similarity"] for memory in told]
    assert nearness == sorted(nearness, reverse=True)
    assert 0 < nearness[-1] <= nearness[0] < 1
    watched = practicum.run_sync(monitor(run.folder)).groups["retrieval"].numbers
    # The first task had nothing to look up, and nobody can cite what is shown as an exchange of before.
    assert (watched["lookups"], watched.get("relied_on")) == (2, None)


def test_an_experience_that_was_shown_counts_as_used(tmp_path: Path) -> None:
    """Also where the step made none itself: its critique found the solution adequate, or its judge was away."""
    away = team(Quality=lambda call: quality(call) if number(call) == 1 else ProviderError("provider.failed", "away"))
    run = learned(tmp_path, divided(3), {**SHOWING, "epochs": 2}, away, seed=1)
    shown = Counter(e.id for r in run.rollouts for e in experiences(run, r))
    assert {e.id: e.uses for e in run.result.context if e.uses} == shown
    assert "critique" in {e.data["kind"] for e in run.result.context if e.uses}
    # What was shown is no experience: of a task with its judge away there is the whole, and of the other all nine.
    assert len(run.result.context) == 2 * 9 + 4 * 1
    assert [len(report.applied) for report in run.reports] == [
        len(experiences(run, report.rollouts[0])) + (9 if report.rollouts[0].task.id == "t1" else 1)
        for report in run.reports
    ]


# ---- windows

LONG = " ".join(f"word{n}" for n in range(300))
ONE = 1000
"""Tokens that hold a long task with the worked examples, and no experience of another long task beside it."""


def lengthy(n: int) -> list[Task]:
    return [Task(f"t{i}", f"Message {2 * i + 1}: {LONG}", "42") for i in range(n)]


def alone(call: Call) -> str | Exception:
    return team(Ability=lambda call: {"reason": "so", "alone": True})(call)


def refusing(call: Call) -> str | Exception:
    """The same, whose window nobody knows."""
    return WindowError("window.exceeded", "larger than the window") if SHOWN in call.text else alone(call)


@pytest.mark.parametrize(("respond", "window"), [(alone, ONE), (refusing, None)], ids=["known", "unknown"])
def test_an_experience_that_does_not_fit_is_left_out_and_counted(
    tmp_path: Path, respond: Callable[[Call], str | Exception], window: int | None
) -> None:
    run = learned(tmp_path, lengthy(3), SHOWING, client(respond, window=window))
    assert run.result.steps == 3
    assert not any(experiences(run, rollout) for rollout in run.rollouts)
    assert run.result.errors["overlong_experiences"] == 2 * 2
    # Short ones are still shown.
    short = learned(tmp_path / "short", make_tasks(3), SHOWING, client(alone, window=ONE))
    assert "overlong_experiences" not in short.result.errors
    assert experiences(short, short.rollouts[-1])


def test_experiences_left_out_stay_out_if_a_resume_has_a_larger_window(tmp_path: Path) -> None:
    whole = learned(tmp_path / "whole", lengthy(3), SHOWING, client(alone, window=ONE))
    with pytest.raises(Killed):
        learned(tmp_path / "cut", lengthy(3), SHOWING, client(dying(5, alone), window=ONE))
    model = client(alone)
    again = scripts.resumed(Learned(model, tmp_path / "cut" / "run"), model)
    assert again.rollouts == whole.rollouts
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(model.calls) == len(whole.model.calls) - 5


@pytest.mark.parametrize("kind", ["Critique", ""])
def test_a_step_that_outgrew_the_window_failed_and_the_run_goes_on(tmp_path: Path, kind: str) -> None:
    """Solutions of parts are long: too long for whoever looks at one, or for who puts them together."""
    size = {"Critique": 1500, "": 600}[kind]
    respond = team(
        Ability=lambda call: {"reason": "", "alone": number(call) == 3},
        Plan=lambda call: {"parts": [{"text": f"{part} of Message {number(call)}"} for part in ("one", "two")]},
        Answered=lambda call: {"solution": "word " * size}, Critique=lambda call: {"feedback": "", "adequate": True},
    )  # fmt: skip
    run = learned(tmp_path, divided(2), {"experience": "none"}, client(respond, window=1500))
    [grown, fine] = sorted(run.rollouts, key=lambda r: r.task.id)
    assert (grown.trace.lost, fine.trace.error) == (False, None)
    assert grown.trace.error is not None
    assert re.match(r"agent1 cannot aggregate: the prompt grew too long: .*larger than the window", grown.trace.error)
    assert ("critique" in {m["kind"] for m in moves(grown)}) == (kind != "Critique")
    assert run.result.errors["overlong_steps"] == (3 if kind == "Critique" else 1)


def test_a_task_that_is_itself_too_long_stops_the_run_and_says_so(tmp_path: Path) -> None:
    for settings in ({}, {"depth": 0}):
        with pytest.raises(UsageError, match=r"the window of .*: shorten the task, lower the context budget"):
            learned(tmp_path / str(settings), lengthy(1), settings, client(alone, window=400))


# ---- calls


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_the_calls_of_an_attempt_match_the_documentation(tmp_path: Path, rounds: int) -> None:
    respond = team(Critique=lambda call: {"feedback": "never enough", "adequate": "second half" in call.text})
    run = learned(tmp_path, divided(3), {"rounds": rounds}, respond)
    for count, rollout in zip(run.counts, run.rollouts, strict=True):
        made = moves(rollout)
        kinds = Counter(m["kind"] for m in made)
        n, f = 2, sum(m["kind"] == "solve" and m["round"] > 0 for m in made)
        attempt = 1 + 1 + n + kinds["critique"] + f + 1
        assert len(made) == attempt
        assert count == attempt + n + f


@pytest.mark.slow
def test_act_calls_bound_an_attempt_that_refines_every_part(tmp_path: Path) -> None:
    """Eight parts at two levels, all of them refined as often as may be."""
    many = {"parts": [{"text": f"part {n} of Message 1", "needs": []} for n in range(8)]}
    respond = team(
        Ability=lambda call: {"reason": "", "alone": False}, Plan=lambda call: many,
        Critique=lambda call: {"feedback": "more", "adequate": False},
    )  # fmt: skip
    settings = {"depth": 2, "agents": 3}
    run = learned(tmp_path, divided(1), settings, respond)
    assert 100 < len(run.calls("agent")) <= methods.build("mael", settings).act_calls


# ---- killed and gone on with


class Killed(BaseException):
    """Not a failure of a model: it ends the run where it stands."""


def dying(calls: int, alive: Callable[[Call], str | Exception] | None = None) -> Callable[[Call], str | Exception]:
    """A model, the team if no other is given, until so many calls were answered."""
    left, answer = iter(range(calls)), alive or team()

    def respond(call: Call) -> str | Exception:
        if next(left, None) is None:
            raise Killed
        return answer(call)

    return respond


@pytest.mark.parametrize("calls", cases(range(1, 24, 2), 1, 9, 17))
def test_a_run_cut_off_in_a_recursion_resumes_to_the_same_result(tmp_path: Path, calls: int) -> None:
    how: dict[str, Any] = {"tasks": divided(2), "test": make_tasks(2, 20), "settings": SHOWING}
    uncut = learned(tmp_path / "whole", **how)
    with pytest.raises(Killed):
        learned(tmp_path / "cut", respond=dying(calls), **how)
    model = client(team())
    cut = Learned(model, tmp_path / "cut" / "run")
    again = scripts.resumed(cut, model)
    assert context_bytes(again.result) == context_bytes(uncut.result)
    assert again.result.scores == uncut.result.scores
    # What was answered before the cut is not paid again.
    assert len(model.calls) == len(uncut.model.calls) - calls


# ---- a team from a file


def test_agents_of_a_file_have_roles_and_models_of_their_own(tmp_path: Path) -> None:
    file, coder = written(tmp_path / "team.json"), client(team(), name="coders")
    model = client(team())
    watched = Learned(model, tmp_path / "run")
    work = practicum.learn(
        divided(2), out=watched.folder, method="mael", settings={"topology": str(file)}, profile="small",
        parts=practicum.Parts(clients={"agent": model, "agent:coder": coder}), watch=watched,
    )  # fmt: skip
    result = practicum.run_sync(work)
    assert {e.section for e in result.context} == {f"pool {name}" for name in ("lead", "coder", "tester")}
    assert coder.calls
    assert all("Your role: You write code." in call.text for call in coder.calls)
    others = [call.text for call in model.calls if call.role == "agent"]
    assert not [text for text in others if "Your role: You write code." in text]
    assert all("Your role: " in text for text in others)
    plans = [call.prompt.user for call in model.calls if shape(call) == "Plan"]
    assert all("# Colleagues\n- coder: You write code.\n- tester: You break things." in text for text in plans)


def test_a_random_network_has_the_links_of_the_runs_seed(tmp_path: Path) -> None:
    for seed in range(3):
        run = learned(tmp_path / str(seed), divided(1), {"topology": "random", "agents": 6}, seed=seed)
        network = make_team(6, "random", seed)
        judged, planned, *_ = moves(run.rollouts[0])
        near = network.neighbours(network.entry)
        assert (judged["agent"], planned["to"]) == (network.entry, [near[0], near[1 % len(near)]])


def test_an_agent_called_as_a_role_keeps_its_model_to_itself(tmp_path: Path) -> None:
    agents = [{"name": "lead"}, {"name": "agent", "model": "scripted:a"}, {"name": "judge", "model": "scripted:b"}]
    file = written(tmp_path / "team.json", agents=agents, links=[["lead", "agent"], ["lead", "judge"]])
    model, agent, judge = (client(team(), name=name) for name in ("all", "a", "b"))
    work = practicum.learn(
        divided(1), out=tmp_path / "run", method="mael", settings={"topology": str(file)}, profile="small",
        parts=practicum.Parts(clients={"agent": model, "agent:agent": agent, "agent:judge": judge}),
    )  # fmt: skip
    practicum.run_sync(work)
    asked = [Counter(shape(call) for call in made.calls) for made in (model, agent, judge)]
    # The first half is solved twice, the second once; all else is the lead's, and the judge's of parts.
    assert asked[0] == {"Ability": 1, "Plan": 1, "Critique": 3, "Quality": 3, "": 1}
    assert asked[1:] == [{"Answered": 2}, {"Answered": 1}]


NAMED = [{"name": "lead", "role": "You plan."}, {"name": "analyst"}, {"name": "coder"}, {"name": "tester"}]
LINKS = [["lead", other] for other in ("analyst", "coder", "tester")]


@pytest.mark.parametrize(
    ("to", "solved", "counts"),
    [
        (["coder", "tester"], ["coder", "tester"], {}),
        ([" Tester ", "CODER", "coder"], ["tester", "coder", "coder"], {}),
        (["", "coder", "", ""], ["analyst", "coder", "tester", "analyst"], {}),
        (["boss", "lead"], ["analyst", "coder"], {"unknown_colleagues": 2}),
    ],
    ids=["named", "in other spelling", "in turns", "unknown"],
)
def test_a_part_goes_to_the_colleague_that_the_plan_names(
    tmp_path: Path, to: list[str], solved: list[str], counts: dict[str, int]
) -> None:
    made = {"parts": [{"text": f"part {n} of Message 1", "to": name} for n, name in enumerate(to)]}
    team_file = written(tmp_path / "team.json", agents=NAMED, links=LINKS)
    respond = team(Plan=lambda call: made, Critique=lambda call: {"feedback": "", "adequate": True})
    run = learned(tmp_path, divided(1), {"topology": str(team_file)}, respond)
    parts = {e.key: e.section for e in run.result.context if e.data["kind"] == "solve"}
    assert parts == {f"part {n} of Message 1": POOLS + name for n, name in enumerate(solved)}
    assert run.result.errors == counts


def test_a_plan_is_asked_for_with_the_colleagues_that_may_get_parts(tmp_path: Path) -> None:
    """An agent below another one may not hand a part back to it."""
    agents = [{"name": name} for name in ("lead", "coder", "tester")]
    links = [["lead", "coder"], ["lead", "tester"], ["coder", "tester"]]
    file = written(tmp_path / "team.json", agents=agents, links=links)
    respond = team(
        Ability=lambda call: {"reason": "", "alone": False},
        Plan=lambda call: {"parts": [{"text": f"{w} of {material(call.prompt)[-20:]} Message 1"} for w in "xy"]},
        Critique=lambda call: {"feedback": "", "adequate": True},
    )  # fmt: skip
    run = learned(tmp_path, divided(1), {"topology": str(file), "depth": 2}, respond)
    asked = [call for call in run.calls("agent") if shape(call) == "Plan"]
    listed = [re.findall(r"^- (\w+)", call.prompt.user.partition("# Task")[0], re.M) for call in asked]
    # The task enters at the first by name.
    assert listed[0] == ["lead", "tester"]
    assert sorted(map(tuple, listed[1:])) == [("lead",), ("tester",)]


@pytest.mark.parametrize(
    ("needs", "kept", "dropped"),
    [
        ([[], [1]], [[], [1]], 0),
        ([[1], [2, 9]], [[], []], 3),
        ([[2], [1]], [[], [1]], 1),
        ([[], [0, -1, 1]], [[], [1]], 2),
    ],
    ids=["met", "itself and none", "circle", "no numbers"],
)
def test_needs_that_cannot_be_met_are_dropped_and_counted(
    tmp_path: Path, needs: list[list[int]], kept: list[list[int]], dropped: int
) -> None:
    made = {"parts": [{"text": f"part {n} of Message 1", "needs": of} for n, of in enumerate(needs, 1)]}
    respond = team(Plan=lambda call: made, Critique=lambda call: {"feedback": "", "adequate": True})
    run = learned(tmp_path, divided(1), respond=respond)
    states = [m["state"] for m in moves(run.rollouts[0]) if m["kind"] == "solve"]
    given = [[int(n) for n in re.findall(r"^- part (\d+)", state, re.M)] for state in states]
    assert given == kept
    assert run.result.errors == ({"dropped_needs": dropped} if dropped else {})


def test_a_run_keeps_its_team_and_reads_no_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = ("You plan.", "You do.", "You check.")
    agents = [{"name": f"a{n}", "role": role} for n, role in enumerate(roles)]
    written(tmp_path / "team.json", agents=agents, links=[["a0", "a1"], ["a0", "a2"]])
    monkeypatch.chdir(tmp_path)
    how: dict[str, Any] = {"tasks": divided(2), "settings": {"topology": "team.json"}}
    uncut = learned(tmp_path / "whole", **how)
    with pytest.raises(Killed):
        learned(tmp_path / "cut", respond=dying(9), **how)
    written(tmp_path / "team.json", agents=[{"name": "other"}], links=[])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = client(team())
    again = scripts.resumed(Learned(model, tmp_path / "cut" / "run"), model)
    assert context_bytes(again.result) == context_bytes(uncut.result)
    asked = client(team())
    practicum.run_sync(practicum.ask("Message 9: what?", uncut.folder, parts=practicum.Parts(clients={"agent": asked})))
    assert {role for role in roles for call in asked.calls if f"Your role: {role}" in call.text} == {*roles}


def test_every_agent_gets_the_instructions_under_one_heading(tmp_path: Path) -> None:
    run = learned(tmp_path, divided(2), instructions="Be brief.")
    asked = [call for call in run.calls("agent") if shape(call) in ("Ability", "Plan", "Critique")]
    assert len({shape(call) for call in asked}) == 3
    # A judge of a part could not tell otherwise what is asked of the solution.
    asked += run.calls("judge")
    assert len({shape(call) for call in asked}) == 4
    assert all(material(call.prompt).startswith("# What the agent is told\nBe brief.\n\n# ") for call in asked)


def test_an_agent_that_fails_hands_its_part_to_another(tmp_path: Path) -> None:
    file = written(tmp_path / "team.json")
    broken = client(lambda call: ProviderError("provider.failed", "down"), name="coders")
    model = client(team())
    parts = practicum.Parts(clients={"agent": model, "agent:coder": broken})
    work = practicum.learn(
        divided(2), out=tmp_path / "run", method="mael", settings={"topology": str(file)}, profile="small", parts=parts
    )
    result = practicum.run_sync(work)
    solved = [(e.section, e.key) for e in result.context if e.data["kind"] == "solve"]
    assert ("pool tester", "first half of Message 1") in solved
    assert "pool coder" not in {section for section, _ in solved}
    assert len(broken.calls) == 2
    assert result.steps == 2


@pytest.mark.parametrize(
    ("alone", "first"),
    [(False, [("b", "judge", 0.1), ("b", "decompose", 0.1)]), (True, [])],
    ids=["divided", "alone"],
)
def test_who_hands_a_part_back_is_rewarded_apart_from_who_solves_it(
    tmp_path: Path, alone: bool, first: list[tuple[str, str, float]]
) -> None:
    """b divides the first half into parts worth 0.1, or takes it for itself, and fails; c solves it well."""
    agents = [{"name": name, "role": f"You are {name.upper()}."} for name in "abc"]
    file = written(tmp_path / "team.json", agents=agents, links=[["a", "b"], ["a", "c"], ["b", "c"]])

    def by(agent: str, call: Call) -> bool:
        return f"Your role: You are {agent}." in call.text

    respond = team(
        Ability=lambda call: {"reason": "", "alone": alone if by("B", call) else by("C", call)},
        Plan=lambda call: plan(call) if by("A", call) else {"parts": [{"text": f"{w} of Message 1"} for w in "xy"]},
        Answered=lambda call: ProviderError("provider.failed", "down") if by("B", call) else solution(call),
        Critique=lambda call: {"feedback": "", "adequate": True},
        Quality=lambda call: {"reason": "", "points": 10 if "half" in call.text.partition("# The part")[2] else 1},
    )  # fmt: skip
    run = learned(tmp_path, divided(1), {"topology": str(file), "depth": 2}, respond)
    found = [step for step in pools(run.result.context) if step[0] != "a" and step[1] in ("judge", "decompose")]
    assert found == [*first, ("c", "judge", 1.0), ("c", "judge", 1.0)]


def test_an_attempt_is_lost_if_every_agent_of_the_network_fails(tmp_path: Path) -> None:
    def down(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "down") if number(call) == 1 else team()(call)

    run = learned(tmp_path, divided(2), respond=down)
    [lost] = [r for r in run.rollouts if r.task.id == "t1"]
    assert (lost.trace.lost, lost.trace.error) == (True, "down")
    assert "task:t1" not in {source for e in run.result.context for source in e.sources}
    assert len(run.result.context) == 9


# ---- no labels


def test_without_labels_the_whole_is_judged_and_no_prompt_tells_a_target(tmp_path: Path) -> None:
    tasks = [Task(f"t{n}", f"Message {n}: what is it?", f"secret-{n}") for n in (1, 3)]
    run = learned(tmp_path, tasks, labels=False)
    assert not [call for call in run.model.calls if "secret" in call.text]
    rewards = {kind: reward for _, kind, reward in pools(run.result.context)}
    assert (rewards["aggregate"], rewards["decompose"]) == (0.5, 0.7)
    assert run.counts == [9 + 3 + 1] * 2


# ---- what is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"agents": 0}, "agents"),
        ({"rounds": -1}, "rounds"),
        ({"depth": -1}, "depth"),
        ({"alpha": 1.5}, "alpha"),
        ({"experience": "all"}, "experience"),
        ({"experience": "none", "alpha": 0.3}, "alpha needs experience=task or step"),
        ({"experience": "none", "similarity": "low", "reward": "low"}, "reward, similarity needs"),
        ({"experience": "none", "while_learning": True}, "while_learning needs experience=task or step"),
        ({"topology": "nowhere.json"}, "cannot read the team nowhere.json"),
        ({"topology": "tree"}, "tree"),
        ({"topology": {"agents": [{"name": "a"}]}, "agents": 3}, "leave out agents"),
        ({"topology": {"links": []}}, "the topology is not a valid team: ValueError: it has no 'agents'"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        methods.build("mael", settings)
    assert "\n" not in str(caught.value)
