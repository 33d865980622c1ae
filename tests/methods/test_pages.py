"""Every method has its page, whose tables name each of its settings with its default; the README links every page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from practicum import methods

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "methods"

ROW = re.compile(r"^\| `(\w+)` \| `([^`]*)` \|", re.MULTILINE)
"""A setting and its default, at the start of a table's row."""


def shown(default: Any) -> str:
    """A default as a page has it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


@pytest.mark.parametrize("name", methods.METHODS.names())
def test_a_page_names_every_setting_once_with_its_default(name: str) -> None:
    rows = ROW.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    assert len(rows) == len(dict(rows)), "a setting stands there twice"
    assert dict(rows) == {setting: shown(default) for setting, (default, _) in methods.setting_docs(name).items()}


def test_there_is_no_page_without_a_method() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*methods.METHODS.names()}


def test_the_readme_names_every_method_and_links_its_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`(\w+)`\]\(docs/methods/(\w+)\.md\) \|", text, re.MULTILINE)
    assert rows == [(name, name) for name in methods.METHODS.names()]
    assert f"- **{len(rows)} methods on one loop**" in text


def test_the_readme_lists_each_page_of_the_manual_once() -> None:
    listed = (ROOT / "README.md").read_text(encoding="utf-8").split("## Documentation")[1].split("\n## ")[0]
    pages = LINK.findall(listed)
    assert len(pages) > 20
    assert len(pages) == len(set(pages))


LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    """Files that are linked exist, and so do the headings that are."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links {target}"
        if heading:
            assert heading in headings(file), f"{page.name} links {target}"


def headings(page: Path) -> set[str]:
    """The names that a page's headings have as targets of links."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
