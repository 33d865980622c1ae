"""PromptBreeder: a population of instructions, each with the advice by which it is changed, in binary tournaments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts import Learned, learned, obeying, scripted, wrong

from practicum.models.scripted import Call
from practicum.plugins.rivals import promptbreeder

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


def test_a_mutant_that_was_not_written_takes_nobodys_place(tmp_path: Path) -> None:
    texts = counting()
    run = bred(tmp_path, 3, lambda call: texts(call) if "# How to think" in call.prompt.user else {"instruction": ""})
    assert [len(report.context) for report in run.reports] == [4, 4, 4]


def test_what_nobody_solved_is_no_model_to_follow(tmp_path: Path) -> None:
    model = scripted(wrong, curator=counting())
    run = learned(tmp_path, model, 4, {**SMALL, "steps": 8}, "promptbreeder")
    assert "lamarckian" not in {e.data["operator"] for report in run.reports for e in report.context}
