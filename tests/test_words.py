"""The package, its examples, its manual and its tests are written in plain words: see tests/support/words.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from words import WORDS, uses_below

ROOT = Path(__file__).parents[1]

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs", "examples", "bench"]


@pytest.mark.parametrize(
    "folders", [["practicum", "examples", "docs"], pytest.param(["tests", "bench"], marks=pytest.mark.slow)], ids=str
)
def test_no_text_or_name_uses_a_word_that_the_language_avoids(folders: list[str]) -> None:
    assert [str(use) for use in uses_below(folders, ROOT) if use.path.name != "words.py"] == []


@pytest.mark.parametrize("place", PAGES)
def test_no_page_uses_a_word_that_the_language_avoids(place: str) -> None:
    path = ROOT / place
    for page in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
        prose = re.sub(r"```.*?```|`[^`\n]*`|\[[^\]]*\]\([^)]*\)", "", page.read_text(encoding="utf-8"), flags=re.S)
        for pattern in WORDS:
            match = re.search(rf"(?<!\w)(?:{pattern})\b", prose, re.I)
            assert match is None, f"{page.name}: {prose[max(0, match.start() - 60) : match.end() + 60]!r}"
