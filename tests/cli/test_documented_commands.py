"""Every command that the documentation shows exists, with each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from practicum.cli.tree import Tree, root
from practicum.models.keys import ADDRESSES

needs("mcp", "serve")

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])

BLOCK = re.compile(r"^ *```(?:bash|sh|console)\n(.*?)^ *```", re.M | re.S)
LINE, INLINE = re.compile(r"^ *(?:\$ )?(practicum [^\n]*)$", re.M), re.compile(r"(?<!`)`(practicum [^`]+)`")
"""Commands on lines of their own, in blocks for a shell, and those between backticks. A backslash goes on in the next
line."""

OF_PLUGINS = ("count-entries",)
"""Commands that the documentation writes as examples of plug-ins."""

NO_NAME = re.compile(r"[A-Z.…<\[{*]|$")
"""How a word begins that stands for a name of the reader's, or for several commands."""


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
    command: Any = root()
    while isinstance(command, Tree) or hasattr(command, "commands"):
        if not words or words[0].startswith("-") or NO_NAME.match(words[0]):
            return None
        name, *words = words
        context = command.make_context("practicum", [name, *words], resilient_parsing=True)
        found = command.get_command(context, name)
        if isinstance(command, Tree) and found is not None:
            _, found, _ = command.resolve_command(context, [name, *words])
        if found is None:
            return name
        command = found
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    known |= {"--help", "--help-all", "--debug"}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((word for word in given if word not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_the_documentation_exist(page: Path) -> None:
    shown = [words for words in commands(page) if words and words[0] not in OF_PLUGINS]
    assert [(word, *words) for words in shown if (word := unknown(words)) is not None] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert unknown(["bench", "canary", "--rollouts", "20"]) == "canary"
    assert unknown(["key", "add", "anna", "--role", "review"]) == "--role"
    assert unknown(["space", "edit", f"{ADDRESSES[0]}localhost:8700", "e5", "--text", "hi"]) is None
    assert unknown(["space", "edit", "RUN", "--text", "hi"]) == "--text"
