"""The pages of a run in a real browser: by clicks from the run to the differences, light and dark, and as files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsers import CHROMIUM, chromium, violations, watched
from helpers import make_tasks
from scripts import insight, learned, scripted
from sites import opened, wrong_at_first

from practicum.core.types import Task
from practicum.models.scripted import Call
from practicum.view.read import Story

HOSTILE = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x' onerror=\"document.title='taken'\">"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with a task and lessons that attack the page."""

    def hostile(call: Call) -> dict[str, Any]:
        return {"insight": f"{insight(call)['insight']} {HOSTILE}"}

    tasks = [*make_tasks(3), Task("t3", f"Message 3: {HOSTILE}", "word3")]
    model = scripted(wrong_at_first, hostile)
    how: dict[str, Any] = {"test": make_tasks(2, 8), "review": "none"}
    return learned(tmp_path_factory.mktemp("runs"), model, tasks, {"batch": 2}, **how).folder


@pytest.fixture
def browser(run: Path) -> Iterator[Any]:
    """Started after the run, since Playwright keeps an event loop running."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    with opened([run]) as server:
        yield server.address


def test_clicks_lead_from_a_run_to_the_differences(browser: Any, address: str) -> None:
    page, console, requests = watched(browser, color_scheme="dark")
    page.goto(address)
    page.click("text=step 2")
    page.click("h2:has-text('Attempts') + table td.name a")
    page.click("section[id^=lesson] >> a.id[href*='/entries/'] >> nth=-1")
    page.wait_for_url("**/entries/*")
    page.click("ol a:has-text('version')")
    page.wait_for_url("**/diff?old=1&new=2")
    assert page.locator("pre.plus").first.inner_text().startswith("+ If it is message")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/diff?old=0&new=1")
    page.click("nav >> text=Episodes")
    page.wait_for_load_state()
    page.wait_for_url("**/episodes")
    page.keyboard.press("/")
    page.keyboard.type("message 3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episodes?q=message+3")
    page.click("td.name a")
    assert HOSTILE in page.locator("main pre").first.inner_text()
    assert "taken" not in page.title()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert console == []
    assert {urlsplit(url).netloc or url for url in requests} <= {urlsplit(address).netloc, "data:,"}


PAGES = (
    "", "/versions", "/diff?old=1&new=2", "/entries", "/entries/e0", "/episodes", "/steps/1",
    "/lessons", "/calls", "/calls/1", "/review", "/corrections", "/costs", "/alarms",
)  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1600, "dark")])
def test_pages_fit_the_screen_and_are_accessible(
    browser: Any, address: str, run: Path, width: int, scheme: str
) -> None:
    with Story.open(run) as story:
        line = next(line for line in story.attempts(task="t3"))
    page, console, _ = watched(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in (*PAGES, f"/episodes/{line.id}"):
        page.goto(f"{address}s/run{path}")
        for fold in page.query_selector_all("details"):
            fold.evaluate("fold => fold.open = true")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.locator("h1").count() == 1, path
    assert console == []
    for path in (*PAGES, f"/episodes/{line.id}"):
        page.goto(f"{address}s/run{path}")
        assert violations(page) == [], path
