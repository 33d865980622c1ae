"""What failures of a provider's model mean, by the errors of pydantic-ai: whether a try may help, and what to say."""

from __future__ import annotations

from pydantic_ai import exceptions

from practicum.core.errors import ModelError, ProviderError, WindowError
from practicum.core.words import quantity
from practicum.models.client import WINDOW_ADVICE, causes

NO_SUCH_INTERFACE = (400, 404, 405, 501)
"""The statuses with which servers answer at an address of the protocol that they do not have."""


def is_unknown_interface(error: BaseException) -> bool:
    """Whether the server does not know the interface that was asked."""
    return isinstance(error, exceptions.ModelHTTPError) and error.status_code in NO_SUCH_INTERFACE


def is_rate_limit(error: BaseException) -> bool:
    return isinstance(error, exceptions.ModelRateLimitError)


_PERMANENT: dict[type[Exception], tuple[type[ModelError], str]] = {
    exceptions.ModelAuthenticationError: (
        ModelError,
        "{name} refused the key: check the variable of its key in the environment (of an address: `api_key_env`)",
    ),
    exceptions.ModelNotFoundError: (
        ModelError,
        "{name} was not found: check the model's name and the address (most end in /v1)",
    ),
    exceptions.ModelContextWindowExceededError: (
        WindowError,
        f"the prompt is larger than the window of {{name}}: {WINDOW_ADVICE}",
    ),
    exceptions.ModelQuotaExceededError: (ModelError, "the account of {name} has no credit left"),
    exceptions.ModelRequestRejectedError: (
        ModelError,
        "{name} rejected the request: without support of JSON schemas, try `structure=tool` or `structure=prompted`",
    ),
    exceptions.UserError: (ModelError, "{name} cannot be used"),
}
"""The error that is raised, and its text."""


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help: rate limits, overload, server errors, broken connections, unreadable replies."""
    if isinstance(error, exceptions.ModelQuotaExceededError | exceptions.ModelRequestRejectedError):
        return isinstance(error, exceptions.ModelHTTPError) and error.status_code in (408, 409, 425)
    if isinstance(error, exceptions.ModelAPIError | exceptions.UnexpectedModelBehavior):
        return True
    return not isinstance(error, exceptions.AgentRunError | exceptions.UserError)


def is_unreachable(error: BaseException) -> bool:
    """Whether there seems to be no model server: no connection, or a reply that is not one of a model server."""
    if isinstance(error, exceptions.ModelTimeoutError):
        return bool(_no_connection(error))
    unreadable = isinstance(error, exceptions.UnexpectedModelBehavior) or isinstance(error.__cause__, ValueError)
    return unreadable or isinstance(error, exceptions.ModelConnectionError)


def _no_connection(error: BaseException) -> str:
    """Why no connection was made; empty if one was. The transport of aiohttp reports a refused one as a timeout."""
    chain = causes(error)
    refused = any(type(cause).__name__.startswith(("Connect", "ClientConnect")) for cause in chain)
    return " ".join(str(chain[-1]).split()) if refused else ""


def unanswered(name: str, error: BaseException, tries: int | None = None) -> str:
    """What to say of a call that stays without an answer after all tries, or (None) of a server that never gave one."""
    refused = _no_connection(error)
    if refused or (tries is None and isinstance(error, exceptions.ModelConnectionError)):
        often, refused = f" after {quantity(tries, 'try')}" if tries else "", refused or error_summary(error)
        return f"cannot reach {name}{often}: is the server up, and the address right? ({refused})"
    if tries is None:
        return (
            f"{name} does not answer as a model server does: check the address (it ends in /v1) and whether a proxy or "
            f"a login page stands in between ({error_summary(error)})"
        )
    said = error_summary(error).rstrip(".")
    return f"{name} failed {quantity(tries, 'time')}: {said}; is the server up and not overloaded?"


def permanent_error(name: str, error: BaseException) -> ModelError | ProviderError:
    """The error for a failure that no retry can fix."""
    for kind, (raised, text) in _PERMANENT.items():
        if isinstance(error, kind):
            return raised(f"{text.format(name=name)} ({error_summary(error)})")
    return ProviderError(f"{name} failed: {error_summary(error)}")


def error_summary(error: BaseException) -> str:
    """What the provider said on one line, with its status; else the error and its cause. It is cut to 300 characters:
    some providers answer with pages of HTML."""
    if refused := _no_connection(error):
        return f"no connection: {refused}"
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else None
    if isinstance(error, TimeoutError):
        return "the call took longer than `timeout` allows"
    text = " ".join((f"{getattr(error, 'status_code', '')} {said}" if said else str(error)).split())
    text = text or type(error).__name__
    cause = " ".join(str(error.__cause__ or "").split())
    if cause and not said and cause not in text:
        text = f"{text} ({cause})"
    return text if len(text) <= 300 else text[:300] + "…"
