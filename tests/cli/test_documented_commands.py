"""Every command that the documentation shows exists, with each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from needs import needs

from practicum.cli.tree import OPERATED, build, operations, root
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


@cache
def command_of(path: tuple[str, ...]) -> Any:
    """The command or group at a path; None if it does not exist."""
    if not path:
        return root()
    group = command_of(path[:-1])
    context = group.make_context("practicum", [path[-1]], resilient_parsing=True)
    return group.get_command(context, path[-1])


@cache
def options_of(path: tuple[str, ...], at_service: bool) -> set[str]:
    command = build(" ".join(path), at_service=True) if at_service else command_of(path)
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    return options | {"--help", "--help-all", "--debug"}


def unknown(words: list[str]) -> str | None:
    """The first word that names no command or no option; None if all do."""
    path: tuple[str, ...] = ()
    while hasattr(command_of(path), "commands"):
        if not words or words[0].startswith("-") or NO_NAME.match(words[0]):
            return None
        name, *words = words
        path = (*path, name)
        if command_of(path) is None:
            return name
    at_service = path[0] == OPERATED and any(word.startswith(ADDRESSES) for word in words)
    options = options_of(path, at_service and " ".join(path) in operations())
    named = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((word for word in named if word not in options), None)


def test_commands_of_the_documentation_exist() -> None:
    pages = {tuple(words): page.name for page in PAGES for words in commands(page) if words}
    assert len(pages) > 100
    shown = {words: page for words, page in pages.items() if words[0] not in OF_PLUGINS}
    assert [(page, word, *words) for words, page in shown.items() if (word := unknown([*words])) is not None] == []
