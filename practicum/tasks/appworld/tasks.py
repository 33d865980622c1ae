"""AppWorld's tasks, read from its environment server."""

from __future__ import annotations

from pathlib import Path

from practicum.core.errors import ProviderError, TaskFileError
from practicum.core.types import Task
from practicum.tasks.appworld.client import connect, parse_addresses
from practicum.tasks.datasets import Dataset
from practicum.tasks.load import read_text

APPWORLD_TURNS = 40
"""Turns per attempt: a task takes about twenty calls of APIs, most of which have to be looked up first."""


async def read_task_ids(path: Path, server: str) -> Dataset:
    """The tasks whose ids a file lists, one per line, as AppWorld's data/datasets/train.txt does.

    Raises TaskFileError, with file and line, for an id that is listed twice or that the server does not know.
    """
    addresses = parse_addresses(server)
    tasks: dict[str, Task] = {}
    async with connect(addresses[0]) as client:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            id = line.partition(":")[0].strip()  # AppWorld allows a tag after the id
            if not id:
                continue
            if id in tasks:
                raise TaskFileError(f"{path} line {number}: task {id!r} is listed a second time")
            try:
                description = await client.describe_task(id)
                person = description["supervisor"]
                name = f"{person['first_name']} {person['last_name']}"
                contact = f"{person['email']}, phone {person['phone_number']}"
                text = (
                    f"{description['instruction']}\n\nYou act for {name} ({contact}). It is {description['datetime']}."
                )
            except (ProviderError, KeyError) as error:
                raise TaskFileError(f"{path} line {number}: {error}") from error
            # The ids of the tasks of a scenario begin alike.
            tasks[id] = Task(id, text, None, {"tags": [id.partition("_")[0]]})
    if not tasks:
        raise TaskFileError(f"{path}: the file lists no tasks")
    return Dataset(
        format="appworld",
        tasks=tuple(tasks.values()),
        scorer="appworld",
        choices=(),
        instructions=INSTRUCTIONS,
        about="tasks in AppWorld, to be done by writing code",
        options=("--agent", f"appworld:{','.join(addresses)}", "--max-turns", str(APPWORLD_TURNS)),
    )


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
