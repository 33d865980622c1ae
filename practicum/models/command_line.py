"""Model that is called through a coding agent's program, without tools and without the user's instructions.

Each call starts the program in an empty temporary folder. The user's settings are not read, so the user's hooks, MCP
servers, skills, rules and CLAUDE.md are not in effect. These parts remain: settings that an administrator manages; the
two lines with which Claude Code begins its system prompt, and its note on the environment; `AGENTS.md` in the folder of
Codex (`$CODEX_HOME`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from practicum.core.subprocesses import run_program
from practicum.core.types import Prompt
from practicum.models.chat import untitled
from practicum.models.client import JSON, Reply
from practicum.models.programs import Failure, Program, http_error
from practicum.models.transport import RefusedReply

PROCESSES = 4
"""Maximum number of concurrent processes of a program. A process of Claude Code takes about 300 MB of memory."""

_OFF = (
    *("shell_tool", "unified_exec", "multi_agent", "goals", "hooks", "plugins", "apps", "image_generation"),
    *("view_image", "sleep_tool", "skill_search", "tool_suggest", "shell_snapshot"),
)
"""Features of Codex that add tools or instructions."""


@dataclass(frozen=True)
class CommandLineModel:
    """Model of a program. `model_name` is empty for the program's default. `max_reply` is the maximum size of the
    program's output (bytes). `base_url` is empty, because the model has no HTTP address."""

    name: str
    program: Program
    model_name: str
    max_reply: int
    base_url: str = ""

    async def ask(self, prompt: Prompt, schema: JSON | None, settings: Mapping[str, Any]) -> Reply:
        """Call the model. The answer is JSON of the schema, if a schema is passed. The limit of output tokens is not
        passed on, because Claude Code asks again if a limit cuts an answer. Raises ModelError if the program cannot be
        used, and errors of pydantic-ai."""
        if "temperature" in settings:
            raise http_error(Failure("unsupported parameter: temperature has no option", 400), self.name)
        if prompt.images:
            raise http_error(Failure("the program takes no images", 400), self.name)
        with TemporaryDirectory(prefix="practicum-") as name:
            folder = Path(name)
            words = _WORDS[self.program.name](folder, prompt.head or "Answer the user.", schema)
            model = ["--model", self.model_name] if self.model_name else []
            work = folder / "work"
            work.mkdir()
            env = {**self.program.env, "CLAUDE_CODE_MAX_RETRIES": "0"}
            finished = await run_program(
                [*words, *model], _conversation(prompt).encode(errors="replace"), cwd=work, env=env, most=self.max_reply
            )
        if finished.overlong:
            raise RefusedReply(
                "provider.bad_reply", f"the output has more than {self.max_reply / 1e6:g} MB (see `max_reply_mb`)"
            )
        outcome = self.program.outcome(finished, self.name)
        if outcome.failure is not None:
            raise http_error(outcome.failure, self.name)
        return Reply(outcome.text, outcome.usage, cut=outcome.cut, refused=outcome.refused)


def _claude_words(folder: Path, system: str, schema: JSON | None) -> list[str]:
    """Return the command of a call through Claude Code. Its files are written to `folder`."""
    (folder / "system.md").write_text(system, encoding="utf-8", errors="replace")
    return [
        "claude", "--print", "--output-format", "stream-json", "--verbose", "--tools", "",
        "--system-prompt-file", str(folder / "system.md"), "--setting-sources", "", "--strict-mcp-config",
        "--disable-slash-commands", "--no-session-persistence",
        *([] if schema is None else ["--json-schema", json.dumps(schema)]),
    ]  # fmt: skip


def _codex_words(folder: Path, system: str, schema: JSON | None) -> list[str]:
    """Return the command of a call through Codex. Its files are written to `folder`."""
    (folder / "system.md").write_text(system, encoding="utf-8", errors="replace")
    (folder / "schema.json").write_text(json.dumps(untitled(schema or {})), encoding="utf-8")
    config = {
        "model_instructions_file": str(folder / "system.md"),
        **dict.fromkeys((f"features.{name}" for name in _OFF), False),
        **{f"include_{name}": False for name in ("permissions_instructions", "apps_instructions")},
        **{f"include_{name}": False for name in ("collaboration_mode_instructions", "environment_context")},
        "skills.include_instructions": False, "skills.bundled.enabled": False, "web_search": "disabled",
    }  # fmt: skip
    return [
        "codex", "exec", "-", "--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config",
        "--ignore-rules", "--sandbox", "read-only",
        *(word for name, value in config.items() for word in ("--config", f"{name}={json.dumps(value)}")),
        *([] if schema is None else ["--output-schema", str(folder / "schema.json")]),
    ]  # fmt: skip


_WORDS = {"claude": _claude_words, "codex": _codex_words}


def _conversation(prompt: Prompt) -> str:
    """Return the turns and the last message of a prompt as one text, because the programs take one message."""
    if not prompt.turns:
        return prompt.user
    turns = [f"<user>\n{turn.user}\n</user>\n<assistant>\n{turn.assistant}\n</assistant>" for turn in prompt.turns]
    return "\n".join(["Continue this conversation with your next message.", *turns, f"<user>\n{prompt.user}\n</user>"])
