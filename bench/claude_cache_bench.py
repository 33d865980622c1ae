"""Share of the input that learning reads from Anthropic's prompt cache. `python bench/claude_cache_bench.py`.

ACE learns the tasks of the simulated world from a model `anthropic:...`. The simulated server follows Anthropic's
rules: a prompt is stored up to each breakpoint, and a prefix of less than 1,024 tokens is not stored. A token costs
1.25 times its price to write, and a tenth to read. Needs the extra `anthropic`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from simulated_world import INSTRUCTIONS, LABELS, attempt, respond, tasks

import practicum
from practicum.core.types import Usage
from practicum.testing import Body, ServerOptions, serve

MODEL = "anthropic:claude-haiku-4-5"


def answer(body: Body) -> str:
    """Return the answer of any role of the simulated world, in Anthropic's protocol."""
    system = "".join(block["text"] for block in body.get("system", ()))
    last = "".join(block["text"] for block in body["messages"][-1]["content"])
    form: Any = body.get("output_config", {}).get("format")
    if form is None:
        return attempt(f"{system}\n{last}", last)
    names = {"changes": "Changes", "insights": "Reflection"}
    name = next((names[field] for field in form["schema"]["properties"] if field in names), "")
    return respond(name, form["schema"], f"{system}\n{last}", last)


async def measure(method: str, count: int, batch: int, **settings: Any) -> Usage:
    """Return the usage of a run on `count` tasks in batches."""
    async with serve(ServerOptions(responder=answer)) as server:
        os.environ |= {"ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "sk-ant-simulated"}
        with tempfile.TemporaryDirectory() as folder:
            result = await practicum.learn(
                tasks(count), out=Path(folder) / "run", method=method, settings={"batch": batch}, model=MODEL,
                instructions=INSTRUCTIONS, choices=LABELS, **settings,
            )  # fmt: skip
    return result.usage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=90, help="tasks (90)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="tasks a step (1 8)")
    options = parser.parse_args()
    for batch in options.batches:
        used = asyncio.run(measure("ace", options.tasks, batch))
        read, written = used.cached_share, used.cache_write_tokens / used.input_tokens
        sys.stdout.write(
            f"{batch} a step: {used.input_tokens:,} tokens of input, {read:.1%} read from the cache, {written:.1%} "
            f"written; the input costs {1 + 0.25 * written - 0.9 * read:.0%} of its price without a cache\n"
        )


if __name__ == "__main__":
    main()
