"""Dynamic Cheatsheet, Reflexion, ExpeL and Training-Free GRPO: what each keeps, shows and asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers import make_tasks
from scripts import Learned, Role, scripted

import practicum
from practicum.models.scripted import ScriptedClient


def run_of(folder: Path, name: str, model: ScriptedClient, tasks: int = 3, **how: Any) -> Learned:
    settings = how.pop("settings", {})
    watched = Learned(model, folder / "run")
    work = practicum.learn(
        make_tasks(tasks), out=watched.folder, method=name, settings=settings, watch=watched,
        parts=practicum.Parts(clients={"agent": model}), **how,
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


# ---- Dynamic Cheatsheet


# ---- Reflexion and ExpeL: from success and failure, not from the right answer


# ---- ExpeL


def deciding(*operations: dict[str, str]) -> Role:
    return lambda call: {"operations": [{"id": "", "text": "", **operation} for operation in operations]}


def test_insights_rise_and_fall_by_vote(tmp_path: Path) -> None:
    first = deciding({"op": "ADD", "text": "If red, stop."}, {"op": "ADD", "text": "If green, go."})
    rest = deciding(
        {"op": "AGREE", "id": "e0"}, {"op": "REMOVE", "id": "e1"}, {"op": "EDIT", "id": "e0", "text": "If red, wait."},
        {"op": "AGREE", "id": "e77"},
    )  # fmt: skip
    model = scripted(curator=lambda call: (rest if "If green" in call.text else first)(call))
    run = run_of(tmp_path, "expel", model, 4, settings={"batch": 1})
    votes = [[(e.text, e.helpful, e.harmful) for e in r.context if e.section == "rules"] for r in run.reports]
    assert votes[0] == [("If red, stop.", 2, 0), ("If green, go.", 2, 0)]
    assert votes[1] == [("If red, wait.", 4, 0), ("If green, go.", 2, 1)]
    # Nought votes are left, so it is gone; the step after that has to add it anew.
    assert [text for text, _, _ in votes[2]] == ["If red, wait."]
    assert run.result.errors["unknown_insights"] >= 2


# ---- Training-Free GRPO
