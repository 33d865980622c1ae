"""MAEL as METHODS section 6 has it, in whole runs: pools that grow, what is retrieved from them, and who is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import client
from teams import divided, learned, number, team, written

import practicum
from practicum.core.context import Context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Rollout, Task
from practicum.models.scripted import Call

POOLS = "pool "


def pools(context: Context) -> list[tuple[str, str, float]]:
    return [(e.section.removeprefix(POOLS), e.data["kind"], e.data["reward"]) for e in context]


def moves(rollout: Rollout) -> list[dict[str, Any]]:
    return list(rollout.trace.data["moves"])


# ---- pools


# ---- retrieval


# ---- windows

LONG = " ".join(f"word{n}" for n in range(300))


def lengthy(n: int) -> list[Task]:
    return [Task(f"t{i}", f"Message {2 * i + 1}: {LONG}", "42") for i in range(n)]


def alone(call: Call) -> str | Exception:
    return team(Ability=lambda call: {"reason": "so", "alone": True})(call)


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


# ---- killed and gone on with


# ---- a team from a file


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


# ---- no labels


# ---- what is refused
