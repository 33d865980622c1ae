"""The proxy: three protocols, what is shown where, and everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from serving import CHAT, MESSAGES, RESPONSES, Served, asynchronous, prompt, served, until

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.serve.service import IN_USE
from practicum.serve.space import PINNED
from practicum.session.records import create_seed

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


def playbook(folder: Path, *texts: str) -> str:
    """A run whose playbook has these rules."""
    create_seed(folder, Context().apply(Delta(tuple(Add("rules", text) for text in texts))).context)
    return str(folder)


async def corrected(at: Served, question: str = QUESTION, right: str = RIGHT) -> None:
    """Ask, and send back what would have been right."""
    reply = await at.ask(question)
    assert (await at.report(interaction=reply.interaction, target=right)).status == 200


BODIES = {
    CHAT: {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]},
    RESPONSES: {"instructions": "Be short.", "input": QUESTION},
    MESSAGES: {"system": "Be short.", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 9},
}


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", BODIES)
@asynchronous
async def test_a_correction_is_in_the_next_prompt_of_every_protocol(path: str, stream: bool, tmp_path: Path) -> None:
    rules = playbook(tmp_path / "seed", "Name the team alone.")
    async with served(tmp_path / "store", context=rules) as at:
        body = {**BODIES[path], "stream": stream}
        first = await at.send("POST", path, body)
        assert first.status == 200
        assert first.headers["x-practicum-version"] == "0"
        before = prompt(at.upstream.requests[-1].body)
        assert "Be short." in before
        assert before.index("Be short.") < before.index("Name the team alone.") < before.index(QUESTION)
        assert RIGHT not in before
        assert (await at.report(interaction=first.interaction, target=RIGHT)).json["correction"] == "in effect"
        await at.send("POST", path, body)
        after = prompt(at.upstream.requests[-1].body)
        assert after.index("Name the team alone.") < after.index(RIGHT) < after.rindex(QUESTION)
        # All before the message is as it was, so that a prefix cache serves it.
        assert after.startswith(before[: before.index(QUESTION)])


@pytest.mark.parametrize("path", BODIES)
@asynchronous
async def test_bytes_come_back_as_the_upstream_sent_them(path: str, tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        body = json.dumps({"model": "sim", **BODIES[path], "stream": True}).encode()
        through = await at.send("POST", path, body)
        async with at.http.post(at.upstream.url.removesuffix("/v1") + path, data=body) as response:
            direct = await response.read()
        kinds = [[line.split(b'"', 3)[1:2] for line in text.split(b"\n")] for text in (through.body, direct)]
        assert kinds[0] == kinds[1]
        assert through.headers["content-type"] == response.headers["content-type"]


@asynchronous
async def test_the_response_of_the_responses_api_carries_the_interaction(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        plain = await at.send("POST", RESPONSES, {"input": QUESTION, "metadata": {"own": "yes"}})
        wanted = {"practicum_interaction": plain.interaction, "practicum_version": "0"}
        assert plain.json["metadata"] == {"own": "yes", **wanted}
        stream = await at.send("POST", RESPONSES, {"input": QUESTION, "stream": True})
        events = [json.loads(line[6:]) for line in stream.body.decode().split("\n") if line.startswith("data: ")]
        whole = [event["response"]["metadata"] for event in events if "response" in event]
        assert len(whole) == 3
        assert {each["practicum_interaction"] for each in whole} == {stream.interaction}


@asynchronous
async def test_unknown_fields_tools_and_images_reach_the_upstream_byte_for_byte(tmp_path: Path) -> None:
    odd = b'{"big":123456789012345678901234567890, "float": 1.0e5 ,"text":"\\u00e9\\ud83d\\ude00","list":[ 1,2 ]}'
    image = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"} }'
    body = (
        b'{"messages":[{"role":"user","content":[' + image + b',{"type":"text","text":"Lost?"}],"name" : "x"}],'
        b'"tools":[' + odd + b'],"new_field":' + odd + b',"model":"sim"}'
    )
    async with served(tmp_path / "store") as at:
        await at.send("POST", CHAT, body)
        assert at.upstream.requests[-1].body == body
        await corrected(at, "Lost?")
        await at.send("POST", CHAT, body)
        sent = at.upstream.requests[-1].body
        assert RIGHT.encode() in sent
        assert sent.count(odd) == 2
        assert image in sent


@asynchronous
async def test_the_prompts_of_a_session_continue_each_other(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        for n in range(6):
            await corrected(at, f"Which team handles cards of kind {n}?", f"team {n}")
        messages: list[dict[str, str]] = [{"role": "system", "content": "Be short."}]
        texts = []
        for n in range(6):
            messages.append({"role": "user", "content": f"And cards of kind {n}, which team?"})
            reply = await at.send("POST", CHAT, {"messages": messages}, {"x-practicum-session": "s"})
            messages.append({"role": "assistant", "content": reply.json["choices"][0]["message"]["content"]})
            texts.append(prompt(at.upstream.requests[-1].body))
        assert all(f"team {n}" in texts[n] for n in range(6))
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@asynchronous
async def test_what_was_replaced_is_shown_no_more_not_even_in_earlier_turns(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        await corrected(at, QUESTION, "the OLD team")
        turns = [{"role": "user", "content": QUESTION}]
        await at.send("POST", CHAT, {"messages": turns})
        assert "the OLD team" in prompt(at.upstream.requests[-1].body)
        await corrected(at, QUESTION.upper(), "the NEW team")
        turns += [{"role": "assistant", "content": "the OLD one"}, {"role": "user", "content": "Are you sure?"}]
        await at.send("POST", CHAT, {"messages": turns})
        assert "the OLD team" not in prompt(at.upstream.requests[-1].body)
        assert "the OLD team" not in await at.shown(QUESTION)
        assert "the NEW team" in await at.shown(QUESTION)


@asynchronous
async def test_other_requests_pass_unchanged(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        assert (await at.send("GET", "/v1/models")).json["data"][0]["id"] == "sim"
        sent = b'{"input": "x", "model": "sim"}'
        assert (await at.send("POST", "/v1/embeddings", sent)).status == 200
        assert at.upstream.requests[-1].body == sent
        assert (await at.send("GET", "/elsewhere")).status == 404


# Who may ask

KEY, OTHER = "k" * 20, "o" * 20


@asynchronous
async def test_keys_open_their_own_space_alone(tmp_path: Path) -> None:
    async with served(tmp_path / "store", keys=(f"mine={KEY}", f"other={OTHER}"), spaces=("mine", "other")) as at:
        mine, other = {"Authorization": f"Bearer {KEY}"}, {"Authorization": f"Bearer {OTHER}"}
        assert (await at.ask(QUESTION)).status == 401
        assert (await at.ask(QUESTION, {"Authorization": "Bearer wrong"})).status == 401
        assert (await at.ask(QUESTION, {**mine, "x-practicum-space": "other"})).status == 403
        assert (await at.report(score=1.0, interaction="x")).status == 401
        reply = await at.ask(QUESTION, mine)
        assert reply.status == 200
        assert "authorization" not in at.upstream.requests[-1].headers
        # Feedback from the other space is about something that space does not know.
        assert (await at.report(other, interaction=reply.interaction, target=RIGHT)).status == 404
        assert (await at.report(mine, interaction=reply.interaction, target=RIGHT)).status == 200
        assert RIGHT not in await at.shown(QUESTION, other)
        assert RIGHT in await at.shown(QUESTION, mine)
        assert (await at.send("POST", MESSAGES, BODIES[MESSAGES], {"x-api-key": KEY})).status == 200


@asynchronous
async def test_a_client_can_send_its_own_upstream_key(tmp_path: Path) -> None:
    async with served(tmp_path / "store", keys=(KEY,), pass_key=True) as at:
        assert (await at.ask(QUESTION, {"Authorization": f"Bearer {KEY}"})).status == 401
        headers = {"Authorization": "Bearer theirs", "x-practicum-key": KEY}
        assert (await at.ask(QUESTION, headers)).status == 200
        sent = at.upstream.requests[-1].headers
        assert sent["authorization"] == "Bearer theirs"
        assert not any(name.startswith("x-practicum") for name in sent)


@asynchronous
async def test_a_page_of_another_site_cannot_use_a_service_without_keys(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        assert (await at.ask(QUESTION, {"Origin": "https://evil.example"})).status == 403
        assert (await at.ask(QUESTION, {"Host": "evil.example"})).status == 403
        # As a browser writes the origin of a page that hides it.
        assert (await at.ask(QUESTION, {"Origin": "null"})).status == 403
        assert (await at.ask(QUESTION, {"Origin": "null", "Sec-Fetch-Site": "cross-site"})).status == 403
        assert (await at.ask(QUESTION, {"Origin": "http://localhost:3000"})).status == 403
        assert (await at.ask(QUESTION, {"Origin": at.url})).status == 200


@asynchronous
async def test_an_unknown_space_is_named(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        for name in ("none", "../etc", "a" * 65):
            reply = await at.ask(QUESTION, {"x-practicum-space": name})
            assert reply.status == 404
            assert "space" in reply.said


# What goes wrong


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b'{"messages": 3}', b'{"messages": [1]}', b"\xff\xfe", b"[" * 9_999]
)
@asynchronous
async def test_a_body_that_is_not_of_the_protocol_is_the_upstreams_to_refuse(body: bytes, tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        reply = await at.send("POST", CHAT, body)
        assert at.upstream.requests[-1].body == body
        async with at.http.post(f"{at.upstream.url}/chat/completions", data=body) as direct:
            assert reply.status == direct.status


@asynchronous
async def test_a_body_of_50_mb_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        reply = await at.ask("x" * 50_000_000)
        assert reply.status == 413
        assert "33,554,432 bytes" in reply.said
        assert not at.upstream.requests


@pytest.mark.parametrize(("fault", "status"), [("429", 429), ("500", 500), ("html", 200)])
@asynchronous
async def test_what_the_upstream_answers_is_passed_on(fault: str, status: int, tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        reply = await at.ask(QUESTION, {"x-sim-fault": fault})
        assert reply.status == status
        assert "x-practicum-interaction" not in reply.headers
        assert ("retry-after" in {name.lower() for name in reply.headers}) == (fault == "429")


@asynchronous
async def test_an_upstream_that_hangs_dies_or_is_away_is_told_in_the_protocols_form(tmp_path: Path) -> None:
    async with served(tmp_path / "store", silence=0.3) as at:
        assert (await at.ask(QUESTION, {"x-sim-fault": "hang"})).status == 504
        assert (await at.ask(QUESTION, {"x-sim-fault": "die"})).status == 502
        stream = await at.ask(QUESTION, {"x-sim-fault": "die"}, stream=True)
        assert stream.status == 200
        assert b"data: [DONE]" not in stream.body
        *_, last = [line for line in stream.body.split(b"\n") if line.startswith(b"data: ")]
        assert "broke off" in json.loads(last[6:])["error"]["message"]
        said = await at.send("POST", MESSAGES, {**BODIES[MESSAGES], "stream": True}, {"x-sim-fault": "die"})
        assert b"event: error" in said.body
    async with served(tmp_path / "store", address="http://127.0.0.1:9") as at:
        reply = await at.ask(QUESTION)
        assert reply.status == 502
        assert "cannot be reached" in reply.said


@asynchronous
async def test_a_client_that_leaves_ends_the_upstreams_work(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        asking = asyncio.create_task(at.ask(QUESTION, {"x-sim-fault": "hang"}))
        await until(lambda: at.upstream.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: at.service.counts["clients that left"])
        assert (await at.ask(QUESTION)).status == 200


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
async def test_a_slow_upstream_does_not_hold_up_others(tmp_path: Path) -> None:
    async with served(tmp_path / "store") as at:
        slow = asyncio.create_task(at.ask(QUESTION, {"x-sim-fault": "hang"}))
        replies = await asyncio.gather(*(at.ask(f"{QUESTION} {n}") for n in range(50)))
        assert {reply.status for reply in replies} == {200}
        assert not slow.done()
        slow.cancel()
        with pytest.raises((asyncio.CancelledError, aiohttp.ClientError)):
            await slow


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
