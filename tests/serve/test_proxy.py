"""The proxy: three protocols, what is shown where, and everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served, until

from practicum.core.context import Context
from practicum.serve.service import IN_USE
from practicum.serve.space import PINNED
from practicum.session.records import create_seed

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


async def corrected(at: Served, question: str = QUESTION, right: str = RIGHT) -> None:
    """Ask, and send back what would have been right."""
    reply = await at.ask(question)
    assert (await at.report(interaction=reply.interaction, target=right)).status == 200


BODIES = {
    CHAT: {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]},
    RESPONSES: {"instructions": "Be short.", "input": QUESTION},
    MESSAGES: {"system": "Be short.", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 9},
}


# Who may ask

KEY, OTHER = "k" * 20, "o" * 20


# What goes wrong


@asynchronous
async def test_a_request_goes_on_unchanged_if_nothing_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path / "store") as at:
        await corrected(at)

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        async def late(*_: object) -> None:
            await asyncio.Event().wait()

        body = json.dumps({"model": "sim", **BODIES[CHAT]}).encode()
        monkeypatch.setattr(at.service.spaces["default"], "show", broken)
        assert (await at.send("POST", CHAT, body)).status == 200
        assert at.upstream.requests[-1].body == body
        # The store does not answer while a space is to be opened.
        at.service.opens, space = 0.01, at.service.spaces.pop("default")
        monkeypatch.setattr(at.service, "_open", late)
        assert (await at.send("POST", CHAT, body)).status == 200
        assert at.upstream.requests[-1].body == body
        assert at.service.counts["unchanged requests"] == 2
        monkeypatch.undo()
        at.service.spaces["default"] = space
        assert RIGHT in await at.shown(QUESTION)


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


@asynchronous
async def test_of_many_spaces_those_not_asked_for_longest_are_closed(tmp_path: Path) -> None:
    names = tuple(f"s{n}" for n in range(6))
    async with served(tmp_path, spaces=("default", *names)):
        pass
    async with served(tmp_path, memory=2, learn_every=1_000) as at:
        first = await at.ask("Who?", {"x-practicum-space": "s0"})
        await at.report({"x-practicum-space": "s0"}, interaction=first.interaction, score=0.5)
        second = await at.ask("Who?", {"x-practicum-space": "s1"})
        await at.report({"x-practicum-space": "s1"}, interaction=second.interaction, correction="It is the blue team.")
        at.service.spaces["s1"].waiting = 0
        for name in names[2:]:
            assert (await at.ask("Who?", {"x-practicum-space": name})).status == 200
        for space in at.service.spaces.values():
            space.used -= 2 * IN_USE
        # The space with an outcome to be learned from stays, and so does the one that is served always.
        await until(lambda: set(at.service.spaces) == {"default", "s0", "s5"})
        assert "blue team" in await at.shown("Who?", {"x-practicum-space": "s1"})
        assert at.service.counts["unchanged requests"] == 0


@asynchronous
async def test_what_does_nothing_to_a_space_that_is_there_is_told(tmp_path: Path) -> None:
    create_seed(tmp_path / "seed", Context())
    async with served(tmp_path / "store", context=str(tmp_path / "seed")) as at:
        assert at.service.warnings == []
    async with served(tmp_path / "store", context=str(tmp_path / "seed")) as at:
        assert ["--context and --set" in warning for warning in at.service.warnings] == [True]
