"""AppWorld's tasks as tasks of practicum, read from its environment server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from practicum.core.errors import ProviderError, TaskFileError
from practicum.core.types import Task
from practicum.tasks.appworld.client import addresses_in, reached
from practicum.tasks.datasets import Converted
from practicum.tasks.load import text_of

TURNS = 40
"""Turns to learn with: a task takes about twenty calls of APIs, most of which have to be looked up first."""


async def listed(path: Path, server: str) -> Converted:
    """The tasks whose ids a file lists, one a line, as AppWorld's data/datasets/train.txt does.

    Raises TaskFileError with file and line for an id that is there twice or that the server cannot show.
    """
    addresses = addresses_in(server)
    tasks: dict[str, Task] = {}
    async with reached(addresses[0]) as world:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            # AppWorld lets a tag follow an id.
            id = line.partition(":")[0].strip()
            if not id:
                continue
            if id in tasks:
                raise TaskFileError(f"{path} line {number}: task {id!r} is listed a second time")
            try:
                tasks[id] = _task(id, await world.shown(id))
            except (ProviderError, KeyError) as error:
                raise TaskFileError(f"{path} line {number}: {error}") from error
    if not tasks:
        raise TaskFileError(f"{path}: the file lists no tasks")
    options = ("--agent", f"appworld:{','.join(addresses)}", "--max-turns", str(TURNS))
    return Converted("appworld", tuple(tasks.values()), "appworld", (), INSTRUCTIONS, 0, ABOUT, options)


def _task(id: str, told: dict[str, Any]) -> Task:
    """The agent has to know for whom it acts and when; the tasks of a scenario share the head of their ids."""
    who = told["supervisor"]
    name = f"{who['first_name']} {who['last_name']} ({who['email']}, phone {who['phone_number']})"
    text = f"{told['instruction']}\n\nYou act for {name}. It is {told['datetime']}."
    return Task(id, text, None, {"tags": [id.partition("_")[0]]})


ABOUT = "things to do in AppWorld, by writing code"

INSTRUCTIONS = """\
You do what a person asks of you in their apps (mail, music, payments, notes and more), by writing Python code that is \
run for you. Nobody answers questions: decide by yourself, from what the apps tell.
- Find out what there is before you use it: apis.api_docs.show_app_descriptions(), then \
apis.api_docs.show_api_descriptions(app_name=...), then apis.api_docs.show_api_doc(app_name=..., api_name=...).
- Who you act for, with addresses, cards and passwords of the apps, is told by apis.supervisor; an app's login gives \
the access_token that its other calls want.
- Print what you want to see. Lists come in pages: go through all of them before you count or choose.
- When all is done, call apis.supervisor.complete_task(). Where the task asks for an answer, give it there, as \
complete_task(answer=...), as short as it can be: a number, a name, yes or no. Only then finish."""
