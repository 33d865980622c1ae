"""`practicum feedback`: the outcome of the last interaction, from a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers import Done, run_command
from serving import asynchronous, served

KEY = "ops-0123456789abcdef"


@asynchronous
async def test_the_last_interaction_is_shown_and_reported_on(tmp_path: Path) -> None:
    async with served(tmp_path / "store", lambda body: "The Otter team.", keys=(KEY,)) as at:
        bearer = {"authorization": f"Bearer {KEY}"}

        async def feedback(*arguments: object) -> Done:
            known = ["--url", at.url, "--key", KEY]
            return await asyncio.to_thread(run_command, ["feedback", *arguments, *known], tmp_path)

        assert (await feedback("--last")).code == 2
        first = await at.ask("Who handles refunds?", {**bearer, "x-practicum-session": "s1"})
        last = await at.ask("And lost cards?", {**bearer, "x-practicum-session": "s2", "x-practicum-user": "anna"})
        shown = (await feedback("--last", "--json")).json
        assert (shown["last"]["id"], shown["last"]["answer"]) == (last.interaction, "The Otter team.")
        assert "interaction" not in shown
        told = (await feedback("--last", "--session", "s1", "--target", "The Falcon team.", "--json")).json
        assert (told["interaction"], told["score"], told["correction"]) == (first.interaction, 0.0, "in effect")
        told = (await feedback("--last", "--user", "anna", "--score", 1, "--comment", "short", "--json")).json
        assert (told["interaction"], told["score"], told["correction"]) == (last.interaction, 1.0, None)
        told = (await feedback(last.interaction, "--score", 0, "--json")).json
        assert (told["status"], told["score"]) == ("changed", 0.0)
        for wrong in ((), ("--last", "i1"), ("i1", "--session", "s"), ("i1",), ("--last", "--score", 2)):
            assert (await feedback(*wrong)).code == 2, wrong
        assert (await feedback("--last", "--session", "none")).code == 2
        assert (await feedback("--last", "--space", "none")).code == 2
        # Without a key, not an address, nobody there.
        for url, code in ((at.url, 2), ("localhost:8700", 2), ("http://127.0.0.1:9", 1)):
            done = await asyncio.to_thread(run_command, ["feedback", "--last", "--url", url], tmp_path)
            assert (done.code, len(done.err.splitlines())) == (code, 1), url
