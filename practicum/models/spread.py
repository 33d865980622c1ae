"""Client of one model on several servers. Prompts with the same beginning go to the same server, which has cached that
beginning.

The beginning of a prompt determines an order of the servers (rendezvous hashing), so adding or removing a server only
moves calls to or from this server. A call goes to the first server in the order of its prompt that is up and has room.
A server has room for at most `MORE_THAN_MEAN` times the mean number of calls in flight, so that one busy role does not
leave the other servers idle (consistent hashing with bounded loads, Mirrokni et al., arXiv:1608.01350). A conversation
stays on the server that has its turns. After a failure, a server is skipped for a pause, and the calls that were sent
to the failed server go to the next server.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import ceil

from practicum.core.counts import Count
from practicum.core.errors import ProviderError, RequestError
from practicum.core.types import Prompt, Usage
from practicum.models.client import JSON, CallOptions, Client, Reply, Wait

PREFIX_CHARACTERS = 256
"""Number of characters of the playbook that determine a prompt's server, together with the instructions before the
playbook. These characters are equal in most versions of a playbook, and a prefix cache ends at the first change
anyway."""

MORE_THAN_MEAN = 1.25
"""Maximum ratio of a server's calls in flight to the mean number of calls in flight of all servers."""

SIDE_BY_SIDE = 8
"""Number of calls that a server may always have in flight, because a server answers a few calls nearly as fast as one
call."""

PAUSE = 5.0
"""Pause (s) before one call tries a failed server again."""

CONVERSATIONS = 10_000
"""Maximum number of conversations whose server is stored."""


@dataclass(eq=False)
class Server:
    """State of a server: the number of calls in flight, including calls that wait for one of the `slots`, and the time
    until which the server is skipped. Models on the same server share this state."""

    name: str
    slots: int
    in_flight: int = field(default=0, init=False)
    down_until: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._gate = asyncio.Semaphore(self.slots)

    @property
    def usable(self) -> bool:
        """Whether the server is up, or its pause after a failure is over."""
        return self.down_until is None or time.monotonic() >= self.down_until

    @property
    def full(self) -> bool:
        return self._gate.locked()

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Hold a slot of the server within the block. Calls that wait for a slot count as in flight, too."""
        self.in_flight += 1
        try:
            async with self._gate:
                yield
        finally:
            self.in_flight -= 1


@dataclass(kw_only=True, eq=False)
class Spread:
    """Client of one model on several servers. `clients` maps each server to its client. `name` is the model's name
    without a server, so that a run can be resumed on other servers. The maximum number of moves of one call is
    `attempts` times the number of servers. A failed server is skipped for `pause` seconds."""

    name: str
    clients: Mapping[Server, Client]
    attempts: int
    pause: float = PAUSE

    def __post_init__(self) -> None:
        self._any = next(iter(self.clients.values()))
        self._conversations: OrderedDict[int, Server] = OrderedDict()

    @property
    def endpoint(self) -> str:
        return ",".join(sorted(server.name for server in self.clients))

    @property
    def slots(self) -> int:
        return sum(server.slots for server in self.clients)

    @property
    def window(self) -> int | None:
        return min((client.window for client in self.clients.values() if client.window is not None), default=None)

    @property
    def priced(self) -> bool:
        return self._any.priced

    @property
    def enforces_grammars(self) -> bool:
        return self._any.enforces_grammars

    def cost(self, usage: Usage) -> float | None:
        return self._any.cost(usage)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model on the first server for this prompt, and on another server if the first server fails.

        A call that failed on all servers stays on the last server and is retried there, as on a single server, until
        another server is up. Raises ProviderError if the retries fail too, and ModelError if no retry can help.
        """
        conversation = hash((prompt.system, prompt.pages, (prompt.turns or (prompt,))[0].user))
        call = _Call(self, self._order(prompt, conversation), options)
        while True:
            server = await call.choose()
            try:
                async with server.holding():
                    reply = await self.clients[server].complete(role, prompt, schema, replace(options, wait=call.wait))
            except _Elsewhere:
                continue
            except RequestError:
                raise  # another server would refuse the request, too
            except ProviderError as error:
                if not await call.moved(Wait(server.name, 0.0, 1, self.attempts, str(error))):
                    raise
            else:
                server.down_until = None
                self._conversations[conversation] = server
                self._conversations.move_to_end(conversation)
                if len(self._conversations) > CONVERSATIONS:
                    self._conversations.popitem(last=False)
                return replace(reply, changed=(*reply.changed, Count.MOVED_CALLS)) if call.moves else reply

    def _order(self, prompt: Prompt, conversation: int) -> list[Server]:
        """Return the servers in the order of preference for a prompt."""
        beginning = f"{prompt.system}\0{''.join(prompt.pages[:1])[:PREFIX_CHARACTERS]}".encode(errors="surrogatepass")
        key = blake2b(beginning, digest_size=16).digest()
        order = sorted(self.clients, key=lambda server: blake2b(server.name.encode(), key=key, digest_size=8).digest())
        if prompt.turns and (home := self._conversations.get(conversation)) is not None:
            order.sort(key=lambda server: server is not home)
        return order


class _Elsewhere(Exception):
    """Exception that moves a call from a failed server to another server."""


@dataclass
class _Call:
    """Routing of one call. `failed` are the servers that failed for this call, and `moves` counts the changes of
    server."""

    spread: Spread
    order: Sequence[Server]
    options: CallOptions
    failed: set[Server] = field(default_factory=set)
    moves: int = 0

    def __post_init__(self) -> None:
        self.server = self.order[0]

    async def choose(self) -> Server:
        """Return the first server that is up and has room, otherwise the server with the fewest calls in flight."""
        candidates = self._others() or [server for server in self.order if server not in self.failed] or self.order
        mean = (sum(server.in_flight for server in candidates) + 1) / len(candidates)
        most = max(SIDE_BY_SIDE, ceil(MORE_THAN_MEAN * mean))
        free = (server for server in candidates if server.in_flight < min(most, server.slots))
        self.server = next(free, None) or min(candidates, key=lambda server: server.in_flight)
        if self.server.down_until is not None:
            self.server.down_until = time.monotonic() + self.spread.pause  # until then, only this call tries the server
        if self.server.full:
            # The call has not been sent, so a stop may cancel it.
            await self.options.wait(Wait(self.server.name, 0.0, 1, self.spread.attempts, "the server has no free slot"))
        return self.server

    async def wait(self, wait: Wait) -> None:
        """Wait before the server's client sends the call again, or raise `_Elsewhere` to move the call to another
        server."""
        if await self.moved(wait):
            raise _Elsewhere
        await self.options.wait(wait)
        self.failed = {self.server}
        if self.moves < self._most_moves and self._others():
            self.moves += 1
            raise _Elsewhere

    async def moved(self, wait: Wait) -> bool:
        """Move the call away from its server, which failed, and report the move. Return False if no other server is
        usable, or if the call has reached the maximum number of moves."""
        self.failed.add(self.server)
        is_new = self.server.down_until is None and not wait.limited
        if not wait.limited:
            self.server.down_until = time.monotonic() + self.spread.pause
        if self.moves >= self._most_moves or not self._others():
            return False
        self.moves += 1
        await self.options.wait(replace(wait, seconds=0.0, moved=is_new))
        return True

    @property
    def _most_moves(self) -> int:
        return self.spread.attempts * len(self.order)

    def _others(self) -> list[Server]:
        """Return the usable servers that have not failed for this call."""
        return [server for server in self.order if server.usable and server not in self.failed]
