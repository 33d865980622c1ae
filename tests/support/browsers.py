"""A real browser, where there is one: Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from needs import needs

CHROMIUM = shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that was started."""
    with needs("playwright.sync_api", "all-tests").sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def watched(browser: Any, **how: Any) -> tuple[Any, list[str], list[str]]:
    """A page, with what its console says and the addresses that it asks for."""
    said: list[str] = []
    asked: list[str] = []
    page = browser.new_context(**how).new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    return page, said, asked
