"""Redaction in whole runs: no byte of a run's folder and no prompt holds a value, and tasks are scored all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import client

import practicum
from practicum import Parts, run_sync
from practicum.core.context import seed_context
from practicum.core.sensitive import PLACEHOLDER
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient, in_parts, parts_asked

EMAIL, CARD, KEY, OWN = "ada.byron@example.com", "4111 1111 1111 1111", "AKIAIOSFODNN7EXAMPLE", "192.0.2.77"
"""What stands in tasks, in what a program returns, in what a tool returns, and what a model makes up."""

VALUES = (EMAIL, CARD, KEY, OWN, CARD.replace(" ", ""))

TASKS = [
    Task("t1", f"Whose mail is {EMAIL}? Name the address.", EMAIL, {"tags": [EMAIL]}),
    Task(EMAIL, f"Who wrote to {EMAIL} with {KEY}?", EMAIL),
]


def held(folder: Path) -> list[tuple[str, str]]:
    """The values that any file of a folder holds, each with the name of the file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [(path.name, value) for path in files for value in VALUES if value.encode() in path.read_bytes()]


def model(answer: Callable[[Call], Any]) -> ScriptedClient:
    """A model whose agent answers so, and whose other roles repeat all that they read, with an address of their own."""

    def respond(call: Call) -> str:
        assert not any(value in call.text for value in VALUES), call.text
        if call.role == "agent":
            said = answer(call)
            if call.schema is None:
                return in_parts(call.prompt, said) if parts_asked(call.prompt) else str(said["answer"])
            return json.dumps(said)
        text = f"Mail to {OWN} as in: {call.prompt.user[-600:]}"
        if call.role == "curator":
            return json.dumps(
                {"reasoning": text, "changes": [{"op": "ADD", "insights": [1], "section": "", "text": text}]}
            )
        said = dict.fromkeys(("reasoning", "diagnosis", "cause", "correction"), text)
        return json.dumps({**said, "insights": [{"section": "", "text": text}], "tags": []})

    return client(respond)


def placeholder(call: Call) -> str:
    found = PLACEHOLDER.search(call.prompt.user)
    assert found
    return found[0]


def answering(call: Call) -> dict[str, Any]:
    return {"used": [], "reasoning": f"It says {OWN}.", "answer": placeholder(call)}


def learned(out: Path, made: ScriptedClient | None = None, **how: Any) -> practicum.Result:
    parts = Parts(clients={"agent": made or model(answering)}, **how.pop("parts", {}))
    how = {
        "settings": {"rounds": 1},
        "redact": "all",
        "test": TASKS[:1],
        "seed_context": seed_context([("rules", EMAIL)]),
    } | how
    return run_sync(practicum.learn(TASKS, out=out / "run", parts=parts, **how))


def test_a_resume_finds_what_was_redacted_and_asks_for_nothing_again(tmp_path: Path) -> None:
    learned(tmp_path)
    made = model(answering)
    again = run_sync(practicum.resume(tmp_path / "run", parts=Parts(clients={"agent": made})))
    assert made.calls == []
    assert held(tmp_path) == []
    assert again.scores["test"] == 1.0
