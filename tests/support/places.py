"""A Run in a folder, for tests of what survives a process; tests of blocks alone take `runs.indoors`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import practicum
from practicum.agents.chat import ChatAgent
from practicum.engine.run import Run
from practicum.engine.state import RunState, Seat
from practicum.models.scripted import ScriptedClient
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.store.database import Store
from practicum.store.journal import Journal
from practicum.tasks.scoring.registry import load_scorer


def within(folder: Path, model: ScriptedClient, work: Callable[[Run], Awaitable[object]], seed: int = 0) -> object:
    """Do some work at the top of a run kept in a folder; twice in one folder is a resume."""

    async def go() -> object:
        with Store.open(folder) if (folder / "practicum.sqlite").exists() else Store.create(folder) as store:
            agent = ChatAgent()
            scorer = load_scorer("exact", None)
            seats = {"agent": Seat(model)}
            state = RunState(Journal(store), seats, agent, scorer, Vectors(WordLlama(), store), seed=seed)
            return await work(Run(state))

    return practicum.run_sync(go())
