"""Upstreams that want a query or another header, and the prompt cache of Anthropic's protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from raw_server import completion, ok, raw_server
from refusals import refused
from serving import CHAT, MESSAGES, Served, asynchronous, served
from users import stored

from practicum.serve.upstream import open_upstream

RULE = " ".join(f"Messages of kind {n} go to team {n * 7}." for n in range(160))
EPHEMERAL = {"type": "ephemeral"}


def asked(*texts: str, system: Any = "You route messages.", **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant") * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {"model": "claude-haiku-4-5", "max_tokens": 9, "system": system, "messages": messages, **more}


async def add(at: Served, text: str) -> None:
    assert (await at.send("POST", "/v1/playbook", {"text": text, "section": "rules"})).status == 200


def sent(at: Served) -> Any:
    return json.loads(at.upstream.requests[-1].body)


@asynchronous
async def test_a_deployment_of_azure_is_an_upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('"127.0.0.1" = "the-key-of-azure"\n')
    keys.chmod(0o600)
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(keys))
    async with raw_server(ok(completion())) as (address, requests):
        azure = address.removesuffix("/v1") + "/openai/deployments/d?api-version=2024-10-21"
        async with served(tmp_path / "store", address=azure) as at:
            assert (await at.ask("2+2?", {"api-key": "the client's"})).json["choices"][0]["message"]["content"] == "4"
            await at.send("POST", f"{CHAT}?trace=1", {"messages": [{"role": "user", "content": "2+2?"}]})
    path = "POST /openai/deployments/d/chat/completions"
    assert [one.partition(" HTTP")[0] for one in requests] == [
        f"{path}?api-version=2024-10-21", f"{path}?trace=1&api-version=2024-10-21"
    ]  # fmt: skip
    assert all("api-key: the-key-of-azure\r\n" in one and "authorization" not in one.lower() for one in requests)
    assert "client's" not in requests[0]


def test_a_hosted_name_becomes_the_address_of_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com"), ("AZURE_OPENAI_API_KEY", "azure"),
        ("OPENAI_API_VERSION", "2024-10-21"), ("LITELLM_PROXY_API_BASE", "https://litellm.example"),
        ("LITELLM_PROXY_API_KEY", "virtual"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    opened = [open_upstream(name, tmp_path, 60) for name in ("azure:d", "litellm:team/claude")]
    assert [(one.address, one.key, one.model) for one in opened] == [
        ("https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21", "azure", "d"),
        ("https://litellm.example/v1", "virtual", "team/claude"),
    ]
    monkeypatch.delenv("LITELLM_PROXY_API_BASE")
    with refused("model.no_key"):
        open_upstream("litellm:team/claude", tmp_path, 60)


@asynchronous
async def test_the_inserted_context_is_read_from_the_prompt_cache_of_anthropic(tmp_path: Path) -> None:
    async with served(tmp_path, method="ace") as at:
        await at.send("POST", MESSAGES, asked("Where to?"))
        assert sent(at)["system"] == "You route messages."
        await add(at, RULE)
        usages = [(await at.send("POST", MESSAGES, asked(text))).json["usage"] for text in ("A refund?", "A card?")]
        own, learned = sent(at)["system"]
        assert own == {"type": "text", "text": "You route messages."}
        assert RULE in learned["text"]
        assert learned["cache_control"] == EPHEMERAL
        written = usages[0]["cache_creation_input_tokens"]
        assert written >= len(RULE) / 4
        assert [(one["cache_read_input_tokens"], one["cache_creation_input_tokens"]) for one in usages] == [
            (0, written), (written, 0)
        ]  # fmt: skip
        assert [one["tokens"][1::2] for one in await stored(at)][-2:] == [[0, written], [written, 0]]


@asynchronous
async def test_a_client_keeps_its_own_breakpoints_and_no_request_has_more_than_four(tmp_path: Path) -> None:
    part = {"type": "text", "text": "Part.", "cache_control": EPHEMERAL}
    marked: dict[str, Any] = {
        "four": asked("Where to?", system=[part] * 4),
        "whole": asked("Where to?", cache_control=EPHEMERAL),
        "tool": asked("Where to?", tools=[{"name": "f", "input_schema": {}, "cache_control": EPHEMERAL}]),
    }
    async with served(tmp_path, method="ace") as at:
        await add(at, RULE)
        for body in marked.values():
            assert (await at.send("POST", MESSAGES, body)).status == 200
            assert RULE in json.dumps(sent(at)["system"])
            assert json.dumps(sent(at)).count("cache_control") == json.dumps(body).count("cache_control")
        assert (await at.send("POST", MESSAGES, asked('Is "cache_control" a field?'))).status == 200
        assert sent(at)["system"][-1]["cache_control"] == EPHEMERAL
        assert (await at.send("POST", MESSAGES, asked("?", system=[part] * 5))).status == 400


@asynchronous
async def test_thoughts_of_a_chat_are_recorded(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "Two and two."}
    body = completion(choices=[{"index": 0, "message": message, "finish_reason": "stop"}])
    async with raw_server(ok(body)) as (address, _), served(tmp_path, address=address) as at:
        await at.ask("2+2?")
        assert [one["thoughts"] for one in await stored(at)] == ["Two and two."]
