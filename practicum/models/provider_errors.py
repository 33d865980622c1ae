"""What the errors of pydantic-ai mean: whether a retry can help, and the error in one line if none can."""

from __future__ import annotations

from pydantic_ai import exceptions as e

from practicum.core.errors import ModelError, ProviderError, WindowError
from practicum.models.client import WINDOW_ADVICE, causes

_PERMANENT: dict[type[Exception], tuple[type[ModelError], str]] = {
    e.ModelAuthenticationError: (ModelError, "{name} refused the key: check its API key in the environment"),
    e.ModelNotFoundError: (ModelError, "{name} was not found: check the model's name and the address"),
    e.ModelContextWindowExceededError: (
        WindowError,
        f"the prompt is larger than the window of {{name}}: {WINDOW_ADVICE}",
    ),
    e.ModelQuotaExceededError: (ModelError, "the account of {name} has no credit left"),
    e.ModelRequestRejectedError: (
        ModelError,
        "{name} rejected the request: if it does not support JSON schemas, try --structure tool or prompted",
    ),
    e.UserError: (ModelError, "{name} cannot be used"),
}
"""The error that is raised, and its text."""


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help: rate limits, overload, server errors, broken connections, unreadable replies."""
    if isinstance(error, e.ModelQuotaExceededError | e.ModelRequestRejectedError):
        return isinstance(error, e.ModelHTTPError) and error.status_code in (408, 409, 425)
    return isinstance(error, e.ModelAPIError | e.UnexpectedModelBehavior)


def is_unreachable(error: BaseException) -> bool:
    """Whether there seems to be no model server: no connection, or a reply that is not one of a model server."""
    if isinstance(error, e.ModelTimeoutError):
        # aiohttp's transport reports a refused connection as a timeout.
        return any(type(cause).__name__.startswith("Connect") for cause in causes(error))
    unreadable = isinstance(error, e.UnexpectedModelBehavior) or isinstance(error.__cause__, ValueError)
    return unreadable or isinstance(error, e.ModelConnectionError)


def unreachable_error(name: str, error: BaseException) -> ModelError:
    """The error for a server that never answered as a model server does."""
    if isinstance(error, e.ModelConnectionError):
        reason = " ".join(str(causes(error)[-1] or error).split())
        return ModelError(f"cannot reach {name}: is the server up, and the address right? ({reason})")
    return ModelError(
        f"{name} does not answer as a model server does: check the address (it ends in /v1) and whether a proxy "
        f"or a login page stands in between ({error_summary(error)})"
    )


def permanent_error(name: str, error: BaseException) -> ModelError | ProviderError:
    """The error for a failure that no retry can fix."""
    for kind, (raised, text) in _PERMANENT.items():
        if isinstance(error, kind):
            return raised(f"{text.format(name=name)} ({error_summary(error)})")
    return ProviderError(f"{name} failed: {error_summary(error)}")


def error_summary(error: BaseException) -> str:
    """The error and its cause on one line, cut to 300 characters: some providers answer with pages of HTML."""
    text = " ".join(str(error).split())
    cause = " ".join(str(error.__cause__ or "").split())
    if cause and cause not in text:
        text = f"{text} ({cause})"
    return text if len(text) <= 300 else text[:300] + "…"
