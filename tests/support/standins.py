"""Scripts that replace the programs of coding agents: each prints the events of a recorded run."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]
SESSION = {"session_id": "5e08cbb0", "uuid": "2bef04db"}


class StandIn:
    """Program `name` on the PATH. Its calls are stored as files in `folder`."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def prints(self, *events: Event, code: int = 0, err: str = "", first: str = "", then: str = "") -> StandIn:
        """Write a program that runs the commands `first`, prints these events, runs the commands `then`, and ends."""
        (self.folder / "out").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        here = shlex.quote(str(self.folder))
        (self.folder / self.name).write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {here}/args.$$\npwd > {here}/cwd.$$\n"
            f"env > {here}/env.$$\ncat > {here}/input.$$\n{first}\ncat {here}/out\n"
            f"printf '%s\\n' {shlex.quote(err)} >&2\n{then}\nexit {code}\n"
        )
        (self.folder / self.name).chmod(0o755)
        return self

    def calls(self, kind: str = "args") -> list[str]:
        """The `args` of each call, one per line, or its `input`, its `env`, or its `cwd`."""
        return [
            path.read_text() for path in sorted(self.folder.glob(f"{kind}.*"), key=lambda path: int(path.suffix[1:]))
        ]


def claude(text: str | None = "pong", **result: Any) -> list[Event]:
    """Events of Claude Code; `result` are fields of the last event."""
    usage = {"inputTokens": 11, "outputTokens": 9, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 3}
    return [
        {"type": "system", "subtype": "init", "tools": [], **SESSION},
        message(text or ""),
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}, **SESSION},
        {
            "duration_ms": 145, "is_error": False, "subtype": "success", "num_turns": 1, "result": text,
            "total_cost_usd": 0.25, "modelUsage": {"m": usage}, "type": "result", **SESSION, **result,
        },
    ]  # fmt: skip


def message(text: str, **more: Any) -> Event:
    """A message of Claude Code with a text."""
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, **SESSION, **more}


def used(tool: str, result: str, **arguments: Any) -> Sequence[Event]:
    """A call of a tool of Claude Code, and the call's result."""
    call = {"type": "tool_use", "id": "c1", "name": tool, "input": arguments}
    back = {"type": "tool_result", "tool_use_id": "c1", "content": result}
    return (
        {"type": "assistant", "message": {"content": [call]}, **SESSION},
        {"type": "user", "message": {"role": "user", "content": [back]}, **SESSION},
    )


def codex(*items: Event, text: str = "pong", failed: str = "") -> list[Event]:
    """Events of Codex: these items, and a message or a failure."""
    message = {"id": "m", "type": "agent_message", "text": text}
    usage = {"input_tokens": 42, "cached_input_tokens": 8, "output_tokens": 16}
    end: Event = {"type": "turn.completed", "usage": usage}
    if failed:
        items, end = (*items,), {"type": "turn.failed", "error": {"message": failed}}
    else:
        items = (*items, message)
    return [
        {"type": "thread.started", "thread_id": "01a2"},
        {"type": "item.completed", "item": {"id": "w", "type": "error", "message": "Model metadata not found."}},
        {"type": "turn.started"},
        *({"type": "item.completed", "item": item} for item in items),
        end,
    ]
