"""A real browser, if one is installed: Debian's Chromium."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
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
    """Return a page, the messages of its console, and the addresses that it requests."""
    messages: list[str] = []
    requested: list[str] = []
    page = browser.new_context(**how).new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    return page, messages, requested


AXE = Path("/tmp/practicum-axe/node_modules/axe-core/axe.min.js")
"""axe-core, which npm installs there once."""


def axe() -> str:
    """The program that finds violations of accessibility. A test without npm or a registry is skipped."""
    if not AXE.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core needs npm")
        command = [npm, "install", "--prefix", str(AXE.parents[2]), "--silent", "--ignore-scripts", "axe-core@4"]
        if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode or not AXE.is_file():
            pytest.skip("npm cannot install axe-core")
    return AXE.read_text(encoding="utf-8")


def violations(page: Any) -> list[str]:
    """The violations of a page that axe-core calls serious or critical."""
    # The policy of a page lets only the browser's own inspector add a script to it.
    page.evaluate(axe())
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in results if one["impact"] in ("serious", "critical")
    ]
