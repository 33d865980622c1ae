"""`practicum view`: shows spaces as pages in a browser."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

from typer import Argument, Option

from practicum.cli import options as opt
from practicum.cli.output import Printer
from practicum.core.errors import UsageError
from practicum.core.words import in_number


def view(
    runs: list[Path] = Argument(..., metavar="PATH", help="Runs, stores, comparisons, or folders, such as ./runs."),
    output: Path | None = opt.option(None),
    port: int | None = opt.option(None, min=0, max=65_535),
    no_open: bool = Option(False, "--no-open", help="Print the address without opening a browser."),
    json_: opt.Json = False,
) -> None:
    """Show spaces in a browser.

    Starts a web server; stop it with Ctrl-C. With --output, writes the pages as files, which need no server. Pages show
    scores, outcomes, episodes, calls, lessons, and each change of a playbook. Reload a page to see the progress of a
    running run.
    """
    from practicum.store.database import Store
    from practicum.store.folder import is_run
    from practicum.view.files import write_pages
    from practicum.view.library import Folders
    from practicum.view.server import PageServer

    if output is not None and (port is not None or no_open):
        raise UsageError("settings.conflict", "--output writes files and starts no server: omit --port and --no-open")
    folders, out = Folders(runs), Printer(json_)
    for run in filter(is_run, runs):
        # If a space cannot be opened, raise the error before the server starts: otherwise only the page of the space
        # shows the error.
        Store.read(run).close()
    if output is not None:
        with out.status("writing the pages") if out.is_terminal else nullcontext():
            (pages, incomplete), first = write_pages(folders, output), output / "index.html"
        out.result({"pages": pages, "incomplete": incomplete, "index": str(first)})
        out.print(f"{pages:,} pages written: open {first}")
        if incomplete:
            out.print(in_number(incomplete, f"{incomplete:,} of these pages [has|have] parts that cannot be read"))
        return
    server = PageServer(folders, port or 0)

    def ready() -> None:
        out.announce({"address": server.address})
        out.print(f"showing {', '.join(map(str, runs))} at {server.address}; press Ctrl-C to stop")
        sys.stdout.flush()
        if not no_open and _has_screen():
            import webbrowser

            webbrowser.open(server.address)

    server.serve(ready)


def _has_screen() -> bool:
    """Whether a browser would open in a window instead of this terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
