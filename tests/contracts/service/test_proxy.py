"""The proxy (docs/serve/proxy.md): the learning proxy of three protocols."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from service_kit import BODIES, CHAT, MESSAGES, QUESTION, RESPONSES, RIGHT, Client, Service, run_json, unique, until
from service_model import ERROR_IN_200, FAULT, UNKNOWN, WHOLE_BUT_UNFINISHED, Model, without_ids

PROTOCOLS = pytest.mark.parametrize("path", BODIES)


@PROTOCOLS
def test_a_correction_holds_from_the_next_request_in_every_protocol(path: str, space: Client) -> None:
    space.add_entry("Name the team only.")
    first = space.send("POST", path, {**BODIES[path], "stream": True})
    assert first.status == 200
    assert RIGHT not in first.prompt
    assert space.report(first, target=RIGHT)["correction"] == "in effect"
    for stream in (False, True):
        after = space.send("POST", path, {**BODIES[path], "stream": stream}).prompt
        # The operator's system message, the playbook, the correction, the question.
        places = [after.index(text) for text in ("Be short.", "Name the team only.", RIGHT)]
        assert places == sorted(places)
        assert places[-1] < after.rindex(QUESTION)
        # A prefix cache serves the text before the question.
        assert after.startswith(first.prompt[: first.prompt.index(QUESTION)])


def values(answer: bytes) -> list[object]:
    """The JSON values of an answer, or of the events of a stream, without ids."""
    lines = without_ids(answer).split(b"\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if b"{" in line]


ODD = (
    b', "model":"mine" ,"new_field" : {"big":123456789012345678901234567890, "float": 1.0e5 ,'
    b'"text":"\\u00e9\\ud83d\\ude00","list":[ 1,2 ]}}'
)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@PROTOCOLS
def test_without_learned_text_requests_and_answers_pass_unchanged(
    path: str, stream: bool, untaught: Client, model: Model
) -> None:
    raw = json.dumps({**BODIES[path], "stream": stream}).encode()[:-1] + ODD
    through, direct = untaught.send("POST", path, raw), Client(model.base, model).send("POST", path, raw)
    assert through.sent.body == raw
    assert through.headers["content-type"] == direct.headers["content-type"]
    answer = through.body
    if path == RESPONSES:
        # This protocol has a place for the ids, and the answer carries them there.
        answers = [one["response"] for one in through.events if "response" in one] if stream else [through.json]
        added = {"practicum_interaction": through.interaction, "practicum_version": "0"}
        assert [one["metadata"] for one in answers] == [added] * len(answers)
        answer = answer.replace(json.dumps(added).encode(), b"{}")
        answer = answer.replace(json.dumps(added, separators=(",", ":")).encode(), b"{}")
    else:
        assert without_ids(answer) == without_ids(direct.body)
    assert values(answer) == values(direct.body)
    # A request without a model gets the upstream's.
    assert untaught.send("POST", path, BODIES[path]).sent.json["model"] == "sim"


def test_the_prompts_of_a_session_continue_each_other_without_replaced_corrections(space: Client) -> None:
    for number in range(3):
        space.correct(f"Which team handles cards of kind {number}?", f"team {number}")
    asking, texts = space.in_session("s"), []
    messages = [{"role": "system", "content": "Be short."}]
    for number in range(3):
        messages.append({"role": "user", "content": f"And cards of kind {number}, which team?"})
        reply = asking.send("POST", CHAT, {"messages": messages})
        messages.append(reply.json["choices"][0]["message"])
        texts.append(reply.prompt)
    assert all(f"team {number}" in text for number, text in enumerate(texts))
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    # A replaced correction is left out of earlier turns.
    space.correct(target="the OLD team")
    turns = [{"role": "user", "content": QUESTION}]
    assert "the OLD team" in space.send("POST", CHAT, {"messages": turns}).prompt
    space.correct(QUESTION.upper(), "the NEW team")
    turns += [{"role": "assistant", "content": "the blue"}, {"role": "user", "content": "Are you sure?"}]
    assert "the OLD team" not in space.send("POST", CHAT, {"messages": turns}).prompt
    assert "the NEW team" in space.shown()


def test_an_error_of_the_upstream_passes_unchanged_and_is_not_an_interaction(untaught: Client, model: Model) -> None:
    for fault, status in (("429", 429), ("500", 500), ("html", 200)):
        reply = untaught.send("POST", CHAT, BODIES[CHAT], **{FAULT: fault})
        direct = Client(model.base, model).send("POST", CHAT, BODIES[CHAT], **{FAULT: fault})
        assert (reply.status, reply.body) == (status, direct.body)
        assert reply.headers["retry-after"] == direct.headers["retry-after"]
        assert reply.headers["x-practicum-interaction"] is None
    # A request that is not of the protocol is the upstream's to refuse.
    for raw in (b"", b"no json", b'{"messages": 3}', b"\xff\xfe", b"[" * 9_999):
        reply = untaught.send("POST", CHAT, raw)
        assert reply.sent.body == raw
        assert reply.status == Client(model.base, model).send("POST", CHAT, raw).status
        assert reply.headers["x-practicum-interaction"] is None


def test_a_silent_or_broken_answer_of_the_upstream_is_an_error_of_the_protocol(passing: Service) -> None:
    client = passing.client
    client.send("POST", CHAT, BODIES[CHAT], **{FAULT: "hang"}).refused("upstream.timeout")
    client.send("POST", CHAT, BODIES[CHAT], **{FAULT: "die"}).refused("upstream.broken")
    for path in (CHAT, MESSAGES):
        stream = client.send("POST", path, {**BODIES[path], "stream": True}, **{FAULT: "die"})
        assert stream.status == 200
        assert b"[DONE]" not in stream.body
        assert stream.events[-1]["error"]["code"] == "upstream.broken"


@PROTOCOLS
def test_a_stream_is_whole_once_it_has_its_last_event_and_one_that_is_left_ends_the_upstreams_work(
    path: str, space: Client, model: Model
) -> None:
    body, before = {**BODIES[path], "stream": True}, model.left
    for fault in (WHOLE_BUT_UNFINISHED, ERROR_IN_200, "die"):
        space.send("POST", path, body, **{FAULT: fault})
    with space.streaming(path, body, **{FAULT: "endless"}) as stream:
        assert stream.recv(1)
        assert model.left == before
    until(lambda: model.left == before + 1)
    listed = until(lambda: len(rows := space.get("/v1/interactions")["interactions"]) == 4 and rows)
    assert [one["status"] for one in reversed(listed)] == [200, 502, 502, 499]
    assert [one["answer"] == UNKNOWN for one in reversed(listed[1:])] == [True, False, False]


def test_a_text_that_is_too_large_to_be_read_passes_and_a_larger_request_is_refused(
    passing: Service, untaught: Client, model: Model
) -> None:
    client, word = passing.client.new_space(), unique("huge")
    model.answers[word] = "z" * 1_200_000
    reply = client.ask("x" * 1_100_000)
    assert len(reply.sent.body) > 1_100_000
    assert reply.headers["x-practicum-interaction"] is None
    # The interaction of an answer is stored without its text.
    reply = client.ask(word)
    assert len(reply.body) > 1_200_000
    (row,) = until(lambda: client.get("/v1/interactions")["interactions"])
    assert (row["id"], row["question"], row["answer"]) == (reply.interaction, word, "")
    reply = untaught.send("POST", CHAT, b"x" * (32 * 2**20 + 1))
    reply.refused("request.too_large")
    assert not reply.received


def test_the_client_reads_the_whole_answer_and_the_stored_one_has_no_thoughts(space: Client, model: Model) -> None:
    word, silent = unique("thoughtful"), unique("silent")
    model.answers |= {word: f"<think>hm, {word}</think>{RIGHT}", silent: "<think>hm</think>"}
    reply = space.ask(f"{QUESTION} {word}")
    assert reply.json["choices"][0]["message"]["content"] == model.answers[word]
    (row,) = space.get("/v1/interactions")["interactions"]
    assert (row["answer"], row["status"]) == (RIGHT, 200)
    assert space.report(reply, target=RIGHT)["score"] == 1.0
    # An answer of thoughts only is not scored, and its right answer is learned.
    before = space.metric("practicum_unsaid_thoughts_total")
    result = space.report(space.ask(f"{QUESTION} {silent}"), target=RIGHT)
    assert (result["score"], result["correction"]) == (None, "in effect")
    assert space.metric("practicum_unsaid_thoughts_total") == before + 1


TITLE = {"messages": [{"role": "user", "content": "Generate a concise, 3-5 word title summarizing the chat history."}]}


def test_a_title_and_a_count_of_tokens_are_not_of_the_session_and_a_context_is_an_interaction(space: Client) -> None:
    asking = space.in_session("s")
    first = asking.ask()
    assert asking.send("POST", CHAT, TITLE).status == 200
    assert space.report(session="s", score=1.0)["interaction"] == first.interaction
    space.add_entry("Name the team only.")
    space.correct()
    before = space.get("/v1/interactions")
    for path, like in (("/v1/messages/count_tokens", MESSAGES), ("/v1/responses/input_tokens", RESPONSES)):
        # They are counted with the learned text.
        counted = space.send("POST", path, BODIES[like])
        assert RIGHT in counted.prompt
        assert counted.json["input_tokens"] > len(json.dumps(BODIES[like])) // 4
    assert space.get("/v1/interactions") == before
    shown = space.post("/v1/context", input=QUESTION)
    assert "Name the team only." in shown["text"]
    assert RIGHT in shown["text"]
    assert shown["version"] == 1
    assert space.report(shown["interaction"], score=1.0)["status"] == "kept"


def test_a_wrong_address_is_corrected_and_a_long_header_refused(untaught: Client) -> None:
    for path, right in (("/chat/completions", CHAT), ("/v1/v1/messages", MESSAGES)):
        reply = untaught.send("POST", path, BODIES[CHAT])
        reply.refused("request.unknown_path")
        assert untaught.url + right in reply.json["error"]["message"]
        assert not reply.received
    for name in ("session", "user", "space"):
        header = {f"x-practicum-{name}": "x" * 201}
        untaught.send("POST", CHAT, BODIES[CHAT], **header).refused("request.malformed")


PASSED = {
    "POST": ("completions", "embeddings", "moderations", "rerank", "audio/speech", "images/generations"),
    "GET": ("models", "models/sim"),
}
NOT_PASSED = ("files", "batches", "fine_tuning/jobs", "vector_stores", "conversations")


def test_with_the_services_key_a_client_uses_models_and_responses_of_its_space_only(
    locked: Client, keyed: Service
) -> None:
    agent, other = (
        keyed.client.with_key(keyed.client.post("/v1/keys", name=unique("k"), space=name, roles=["ask"])["key"])
        for name in (locked.space, "other")
    )
    assert "authorization" not in agent.ask().sent.headers
    for method, paths in PASSED.items():
        for path in paths:
            body = {"input": "x", "prompt": "x"} if method == "POST" else None
            assert agent.send(method, f"/v1/{path}", body).received, path
    for path in NOT_PASSED:
        for method in ("GET", "POST"):
            reply = agent.send(method, f"/v1/{path}", {} if method == "POST" else None)
            reply.refused("request.not_passed")
            assert f"--pass /v1/{path.partition('/')[0]}" in reply.json["error"]["message"]
            assert not reply.received
    agent.send("POST", RESPONSES, {**BODIES[RESPONSES], "conversation": "conv_1"}).refused("request.not_passed")
    agent.send("GET", RESPONSES, **{"sec-websocket-key": "k"}).refused("request.no_websocket")
    # A key with all roles for all spaces needs no option for that.
    assert locked.send("POST", RESPONSES, {**BODIES[RESPONSES], "conversation": "conv_1"}).received
    id = agent.ask(path=RESPONSES).json["id"]
    following = {"input": "And then?", "previous_response_id": id}
    assert agent.send("POST", RESPONSES, following).received
    other.send("POST", RESPONSES, following).refused("response.unknown")
    assert agent.send("GET", f"/v1/responses/{id}").received
    for method in ("GET", "DELETE"):
        assert not other.send(method, f"/v1/responses/{id}").received


def test_with_pass_key_the_clients_key_reaches_the_upstream_and_all_paths_pass(passing: Service) -> None:
    client = passing.client.with_headers(authorization="Bearer theirs")
    sent = client.ask().sent
    assert sent.headers["authorization"] == "Bearer theirs"
    assert not [name for name in sent.headers if name.startswith("x-practicum")]
    assert client.send("GET", "/v1/files").received
    Client(client.url, client.model).with_key("theirs").send("POST", CHAT, BODIES[CHAT]).refused("key.missing")


def test_interactions_are_listed_the_newest_first_and_filtered_and_the_last_one_is_reported_on(space: Client) -> None:
    asked = [space.in_session(f"s{n % 2}").as_user(f"u{n}").ask(f"question {n}?").interaction for n in range(4)]

    def listed(**query: object) -> list[str]:
        return [one["id"] for one in space.get("/v1/interactions", **query)["interactions"]]

    until(lambda: len(listed()) == 4)
    assert listed() == asked[::-1]
    assert listed(session="s1") == [asked[3], asked[1]]
    assert listed(user="u2") == [asked[2]]
    assert listed(limit=1) == [asked[3]]
    assert listed(since="2999-01-01T00:00:00Z") == []
    (newest,) = space.get("/v1/interactions", limit=1)["interactions"]
    assert (newest["question"], newest["answer"], newest["user"]) == ("question 3?", UNKNOWN, "u3")
    there = ("--space", space.space)
    assert run_json("space", "report", space.url, "--session", "s0", "--score", 1, *there)["interaction"] == asked[2]
    assert run_json("space", "report", space.url, "last", "--score", 1, *there)["interaction"] == asked[3]


def test_learned_descriptions_replace_those_of_the_tools_of_a_request(space: Client) -> None:
    space.add_entry("send: Send mail. Ask first.", "tool descriptions")
    space.add_entry("send(to): One address.", "tool descriptions")

    def tools(description: str, to: str) -> dict[str, list[Any]]:
        """The tools of a request in each protocol: a learned one, and others."""
        schema = {"type": "object", "properties": {"to": {"type": "string", "description": to}, "cc": {"type": "null"}}}
        send, other = {"name": "send", "description": description}, {"name": "read", "parameters": {}}
        chat: list[Any] = [{"type": "function", "function": {**send, "strict": True, "parameters": schema}}]
        chat.append({"type": "function", "function": other})
        responses = [{"type": "function", **send, "parameters": schema}, {"type": "web_search"}, other]
        cached = {"cache_control": {"type": "ephemeral"}}
        return {CHAT: chat, RESPONSES: responses, MESSAGES: [{**send, "input_schema": schema, **cached}, {"name": "x"}]}

    for path, offered in tools("Sends.", "to").items():
        sent = space.ask(path=path, tools=offered).sent
        assert json.loads(sent.body)["tools"] == tools("Send mail. Ask first.", "One address.")[path]
        assert "One address." not in sent.prompt
