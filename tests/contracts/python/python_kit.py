"""Runs over the messages of `python_roles`, and everything that a test sees of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from python_roles import model
from python_tasks import message, messages
from refusals import refused as refused

import practicum
from practicum import ScriptedClient, Task

LEARNED = messages(0, 1, 2)
TEST = messages(0, 1, 9)
"""Two messages that can be learned, and a message that cannot."""


def slow(*values: Any) -> Any:
    """Values of a slow case."""
    return pytest.param(*values, marks=pytest.mark.slow)


def parts(played: ScriptedClient | None = None) -> practicum.Parts:
    return practicum.Parts(clients={"agent": played or model()})


@dataclass
class Seen(practicum.Watch):
    """A run and all that was seen of it. It stops after `stop_after` calls."""

    folder: Path
    model: ScriptedClient
    stop_after: float = math.inf
    result: Any = None
    steps: list[Any] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    budget: Any = None

    def began(self, run: Any) -> None:
        self.budget = run.budget

    def called(self, call: Any) -> None:
        if len(self.model.calls) >= self.stop_after:
            self.budget.stop("it is enough")

    def stepped(self, report: Any, progress: Any) -> None:
        self.steps.append(report)

    def warned(self, text: str) -> None:
        self.warnings.append((len(self.steps), text))

    @property
    def roles(self) -> dict[str, int]:
        """How many calls each role got."""
        return dict(Counter(call.role for call in self.model.calls))

    def calls(self, role: str) -> list[Any]:
        return [call for call in self.model.calls if call.role == role]

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.result.context if not entry.hidden]

    @property
    def sections(self) -> dict[str, int]:
        """How many entries each section has, hidden ones too."""
        return dict(Counter(entry.section for entry in self.result.context))

    def entry(self, text: str) -> Any:
        """The one entry that has this text."""
        (entry,) = [entry for entry in self.result.context if text in entry.text]
        return entry

    @property
    def exported(self) -> str:
        """The final context without loss: what two runs are compared by."""
        return practicum.export(self.result.context, "json")


def learned(
    folder: Path, tasks: Iterable[Task] = LEARNED, played: ScriptedClient | None = None, method: Any = "ace",
    settings: Mapping[str, Any] | None = None, parts: Mapping[str, Any] | None = None,
    stop_after: float = math.inf, **how: Any,
) -> Seen:  # fmt: skip
    """A run in `folder`/run."""
    seen = Seen(folder / "run", played or model(), stop_after)
    work = practicum.learn(
        tasks, method=method, settings=settings or {}, out=seen.folder, watch=seen,
        parts=practicum.Parts(clients={"agent": seen.model}, **(parts or {})), **how,
    )  # fmt: skip
    seen.result = practicum.run_sync(work)
    return seen


def resumed(
    folder: Path, played: ScriptedClient | None = None, parts: Mapping[str, Any] | None = None, **how: Any
) -> Seen:
    """The run in a folder, continued."""
    seen = Seen(folder, played or model())
    created = practicum.Parts(clients={"agent": seen.model}, **(parts or {}))
    seen.result = practicum.run_sync(practicum.resume(folder, parts=created, watch=seen, **how))
    return seen


def playbook(folder: Path, *entries: str | Mapping[str, Any]) -> practicum.Context:
    """A written playbook: the entries e0, e1, … in the section `rules`, as texts or as fields."""
    values = [{"section": "rules", **({"text": entry} if isinstance(entry, str) else entry)} for entry in entries]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "playbook.json"
    path.write_text(json.dumps({"entries": values}), encoding="utf-8")
    return practicum.load(path)


async def reported(space: Any, shown: Any, answer: str = "unsure", **outcome: Any) -> None:
    """Report an outcome: the answer, with its score, its target, a comment or a user."""
    await space.report(shown, answer=answer, **outcome)


def chats(folder: Path, *numbers: int) -> Path:
    """Conversations of a foreign agent about these messages, as a file."""
    lines = [
        {"messages": [{"role": "user", "content": message(n).input}, {"role": "assistant", "content": "unsure"}]}
        for n in numbers
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def opened(source: Any, played: ScriptedClient | None = None, **how: Any) -> Any:
    """A run, a version or a playbook, open for use in a program."""
    how = {"parts": parts(played), **how}
    return practicum.open(source.folder if isinstance(source, Seen) else source, **how)


def in_space(source: Any, work: Any, played: ScriptedClient | None = None, **how: Any) -> Any:
    """Do something with an open space."""

    async def inside() -> Any:
        async with opened(source, played, **how) as space:
            return await work(space)

    return practicum.run_sync(inside())
