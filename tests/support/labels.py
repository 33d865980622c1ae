"""The same tasks with other targets, and every prompt of a run: what learns without labels must ask the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers import client

import practicum
from practicum.core.types import Task


def prompts(folder: Path, tasks: list[Task], **config: Any) -> list[tuple[str, str]]:
    """Every prompt of a run, sorted, as role and all its messages."""
    model = client()
    work = practicum.learn(tasks, out=folder, parts=practicum.Parts(clients={"agent": model}), **config)
    practicum.run_sync(work)
    return sorted((call.role, call.text) for call in model.calls)


def changed(tasks: list[Task], how: str) -> list[Task]:
    """The same tasks with other targets: all of them wrong, so that every score changes where it was right."""
    if how == "missing":
        return [replace(t, target=None) for t in tasks]
    return [replace(t, target=f"quite-another-{n}") for n, t in enumerate(tasks)]
