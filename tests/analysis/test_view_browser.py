"""The pages of a run in a real browser: by clicks from the run to what changed, light and dark, and as files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsers import CHROMIUM, chromium, watched
from helpers import make_tasks
from scripts import insight, learned, right, scripted

from practicum.analysis.view.server import PageServer
from practicum.analysis.view.site import Site
from practicum.core.types import Task
from practicum.models.scripted import Call
from practicum.session.story import Story

HOSTILE = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x' onerror=\"document.title='taken'\">"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]


def wrong_at_first(call: Call) -> str:
    return right(call) if "reflection" in call.prompt.user else "wrong"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with a task and lessons that would take over a page that let them."""

    def hostile(call: Call) -> dict[str, Any]:
        return {"insight": f"{insight(call)['insight']} {HOSTILE}"}

    tasks = [*make_tasks(3), Task("t3", f"Message 3: {HOSTILE}", "word3")]
    folder = tmp_path_factory.mktemp("runs")
    return learned(
        folder, scripted(wrong_at_first, hostile), tasks, {"batch": 2}, test=make_tasks(2, 8), review="none"
    ).folder


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    with PageServer(Site([run]).page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_clicks_lead_from_a_run_to_what_changed(browser: Any, address: str, scheme: str) -> None:
    page, said, asked = watched(browser, color_scheme=scheme)
    page.goto(address)
    page.click("text=step 2")
    page.click("h2:has-text('Attempts') + table a")
    page.click("main summary:has-text('instructions')")
    page.click("section:has(h3:text('Answer')) >> text=Answer")
    page.click("section[id^=lesson] >> a.id >> nth=-1")
    page.wait_for_url("**/entry/*.html")
    assert page.locator("h1").inner_text().startswith("e")
    page.click("ol a:has-text('version')")
    page.wait_for_url("**/diff/1-2.html")
    assert "From version 1 to version 2" in page.locator("h1").inner_text()
    assert page.locator("pre.plus").first.inner_text().startswith("+ If it is message")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/diff/0-1.html")
    page.click("nav >> text=Attempts")
    page.wait_for_load_state()
    page.wait_for_url("**/attempts/all.html")
    page.keyboard.press("/")
    page.keyboard.type("message 3")
    page.keyboard.press("Enter")
    page.wait_for_url("**/all.html?q=message+3")
    page.click("td.name a")
    assert HOSTILE in page.locator("main pre").first.inner_text()
    assert "taken" not in page.title()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert said == []
    assert {urlsplit(url).netloc or url for url in asked} <= {urlsplit(address).netloc, "data:,"}


def test_the_colours_are_chosen_and_kept(browser: Any, address: str) -> None:
    page, said, _ = watched(browser, color_scheme="light")
    page.goto(address)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) == light
    page.click("#theme")
    assert page.evaluate(background) != light
    page.reload()
    assert page.evaluate(background) != light
    assert page.locator("#theme").inner_text().endswith("dark")
    assert said == []


def test_pages_fit_a_phone_and_a_wide_screen(browser: Any, address: str, run: Path) -> None:
    with Story.open(run) as story:
        (line,) = story.attempts(task="t3")
    paths = ["index.html", "step/1.html", "attempts/all.html", f"attempt/{line.id}.html", "playbook/last.html"]
    for width in (360, 1600):
        page, said, _ = watched(browser, viewport={"width": width, "height": 800})
        for path in (*paths, "diff/1-2.html", "calls/all.html", "call/1.html", "lessons/all.html", "entry/e0.html"):
            page.goto(address + path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
        assert said == []


def test_files_are_searched_without_a_server(browser: Any, run: Path, tmp_path: Path) -> None:
    Site([run], served=False).write(tmp_path)
    page, said, asked = watched(browser)
    page.goto((tmp_path / "index.html").as_uri())
    page.click("nav >> text=Attempts")
    assert page.locator("tbody tr:visible").count() == 6
    page.fill("input[type=search]", "MESSAGE 3")
    assert page.locator("tbody tr:visible").count() == 1
    page.keyboard.press("Enter")
    page.click("tbody tr:visible td.name a")
    assert HOSTILE in page.locator("main pre").first.inner_text()
    assert said == []
    assert all(url.startswith(("file:", "data:,")) for url in asked)
