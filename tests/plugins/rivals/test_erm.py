"""ERM: failures are worked out, criticism that helped is remembered, and what harmed is forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from helpers import make_tasks
from scripts import Learned, learned, number, obeying, scripted

from practicum.models.scripted import Call

SMALL: dict[str, Any] = {"batch": 4, "beam": 2, "feedback": 1, "recalled": 1, "k": 2}


def numbers(call: Call) -> list[int]:
    """The messages of the failed cases, in order."""
    return [int(n) for n in re.findall(r"Case \d+\nTask: Message (\d+)", call.prompt.user)]


def worked(call: Call) -> dict[str, Any]:
    """All failures worked out, the first one wrongly, and one criticism."""
    cases = [
        {"case": n, "solution": f"message {m} names it", "answer": f"word{m}" if n > 1 else "wrong"}
        for n, m in enumerate(numbers(call), 1)
    ]
    unknown = {"case": 99, "solution": "none", "answer": "word1"}
    return {"exemplars": [*cases, unknown], "feedback": [f"it says nothing of {' or '.join(map(str, numbers(call)))}"]}


def writing(*texts: str) -> Any:
    left = list(texts)
    return lambda call: {"instruction": left.pop(0) if len(left) > 1 else left[0]}


def erm(folder: Path, *texts: str, agent: Any = obeying, tasks: int = 4, **settings: Any) -> Learned:
    model = scripted(agent, worked, writing(*texts))
    return learned(folder, model, tasks, {**SMALL, "steps": 1, **settings}, "erm")


def section(run: Learned, name: str, step: int = -1) -> list[Any]:
    return run.reports[step].context.in_section(name)


# ---- exemplars


def test_failures_are_worked_out_before_they_are_criticised(tmp_path: Path) -> None:
    run = erm(tmp_path, "solve 2")
    (asked,) = run.prompts("reflector")
    assert re.findall(r"^Case (\d)$", asked, re.MULTILINE) == ["1", "2", "3", "4"]
    edit = run.prompts("curator")[0]
    assert "# How some of it is done right\nTask: Message" in edit
    assert "# What is wrong with it\nit says nothing of" in edit


def test_only_exemplars_with_the_right_answer_are_kept(tmp_path: Path) -> None:
    run = erm(tmp_path, "solve 2")
    (asked,) = (call for call in run.calls("reflector"))
    _, *others = numbers(asked)
    assert {e.text: e.data["answer"] for e in section(run, "exemplars")} == {
        f"Message {n}: say word{n}": f"word{n}" for n in others
    }


def test_without_labels_no_exemplar_is_known_to_be_right(tmp_path: Path) -> None:
    judge = lambda call: {"right": "Answer\nword" in call.prompt.user, "reason": "seen"}  # noqa: E731
    model = scripted(obeying, worked, writing("solve 2"), judge=judge)
    run = learned(tmp_path, model, 4, {**SMALL, "steps": 1}, "erm", labels=False, judged=True)
    assert section(run, "instructions")
    assert section(run, "exemplars") == []


def test_the_agent_is_shown_exemplars_of_other_tasks_beside_the_best_instruction(tmp_path: Path) -> None:
    model = scripted(obeying, worked, writing("solve 2"))
    run = learned(tmp_path, model, 4, {**SMALL, "steps": 2}, "erm", test=make_tasks(2, 50))
    for call in run.calls("agent"):
        assert f"Message {number(call)}:" not in " ".join(turn.user for turn in call.prompt.turns)
    for call in run.calls("agent")[-2:]:
        assert len(call.prompt.turns) == 2
        assert call.prompt.head.endswith("solve 2")
        assert all(turn.assistant.startswith("word") for turn in call.prompt.turns)
    # Instructions are compared without them.
    assert any("solve" in call.prompt.head and not call.prompt.turns for call in run.calls("agent"))


def test_an_exemplar_that_harms_is_forgotten(tmp_path: Path) -> None:
    def misled(call: Call) -> str:
        return "misled" if call.prompt.turns else obeying(call)

    run = erm(tmp_path, "solve 1", agent=misled, steps=4)
    votes = {e.id: (e.helpful, e.harmful) for report in run.reports for e in report.context.in_section("exemplars")}
    assert votes
    assert all(helpful == 0 for helpful, _ in votes.values())
    harmed = {e.id for report in run.reports for e in report.context.in_section("exemplars") if e.harmful >= 2}
    assert not harmed & {e.id for e in section(run, "exemplars")}
    last = {e.id for e in section(run, "exemplars")}
    assert {*votes} - last


# ---- the memory of criticism


def test_criticism_is_remembered_only_if_its_instruction_is_kept(tmp_path: Path) -> None:
    helped = erm(tmp_path / "a", "solve 3")
    assert [e.text for e in section(helped, ".feedback")] == ["it says nothing of " + _cases(helped)]
    # The beam is full of better ones.
    run = erm(tmp_path / "b", "solve 3", "solve 2", "solve 0", beam=1, recalled=0, steps=3)
    assert len(section(run, ".feedback")) == 1


def _cases(run: Learned) -> str:
    return " or ".join(map(str, numbers(run.calls("reflector")[0])))


def test_remembered_criticism_is_edited_by_again(tmp_path: Path) -> None:
    first: list[str] = []

    def written(call: Call) -> dict[str, Any]:
        """What the first criticism leads to is better than what a new one does."""
        criticism = call.prompt.user.partition("# What is wrong with it\n")[2]
        first.append(criticism)
        return {"instruction": "solve 1" if len(first) == 1 else "solve 3" if criticism == first[0] else "solve 2"}

    model = scripted(obeying, worked, written)
    run = learned(tmp_path, model, 4, {**SMALL, "steps": 2, "beam": 1}, "erm")
    assert len(first) == 3
    (kept,) = section(run, ".feedback", 0)
    assert [e.text for e in section(run, "instructions")] == ["solve 3"]
    again = [prompt for prompt in run.prompts("curator")[1:] if f"# What is wrong with it\n{kept.text}" in prompt]
    assert len(again) == 1
    assert "# The instruction\nsolve 1" in again[0]
    entry = run.result.context.get(kept.id)
    assert entry is not None
    assert (entry.helpful, entry.harmful, entry.uses) == (1, 0, 1)


def test_remembered_criticism_that_helps_no_more_is_forgotten(tmp_path: Path) -> None:
    run = erm(tmp_path, "solve 2", *(f"way {n}: solve 0" for n in range(20)), beam=1, steps=5)
    (kept,) = section(run, ".feedback", 0)
    history = [report.context.get(kept.id) for report in run.reports]
    assert [None if e is None else e.harmful for e in history] == [0, 1, 2, None, None]


# ---- the run
