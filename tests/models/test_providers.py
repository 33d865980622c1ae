"""Requests and replies in the forms of the providers. The forms are from the providers' documentation and SDKs in
November 2026: Azure OpenAI (deployments), LiteLLM proxy, OpenRouter (usage accounting), Anthropic (prompt caching),
Bedrock (Converse) and Vertex AI (generateContent)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous, make_tasks
from needs import needs
from raw_server import completion, ok, raw_server
from refusals import refused

import practicum
from practicum.core.context import seed_context
from practicum.core.types import Prompt, Turn, Usage
from practicum.models.caching import with_breakpoints
from practicum.models.client import CallOptions, Reply
from practicum.models.keys import LITELLM_ADDRESSES, key_for
from practicum.models.options import ModelOptions
from practicum.models.registry import ClientSettings, Models
from practicum.serve.upstream import open_upstream
from practicum.testing import ServerOptions, serve

PLAYBOOK = ("<notes>", "[e1] (rules) Ask first.\n  Then act.\n[e2] (rules) Be brief.", "[e65] (rules) Check.\n[e66] x")
PROMPT = Prompt("You route messages.", "2+2?", (*PLAYBOOK, "</notes>"), (Turn("1+1?", "2"),), fixed=3, grows=True)

CLAUDE: dict[str, Any] = {
    "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_sequence": None,
    "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 9, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 2000, "output_tokens": 5,
    },
}  # fmt: skip
CONVERSE: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "4"}]}}, "stopReason": "end_turn",
    "usage": {
        "inputTokens": 9, "outputTokens": 5, "totalTokens": 3014, "cacheReadInputTokens": 2000,
        "cacheWriteInputTokens": 1000,
    },
    "metrics": {"latencyMs": 100},
}  # fmt: skip
GEMINI: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "4"}]}, "finishReason": "STOP"}],
    "usageMetadata": {
        "promptTokenCount": 3009, "candidatesTokenCount": 5, "totalTokenCount": 3014, "cachedContentTokenCount": 2000,
    },
    "modelVersion": "gemini-2.5-flash", "responseId": "r1",
}  # fmt: skip
WRITTEN = Usage(1, 3009, 2000, 5, pytest.approx((9 + 1.25 * 1000 + 0.1 * 2000 + 5 * 5) / 1e6), 1000)
"""Usage of `CLAUDE` and its cost by Anthropic's prices: 1 and 5 dollars per million tokens of input and output."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in (*LITELLM_ADDRESSES, "AWS_DEFAULT_REGION", "AWS_REGION", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRACTICUM_KEYS_FILE", str(tmp_path / "keys.toml"))


class Request:
    """A request as a server received it."""

    def __init__(self, raw: str) -> None:
        head, _, self.body = raw.partition("\r\n\r\n")
        line, *lines = head.split("\r\n")
        self.line = line.removesuffix(" HTTP/1.1")
        self.headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in lines)}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@asynchronous
async def ask(
    monkeypatch: pytest.MonkeyPatch, name: str, sent: bytes, *, key: str | None = None,
    options: ModelOptions | None = None, prepare: Callable[[str], object] = str, **environment: str,
) -> tuple[Reply, list[Request]]:  # fmt: skip
    """The reply of the model `name` to PROMPT, and the requests. `{base}` in the name and in variables is the address
    of the server. `key` is the variable with its key. `prepare` is called with the address."""
    async with raw_server(sent) as (address, requests):
        base = address.removesuffix("/v1")
        prepare(base)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value.replace("{base}", base))
        models = Models(ClientSettings(attempts=1, api_key_env=key, options=options or ModelOptions()))
        try:
            client = models.open(name.replace("{base}", base))
            reply = await client.complete("agent", PROMPT, None, CallOptions())
        finally:
            await models.close()
        return reply, [*map(Request, requests)]


# Azure


def test_a_deployment_of_azure_gets_its_version_and_its_key_as_azure_expects_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, path = "{base}/openai/deployments/d?api-version=2024-10-21#d", "/openai/deployments/d/chat/completions"
    (tmp_path / "keys.toml").write_text('"127.0.0.1" = "the-key-of-azure"\n')
    (tmp_path / "keys.toml").chmod(0o600)
    by_file = ask(monkeypatch, name, ok(completion()))[1][0]
    (tmp_path / "keys.toml").unlink()
    headers = ModelOptions(headers={"api-key": "env:AZURE"})
    by_header = ask(monkeypatch, name, ok(completion()), options=headers, AZURE="the-key-of-azure")[1][0]
    environment = {"AZURE_OPENAI_API_KEY": "the-key-of-azure", "OPENAI_API_VERSION": "2024-10-21"}
    by_name = ask(monkeypatch, "azure:d", ok(completion()), AZURE_OPENAI_ENDPOINT="{base}", **environment)[1][0]
    for request in (by_file, by_header, by_name):
        assert request.line == f"POST {path}?api-version=2024-10-21"
        assert (request.headers["api-key"], request.headers.get("authorization")) == ("the-key-of-azure", None)
    token = "eyJ0eXAi.of-entra"
    entra = ask(monkeypatch, name, ok(completion()), key="AZURE", AZURE=token)[1][0]
    assert (entra.headers.get("api-key"), entra.headers["authorization"]) == (None, f"Bearer {token}")
    endpoint = {"AZURE_OPENAI_ENDPOINT": "{base}/openai/v1", "AZURE_OPENAI_API_KEY": "the-key-of-azure"}
    newest = ask(monkeypatch, "azure:d", ok(completion()), **endpoint)[1][0]
    assert (newest.line, newest.json["model"]) == ("POST /openai/v1/chat/completions", "d")
    assert newest.headers["authorization"] == "Bearer the-key-of-azure"


