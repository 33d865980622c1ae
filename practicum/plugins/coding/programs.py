"""Coding agents: the places of their MCP servers, hooks, base URLs, instructions and skills.

Written against Claude Code 2.1.332, Codex 0.171.0, opencode 1.18.34 and Gemini CLI 0.61.0 (2026-11-30).
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from practicum.plugins.coding.settings_files import TEXT, Change

SERVER = "practicum"
"""Name of the MCP server in the settings of programs."""

Argv = Sequence[str]


@dataclass(frozen=True)
class Place:
    """Key in a settings file. `file` is relative to `Program.root`. `value` converts a command or an address to the
    value of the key, or to an item of the list at the key (`append`). `wraps`: the key holds one command. An earlier
    command is passed to the new command as the option `--then`, a JSON list."""

    file: str
    path: tuple[str, ...]
    value: Callable[[Any], Any]
    append: bool = False
    wraps: bool = False

    def change(self, target: Any) -> Change:
        """Return the change for a command or an address."""
        return Change(self.path, self.value(target), self.append)


@dataclass(frozen=True)
class Program:
    """A coding agent.

    `server` is the place of an MCP server's command, `hook` the place of a command that runs at the end of a session,
    and `address` the places of the base URL; empty: the proxy does not support the program. `instructions` are the
    files that the program reads in a project, by preference, and `skills` is the folder of its skills. `home` is the
    environment variable, and the default, of the folder of a program whose settings are not in the project.
    """

    title: str
    server: Place
    hook: Place
    address: tuple[Place, ...]
    instructions: tuple[str, ...]
    skills: str
    home: tuple[str, str] | None = None

    def root(self, project: Path) -> Path:
        """Return the folder of the settings files."""
        if self.home is None:
            return project
        variable, default = self.home
        return Path(os.environ.get(variable) or default).expanduser().absolute()


def _split(argv: Argv, **more: Any) -> dict[str, Any]:
    return {"command": argv[0], "args": [*argv[1:]], **more}


def _hook(**more: Any) -> Callable[[Argv], Any]:
    return lambda argv: {"hooks": [{"type": "command", "command": shlex.join(argv), **more}]}


def _plugin(argv: Argv) -> str:
    """Return the plug-in of opencode, which stores sessions below the store: the last argument of the command."""
    source = files(__package__).joinpath("opencode_plugin.js").read_text(encoding="utf-8")
    return source.replace('"STORE"', json.dumps(argv[-1]))


def _versioned(address: str) -> str:
    return f"{address}/v1"


CLAUDE = ".claude/settings.local.json"
CODEX = "config.toml"
GEMINI = ".gemini/settings.json"

PROGRAMS: Mapping[str, Program] = {
    "claude-code": Program(
        "Claude Code",
        server=Place(".mcp.json", ("mcpServers", SERVER), lambda argv: {"type": "stdio", **_split(argv)}),
        hook=Place(CLAUDE, ("hooks", "SessionEnd"), _hook(timeout=30), append=True),
        address=(Place(CLAUDE, ("env", "ANTHROPIC_BASE_URL"), str),),
        instructions=("CLAUDE.md",),
        skills=".claude/skills",
    ),
    "codex": Program(
        "Codex",
        server=Place(CODEX, ("mcp_servers", SERVER), _split),
        # Hooks of Codex run only after a review by the user. `notify` runs after each turn.
        hook=Place(CODEX, ("notify",), list, wraps=True),
        address=(Place(CODEX, ("openai_base_url",), _versioned),),
        instructions=("AGENTS.md",),
        skills=".agents/skills",
        home=("CODEX_HOME", "~/.codex"),
    ),
    "opencode": Program(
        "opencode",
        server=Place("opencode.json", ("mcp", SERVER), lambda argv: {"type": "local", "command": [*argv]}),
        hook=Place(".opencode/plugins/practicum.js", (TEXT,), _plugin),
        address=tuple(
            Place("opencode.json", ("provider", provider, "options", "baseURL"), _versioned)
            for provider in ("anthropic", "openai")
        ),
        instructions=("AGENTS.md", "CLAUDE.md"),
        skills=".agents/skills",
    ),
    "gemini-cli": Program(
        "Gemini CLI",
        server=Place(GEMINI, ("mcpServers", SERVER), _split),
        # The timeout is in milliseconds.
        hook=Place(GEMINI, ("hooks", "SessionEnd"), _hook(name=SERVER, timeout=5000), append=True),
        address=(),
        instructions=("GEMINI.md",),
        skills=".agents/skills",
    ),
}  # fmt: skip
"""Programs by the name that the command line takes."""
