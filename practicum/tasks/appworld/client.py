"""A client of AppWorld's environment server (`appworld serve environment`), which holds one world at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from practicum.core.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECT_TIMEOUT = 10.0
"""Seconds to connect to a server."""


def parse_addresses(text: str) -> tuple[str, ...]:
    """Addresses separated by commas. Raises UsageError for none, an invalid one, or one that is given twice."""
    addresses = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{address!r} is not the address of an AppWorld server, such as http://127.0.0.1:8000")
    if not addresses:
        raise UsageError(
            "--agent appworld: no server is named; write appworld:http://127.0.0.1:8000, several with commas"
        )
    if len(set(addresses)) < len(addresses):
        raise UsageError(f"--agent appworld:{text} names a server twice, but a server holds only one world at a time")
    return addresses


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[AppWorldServer]:
    """A client of one server. The caller limits how long an answer may take."""
    from aiohttp import ClientSession, ClientTimeout

    async with ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)) as session:
        yield AppWorldServer(address, session)


@dataclass(frozen=True)
class AppWorldServer:
    """The HTTP interface of `appworld serve environment`, which documents itself under /docs."""

    address: str
    session: ClientSession

    async def describe_task(self, id: str) -> dict[str, Any]:
        """A task: its instruction, supervisor and date. Raises ProviderError when the server fails."""
        return dict(await self._request("GET", f"tasks/{quote(id, safe='')}", id))

    async def call(self, method: str, id: str, **arguments: Any) -> Any:
        """Call a method of this task's world. Raises ProviderError when the server fails."""
        return await self._request("POST", method, id, {"task_id": id, **arguments})

    async def _request(self, verb: str, path: str, id: str, body: dict[str, Any] | None = None) -> Any:
        """The output. Raises UsageError when the address has no such server, ProviderError when it fails."""
        from aiohttp import ClientConnectorError, ClientError, ServerTimeoutError

        try:
            async with self.session.request(verb, f"{self.address}/{path}", json=body) as response:
                status, text = f"{response.status} {response.reason}", await response.text(errors="replace")
                if response.status == 200:
                    return (await response.json())["output"]
        except (ClientConnectorError, ServerTimeoutError) as error:
            port = urlsplit(self.address).port or 80
            raise UsageError(
                f"no AppWorld server answers at {self.address}: start it in AppWorld's own environment with "
                f"appworld serve environment --port {port}"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self.address}/{path} answers, but not in the form of AppWorld's environment server"
            ) from error
        except ClientError as error:
            raise ProviderError(
                f"the AppWorld server at {self.address} closed the connection in {path}: {error}"
            ) from error
        if response.status in (404, 405):
            raise UsageError(f"{self.address} is not an AppWorld environment server: {path} answers {status}")
        detail = "" if text.strip() == response.reason else f" ({' '.join(text.split())[:200]})"
        raise ProviderError(
            f"the AppWorld server at {self.address} failed in {path} of task {id!r}: {status}{detail}; "
            "check that the task is in its data, and see the server's own log"
        )
