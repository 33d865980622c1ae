"""Tasks of AppWorld, and a client of its environment server (`appworld serve environment`).

A server holds one world at a time. The server shows the documentation of its API at /docs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from practicum.core.errors import ProviderError, TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.formats import Dataset, ServedFormat
from practicum.tasks.records import read_text

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECT_TIMEOUT = 10.0  # seconds

APPWORLD_TURNS = 40
"""Maximum number of turns per attempt: a task takes about twenty API calls, and before a call the agent usually has to
look up the API."""


def parse_addresses(text: str) -> tuple[str, ...]:
    """Parse comma-separated addresses. Raise UsageError if the list is empty, or if an address is invalid or
    repeated."""
    addresses = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                "environment.invalid_address",
                f"{address!r} is not the address of an AppWorld server, such as http://127.0.0.1:8000",
            )
    if not addresses:
        example = "appworld:http://127.0.0.1:8000, with commas between several addresses"
        raise UsageError("environment.invalid_address", f"`agent=appworld:` has no server address: write {example}")
    if len(set(addresses)) < len(addresses):
        raise UsageError(
            "environment.invalid_address",
            f"`agent=appworld:{text}` names a server twice, but a server holds only one world at a time",
        )
    return addresses


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[AppWorldServer]:
    """Connect a client to one server. The caller sets the timeout of calls."""
    from aiohttp import ClientSession, ClientTimeout

    async with ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)) as session:
        yield AppWorldServer(address, session)


@dataclass(frozen=True)
class AppWorldServer:
    """HTTP client of a server. Methods raise UsageError if no AppWorld server answers, and ProviderError if a call
    fails."""

    address: str
    session: ClientSession

    async def call(self, method: str, id: str, **arguments: Any) -> Any:
        """Call a method of the world of a task, and return the output of the method."""
        return await self.request("POST", method, id, {"task_id": id, **arguments})

    async def request(self, verb: str, path: str, id: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request about a task, and return the output that the server sends."""
        from aiohttp import ClientConnectorError, ClientError, ServerTimeoutError

        url = f"{self.address}/{path}"
        try:
            async with self.session.request(verb, url, json=body) as response:
                status, text = f"{response.status} {response.reason}", await response.text(errors="replace")
                if response.status == 200:
                    return (await response.json())["output"]
        except (ClientConnectorError, ServerTimeoutError) as error:
            start = f"appworld serve environment --port {urlsplit(self.address).port or 80}"
            text = f"no AppWorld server answers at {self.address}: start one where AppWorld is installed, with {start}"
            raise UsageError("environment.unreachable", text) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                "environment.unreachable", f"the response of {url} is not a response of AppWorld's environment server"
            ) from error
        except ClientError as error:
            text = f"the AppWorld server at {self.address} closed the connection in {path}: {error}"
            raise ProviderError("environment.failed", text) from error
        if response.status in (404, 405):
            raise UsageError(
                "environment.unreachable",
                f"{self.address} is not an AppWorld environment server: {path} answers {status}",
            )
        detail = "" if text.strip() == response.reason else f" ({' '.join(text.split())[:200]})"
        raise ProviderError(
            "environment.failed",
            f"the AppWorld server at {self.address} failed in {path} of task {id!r}: {status}{detail}; "
            "check that the task is in the server's data, and see the server's log",
        )


async def read_task_ids(path: Path, server: str) -> Dataset:
    """Load the tasks of a file that lists task ids, one per line, such as AppWorld's data/datasets/train.txt.

    Raises TaskFileError, with file and line, if an id is listed twice or the server does not have a task with this id.
    """
    addresses = parse_addresses(server)
    tasks: dict[str, Task] = {}
    async with connect(addresses[0]) as client:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            id = line.partition(":")[0].strip()  # AppWorld allows a tag after the id
            if not id:
                continue
            if id in tasks:
                raise TaskFileError("tasks.duplicate_id", f"{path} line {number}: task {id!r} is listed a second time")
            try:
                described = await client.request("GET", f"tasks/{quote(id, safe='')}", id)
                person = described["supervisor"]
                name = f"{person['first_name']} {person['last_name']}"
                contact = f"{person['email']}, phone {person['phone_number']}"
                text = f"{described['instruction']}\n\nYou act for {name} ({contact}). It is {described['datetime']}."
            except (ProviderError, KeyError) as error:
                raise TaskFileError("tasks.malformed", f"{path} line {number}: {error}") from error
            # Tasks of the same scenario have ids with the same prefix.
            tasks[id] = Task(id, text, None, {"tags": [id.partition("_")[0]]})
    if not tasks:
        raise TaskFileError("tasks.empty", f"{path}: the file lists no tasks")
    return Dataset(
        format="appworld",
        tasks=tuple(tasks.values()),
        scorer="appworld",
        choices=(),
        instructions=INSTRUCTIONS,
        about=FORMAT.about,
        options=("--agent", f"appworld:{','.join(addresses)}", "--max-turns", str(APPWORLD_TURNS)),
    )


FORMAT = ServedFormat("tasks in AppWorld, to be done by writing code", read_task_ids)

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
