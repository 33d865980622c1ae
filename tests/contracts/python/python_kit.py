"""Runs over the messages of `python_roles`, and everything that a test sees of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from python_roles import model
from python_roles import nothing as nothing
from python_tasks import message, messages

import practicum
from practicum import ScriptedClient, Task

LEARNED = messages(0, 1, 2)
TEST = messages(0, 1, 9)
"""Two messages that can be learned, and a message that cannot."""


def slow(*values: Any) -> Any:
    """Values of a slow case."""
    return pytest.param(*values, marks=pytest.mark.slow)


@contextmanager
def refused(*codes: str) -> Iterator[Any]:
    """A block that ends with an error of this code, or of one of these, in one line."""
    with pytest.raises(practicum.PracticumError) as raised:
        yield raised
    assert raised.value.code in codes, raised.value
    assert len(str(raised.value).splitlines()) == 1


@dataclass
class Seen(practicum.Watch):
    """A run and all that was seen of it."""

    folder: Path
    model: ScriptedClient
    result: Any = None
    steps: list[Any] = field(default_factory=list)
    scores: list[Any] = field(default_factory=list)
    budget: Any = None

    def began(self, run: Any) -> None:
        self.budget = run.budget

    def stepped(self, report: Any, progress: Any) -> None:
        self.steps.append(report)

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
    settings: Mapping[str, Any] | None = None, parts: Mapping[str, Any] | None = None, **how: Any,
) -> Seen:  # fmt: skip
    """A run in `folder`/run."""
    seen = Seen(folder / "run", played or model())
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


async def reported(
    space: Any, shown: Any, *, answer: str = "unsure", score: Any = None, target: str | None = None,
    comment: str | None = None, user: str | None = None,
) -> None:  # fmt: skip
    """Report an outcome: the answer, its score, the right answer and a comment."""
    await space.report(shown, answer=answer, score=score, target=target, comment=comment, user=user)


def chats(folder: Path, *numbers: int, answer: str = "unsure") -> Path:
    """Conversations of a foreign agent about these messages, as a file."""
    lines = [
        {"messages": [{"role": "user", "content": message(n).input}, {"role": "assistant", "content": answer}]}
        for n in numbers
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def opened(seen: Seen, played: ScriptedClient | None = None, **how: Any) -> Any:
    """The run of `seen`, open for use in a program."""
    return practicum.open(seen.folder, parts=practicum.Parts(clients={"agent": played or model()}), **how)