def test_an_address_with_a_key_in_its_query_is_refused() -> None:
    with refused("model.unsafe_key") as caught:
        key_for("https://r.openai.azure.com/openai/deployments/d?api-version=1&api-key=hunter2")
    assert "hunter2" not in str(caught.value)


# LiteLLM and OpenRouter


@pytest.mark.parametrize("variable", LITELLM_ADDRESSES)
def test_the_model_of_a_litellm_proxy_is_asked_there_and_has_the_cost_that_the_proxy_reports(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    usage = {
        "prompt_tokens": 3009, "completion_tokens": 5, "cache_creation_input_tokens": 1000,
        "prompt_tokens_details": {"cached_tokens": 2000},
    }  # fmt: skip
    sent = ok(completion(usage=usage), "x-litellm-response-cost: 0.00125")
    environment = {variable: "{base}", "LITELLM_PROXY_API_KEY": "sk-virtual"}
    reply, [request] = ask(monkeypatch, "litellm:team/claude", sent, **environment)
    assert (request.line, request.json["model"]) == ("POST /v1/chat/completions", "team/claude")
    assert request.headers["authorization"] == "Bearer sk-virtual"
    assert reply.usage == Usage(1, 3009, 2000, 5, 0.00125, 1000)


def test_a_litellm_proxy_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with refused("model.no_key", variable=LITELLM_ADDRESSES[0]):
        Models().open("litellm:gpt-4.1-mini")


BYOK = {"cost": 0.0001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.002}}


@pytest.mark.parametrize(
    ("reported", "usd"),
    [({"cost": 0.00014}, 0.00014), (BYOK, 0.0021), ({"cost": 0}, None), ({"cost": -1}, None), ({"cost": "x"}, None)],
)
def test_the_cost_and_the_thoughts_of_openrouter_are_stored(
    monkeypatch: pytest.MonkeyPatch, reported: dict[str, Any], usd: float | None
) -> None:
    details = {"cached_tokens": 2000, "cache_write_tokens": 1000}
    usage = {"prompt_tokens": 3009, "completion_tokens": 5, "prompt_tokens_details": details, **reported}
    message = {"role": "assistant", "content": "4", "reasoning": "Two and two."}
    body = completion(usage=usage, choices=[{"index": 0, "message": message, "finish_reason": "stop"}])
    reply, [request] = ask(monkeypatch, "{base}/api/v1#anthropic/claude-haiku-4.5", ok(body))
    assert request.line == "POST /api/v1/chat/completions"
    assert (reply.text, reply.thoughts) == ("4", "Two and two.")
    assert reply.usage == Usage(1, 3009, 2000, 5, usd, 1000)


def test_a_model_at_openrouter_has_breakpoints_and_the_reported_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.providers.openrouter import OpenRouterProvider

    address = property(lambda _: os.environ["OPENROUTER_ADDRESS"])
    monkeypatch.setattr(OpenRouterProvider, "base_url", address)
    usage = {"prompt_tokens": 3009, "completion_tokens": 5, "total_tokens": 3014, **BYOK}
    body = completion(usage=usage, provider="Anthropic")
    body["choices"][0]["native_finish_reason"] = "stop"
    environment = {"OPENROUTER_ADDRESS": "{base}/api/v1", "OPENROUTER_API_KEY": "sk-or"}
    reply, [request] = ask(monkeypatch, "openrouter:anthropic/claude-haiku-4.5", ok(body), **environment)
    system, *turns = request.json["messages"]
    assert [part["cache_control"]["type"] for part in system["content"]] == ["ephemeral"]
    assert [json.dumps(turn).count("cache_control") for turn in turns] == [1, 0, 0]
    assert reply.usage.usd == pytest.approx(0.0021)


# Anthropic


def test_the_blocks_of_a_prompt_are_its_system_message_with_breakpoints_where_others_begin_alike() -> None:
    def blocks(prompt: Prompt) -> list[dict[str, Any]]:
        settings: dict[str, Any] = with_breakpoints({}, prompt, "anthropic", own_system=True)
        written: list[dict[str, Any]] = settings["extra_body"]["system"]
        assert "".join(block["text"] for block in written) == prompt.head
        assert all(block["text"].strip() for block in written)
        return written

    shown = [(block["text"], "cache_control" in block) for block in blocks(PROMPT)]
    assert shown == [
        ("You route messages.", True), ("\n\n<notes>", False), (f"\n{PLAYBOOK[1]}", True),
        ("\n[e65] (rules) Check.", False), ("\n[e66] x", True), ("\n</notes>", False),
    ]  # fmt: skip
    assert ["cache_control" in block for block in blocks(Prompt("Instructions.", "?", ("looked up",), fixed=0))] == [
        True, False
    ]  # fmt: skip
    assert len(blocks(Prompt("", "?", ("a", "b")))) == 2


