"""HTTP transport to servers of the OpenAI protocol. Servers are untrusted: replies are limited and reduced to the used
fields.

A reply is read up to a maximum size. A reply must not be compressed, because a small compressed reply may unpack to any
size. Redirects are not followed, because they would send the key and the prompts to another address. Of a completion,
only the first choice and the token counts are kept, because other fields may break the libraries that parse the
completion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from practicum.core.certificates import require_certificates
from practicum.core.errors import ProviderError
from practicum.core.types import MOST_TOKENS
from practicum.models.keys import key_headers, without_query

if TYPE_CHECKING:
    from openai import AsyncOpenAI, DefaultAioHttpClient

MAX_REPLY_MB = 16.0
"""Default maximum size of a reply (MB)."""

_COMPLETIONS = "/chat/completions"

_NO_KEY = "none"
"""Placeholder for a key, which the `openai` client requires. No request is sent with it."""


class RefusedReply(ProviderError):
    """Error for a rejected reply. Retrying the call would not help."""


def connect(address: str, key: str | None, max_reply_mb: float = MAX_REPLY_MB, retries: int = 0) -> AsyncOpenAI:
    """Return a client for the server at an address. The query of the address, such as Azure's `api-version`, is sent
    with each request. Without a key, no header for a key is sent. `retries` is the number of retries of a failed
    call."""
    from openai import AsyncOpenAI

    base, query = without_query(address)
    return AsyncOpenAI(
        base_url=base, api_key=_NO_KEY, http_client=http_client(address, max_reply_mb), max_retries=retries,
        default_query=dict(parse_qsl(query, keep_blank_values=True)),
        default_headers=key_headers(address, key) if key else {},
    )  # fmt: skip


def http_client(address: str, max_reply_mb: float) -> DefaultAioHttpClient:
    """Return an HTTP client for an untrusted server."""
    if not address.startswith("http://"):
        require_certificates()
    make: type[Any] = _bounded_client()
    verify, headers = _certificates(address.startswith("http://")), {"Accept-Encoding": "identity"}
    client: DefaultAioHttpClient = make(
        verify=verify, follow_redirects=False, headers=headers, most=int(max_reply_mb * 1e6)
    )
    return client


@cache
def _certificates(none: bool) -> SSLContext:
    """Return the SSL context with the trusted certificates. With `none` the context has no certificates, because
    loading them takes 40 ms and plain HTTP does not need them."""
    import ssl

    from httpx2 import create_ssl_context

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if none else create_ssl_context()


@cache
def _bounded_client() -> Any:
    """Return the class of the HTTP client. The class is defined lazily, because the import of its base class is
    slow."""
    from openai import DefaultAioHttpClient

    class BoundedClient(DefaultAioHttpClient):
        def __init__(self, *, most: int, **settings: Any) -> None:
            super().__init__(**settings)
            self._most = most

        async def send(self, request: Any, **options: Any) -> Any:
            """Send a request and read the reply. Raises RefusedReply for a redirect, a compressed reply, or a reply
            above the maximum size."""
            if request.headers.get("authorization") == f"Bearer {_NO_KEY}":
                del request.headers["authorization"]
            response = await super().send(request, **{**options, "stream": True})
            try:
                if response.is_redirect:
                    where = response.headers.get("location", "nowhere")
                    raise RefusedReply(
                        "provider.bad_reply",
                        f"it redirects to {where[:200]!r}, which is not followed: use that address if you trust it",
                    )
                if (coding := response.headers.get("content-encoding", "identity").lower()) != "identity":
                    raise RefusedReply(
                        "provider.bad_reply", f"the reply is compressed ({coding[:40]}), which was not asked for"
                    )
                parts, size = [], 0
                async for part in response.aiter_raw():
                    parts.append(part)
                    if (size := size + len(part)) > self._most:
                        raise RefusedReply(
                            "provider.bad_reply",
                            f"the reply has more than {self._most / 1e6:g} MB (see `max_reply_mb`)",
                        )
            finally:
                await response.aclose()
            body = b"".join(parts)
            status = response.status_code
            if status == 200 and request.url.path.endswith(_COMPLETIONS):
                status = error_status(body)
                cost = response.headers.get(_LITELLM_COST)
                body = plain_completion(body, cost) if status == 200 else body
            headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in _OF_THE_BODY]
            return type(response)(status, headers=headers, content=body, request=request)

    return BoundedClient


_OF_THE_BODY = ("content-length", "content-encoding", "transfer-encoding")


def error_status(body: bytes) -> int:
    """Return the HTTP status that fits a body which was sent with status 200. Some gateways send errors with status
    200: the body has an error and no choices, or the first choice has an error. An error without a status gets status
    429 if its code or type names a rate limit, 400 if its type says that the request is invalid, and otherwise 502
    (server error)."""
    if b'"error"' not in body:
        return 200
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return 200
    if not isinstance(reply, dict):
        return 200
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    error = choice.get("error") or (None if choice else reply.get("error"))
    if not error:
        return 200
    fields = error if isinstance(error, dict) else {}
    code, kind = str(fields.get("code") or fields.get("status") or ""), str(fields.get("type") or "")
    if code.isdecimal() and 400 <= int(code) < 600:
        return int(code)
    if "rate_limit" in code + kind:
        return 429
    return 400 if "invalid" in kind else 502


def plain_completion(body: bytes, cost: str | None = None) -> bytes:
    """Reduce a chat completion to the fields that are used. `cost` (US dollars) comes from a header. A body that is not
    a completion is returned unchanged; the code that parses it reports the error. Raises RefusedReply for JSON that is
    nested too deeply.
    """
    try:
        reply = json.loads(body)
    except ValueError:
        return body
    except RecursionError as error:
        raise RefusedReply("provider.bad_reply", "the reply is JSON that is nested too deeply") from error
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return body
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return body
    finish, model, id_ = choices[0].get("finish_reason"), reply.get("model"), reply.get("id")
    fields = {name: message[name] for name in ("content", "refusal", "tool_calls") if message.get(name) is not None}
    fields |= {name: message[name] for name in ("reasoning_content", "reasoning") if isinstance(message.get(name), str)}
    choice = {
        "index": 0, "message": {"role": "assistant", "content": None, **fields},
        "finish_reason": finish if finish in _FINISHES else "stop",
    }  # fmt: skip
    plain = {
        "id": id_ if isinstance(id_, str) else "", "object": "chat.completion", "created": 0,
        "model": model if isinstance(model, str) else "", "choices": [choice], "usage": _plain_usage(reply, cost),
    }  # fmt: skip
    return json.dumps(plain).encode()


_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")


_LITELLM_COST = "x-litellm-response-cost"
"""Header of a LiteLLM proxy with the cost of a call (US dollars)."""


def _plain_usage(reply: dict[str, Any], cost: str | None) -> dict[str, Any]:
    """Return the token counts and the cost of a reply; missing and invalid numbers are 0. LiteLLM reports the tokens
    that were written to a cache in Anthropic's field."""
    usage = _mapping(reply.get("usage"))
    details = _mapping(usage.get("prompt_tokens_details"))
    created = details.get("cache_write_tokens") or usage.get("cache_creation_input_tokens")
    read, written = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    return {
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
        "prompt_tokens_details": {
            "cached_tokens": _count(details.get("cached_tokens")), "cache_write_tokens": _count(created)
        },
        "cost": reported_cost(usage) or _cost(cost),
    }  # fmt: skip


def reported_cost(usage: Mapping[str, Any]) -> float:
    """Return the cost (US dollars) in the usage of a reply of OpenRouter, or 0. For a user with a key of the upstream
    provider, the cost is OpenRouter's fee plus the cost at the provider."""
    details = _mapping(usage.get("cost_details"))
    upstream = details.get("upstream_inference_cost") if usage.get("is_byok") is True else 0
    return _cost(usage.get("cost")) + _cost(upstream)


_MOST_USD = 1e4
"""Largest plausible cost of a call (US dollars)."""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _cost(value: Any) -> float:
    """Return a plausible cost, or 0 for any other value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0 < number <= _MOST_USD else 0.0


def _count(value: Any) -> int:
    """Return a token count, or 0 if the value is not a valid count."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0
