"""Every command that the documentation shows exists, with each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from needs import needs

from practicum.cli.tree import Tree, root
from practicum.models.keys import ADDRESSES

needs("mcp", "serve")

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])

BLOCK = re.compile(r"^ *```(?:bash|sh|console)\n(.*?)^ *```", re.M | re.S)
LINE, INLINE = re.compile(r"^ *(?:\$ )?(practicum [^\n]*)$", re.M), re.compile(r"(?<!`)`(practicum [^`]+)`")
"""Commands on separate lines, in blocks for a shell, and commands between backticks. A backslash joins lines."""

OF_PLUGINS = ("count-entries",)
"""Commands that the documentation writes as examples of plug-ins."""

NO_NAME = re.compile(r"[A-Z.…<\[{*]|$")
"""The beginning of a word that is a placeholder, or an abbreviation of several commands."""


cached_root = cache(root)


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of a page, without "practicum"."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    shown = [line for block in BLOCK.findall(text) for line in LINE.findall(block)]
    for line in (*shown, *INLINE.findall(text)):
        try:
            words = shlex.split(" ".join(line.split()), comments=True)
        except ValueError:
            continue
        ends = [at for at, word in enumerate(words) if word in ("|", ">", "&&", ";", "&", "2>&1") or word.endswith(";")]
        yield words[1 : min(ends, default=len(words))]


def unknown(words: list[str]) -> str | None:
    """The first word that names no command or no option; None if all do."""
    command: Any = cached_root()
    while isinstance(command, Tree) or hasattr(command, "commands"):
        if not words or words[0].startswith("-") or NO_NAME.match(words[0]):
            return None
        name, *words = words
        context = command.make_context("practicum", [name, *words], resilient_parsing=True)
        match = command.get_command(context, name)
        if isinstance(command, Tree) and match is not None:
            _, match, _ = command.resolve_command(context, [name, *words])
        if match is None:
            return name
        command = match
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    options |= {"--help", "--help-all", "--debug"}
    named = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((word for word in named if word not in options), None)


def test_commands_of_the_documentation_exist() -> None:
    pages = {tuple(words): page.name for page in PAGES for words in commands(page) if words}
    assert len(pages) > 100
    shown = {words: page for words, page in pages.items() if words[0] not in OF_PLUGINS}
    assert [(page, word, *words) for words, page in shown.items() if (word := unknown([*words])) is not None] == []


def test_a_missing_command_is_reported() -> None:
    assert unknown(["bench", "canary", "--rollouts", "20"]) == "canary"
    assert unknown(["key", "add", "anna", "--role", "review"]) == "--role"
    assert unknown(["space", "edit", f"{ADDRESSES[0]}localhost:8700", "e5", "--text", "hi"]) is None
    assert unknown(["space", "edit", "RUN", "--text", "hi"]) == "--text"
