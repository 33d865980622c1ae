"""Share of cached tokens with one model on several servers, by the routing of calls. `python bench/routing_bench.py`.

Simulated servers with prefix caches answer the calls of a run: in each step a batch of attempts, a reflection on each,
and a curator, all with the playbook. Before the next step, one entry of the playbook is rewritten and four are added.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count
from random import Random

from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Update
from practicum.core.types import Prompt, Usage
from practicum.core.views import render_full
from practicum.core.words import quantity
from practicum.models.client import CallOptions, Client
from practicum.models.registry import ClientSettings, Models
from practicum.models.spread import Server, Spread
from practicum.testing import ServerOptions, pseudo_words, serve

ENTRIES, ADDED = 100, 4
"""Number of entries before the first step, and of entries that each step adds."""

ROLES = ("agent", "reflector", "curator")


class RoundRobin(Spread):
    """Sends the calls to the servers in turn, for any prompt."""

    def _order(self, prompt: Prompt, conversation: int) -> list[Server]:
        servers = [*self.clients]
        self._turn = (getattr(self, "_turn", -1) + 1) % len(servers)
        return servers[self._turn :] + servers[: self._turn]


async def cached_share(client: Client, steps: int, batch: int, seed: int = 0) -> float:
    """Return the share of cached tokens among all input tokens, in a run with `steps` steps of `batch` attempts."""
    rng, number = Random(seed), count()
    context, used = Context(), Usage()

    def words() -> str:
        return pseudo_words(Random(next(number)))

    systems = {role: f"You are the {role}. " + " ".join(words() for _ in range(20)) for role in ROLES}

    async def ask(role: str, texts: int) -> None:
        nonlocal used
        pages = render_full(context).pages
        prompt = Prompt(systems[role], " ".join(words() for _ in range(texts)), pages)
        usage = (await client.complete(role, prompt, None, CallOptions())).usage
        used += usage

    for step in range(steps):
        new = tuple(Add("rules", " ".join(words() for _ in range(3))) for _ in range(ADDED if step else ENTRIES))
        ids = [entry.id for entry in context]
        changed = (Update(rng.choice(ids), text=words()),) if ids else ()
        context = context.apply(Delta((*changed, *new))).context
        await asyncio.gather(*(ask("agent", 10) for _ in range(batch)))
        await asyncio.gather(*(ask("reflector", 30) for _ in range(batch)))
        await ask("curator", 30)
    return used.cached_tokens / used.input_tokens


async def measure(ways: Sequence[type[Spread] | None], servers: int, steps: int, batch: int) -> list[float]:
    """Return the cached share for each way to spread calls over `servers` servers. None: a single server."""
    return [await _measure(way, servers if way else 1, steps, batch) for way in ways]


async def _measure(way: type[Spread] | None, servers: int, steps: int, batch: int) -> float:
    options = ServerOptions(latency=0.02)
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(serve(options))).url for _ in range(servers)]
        models = Models(ClientSettings())
        stack.push_async_callback(models.close)
        client = models.open(",".join(urls) + "#sim")
        if way and isinstance(client, Spread):
            client = way(name=client.name, clients=client.clients, attempts=client.attempts)
        return await cached_share(client, steps, batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 48], help="attempts a step (1 4 16 48)")
    parser.add_argument("--steps", type=int, default=20, help="steps (20)")
    options = parser.parse_args()
    for batch in options.batches:
        one, routed, turns = asyncio.run(measure((None, Spread, RoundRobin), 4, options.steps, batch))
        shares = f"one server {one:.1%}, four by prompt {routed:.1%}, four in turn {turns:.1%}"
        sys.stdout.write(f"{quantity(batch, 'attempt')} a step: {shares}\n")


if __name__ == "__main__":
    main()
