"""Scripted models for every role of the methods that grow a playbook, one function a role; and watched runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import client, make_tasks

import practicum
from practicum import methods
from practicum.core.types import Attempt, Prompt, Task
from practicum.engine.loop import StepReport
from practicum.models.scripted import Call, ScriptedClient, in_parts
from practicum.session.result import Progress, Result, Watch

Output = str | Exception | Mapping[str, Any]
Role = Callable[[Call], Output]

FORM: dict[str, Any] = {
    "answer": "", "used": [], "doubts": [], "missing": "", "note": "",
    "kind": "a message", "correction": "", "insight": "", "diagnosis": "", "tags": [],
    "attribution": "actionable_gap", "evidence": "", "cause": "", "gap": "",
    "decisions": [], "ledger": [], "assessment": [], "hypotheses": [], "phase": "exploratory",
    "right": True, "reason": "",
    "items": [], "holds": [], "separates": [], "spurious": [], "why": "", "best": 1, "bullets": ["If in doubt, look."],
    "candidates": [], "sheet": "", "operations": [], "instruction": "", "instructions": "", "reasons": "",
    "reflection": "", "experiences": [], "exemplars": [], "feedback": [],
}  # fmt: skip
"""Every field of every role, with its default."""


def number(call: Call) -> int:
    """The number of the message: the last in the prompt, because worked examples come first."""
    return int(re.findall(r"Message (\d+)", call.text)[-1])


def right(call: Call) -> str:
    return f"word{number(call)}"


def wrong(call: Call) -> str:
    return "wrong"


def obeying(call: Call) -> str:
    """Right about the number of messages in the instructions: "solve 3" solves messages 0, 1 and 2."""
    count = call.prompt.head.rpartition("solve ")[2].strip()
    return right(call) if count.isdigit() and number(call) < int(count) else "wrong"


def material(prompt: Prompt) -> str:
    """The message of a role that learns or judges, without the marks around it."""
    match = re.fullmatch(r"<data-([0-9a-f]{8})>\n(.*)\n</data-\1>", prompt.user, re.DOTALL)
    return prompt.user if match is None else match[2]


def insight(call: Call) -> dict[str, Any]:
    return {"insight": f"If it is message {number(call)}, answer word{number(call)}."}


def added(call: Call) -> dict[str, Any]:
    """Each lesson becomes a rule."""
    numbers = re.findall(r"^(?:Lesson|Insight) (\d+)", call.prompt.user, re.MULTILINE)
    return {"decisions": [{"lesson": int(n), "op": "ADD"} for n in numbers]}


def memory(about: str, *more: str) -> dict[str, Any]:
    """The answer of an extraction: one memory for each text."""
    return {"items": [{"title": text, "description": "such tasks", "content": f"do {text}"} for text in (about, *more)]}


def nothing(call: Call) -> dict[str, Any]:
    return {}


def warm(call: Call) -> bool:
    """Whether it is a further run of a group."""
    return call.options.temperature not in (None, 0.0)


def shape(call: Call) -> str:
    """The name of the requested schema; "" for an answer in text."""
    return "" if call.schema is None else str(call.schema["title"])


def scripted(
    agent: Role = right, reflector: Role = insight, curator: Role = added, state: Role = nothing, judge: Role = nothing,
    **how: Any,
) -> ScriptedClient:  # fmt: skip
    """A model in which a function answers for each role, with the rest of its form filled in."""
    roles = {"agent": agent, "reflector": reflector, "curator": curator, "state": state, "judge": judge}

    def respond(call: Call) -> str | Exception:
        answer = roles[call.role](call)
        if isinstance(answer, Exception) or (isinstance(answer, str) and call.role != "agent"):
            return answer
        if isinstance(answer, str):
            answer = {"answer": answer}
        return in_parts(call.prompt, answer) if call.schema is None else json.dumps({**FORM, **answer})

    return client(respond, **how)


@dataclass
class Learned(Watch):
    """A watched run: its result, its steps, and the number of calls of each step."""

    model: ScriptedClient
    folder: Path
    result: Result = field(init=False)
    progress: Progress = field(init=False)
    reports: list[StepReport] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def stepped(self, report: StepReport, progress: Progress) -> None:
        self.progress = progress
        self.reports.append(report)
        self.counts.append(len(self.model.calls) - sum(self.counts))

    def calls(self, role: str) -> list[Call]:
        return [call for call in self.model.calls if call.role == role]

    def prompts(self, role: str) -> list[str]:
        """The material that the calls of a role were about."""
        return [material(call.prompt) for call in self.calls(role)]

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for report in self.reports for attempt in report.attempts]

    @property
    def texts(self) -> list[str]:
        """The rules that the agent sees."""
        return [entry.text for entry in self.result.context if not entry.hidden]


def learned(
    folder: Path, model: ScriptedClient, tasks: int | Sequence[Task] = 1, settings: Mapping[str, Any] | None = None,
    method: str = "ace", parts: Mapping[str, Any] | None = None, **how: Any,
) -> Learned:  # fmt: skip
    """One run. The insights of tests are similar, so lessons are merged only if a test sets it."""
    watched = Learned(model, folder / "run")
    tasks = make_tasks(tasks) if isinstance(tasks, int) else tasks
    work = practicum.learn(
        tasks, out=watched.folder, method=method, settings={**_unmerged(method), **(settings or {})}, watch=watched,
        parts=practicum.Parts(clients={"agent": model}, **(parts or {})), **how,
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def _unmerged(method: str) -> dict[str, Any]:
    return {"dedupe": "never"} if "dedupe" in methods.setting_docs(method) else {}


def resumed(run: Learned, model: ScriptedClient, parts: Mapping[str, Any] | None = None, **limits: Any) -> Learned:
    """The same run, continued."""
    watched = Learned(model, run.folder)
    parts_ = practicum.Parts(clients={"agent": model}, **(parts or {}))
    watched.result = practicum.run_sync(practicum.resume(run.folder, **limits, parts=parts_, watch=watched))
    return watched
