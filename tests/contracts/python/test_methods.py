"""Every method, with a table of the calls by role, the entries and the score of a small run.

Each run learns from messages 0, 1 and 2, and is tested on 0, 1 and 9. A method that keeps the right answers scores 2/3.
The tables of methods of other papers (`rival`) have the roles, the sections and the maximum of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from profiles import cases
from python_kit import LEARNED, TEST, Seen, learned, refused, resumed
from python_roles import OTHER, Rule, ignorant, knowing, model, reflecting, remembering, varying
from python_tasks import lesson, messages, number

import practicum
from practicum import methods

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@dataclass(frozen=True)
class Table:
    """The promises of a method. `calls` are by role, with the calls of the test; `sections` count the final and hidden
    entries. `settings` keep the run small. A search that keeps its start unless a combination beats it by chance
    promises no `score`."""

    calls: Mapping[str, int]
    sections: Mapping[str, int] = field(default_factory=dict)
    score: float | None = 2 / 3
    texts: tuple[str, ...] = ()
    steps: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    rival: bool = False
    needs: str = ""


MARK = "Read it twice."
SELF: dict[str, Rule] = {"agent": remembering(MARK), "reflector": lambda call: reflecting(MARK)}
"""An agent whose reflection on a failure makes it right, with no target to be read."""

RULES = tuple(lesson(n) for n in (0, 1, 2))
INPUTS = tuple(task.input for task in LEARNED)
FEW: dict[str, Any] = {"steps": 2, "batch": 3, "candidates": 2, "beam": 2}

METHODS = {
    "none": Table({"agent": 3}, score=0.0),
    "icl": Table({"agent": 3}, {"examples": 3}, texts=INPUTS, steps=1),
    "episodes": Table({"agent": 3}, {"episodes": 3}, texts=INPUTS, steps=3),
    # A task: the attempt, a reflection, the try that succeeds with it; a step: one curation.
    "ace": Table({"agent": 9, "reflector": 3, "curator": 3}, {"strategies": 3}, texts=RULES, steps=3),
    "combee": Table(
        {"agent": 9, "reflector": 3, "curator": 1}, {"strategies": 3}, texts=RULES, steps=1, settings={"batch": 3},
    ),
    "naive": Table({"agent": 9, "reflector": 3, "curator": 1}, {"strategies": 3}, texts=RULES, steps=1),
    # One of ⌊√3⌋ clusters.
    "top_k": Table({"agent": 9, "reflector": 3, "curator": 1}, {"strategies": 1}, score=1 / 3, steps=1),
    "summarized": Table({"agent": 9, "reflector": 3, "curator": 2}, {"rules": 3}, texts=RULES, steps=1),
    # Three tasks with three runs and a twin each, three heads on each failure.
    "rcl": Table(
        {"agent": 15, "reflector": 9, "curator": 1, "state": 1}, {"strategies": 3, ".state": 1}, texts=RULES, steps=1,
    ),
    # Three attempts at each task and each test; a contrast and an extraction a task.
    "reasoning_bank": Table({"agent": 18, "reflector": 6}, {"memories": 3}, steps=3),
    # A proposal of too few bullets is requested once more; without a label so far it has no bullet.
    "unified": Table(
        {"agent": 18, "reflector": 18}, {"rules": 2, "memories": 3, "episodes": 3, ".outcomes": 3}, steps=3,
        settings={"weigh": False},
    ),
    # The agent judges that it can solve the task by itself, and does: two steps a task.
    "mael": Table({"agent": 12}, {"pool agent1": 6}, score=0.0, steps=3),
    "chain": Table({"agent": 12}, score=0.0, rival=True),
    "group_chat": Table({"agent": 3 * 21}, score=0.0, rival=True),
    "evomac": Table({"agent": 3 * 28}, score=0.0, rival=True),
    "dynamic_cheatsheet": Table({"agent": 6, "curator": 3}, {"cheatsheet": 1}, steps=3, rival=True),
    "reflexion": Table(
        {"agent": 9, "reflector": 3}, {"reflections": 3}, score=1.0, texts=(MARK,) * 3, rules=SELF, rival=True,
    ),
    # A curation for each failure that was mended, and one for the successes together.
    "expel": Table(
        {"agent": 9, "reflector": 3, "curator": 4}, {"episodes": 3, "rules": 4}, score=1.0, steps=1, rival=True,
        rules={**SELF, "curator": lambda call: {"operations": [{"op": "ADD", "id": "", "text": MARK}], OTHER: MARK}},
    ),
    "tf_grpo": Table(
        {"agent": 3 * 5 + 3, "reflector": 3, "curator": 1}, {"rules": 3}, texts=RULES, steps=1,
        settings={"epochs": 1}, rules={"agent": varying}, rival=True,
    ),
    "opro": Table({"agent": 3 * 5 + 3, "curator": 4}, {"instructions": 1}, settings=FEW, rival=True),
    "ape": Table({"agent": 3 * 5 + 3, "curator": 4}, {"instructions": 1}, settings=FEW, rival=True),
    "protegi": Table(
        {"agent": 60, "reflector": 4, "curator": 12}, {"instructions": 2}, rival=True,
        settings={"steps": 2, "batch": 3, "beam": 2, "gradients": 1, "paraphrases": 1},
    ),
    "erm": Table(
        {"agent": 60, "reflector": 4, "curator": 12}, {"instructions": 2, ".feedback": 1}, rival=True,
        settings={"steps": 2, "batch": 3, "beam": 2, "feedback": 1, "recalled": 1, "k": 0},
    ),
    "evoprompt": Table({"agent": 3 * 5 + 3, "curator": 4}, {"instructions": 1}, settings=FEW, rival=True),
    "promptbreeder": Table(
        {"agent": 3 * 5 + 3, "curator": 2 + 2 * 1}, {"instructions": 2}, rival=True, settings={**FEW, "candidates": 1},
    ),
    "textgrad": Table(
        {"agent": 12 + 3, "reflector": 6, "curator": 2}, {"instructions": 1, ".feedback": 4}, steps=2, rival=True,
        settings={"steps": 2, "batch": 3},
    ),
    "gepa": Table(
        {"agent": 30, "reflector": 6}, {"instructions": 1}, rival=True, needs="gepa", settings={"attempts": 12},
    ),
    "mipro": Table(
        {"agent": 60, "curator": 20}, score=None, rival=True, needs="dspy",
        settings={"candidates": 2, "trials": 2, "minibatch": 2},
    ),
}  # fmt: skip


CORE = [name for name, table in METHODS.items() if not table.rival]
TEAMS = ("none", "chain", "group_chat", "evomac")
"""Methods that learn nothing."""


def run(folder: Path, name: str, played: Any = None, **how: Any) -> Seen:
    table = METHODS[name]
    how = {"test": TEST, **how}
    return learned(folder, LEARNED, played or model(**table.rules), name, table.settings, **how)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Seen]:
    """The undisturbed run of a method, made once."""

    @cache
    def of(name: str) -> Seen:
        if METHODS[name].needs:
            pytest.importorskip(METHODS[name].needs)
        return run(tmp_path_factory.mktemp(name), name)

    return of


def test_every_registered_method_is_in_the_tables_here() -> None:
    assert sorted(METHODS) == sorted(methods.METHODS.names())


@pytest.mark.parametrize("name", cases(METHODS, "none", "icl", "episodes", "ace", "summarized", "unified", "gepa"))
def test_a_method_asks_its_roles_and_keeps_its_lessons(whole: Callable[[str], Seen], name: str) -> None:
    table, seen = METHODS[name], whole(name)
    assert seen.result.stopped is None
    if table.rival:
        assert set(seen.roles) == set(table.calls)
        assert all(seen.roles[role] <= most for role, most in table.calls.items())
        assert all(0 < seen.sections.get(section, 0) <= most for section, most in table.sections.items())
    else:
        assert seen.roles == table.calls
        assert seen.sections == table.sections
        assert seen.result.steps == table.steps
    assert {role: usage.calls for role, usage in seen.result.by_role.items()} == seen.roles
    assert seen.result.usage.calls == len(seen.model.calls)
    assert table.score is None or seen.result.scores["test"] == pytest.approx(table.score)
    if table.texts:
        assert sorted(seen.texts) == sorted(table.texts)
    # Every lesson is an entry, with a unique id and the tasks that it came from.
    learnt = [entry for entry in seen.result.context if not entry.hidden]
    assert table.score is None or bool(learnt) is (name not in TEAMS)
    assert all({f"task:{task.id}" for task in LEARNED} & set(entry.sources) for entry in learnt)
    assert len({entry.id for entry in learnt}) == len(learnt)


@pytest.mark.parametrize("name", cases(METHODS, "unified"))
def test_a_stopped_run_is_resumed_and_pays_once(tmp_path: Path, whole: Callable[[str], Seen], name: str) -> None:
    """It is stopped with one call at a time and resumed with eight, so concurrency changes no result either."""
    undisturbed, played = whole(name), model(**METHODS[name].rules)
    first = run(tmp_path, name, played, concurrency=1, stop_after=len(undisturbed.model.calls) // 2)
    assert first.result.stopped == "it is enough"
    again = resumed(first.folder, played, concurrency=8)
    assert again.exported == undisturbed.exported
    assert again.result.scores == undisturbed.result.scores
    assert again.roles == undisturbed.roles
    assert again.result.usage.calls == len(played.calls) == len(undisturbed.model.calls)


@pytest.mark.parametrize("name", cases((name for name in METHODS if name != "icl"), "ace", "unified"))
def test_without_labels_the_targets_change_no_prompt(tmp_path: Path, name: str) -> None:
    """A model sees neither a target nor whether an answer matched it: with other targets all prompts are the same,
    although the scores are not."""

    def prompts(folder: str, tasks: list[practicum.Task]) -> list[tuple[str, str]]:
        played = model(agent=knowing)
        how = {"labels": False, "judged": True, "nonce": "the same"}
        test = [replace(task, id=f"x{task.id}") for task in tasks]
        seen = learned(tmp_path / folder, tasks, played, name, METHODS[name].settings, test=test, **how)
        scores.append(seen.result.scores["test"])
        return sorted((call.role, call.text) for call in played.calls)

    scores: list[float] = []
    if METHODS[name].needs:
        pytest.importorskip(METHODS[name].needs)
    right = prompts("right", LEARNED[:2])
    assert right == prompts("wrong", [replace(task, target="another") for task in LEARNED[:2]])
    assert scores == [1.0, 0.0]


@pytest.mark.parametrize("name", cases(METHODS, "ace", "unified"))
def test_without_targets_learning_sees_only_whether_an_answer_is_right(tmp_path: Path, name: str) -> None:
    """No answer is right, so with other targets all prompts are the same."""

    def prompts(folder: str, tasks: list[practicum.Task]) -> list[tuple[str, str]]:
        played = model(agent=ignorant)
        learned(tmp_path / folder, tasks, played, name, METHODS[name].settings, targets=False, nonce="the same")
        return sorted((call.role, call.text) for call in played.calls)

    if METHODS[name].needs:
        pytest.importorskip(METHODS[name].needs)
    seen = prompts("some", LEARNED[:2])
    assert seen == prompts("others", [replace(task, target="another") for task in LEARNED[:2]])
    assert seen or name in TEAMS


STREAMS = [*CORE, "dynamic_cheatsheet", "reflexion", "expel", "tf_grpo"]


def stream_settings(name: str) -> dict[str, Any]:
    settings = {**METHODS[name].settings, "online": True}
    settings.pop("epochs", None)
    if name == "combee":
        settings["batch"] = 1
    if name == "rcl":
        settings |= {"replay": 0, "attempted": None}
    return settings


@pytest.mark.parametrize("name", cases(STREAMS, "ace", "unified"))
def test_online_every_task_is_predicted_before_it_is_learned_from(tmp_path: Path, name: str) -> None:
    """So a stream without repetitions scores as an agent without lessons: no prediction has seen its answer."""
    seen = learned(tmp_path, LEARNED, model(), name, stream_settings(name))
    assert seen.result.scores["online"] == 0.0
    order = [attempt.task.id for report in seen.steps for attempt in report.attempts]
    assert order == [task.id for task in LEARNED]
    assert METHODS[name].score == 0.0 or seen.roles["agent"] >= len(LEARNED)


@pytest.mark.parametrize("name", cases(STREAMS, "ace", "unified"))
def test_a_stream_goes_on_where_a_label_is_missing(tmp_path: Path, name: str) -> None:
    """The task is attempted and has no score. Tasks that are not a stream need a label each."""
    tasks = [LEARNED[0], replace(LEARNED[1], target=None), LEARNED[2]]
    with refused("tasks.no_target"):
        learned(tmp_path, tasks, model(), name)
    seen = learned(tmp_path, tasks, model(), name, stream_settings(name))
    scored = {attempt.task.id: attempt.score for report in seen.steps for attempt in report.attempts}
    assert [scored[task.id] is None for task in tasks] == [False, True, False]
    assert seen.result.scores["online"] == 0.0
    assert any("1 of 3 tasks" in text for _, text in seen.warnings)


SEARCHES = [name for name, table in METHODS.items() if table.rival and "instructions" in table.sections]


@pytest.mark.parametrize(
    ("name", "how", "code"),
    [
        *((name, {"settings": {"online": True}}, "settings.invalid") for name in SEARCHES),
        *((name, {"settings": {"gate": True}, "val": TEST}, "method.unsuitable") for name in TEAMS),
        ("icl", {"labels": False}, "method.unsuitable"),
        ("nothing_of_that_name", {}, "method.unknown"),
        ("ace", {"settings": {"nothing_of_that_name": 1}}, "settings.unknown"),
        ("ace", {"settings": {"gate": True, "gate_alpha": 1.0}, "val": TEST}, "settings.invalid"),
    ],
    ids=str,
)
def test_a_method_refuses_settings_that_do_not_suit(tmp_path: Path, name: str, how: dict[str, Any], code: str) -> None:
    """A search for instructions takes no stream; a method that learns nothing has no delta to reject."""
    played = model()
    with refused(code):
        learned(tmp_path, LEARNED, played, name, **how)
    assert played.calls == []
    assert not (tmp_path / "run").exists()


def test_a_wrong_answer_without_a_right_one_is_not_shown_again(tmp_path: Path) -> None:
    played = model(agent=ignorant, judge=lambda call: {"right": number(call) == 1, "reason": "So it is."})
    learned(tmp_path, messages(0, 1, 2), played, "episodes", labels=False, judged=True)
    shown = [[turn.user for turn in call.prompt.turns] for call in played.calls if call.role == "agent"]
    assert [len(turns) for turns in shown] == [0, 1, 1]
    assert all("Message 1:" in turn for turns in shown for turn in turns)
