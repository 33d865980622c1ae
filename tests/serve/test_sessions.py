"""Sessions: which conversation a request belongs to, and what named it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served

UUID, OTHER = "0199e0a2-7c1d-7f00-8a8b-1b2c3d4e5f60", "54c1eb09-bc4c-4d2f-98eb-6d2ab2d5e2fe"
QUESTION = "Who handles refunds?"


def body(path: str, *texts: str, **more: Any) -> dict[str, Any]:
    """A request whose texts are of the user and of the assistant in turn."""
    turns = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    most = {"max_tokens": 9} if path == MESSAGES else {}
    return {"input" if path == RESPONSES else "messages": turns, **most, **more}


async def sessions(at: Served, **query: str) -> list[tuple[str, str]]:
    """Sessions and their sources, the oldest first."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    listed = (await at.send("GET", f"/v1/interactions?limit=200&{asked}")).json["interactions"]
    return [(one["session"], one["session_from"]) for one in reversed(listed)]


@asynchronous
async def test_an_agent_that_calls_tools_stays_in_its_session(tmp_path: Path) -> None:
    call = {"name": "bash", "arguments": {"command": "ls -a"}}
    async with served(tmp_path, lambda _: call) as at:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the bug."}]
        for _ in range(3):
            reply = await at.send("POST", CHAT, {"messages": messages})
            answer = reply.json["choices"][0]["message"]
            id = answer["tool_calls"][0]["id"]
            messages += [answer, {"role": "tool", "tool_call_id": id, "content": "setup.py"}]
        assert {session for session, _ in await sessions(at)} == {(await sessions(at))[0][0]}


@pytest.mark.parametrize(
    ("path", "field"), [(CHAT, "user"), (CHAT, "safety_identifier"), (RESPONSES, "safety_identifier"), (MESSAGES, "")]
)
@asynchronous
async def test_two_users_who_are_answered_alike_have_sessions_of_their_own(
    path: str, field: str, tmp_path: Path
) -> None:
    async with served(tmp_path, lambda _: "Yes.") as at:
        for texts in ((QUESTION,), (QUESTION, "Yes.", "r")):
            for user in ("anna", "ben"):
                more = {field: user} if field else {"metadata": {"user_id": user}}
                await at.send("POST", path, body(path, *texts, **more))
        anna, ben, *later = await sessions(at)
        assert later == [(anna[0], "history"), (ben[0], "history")]
        # A field that names a user is not the word of practicum's own header.
        assert {one["user"] for one in (await at.send("GET", "/v1/interactions")).json["interactions"]} == {None}
