"""Sections of a playbook, as a user writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable


def parse_sections(lines: Iterable[str]) -> dict[str, str]:
    """Parse sections from lines of the form "name" or "name: description"; blank lines are ignored.

    Raises ValueError if a name is empty, has no letter or digit, begins with a dot, or occurs twice.
    """
    sections: dict[str, str] = {}
    for line in filter(str.strip, lines):
        name, _, description = (part.strip() for part in line.partition(":"))
        if not plain_name(name) or name.startswith("."):
            raise ValueError(f"{line.strip()!r} is not a section: write NAME or NAME: DESCRIPTION")
        if plain_name(name) in map(plain_name, sections):
            raise ValueError(f"the section {name!r} occurs twice: remove one of them")
        sections[name] = " ".join(description.split())
    return sections


def plain_name(name: str) -> str:
    """Return the words of a name in lower case, joined by spaces. A word has letters and digits only, and `&` counts as
    the word `and`. A leading number is dropped if words follow."""
    words = re.findall(r"[^\W_]+", name.casefold().replace("&", " and "))
    return " ".join(words[1:] if len(words) > 1 and words[0].isdigit() else words)
