"""The proxy: three protocols, what is shown where, and everything that can go wrong on the way."""

from __future__ import annotations

from pathlib import Path

from serving import asynchronous, served, until

from practicum.serve.space import PINNED

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


# Who may ask

KEY, OTHER = "k" * 20, "o" * 20


# What goes wrong


@asynchronous
async def test_a_space_that_nobody_uses_is_closed_until_the_next_request(tmp_path: Path) -> None:
    async with served(tmp_path, spaces=("default", "other")):
        pass
    async with served(tmp_path) as at:
        other = {"x-practicum-space": "other"}
        reply = await at.ask("Who?", other)
        await at.report(other, interaction=reply.interaction, correction="It is the blue team.")
        for space in at.service.spaces.values():
            space.used -= 2 * PINNED
            # What waits to be learned from keeps it open.
            space.waiting = 0
        await until(lambda: [*at.service.spaces] == ["default"])
        assert "blue team" in await at.shown("Who?", other)
