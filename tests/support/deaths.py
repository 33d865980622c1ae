"""Kills a process at each step of making or deleting a space, and prints the state that the next process reads.

`python deaths.py KIND FOLDER POINTS [URL]` prints a line for each of POINTS points, evenly spread over the steps to
the disk and the database: the step, and the state that the next process read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, make_url, select

from practicum.serve import reporting
from practicum.serve.editing import remove_space
from practicum.serve.service import Service
from practicum.serve.settings import ServiceSettings
from practicum.store import schema as tables

WRITES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
"""Audit events of steps to the disk."""

KILLED = 9
OLD = 3


class Steps:
    """Counts steps; the process ends before the last one."""

    def __init__(self) -> None:
        self.count, self.last = 0, -1
        self.counting = False
        sys.addaudithook(lambda name, _: self.step() if name in WRITES else None)
        for name in ("before_cursor_execute", "commit"):
            event.listen(Engine, name, lambda *_: self.step())

    def step(self) -> None:
        if self.counting:
            self.count += 1
            if self.count == self.last:
                os._exit(KILLED)


def settings(folder: Path, url: str, name: str) -> ServiceSettings:
    return ServiceSettings(store=make_url(url) if url else folder, folder=folder, spaces=(name,), learn=False)


async def serve(how: ServiceSettings, work: Callable[[Service], Awaitable[str]], steps: Steps | None = None) -> str:
    """Start a service, do some work, and stop it; the start is counted if there are steps."""
    service = Service(how)
    try:
        if steps is not None:
            steps.counting = True
        await service.start()
        return await work(service)
    finally:
        await service.close()


async def notes(service: Service, name: str) -> int:
    return len((await reporting.list_corrections(service, name, "live", 0, 100)).corrections)


async def looked_at(service: Service, kind: str, name: str) -> str:
    """The state after a kill; raises if it is not complete."""
    there = name in service.database.names()
    if kind == "remove" and there:
        assert await notes(service, name) == OLD, "it is half deleted"
    if kind != "start":
        await service.add_space(name)
        await remove_space(service, name)
        assert name not in service.database.names()
        await service.add_space(name)
        t = tables.spaces
        live = select(t.c.space).where(t.c.state == "live")
        left = select(tables.corrections.c.space).where(tables.corrections.c.space.not_in(live))
        assert not service.database.rows(left), "rows of the deleted space are left"
    assert await notes(service, name) == 0
    await reporting.note(service, name, "It is used.", "", None)
    assert await notes(service, name) == 1
    return "there" if there else "not there"


async def prepare(service: Service, name: str) -> str:
    await service.add_space(name)
    for n in range(OLD):
        await reporting.note(service, name, f"Old note {n}.", "", None)
    return ""


def in_child(work: Callable[[], str], out: Path) -> tuple[int, str]:
    """The exit code of work in a child process, and its result or its exception."""
    out.unlink(missing_ok=True)
    if not (pid := os.fork()):
        code = 1
        try:
            out.write_text(work())
            code = 0
        except BaseException as error:  # reported to the parent, in which the test fails
            out.write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), out.read_text() if out.exists() else ""


def attempt(kind: str, folder: Path, url: str, last: int) -> tuple[int, str]:
    """Do it in a process that ends before its step number `last` (-1: never), which returns the number of steps."""
    name = f"made{last}" if last >= 0 else "made"
    place = folder / f"{kind}{last}" if kind == "start" else folder
    how = settings(place, url, name if kind == "start" else "default")
    out = folder / "out"
    if kind == "remove":
        assert in_child(lambda: asyncio.run(serve(how, lambda service: prepare(service, name))), out) == (0, "")

    def killed() -> str:
        steps = Steps()
        steps.last = last

        async def work(service: Service) -> str:
            steps.counting = True
            if kind != "start":
                await (service.add_space(name) if kind == "add" else remove_space(service, name))
            return str(steps.count)

        return asyncio.run(serve(how, work, steps if kind == "start" else None))

    code, report = in_child(killed, out)
    if last < 0 or code != KILLED:
        return code, report
    return in_child(lambda: asyncio.run(serve(how, lambda service: looked_at(service, kind, name))), out)


def main(kind: str, folder: str, points: str, url: Any = "") -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    code, steps = attempt(kind, Path(folder), url, -1)
    assert code == 0, steps
    for n in range(int(points)):
        last = 1 + n * int(steps) // int(points)
        print(last, *attempt(kind, Path(folder), url, last), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
