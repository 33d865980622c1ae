"""An agent behind an OpenAI-compatible endpoint: the context is its system message."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from practicum.agents.frameworks.common import AgentFunction, answer, identified, instructions, provider_errors
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from ssl import SSLContext


def endpoint(name: str, key: str | None = None, **request: Any) -> AgentFunction:
    """An agent named as http://host:port/v1#agent. `key` defaults to OPENAI_API_KEY; `request` goes into each request
    (temperature, extra_body, timeout, ...). Raises UsageError for a name of another form."""
    address, _, model = name.partition("#")
    if not address.startswith(("http://", "https://")) or not model:
        raise UsageError(f"endpoint {name!r} must have the form http://host:port/v1#name-of-the-agent")

    async def act(input: str, context: str) -> Any:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        system = instructions(context)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": input})
        http = DefaultAsyncHttpxClient(verify=_certificates())
        secret = key or os.environ.get("OPENAI_API_KEY", "none")
        with provider_errors(name):
            async with AsyncOpenAI(base_url=address, api_key=secret, http_client=http) as client:
                reply = await client.chat.completions.create(model=model, messages=messages, **request)
        return answer((reply.choices[0].message.content or "").strip(), [], context)

    return identified(act, f"endpoint({name})", "endpoint")


@cache
def _certificates() -> SSLContext:
    """Loaded once, since it takes 60 ms. A client lives for one attempt only, since it belongs to an event loop."""
    import ssl

    return ssl.create_default_context()
