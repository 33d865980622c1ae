"""`practicum view --output`: the pages of the site as files, which open from their folder."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from helpers import make_tasks
from refusals import refused
from scripts import insight, learned, right, scripted
from sites import Reader

from practicum.models.scripted import Call
from practicum.view.files import write_pages
from practicum.view.library import Folders


def wrong_at_first(call: Call) -> str:
    return right(call) if "reflection" in call.prompt.user else "wrong"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All pages of a run, by path."""
    folder = tmp_path_factory.mktemp("runs")
    run = learned(folder, scripted(wrong_at_first, insight), make_tasks(4), {"batch": 2}, test=make_tasks(2, 8),
                  review="none")  # fmt: skip
    number, incomplete = write_pages(Folders([run.folder]), folder / "pages")
    assert incomplete == 0
    files = [file for file in (folder / "pages").rglob("*") if file.is_file()]
    assert number == len(files)
    return {str(file.relative_to(folder / "pages")): file.read_text(encoding="utf-8") for file in files}


def test_every_link_leads_to_a_file(written: dict[str, str]) -> None:
    for name, page in written.items():
        for link in Reader(page).links:
            path = unquote(link.partition("#")[0])
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            assert goal in written, (name, link)


def test_a_page_needs_no_other_file_and_lets_nothing_run_but_its_own_script(written: dict[str, str]) -> None:
    for page in written.values():
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy
        assert "default-src" in policy[1]
        assert "unsafe" not in policy[1]
        assert not re.search(r'(?:src|href)="(?:https?:|/)', page)
        assert "<form method" not in page


def test_all_kinds_of_pages_are_written(written: dict[str, str]) -> None:
    for name in ("index", "s/run", "s/run/entries", "s/run/entries/e0", "s/run/steps/2", "s/run/calls/1",
                 "s/run/versions/1", "s/run/episodes/test.t8", "s/run/lessons", "s/run/costs"):  # fmt: skip
        assert f"{name}.html" in written
    assert any(name.startswith("s/run/diff/old-0,new-1".replace(",", "=2C")) for name in written)


def test_a_file_is_no_folder_for_pages(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(), make_tasks(1), method="none")
    (tmp_path / "file").touch()
    with refused("file.wrong_kind"):
        write_pages(Folders([run.folder]), tmp_path / "file")
