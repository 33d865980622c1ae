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

CONNECT = 10.0
"""Seconds to reach a server."""


def addresses_in(text: str) -> tuple[str, ...]:
    """Addresses with commas between. Raises UsageError for none, for what is no address, and for one given twice."""
    found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for address in found:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{address!r} is no address of an AppWorld server: write http://127.0.0.1:8000")
    if not found:
        raise UsageError("--agent appworld: names no server: write appworld:http://127.0.0.1:8000, more with commas")
    if len(set(found)) < len(found):
        raise UsageError(f"--agent appworld:{text} names a server twice, and one holds one world at a time")
    return found


@asynccontextmanager
async def reached(address: str) -> AsyncIterator[Server]:
    """A server to be asked. How long an answer may take is the caller's to bound."""
    from aiohttp import ClientSession, ClientTimeout

    async with ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT)) as session:
        yield Server(address, session)


@dataclass(frozen=True)
class Server:
    """What AppWorld's `serve environment` answers, see its /docs."""

    address: str
    session: ClientSession

    async def shown(self, id: str) -> dict[str, Any]:
        """A task: its instruction, supervisor and date. Raises ProviderError where the server cannot show it."""
        return dict(await self._asked("GET", f"tasks/{quote(id, safe='')}", id))

    async def told(self, method: str, id: str, **more: Any) -> Any:
        """What a method of the world of this task gives. Raises ProviderError where it fails."""
        return await self._asked("POST", method, id, {"task_id": id, **more})

    async def _asked(self, verb: str, path: str, id: str, body: dict[str, Any] | None = None) -> Any:
        """The output; UsageError where no such server answers, ProviderError where it fails at this task."""
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
            raise UsageError(f"{self.address}/{path} answers, but not as AppWorld's environment server does") from error
        except ClientError as error:
            raise ProviderError(f"the AppWorld server at {self.address} broke off in {path}: {error}") from error
        if response.status in (404, 405):
            raise UsageError(f"{self.address} is no AppWorld environment server: {path} answers {status}")
        said = "" if text.strip() == response.reason else f" ({' '.join(text.split())[:200]})"
        raise ProviderError(
            f"the AppWorld server at {self.address} failed in {path} of task {id!r}: {status}{said}; "
            "is it a task of its data? Its own log says more"
        )
