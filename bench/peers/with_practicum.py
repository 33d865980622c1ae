"""practicum's methods, with the same two addresses as the peers, in the profile for small models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from peer import AT_ONCE, Case, read_case

import practicum


async def main(case: Case) -> None:
    common: dict[str, Any] = {
        "instructions": case.instructions, "choices": case.choices, "profile": "small", "structure": "grammar",
        "seed": case.seed, "concurrency": AT_ONCE, "timeout": 3000, "window": 4096,
    }  # fmt: skip
    run, train = Path(case.folder, "run"), [practicum.Task(t["id"], t["input"], t["target"]) for t in case.train]
    await practicum.learn(
        train, method=case.method, max_calls=case.budget, model=f"{case.learning}#{case.model}", out=run, **common
    )
    loop = asyncio.get_running_loop()
    async with practicum.open(run, model=f"{case.testing}#{case.model}", max_calls=None, **common) as space:

        def answer(text: str) -> str:
            return asyncio.run_coroutine_threadsafe(space.ask(text), loop).result().text

        await asyncio.to_thread(case.predict, answer)


if __name__ == "__main__":
    asyncio.run(main(read_case()))
