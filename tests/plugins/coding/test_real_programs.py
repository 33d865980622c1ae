"""Claude Code and Codex against a simulated server: a session, a night, a review, and the next session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from helpers import run_command

from practicum.core.installation import HOME_VARIABLE
from practicum.testing import ServerOptions, serve

from .test_nightly import LESSON, OWN, RULES

pytestmark = pytest.mark.slow

REQUEST, OBJECTION, NEXT = "Add up the basket.", "No, use Decimal for prices!", "What is next?"
COMMANDS = {"Bash": {"command": "echo summed", "description": "sum"}, "exec_command": {"cmd": "echo summed"}}
CODEX = """model_provider = "simulated"
check_for_update_on_startup = false
notify = ["touch", "notified"]

[analytics]
enabled = false

[model_providers.simulated]
name = "simulated"
base_url = "ADDRESS/v1"
env_key = "SIMULATED_KEY"
wire_api = "responses"
"""


class Server:
    """A model that runs one command for REQUEST, and then says that it is done."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.url = ""

    def respond(self, body: dict[str, Any]) -> Any:
        self.requests.append(text := json.dumps(body))
        tool = next((name for name in COMMANDS if f'"name": "{name}"' in text), None)
        # Claude Code also asks for a title of the session, without tools.
        if tool is None or REQUEST not in text or "tool_result" in text or "call_output" in text:
            return "Done."
        return {"name": tool, "arguments": COMMANDS[tool]}


@pytest.fixture
def server() -> Iterator[Server]:
    model = Server()
    running = serve(ServerOptions(responder=model.respond, keep=False))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(running) as started:
        model.url = started.url.removesuffix("/v1")
        yield model


class Desk:
    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.project, self.store, self.server = folder, folder / "shop", folder / "store", server
        for path in (self.project, folder / "home", folder / "codex"):
            path.mkdir()
        (folder / "codex" / "config.toml").write_text(CODEX.replace("ADDRESS", server.url))
        for name in ("CLAUDE.md", "AGENTS.md"):
            (self.project / name).write_text(OWN)
        (folder / "script.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in RULES))
        passed = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", HOME_VARIABLE) if name in os.environ}
        self.env = passed | {
            "HOME": str(folder / "home"), "CODEX_HOME": str(folder / "codex"), "SIMULATED_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_MAX_RETRIES": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip

    def run(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd=self.project, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def practicum(self, *arguments: object) -> dict[str, Any]:
        done = run_command([*arguments, "--json"], self.project)
        assert done.code == 0, done.err
        return dict(done.json)

    def night(self, *options: str) -> dict[str, Any]:
        model = f"scripted:{self.folder / 'script.jsonl'}"
        (project,) = self.practicum("nightly", "--store", self.store, "--model", model, *options)["projects"]
        return dict(project)

    def tree(self) -> dict[str, bytes]:
        files = [*self.project.rglob("*"), self.folder / "codex" / "config.toml"]
        return {str(path): path.read_bytes() for path in files if path.is_file()}


CLAUDE_ARGUMENTS = ("--model", "simulated", "--allowedTools", "Bash")
CODEX_ARGUMENTS = ("--skip-git-repo-check", "-m", "simulated")
SESSIONS = {
    "claude-code": (
        ("claude", "-p", REQUEST, *CLAUDE_ARGUMENTS), ("claude", "-p", "--continue", OBJECTION, *CLAUDE_ARGUMENTS),
        ("claude", "-p", NEXT, *CLAUDE_ARGUMENTS),
    ),
    "codex": (
        ("codex", "exec", "--sandbox", "danger-full-access", *CODEX_ARGUMENTS, REQUEST),
        ("codex", "exec", "resume", "--last", *CODEX_ARGUMENTS, OBJECTION),
        ("codex", "exec", *CODEX_ARGUMENTS, NEXT),
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", SESSIONS)
def test_the_next_session_sees_the_lesson(
    program: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, then, last = SESSIONS[program]
    if shutil.which(first[0]) is None:
        pytest.skip(f"{first[0]} is not on the PATH: npm install @anthropic-ai/claude-code @openai/codex")
    desk = Desk(tmp_path, server)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    before = desk.tree()
    desk.practicum("connect", program, "--store", desk.store, "--yes")
    desk.run(*first)
    desk.run(*then)
    night = desk.night()
    ((edit, (source,)),) = night["waiting"].items()
    assert (night["new"], source.endswith("/1")) == (1, True)
    desk.practicum("review", night["space"], "--approve", edit, "--yes")
    name = "CLAUDE.md" if program == "claude-code" else "AGENTS.md"
    assert desk.night("--apply")["applied"] == [name]
    assert not any(LESSON in text for text in server.requests)
    desk.run(*last)
    assert LESSON in server.requests[-1]
    if program == "codex":
        assert (desk.project / "notified").exists()
        (desk.project / "notified").unlink()
    desk.practicum("disconnect", program, "--yes")
    backup = desk.project / f"{name}.practicum-backup"
    backup.replace(desk.project / name)
    assert desk.tree() == before
