"""An agent that is served behind an OpenAI-compatible endpoint: what was learned is its system message."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from practicum.agents.frameworks.common import Act, answer, instructions, providers
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from ssl import SSLContext


def endpoint(name: str, key: str | None = None, **asked: Any) -> Act:
    """`name` reads http://host:port/v1#agent; `key` is OPENAI_API_KEY where none is given; `asked` goes into each
    request (temperature, extra_body, timeout, ...)."""
    address, _, model = name.partition("#")
    if not address.startswith(("http://", "https://")) or not model:
        raise UsageError(f"endpoint {name!r} must read http://host:port/v1#name-of-the-agent")

    async def act(input: str, context: str) -> Any:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        system = instructions(context)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": input})
        http = DefaultAsyncHttpxClient(verify=_certificates())
        secret = key or os.environ.get("OPENAI_API_KEY", "none")
        with providers(name):
            async with AsyncOpenAI(base_url=address, api_key=secret, http_client=http) as client:
                reply = await client.chat.completions.create(model=model, messages=messages, **asked)
        return answer((reply.choices[0].message.content or "").strip(), [], context)

    act.__qualname__ = f"endpoint({name})"
    return act


@cache
def _certificates() -> SSLContext:
    """Read once, since that takes 60 ms; a client lives for one attempt, so that it belongs to no event loop."""
    import ssl

    return ssl.create_default_context()