def test_a_request_to_anthropic_has_four_breakpoints_and_the_cache_is_counted_and_priced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs("anthropic")
    environment = {"ANTHROPIC_BASE_URL": "{base}", "ANTHROPIC_API_KEY": "sk-ant"}
    reply, [request] = ask(monkeypatch, "anthropic:claude-haiku-4-5", ok(CLAUDE), **environment)
    assert request.line == "POST /v1/messages"
    assert (request.body.count('"cache_control"'), "".join(part["text"] for part in request.json["system"])) == (
        4, PROMPT.head
    )  # fmt: skip
    assert request.json["messages"][1]["content"][-1]["cache_control"]["type"] == "ephemeral"
    assert "cache_control" not in request.json["messages"][2]["content"][0]
    assert reply.usage == WRITTEN
    own = ModelOptions(extra_body={"cache_control": {"type": "ephemeral"}})
    _, [request] = ask(monkeypatch, "anthropic:claude-haiku-4-5", ok(CLAUDE), options=own, **environment)
    assert request.body.count('"cache_control"') == 1


@pytest.mark.parametrize("batch", [1, 4])
def test_learning_reads_most_of_its_input_from_the_cache_of_anthropic(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    needs("anthropic")
    from claude_cache_bench import measure

    # The bench sets these variables.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    used = asyncio.run(measure("ace", 40, batch))
    assert used.cached_share > 0.5
    assert used.cache_write_tokens < 0.2 * used.input_tokens


@asynchronous
async def test_each_call_of_an_agent_with_tools_has_a_breakpoint_after_its_earlier_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("anthropic")

    def look(place: str) -> str:
        """Look at a place."""
        return f"{place} is empty"

    def respond(body: dict[str, Any]) -> str:
        finished = len(body["messages"]) >= 5
        action = {"finish": {"answer": "done"}} if finished else {"look": {"place": "the shelf"}}
        return json.dumps({"thought": "So.", "action": action})

    async with serve(ServerOptions(responder=respond)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
        context = seed_context([("rules", "If in doubt, look.")])
        await practicum.evaluate(
            make_tasks(1), context=context, parts=practicum.Parts(tools=[look]), model="anthropic:claude-haiku-4-5",
            out=tmp_path / "run",
        )  # fmt: skip
        bodies = [request.json() for request in server.requests]
    marked = [[n for n, turn in enumerate(one["messages"]) if "cache_control" in json.dumps(turn)] for one in bodies]
    assert marked == [[], [1], [3]]


# Bedrock and Vertex AI


def test_a_model_in_bedrock_is_asked_by_converse_with_cache_points(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("boto3", "bedrock")
    environment = {
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "{base}", "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    name = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
    reply, [request] = ask(monkeypatch, f"bedrock:{name}", ok(CONVERSE), **environment)
    assert request.line == f"POST /model/{name.replace(':', '%3A')}/converse"
    assert "/eu-central-1/bedrock/aws4_request" in request.headers["authorization"]
    assert [*request.json["system"][-1]] == ["cachePoint"]
    assert request.json["messages"][-1]["content"] == [{"text": "2+2?"}]
    assert (reply.text, reply.usage.cached_tokens, reply.usage.cache_write_tokens) == ("4", 2000, 1000)
    assert reply.usage.usd is not None
    with refused("model.not_a_server"):
        open_upstream(f"bedrock:{name}", tmp_path, 60)
    with refused("model.no_key"):
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        Models().open(f"bedrock:{name}")


def test_a_model_in_vertex_ai_is_asked_with_the_token_of_a_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("google.genai", "google")
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "private_key": key.decode(), "client_email": "a@p.iam.gserviceaccount.com"}
    path = tmp_path / "account.json"

    def write_account(base: str) -> None:
        path.write_text(json.dumps({**account, "token_uri": f"{base}/token"}))

    sent = ok({**GEMINI, "access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"})
    environment = {
        "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "europe-west4", "GOOGLE_VERTEX_BASE_URL": "{base}",
        "GOOGLE_APPLICATION_CREDENTIALS": str(path),
    }  # fmt: skip
    name = "google-cloud:gemini-2.5-flash"
    reply, [token, request] = ask(monkeypatch, name, sent, prepare=write_account, **environment)
    assert token.line == "POST /token"
    place = "/v1beta1/projects/p/locations/europe-west4/publishers/google/models/gemini-2.5-flash:generateContent"
    assert (request.line, request.headers["authorization"]) == (f"POST {place}", "Bearer ya29.token")
    assert (reply.text, reply.usage.input_tokens, reply.usage.cached_tokens) == ("4", 3009, 2000)
    assert reply.usage.usd is not None
