"""HTTP transport to servers of the OpenAI protocol. Servers are untrusted: replies are limited and reduced to the used
fields.

A reply is read up to a maximum size. A reply must not be compressed, because a small compressed reply may unpack to any
size. Redirects are not followed, because they would send the key and the prompts to another address. Of a completion,
only the first choice and the token counts are kept, because other fields may break the libraries that parse the
completion.
"""

from __future__ import annotations

import json
from functools import cache
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from practicum.core.certificates import require_certificates
from practicum.core.errors import ProviderError
from practicum.core.types import MOST_TOKENS

if TYPE_CHECKING:
    from openai import AsyncOpenAI, DefaultAioHttpClient

MAX_REPLY_MB = 16.0
"""Default maximum size of a reply (MB)."""

_COMPLETIONS = "/chat/completions"


class RefusedReply(ProviderError):
    """Error for a rejected reply. Retrying the call would not help."""


def connect(address: str, key: str | None, max_reply_mb: float = MAX_REPLY_MB, retries: int = 0) -> AsyncOpenAI:
    """Return a client for the server at an address. `retries` is the number of retries of a failed call."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(
        base_url=address.rstrip("/"), api_key=key or "none", http_client=http_client(address, max_reply_mb),
        max_retries=retries,
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
                body = plain_completion(body) if status == 200 else body
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


def plain_completion(body: bytes) -> bytes:
    """Reduce a chat completion to the fields that are used. A body that is not a completion is returned unchanged; the
    code that parses it reports the error. Raises RefusedReply for JSON that is nested too deeply.
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
    choice = {
        "index": 0, "message": {"role": "assistant", "content": None, **fields},
        "finish_reason": finish if finish in _FINISHES else "stop",
    }  # fmt: skip
    plain = {
        "id": id_ if isinstance(id_, str) else "", "object": "chat.completion", "created": 0,
        "model": model if isinstance(model, str) else "", "choices": [choice], "usage": _plain_usage(reply),
    }  # fmt: skip
    return json.dumps(plain).encode()


_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")


def _plain_usage(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the token counts of a reply; missing and invalid counts are 0."""
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    read, written = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    return {
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }  # fmt: skip


def _count(value: Any) -> int:
    """Return a token count, or 0 if the value is not a valid count."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0
