"""The real programs Claude Code and Codex, as models and as agents, with a simulated model."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_address import ModelAddress, model_address

import practicum
from practicum.core.context import initial_context
from practicum.core.edits import Add
from practicum.core.errors import ModelError
from practicum.core.types import Prompt, Task
from practicum.models.client import CallOptions, Reply
from practicum.models.registry import Models

pytestmark = pytest.mark.slow

SCHEMA = {
    "type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"],
    "additionalProperties": False,
}  # fmt: skip
NAMES = ("claude", "codex")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelAddress]:
    """A simulated model. The home folder has instructions, a hook and a skill of the user."""
    hook = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}]}
    for path, text in {
        ".claude/CLAUDE.md": "USER-RULE", ".claude/settings.json": json.dumps({"hooks": hook}),
        ".claude/skills/mine/SKILL.md": "---\nname: mine\ndescription: USER-SKILL\n---\n",
        ".codex/config.toml": f"notify = ['touch', '{tmp_path}/hooked']\n[mcp_servers.mini]\ncommand = 'false'\n",
    }.items():  # fmt: skip
        (tmp_path / "home" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / path).write_text(text)
    with model_address() as address:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address.url)
        monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "token")
        for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
            monkeypatch.delenv(name, raising=False)
        _redirect_codex(tmp_path / "bin", address, monkeypatch)
        yield address


def _redirect_codex(folder: Path, address: ModelAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `codex` on the PATH that calls the real one with the address, which no environment variable can name."""
    if (codex := shutil.which("codex")) is not None:
        folder.mkdir()
        (folder / "codex").write_text(f'#!/bin/sh\nexec {codex} "$@" -c \'openai_base_url="{address.url}/v1"\'\n')
        (folder / "codex").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def require(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on the PATH: npm install -g @anthropic-ai/claude-code @openai/codex")


def ask(model: str, schema: dict[str, object] | None = None) -> Reply:
    async def call() -> Reply:
        models = Models()
        try:
            prompt = Prompt("SYSTEM-RULE", "ping")
            return await models.open(model).complete("agent", prompt, schema, CallOptions())
        finally:
            await models.close()

    return asyncio.run(call())


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gets_the_prompt_and_nothing_of_the_user(name: str, address: ModelAddress, tmp_path: Path) -> None:
    require(name)
    reply = ask(f"cli:{name}/simulated")
    assert reply.text == "pong"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == {"claude": (19, 9), "codex": (21, 8)}[name]
    [request] = address.requests
    sent = json.dumps(request)
    assert "SYSTEM-RULE" in sent
    assert "USER-" not in sent
    assert len(sent) < 6000
    assert [tool["name"] for tool in request.get("tools", ())] in ([], ["request_user_input"])
    assert not (tmp_path / "hooked").exists()
    assert json.loads(ask(f"cli:{name}/simulated", SCHEMA).text) == {"answer": "4"}


@pytest.mark.parametrize("name", NAMES)
def test_a_login_that_the_provider_refuses(name: str, address: ModelAddress) -> None:
    require(name)
    with pytest.raises(ModelError) as refused:
        ask(f"cli:{name}/simulated-401")
    assert refused.value.code == "model.not_logged_in"


def test_claude_without_a_login(address: ModelAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    require("claude")
    monkeypatch.delenv("CLAUDE_CODE_OAUTH_TOKEN")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    with pytest.raises(ModelError) as missing:
        ask("cli:claude")
    assert missing.value.code == "model.not_logged_in"
    assert not address.requests


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_edits_a_copy(name: str, address: ModelAddress, tmp_path: Path) -> None:
    require(name)
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / {"claude": "CLAUDE.md", "codex": "AGENTS.md"}[name]).write_text("REPOSITORY-RULE")
    context = initial_context([Add("rules", "CONTEXT-RULE")])
    task = Task("t1", "Write new.py.", "done", {"repository": str(repository)})
    how = {"agent": f"cli:{name}/simulated", "timeout": 120.0}
    evaluation = practicum.run_sync(practicum.evaluate([task], context, **how))
    [attempt] = evaluation.attempts
    assert (evaluation.score, attempt.trace.error) == (1.0, None)
    assert [step.kind for step in attempt.trace.steps if step.kind != "system"] == ["action", "observation"]
    assert "+++ b/new.py" in attempt.trace.data["diff"]
    assert evaluation.usage.output_tokens == {"claude": 18, "codex": 16}[name]
    assert [path.name for path in repository.iterdir()] == [{"claude": "CLAUDE.md", "codex": "AGENTS.md"}[name]]
    sent = json.dumps(address.requests)
    assert "CONTEXT-RULE" in sent
    assert "REPOSITORY-RULE" in sent
    assert "USER-" not in sent
    assert not (tmp_path / "hooked").exists()
