"""Sessions of agents that call tools, and of users that get equal answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served

QUESTION = "Who handles refunds?"


async def sessions(at: Served) -> list[tuple[str, str]]:
    """Sessions and their sources, the oldest first."""
    listed = (await at.send("GET", "/v1/interactions?limit=200")).json["interactions"]
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
        assert [session for session, _ in await sessions(at)] == [(await sessions(at))[0][0]] * 3


@asynchronous
async def test_two_users_with_equal_answers_have_separate_sessions(tmp_path: Path) -> None:
    cases = ((CHAT, "user"), (CHAT, "safety_identifier"), (RESPONSES, "safety_identifier"), (MESSAGES, "metadata"))
    async with served(tmp_path, lambda _: "Yes.") as at:
        for number, (path, field) in enumerate(cases):
            question = f"{QUESTION} {number}"
            for texts in ((question,), (question, "Yes.", "r")):
                turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
                body = {"input" if path == RESPONSES else "messages": turns, "max_tokens": 9}
                for user in ("anna", "ben"):
                    await at.send("POST", path, {**body, field: {"user_id": user} if field == "metadata" else user})
            anna, ben, *later = (await sessions(at))[-4:]
            assert anna != ben
            assert later == [(anna[0], "history"), (ben[0], "history")]
        # A field that names a user is not practicum's header.
        assert {one["user"] for one in (await at.send("GET", "/v1/interactions")).json["interactions"]} == {None}
