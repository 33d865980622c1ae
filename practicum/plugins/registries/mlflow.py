"""MLflow's prompt registry: https://mlflow.org/docs/latest/genai/prompt-registry.

The environment variable MLFLOW_TRACKING_URI (or MLFLOW_REGISTRY_URI) names a server or a database; a server may need
MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME with MLFLOW_TRACKING_PASSWORD. MLflow accepts letters, digits, `_`,
`-` and `.` in the name of a prompt, letters, digits, `_` and `-` in a label, and 100,000 characters in a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from practicum.core.errors import PracticumError, UsageError
from practicum.core.requirements import pip_install
from practicum.core.words import error_line
from practicum.plugins.registries.registry import escaped, failure, unescaped

TIMEOUT = 20
"""Timeout (s) for the first answer of a server."""

_MISSING = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE")
"""MLflow's error codes for a prompt, a version and a label that do not exist."""


def push(prompt: str, text: str, label: str, message: str) -> int:
    text = escaped(text)
    with _client() as client:
        current = _load(client, prompt, label)
        same = (stored for stored in (current, *_versions(client, prompt)) if stored and stored.template == text)
        if (version := next(same, None)) is None:
            # An application may use the settings of the model that are stored with the text of the label.
            settings = {name: getattr(current, name, None) for name in ("response_format", "model_config")}
            version = client.register_prompt(prompt, text, message, **settings)
        if version is not current:
            client.set_prompt_alias(prompt, label, version.version)
        return int(version.version)


def pull(prompt: str, version: str | None) -> str:
    with _client() as client:
        stored = _load(client, prompt, version or "latest")
    if stored is None:
        raise _failure(404, f"no prompt {prompt} with the version {version or 'latest'}")
    if not isinstance(stored.template, str):
        raise UsageError("registry.refused", f"the prompt {prompt} of MLflow is a chat: a playbook is a text prompt")
    return unescaped(stored.template)


def _load(client: Any, prompt: str, version: str) -> Any:
    """Return the version with this number or label, or None. Unlike `load_prompt` of MLflow, this reads no cache,
    and does not write to the registry that an experiment uses the prompt."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_prompt_version(prompt, version)
    except MlflowException as error:
        if error.error_code not in _MISSING:
            raise
        return None


def _versions(client: Any, prompt: str) -> Iterator[Any]:
    """Yield the versions of a prompt, newest first; none if the prompt does not exist."""
    token = "" if _load(client, prompt, "latest") is not None else None
    while token is not None:
        page = client.search_prompt_versions(prompt, page_token=token or None)
        yield from page
        token = page.token or None


@contextmanager
def _client() -> Iterator[Any]:
    """Return a client of the registry. In the block, errors of MLflow are raised as PracticumError."""
    if not all(map(find_spec, ("mlflow", "alembic"))):
        raise UsageError("extra.missing", f"the registry mlflow needs packages: {pip_install('mlflow')}")
    from mlflow import MlflowClient, get_registry_uri
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    try:
        if (address := get_registry_uri()).startswith(("http://", "https://")):
            # MLflow itself tries to reach a server for several minutes.
            credentials = get_default_host_creds(address)  # type: ignore[no-untyped-call]
            http_request(  # type: ignore[no-untyped-call]
                credentials, "/health", "GET", max_retries=0, timeout=TIMEOUT, raise_on_status=False
            )
        yield MlflowClient()
    except MlflowException as error:
        status = error.get_http_status_code()  # type: ignore[no-untyped-call]
        raise _failure(status, error.message) from error
    except (SQLAlchemyError, OSError, ImportError) as error:
        raise _failure(503, error_line(error)) from error


def _failure(status: int, detail: str) -> PracticumError:
    return failure(
        status, detail, "MLflow", "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD",
    )  # fmt: skip
