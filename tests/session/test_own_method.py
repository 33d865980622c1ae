"""A Method of one's own, and methods, agents and scorers of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import packages
import pytest
from helpers import client, make_tasks
from refusals import refused

import practicum
from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import once
from practicum.blocks.sample.orders import shuffled_epochs
from practicum.core.context import Context
from practicum.core.types import Lesson, Rollout
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.models.scripted import ScriptedClient
from practicum.session.result import Result

ACT = answer(full_view)


async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    return [Lesson(r.place, f"seen {r.task.id}", sources=r.sources) for r in rollouts]


async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> practicum.Delta:
    return practicum.Delta(tuple(practicum.Add("notes", x.text, sources=x.sources, lessons=(x.id,)) for x in lessons))


NOTES = Method(
    name="notes", sample=shuffled_epochs(1, 2), act=ACT, attempt=once(ACT), reflect=reflect, update=update,
    accept=always,
)  # fmt: skip


def learn(folder: Path, method: str | Method = NOTES, model: ScriptedClient | None = None, **config: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model or client()})
    return practicum.run_sync(practicum.learn(make_tasks(6), method=method, out=folder, parts=parts, **config))


def test_an_act_that_returns_none_is_named(tmp_path: Path) -> None:
    async def nothing(*given: object) -> Any:
        return None

    with refused("method.wrong_result"):
        learn(tmp_path / "run", replace(NOTES, act=nothing), test=make_tasks(2, 50))


RECIPE = """
import practicum
from practicum import MethodSettings
from practicum.methods import none

class Settings(MethodSettings):
    loud: bool = False

def method(settings):
    return none.method(none.Settings(online=settings.online)) if not settings.loud else "loud"

def agent(input, context):
    return input.split()[-1]

plain = none.method(none.Settings())
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package: its name, the source of its module, a group and what it registers there."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return lambda *given, **registered: packages.install(folder, *given, **registered)


def test_an_installed_method_is_known_by_its_name(install: Callable[..., None], tmp_path: Path) -> None:
    install("own_pack", RECIPE, "practicum.methods", own="own_pack", plain="own_pack:plain", text="own_pack:agent")
    result = learn(tmp_path / "run", "own", settings={"online": True})
    assert result.steps == 6
    assert learn(tmp_path / "plain", "plain").steps == 0
    with refused("settings.unknown"):
        learn(tmp_path / "other", "own", settings={"k": 3})
    with refused("plugin.invalid"):
        learn(tmp_path / "other", "own", settings={"loud": True})
    with refused("plugin.invalid"):
        learn(tmp_path / "other", "text")
    with refused("method.unknown"):
        learn(tmp_path / "other", "nobody")
