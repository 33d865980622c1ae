"""Sessions: which conversation a request belongs to, and what named it."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, served

UUID, OTHER = "0199e0a2-7c1d-7f00-8a8b-1b2c3d4e5f60", "54c1eb09-bc4c-4d2f-98eb-6d2ab2d5e2fe"
QUESTION = "Who handles refunds?"

NAMED: dict[str, tuple[str, dict[str, str], dict[str, Any], str, str]] = {
    "practicum first": (CHAT, {"x-practicum-session": "a", "session_id": UUID}, {}, "a", "x-practicum-session"),
    "codex": (RESPONSES, {"session_id": UUID, "conversation_id": OTHER}, {"prompt_cache_key": "k"}, UUID, "session_id"),
    "codex 0.171": (RESPONSES, {"session-id": UUID, "thread-id": OTHER}, {}, UUID, "session-id"),
    "only a thread": (RESPONSES, {"thread-id": OTHER, "conversation_id": UUID}, {}, UUID, "conversation_id"),
    "opencode": (CHAT, {"x-session-id": "ses_1", "x-parent-session-id": "ses_0"}, {}, "ses_1", "x-session-id"),
    "claude code": (
        MESSAGES, {"x-claude-code-session-id": UUID}, {"metadata": {"user_id": "user_1"}}, UUID,
        "x-claude-code-session-id",
    ),
    "claude code, body": (
        MESSAGES, {}, {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": UUID})}}, UUID,
        "metadata.user_id",
    ),
    "claude code 2.0": (
        MESSAGES, {}, {"metadata": {"user_id": f"user_0a1b_account__session_{UUID}"}}, UUID, "metadata.user_id"
    ),
    "a field of metadata": (CHAT, {}, {"metadata": {"conversation_id": "t 7"}}, "t 7", "metadata.conversation_id"),
    "a field of the body": (CHAT, {}, {"session_id": "s1", "prompt_cache_key": UUID}, "s1", "session_id"),
    "a conversation": (RESPONSES, {}, {"conversation": {"id": "conv_1"}}, "conv_1", "conversation"),
    "its id": (RESPONSES, {}, {"conversation": "conv_1", "prompt_cache_key": UUID}, "conv_1", "conversation"),
    "a generated cache key": (CHAT, {}, {"prompt_cache_key": f"k-{UUID}"}, f"k-{UUID}", "prompt_cache_key"),
}  # fmt: skip

UNNAMED: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "nothing": (CHAT, {}, {}),
    "a user": (RESPONSES, {}, {"user": UUID, "safety_identifier": UUID}),
    "anthropic's user": (MESSAGES, {}, {"metadata": {"user_id": UUID}}),
    "the cache key of an application": (CHAT, {}, {"prompt_cache_key": "customer-support-assistant-v2"}),
    "a parent": (CHAT, {"x-parent-session-id": UUID}, {}),
    "what is no name": (CHAT, {"x-session-id": " "}, {"session_id": 7, "conversation": {}, "metadata": {"a": 1}}),
    "a very long one": (CHAT, {}, {"session_id": "s" * 201, f"{'a-' * 200}session-id": "s"}),
    "a deep one": (MESSAGES, {}, {"metadata": {"user_id": "[" * 100_000}}),
    "unreadable answers": (
        CHAT,
        {},
        {"messages": [{"role": "assistant", "content": ["a"]}, {"role": "user", "content": QUESTION}]},
    ),
}


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


@pytest.mark.parametrize("case", NAMED)
@asynchronous
async def test_a_session_is_what_the_client_names(case: str, tmp_path: Path) -> None:
    path, headers, more, session, source = NAMED[case]
    async with served(tmp_path, passing=("/v1/conversations",)) as at:
        for text in (QUESTION, "And lost cards?"):
            assert (await at.send("POST", path, body(path, text, **more), headers)).status == 200
        assert await sessions(at) == [(session, source)] * 2
        assert (await at.report(session=session, score=1.0)).json["status"] == "kept"


@pytest.mark.parametrize("case", UNNAMED)
@asynchronous
async def test_the_same_opening_of_two_conversations_is_two_sessions(case: str, tmp_path: Path) -> None:
    path, headers, more = UNNAMED[case]
    async with served(tmp_path) as at:
        ids = [(await at.send("POST", path, body(path, QUESTION) | more, headers)).interaction for _ in range(2)]
        assert await sessions(at) == [(id, "opening") for id in ids]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@asynchronous
async def test_a_conversation_without_a_name_stays_one_session(path: str, stream: bool, tmp_path: Path) -> None:
    numbers = count()
    async with served(tmp_path, lambda _: f"Answer {next(numbers)}.\n") as at:
        # Two conversations that begin alike, each in turn.
        first, second = ("q", "Answer 0.", "r", "Answer 2.", "s"), ("q", "Answer 1.", "r", "Answer 3.", "s")
        for texts in (first[:1], second[:1], first[:3], second[:3], second, first):
            assert (await at.send("POST", path, body(path, *texts, stream=stream))).status == 200
        found = await sessions(at)
        assert [source for _, source in found] == ["opening"] * 2 + ["history"] * 4
        one, two = found[0][0], found[1][0]
        assert [session for session, _ in found] == [one, two, one, two, two, one]


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
