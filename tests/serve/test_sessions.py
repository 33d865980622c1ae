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


@pytest.mark.parametrize("answer", ["Done.", " ".join(f"Step {n} of a long answer." for n in range(20))])
@asynchronous
async def test_a_conversation_is_recognised_when_its_client_rewrites_the_questions(answer: str, tmp_path: Path) -> None:
    """As aider does: examples come first, and a reminder ends the last message alone."""
    examples, rules = ("Change the greeting.", "Ok.", "I changed the files.", "Ok."), "\n\nThe rules.\n\nAll of them."
    async with served(tmp_path, lambda _: f"<think>hm</think>{answer}") as at:
        for texts in (["Fix the bug."], ["Fix the bug.", answer, "Now the tests."], ["Fix the bug."]):
            await at.send("POST", CHAT, body(CHAT, *examples, *texts[:-1], texts[-1] + rules))
        first, second, third = await sessions(at)
        assert [source for _, source in (first, second, third)] == ["opening", "history", "opening"]
        assert first[0] == second[0] != third[0]


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


@asynchronous
async def test_a_response_continues_the_session_of_the_one_before(tmp_path: Path) -> None:
    async with served(tmp_path, passing=("/v1/responses",)) as at:
        first = await at.send("POST", RESPONSES, body(RESPONSES, QUESTION))
        second = await at.send("POST", RESPONSES, {"input": "r", "previous_response_id": first.json["id"]})
        await at.send("POST", RESPONSES, {"input": "s", "previous_response_id": second.json["id"]})
        await at.send("POST", RESPONSES, {"input": "t", "previous_response_id": "resp_elsewhere"})
        assert await sessions(at) == [
            (first.interaction, "opening"), (first.interaction, "previous_response_id"),
            (first.interaction, "previous_response_id"), ("resp_elsewhere", "previous_response_id"),
        ]  # fmt: skip


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
