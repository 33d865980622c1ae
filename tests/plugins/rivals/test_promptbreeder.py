"""PromptBreeder: a population of instructions, each with the advice by which it is changed, in binary tournaments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts import Learned, learned, obeying, scripted, wrong

from practicum.core.edits import Delete
from practicum.models.scripted import Call
from practicum.plugins.rivals import promptbreeder
from practicum.plugins.rivals.promptbreeder import OPERATORS

SMALL: dict[str, Any] = {"batch": 4, "beam": 4, "candidates": 2}


def counting(first: int = 0) -> Callable[[Call], dict[str, Any]]:
    """Instructions that solve more and more messages: "solve 0", "solve 1"; advice is numbered too."""
    numbers = iter(range(first, 999))

    def written(call: Call) -> dict[str, Any]:
        advising = call.prompt.system.endswith(promptbreeder.ADVISE.full)
        return {"instruction": f"advice {next(numbers)}" if advising else f"solve {next(numbers)}"}

    return written


def bred(folder: Path, steps: int, curator: Any = None, **settings: Any) -> Learned:
    model = scripted(obeying, curator=curator or counting())
    return learned(folder, model, 4, {**SMALL, "steps": steps, **settings}, "promptbreeder", profile="full")


def test_each_first_instruction_has_a_way_to_think_and_advice_that_it_keeps(tmp_path: Path) -> None:
    run = bred(tmp_path, 1)
    asked = run.prompts("curator")
    assert len(asked) == 4
    for prompt in asked:
        thinking, advice = re.findall(r"# How to think\n(.*)\n\n# The advice\n(.*)", prompt)[0]
        assert thinking in promptbreeder.THINKING
        assert advice in {e.data["advice"] for e in run.result.context}
    assert {e.data["advice"] for e in run.result.context} <= {*promptbreeder.ADVICE}


def test_a_mutant_of_the_winner_takes_the_place_of_the_loser(tmp_path: Path) -> None:
    run = bred(tmp_path, 2)
    before, after = (report.context for report in run.reports)
    gone = [e for e in before if e.id not in after]
    new = [e for e in after if e.id not in before]
    assert (len(before), len(after), len(gone), len(new)) == (4, 4, 2, 2)
    winners = [e for e in before if e.id in after]
    # Each new one descends from a winner of another one's tournament; the best never lost.
    assert {e.data["line"][-1] for e in new} == {e.text for e in winners}
    assert max(e.data["score"] for e in before) in {e.data["score"] for e in winners}
    assert min(e.data["score"] for e in before) in {e.data["score"] for e in gone}
    assert {a.edit.reason for a in run.reports[1].applied if isinstance(a.edit, Delete)} == {"fell out of the beam"}


def test_a_mutant_that_was_not_written_takes_nobodys_place(tmp_path: Path) -> None:
    texts = counting()
    run = bred(tmp_path, 3, lambda call: texts(call) if "# How to think" in call.prompt.user else {"instruction": ""})
    assert [len(report.context) for report in run.reports] == [4, 4, 4]


def test_every_operator_reads_what_it_is_about(tmp_path: Path) -> None:
    run = bred(tmp_path, 14, beam=8, candidates=4)
    made = {e.text: e for report in run.reports for e in report.context}
    assert {e.data["operator"] for e in made.values()} == {"first", *OPERATORS}
    told = {call.prompt.user: call.prompt.system for call in run.calls("curator")}
    lists = [user for user, system in told.items() if promptbreeder.CONTINUE.full in system]
    ranked = [user for user in lists if "# Instructions, the best last" in user]
    for user in ranked:
        solved = [min(int(n), 4) for n in re.findall(r"^\d+\. solve (\d+)$", user, re.MULTILINE)]
        assert len(solved) > 1
        assert solved == sorted(solved)
    lines = [user for user in lists if "each made of the one before it" in user]
    assert ranked
    assert lines
    assert any(re.findall(r"solve (\d+)", user)[1:] for user in lines)
    # What worked is shown with its attempts, and only that.
    worked = [user for user in told if "# Attempts\n" in user]
    assert worked
    assert all("The answer is right." in user and "is wrong" not in user for user in worked)


def test_advice_is_changed_by_advice_and_then_followed_and_inherited(tmp_path: Path) -> None:
    run = bred(tmp_path, 14, beam=8, candidates=4)
    made = [e for report in run.reports for e in report.context]
    new = {e.data["advice"] for e in made if "hyper" in e.data["operator"]}
    assert new
    assert all(re.fullmatch(r"advice \d+", advice) for advice in new)
    prompts = run.prompts("curator")
    for advice in new:
        assert any(f"# The advice\n{advice}\n\n# The instruction\nsolve" in prompt for prompt in prompts)
    # First-order hypermutation reads the advice that it changes, which earlier ones may have written.
    assert any(re.search(r"# The advice\nadvice \d+\Z", prompt.strip()) for prompt in prompts)
    assert {e.data["advice"] for e in made if "hyper" not in e.data["operator"]} & new


def test_what_nobody_solved_is_no_model_to_follow(tmp_path: Path) -> None:
    model = scripted(wrong, curator=counting())
    run = learned(tmp_path, model, 4, {**SMALL, "steps": 8}, "promptbreeder")
    assert "lamarckian" not in {e.data["operator"] for report in run.reports for e in report.context}
