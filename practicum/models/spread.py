"""One model on several servers: calls whose prompts begin alike go to one server, which has the beginning cached.

Each beginning has an order of the servers (rendezvous hashing), so a server that comes or goes moves its own calls
alone. A call goes to the first server of its order that is up and has room: at most `MORE_THAN_MEAN` times the mean
number of calls in flight, so that one busy role does not leave the other servers idle (consistent hashing with bounded
loads, Mirrokni et al., arXiv:1608.01350). A conversation stays on the server that has its turns. A server that fails is
left out for a while, and its calls go to the next one.
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

BEGINNING = 256
"""Characters of the playbook, with all instructions before it, that decide where a prompt goes. They are the same in
most versions of one playbook, and all that follows a change must be computed anew anyway."""

MORE_THAN_MEAN = 1.25
"""A server's calls in flight over the mean of all, at most."""

SIDE_BY_SIDE = 8
"""Calls that one server may have in flight whatever the mean is: it answers a few nearly as fast as one."""

PAUSE = 5.0
"""Seconds before a server that failed is tried again, by one call."""

CONVERSATIONS = 10_000
"""Conversations whose server is remembered."""


@dataclass(eq=False)
class Server:
    """What is in flight at one server, of at most `slots` calls, and until when it is left out. Models on one server
    share it."""

    name: str
    slots: int
    in_flight: int = field(default=0, init=False)
    down_until: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._gate = asyncio.Semaphore(self.slots)

    @property
    def usable(self) -> bool:
        """Whether it is up, or it is time to try it again."""
        return self.down_until is None or time.monotonic() >= self.down_until

    @property
    def full(self) -> bool:
        return self._gate.locked()

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """A slot; who waits for one counts as in flight, too."""
        self.in_flight += 1
        try:
            async with self._gate:
                yield
        finally:
            self.in_flight -= 1


@dataclass(kw_only=True, eq=False)
class Spread:
    """A client of one model on several servers. `clients` holds that of each server, by the server. `name` is the
    model's and not that of a server, so that a run can be resumed on other servers. A call changes its server at most
    `attempts` times for each server, and `pause` is how long one that failed is left out, in seconds."""

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
    def holds_to_choices(self) -> bool:
        return self._any.holds_to_choices

    def cost(self, usage: Usage) -> float | None:
        return self._any.cost(usage)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

    async def complete(self, role: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> Reply:
        """Call the model on the server of this prompt, and on another one where that fails.

        A call that failed on all servers stays with the last one, which tries again as one server alone would, until
        another one is up. Raises ProviderError if that fails too, and ModelError if no retry can help.
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
                raise  # another server would refuse it, too
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
        """The servers in the order in which a prompt prefers them."""
        beginning = f"{prompt.system}\0{''.join(prompt.pages[:1])[:BEGINNING]}".encode(errors="surrogatepass")
        key = blake2b(beginning, digest_size=16).digest()
        order = sorted(self.clients, key=lambda server: blake2b(server.name.encode(), key=key, digest_size=8).digest())
        if prompt.turns and (home := self._conversations.get(conversation)) is not None:
            order.sort(key=lambda server: server is not home)
        return order


class _Elsewhere(Exception):
    """The call failed on its server, and another one shall answer it."""


@dataclass
class _Call:
    """The way of one call from server to server: those in `failed` have had it, and `moves` counts the changes."""

    spread: Spread
    order: Sequence[Server]
    options: CallOptions
    failed: set[Server] = field(default_factory=set)
    moves: int = 0

    def __post_init__(self) -> None:
        self.server = self.order[0]

    async def choose(self) -> Server:
        """The first server that is up and has room, otherwise the one with the fewest calls in flight."""
        left = self._others() or [server for server in self.order if server not in self.failed] or self.order
        mean = (sum(server.in_flight for server in left) + 1) / len(left)
        most = max(SIDE_BY_SIDE, ceil(MORE_THAN_MEAN * mean))
        free = (server for server in left if server.in_flight < min(most, server.slots))
        self.server = next(free, None) or min(left, key=lambda server: server.in_flight)
        if self.server.down_until is not None:
            self.server.down_until = time.monotonic() + self.spread.pause  # no other call tries it meanwhile
        if self.server.full:
            # It has not been sent, so a stop may give it up.
            await self.options.wait(Wait(self.server.name, 0.0, 1, self.spread.attempts, "all its slots are taken"))
        return self.server

    async def wait(self, wait: Wait) -> None:
        """What a server's client awaits before it sends the call again."""
        if await self.moved(wait):
            raise _Elsewhere
        await self.options.wait(wait)
        self.failed = {self.server}
        if self.moves < self._most_moves and self._others():
            self.moves += 1
            raise _Elsewhere

    async def moved(self, wait: Wait) -> bool:
        """Leave a server that failed, and say so; False if the call stays, because no other one is left."""
        self.failed.add(self.server)
        news = self.server.down_until is None and not wait.limited
        if not wait.limited:
            self.server.down_until = time.monotonic() + self.spread.pause
        if self.moves >= self._most_moves or not self._others():
            return False
        self.moves += 1
        await self.options.wait(replace(wait, seconds=0.0, moved=news))
        return True

    @property
    def _most_moves(self) -> int:
        return self.spread.attempts * len(self.order)

    def _others(self) -> list[Server]:
        """The servers that are up, or due, and that have not had this call."""
        return [server for server in self.order if server.usable and server not in self.failed]
