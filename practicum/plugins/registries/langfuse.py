"""Langfuse's prompt registry, by its public API: https://api.reference.langfuse.com.

LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY are the keys of a project. LANGFUSE_BASE_URL, or LANGFUSE_HOST as in older
versions of Langfuse's client, is the address of the server; the default is Langfuse's cloud. Langfuse accepts lower
case letters, digits, `_`, `-` and `.` in a label of at most 36 characters, and manages the label `latest` itself.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from practicum.core.certificates import require_certificates
from practicum.core.errors import PracticumError, UsageError
from practicum.core.words import error_line
from practicum.plugins.registries.registry import escaped, failure, unescaped

CLOUD = "https://cloud.langfuse.com"

TIMEOUT = 30.0
"""Timeout (s) of a request."""

_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")

_LABEL = re.compile(r"(?!latest$)[a-z0-9_.-]{1,36}")


class Prompt(BaseModel):
    """Version of a prompt. The prompt is a text, or the list of messages of a chat."""

    version: int
    prompt: str | list[Any]
    config: Any = None


class Refusal(BaseModel):
    """Body of an answer with an error. `error` is a list of the invalid fields, or the name of the error."""

    message: str
    error: Any = None

    @property
    def reason(self) -> str:
        """Message of the first invalid field, or else of the answer."""
        fields = self.error if isinstance(self.error, list) else []
        return next((str(f["message"]) for f in fields if isinstance(f, dict) and "message" in f), self.message)


def push(prompt: str, text: str, label: str, message: str) -> int:
    if not _LABEL.fullmatch(label):
        raise _failure(400, f"{label!r} is not a label: use 1 to 36 of a-z, 0-9, _ - and ., except latest")
    text = escaped(text)
    # Langfuse finds a version by its labels only. So a label with the digest of the text marks each pushed version.
    digest = f"practicum-{sha256(text.encode()).hexdigest()[:16]}"
    current = _get(prompt, label=label)
    if current is not None and current.prompt == text:
        return current.version
    same = _get(prompt, label=digest)
    if same is not None and same.prompt == text:
        _ask("PATCH", f"/{quote(prompt, safe='')}/versions/{same.version}", json={"newLabels": [label]})
        return same.version
    # An application may use the settings of the model that are stored with the text of the label.
    config = {} if current is None else current.config
    body = {
        "type": "text", "name": prompt, "prompt": text, "labels": [label, digest], "config": config,
        "commitMessage": message[:500],
    }  # fmt: skip
    return _ask("POST", "", json=body).version


def pull(prompt: str, version: str | None) -> str:
    stored = _get(prompt, **{"version" if (version or "").isdecimal() else "label": version or "latest"})
    if stored is None:
        raise _failure(404, f"no prompt {prompt} with the version or label {version or 'latest'}")
    if not isinstance(stored.prompt, str):
        raise UsageError("registry.refused", f"the prompt {prompt} of Langfuse is a chat: a playbook is a text prompt")
    return unescaped(stored.prompt)


def _get(prompt: str, **by: str) -> Prompt | None:
    """Return a version of a prompt by its label or number, or None. The text is unresolved: references to other prompts
    in the text are not replaced."""
    try:
        return _ask("GET", f"/{quote(prompt, safe='')}", params={**by, "resolve": "false"})
    except PracticumError as error:
        if error.code != "registry.not_found":
            raise
        return None


def _ask(method: str, path: str, **request: Any) -> Prompt:
    """Send a request to the API of prompts, and return the prompt in the answer."""
    address = os.environ.get("LANGFUSE_BASE_URL") or os.environ.get("LANGFUSE_HOST") or CLOUD
    public, secret = (os.environ.get(name, "") for name in _KEYS)
    if not public or not secret:
        raise _failure(401, "no key is set")
    require_certificates()
    url, status = f"{address.rstrip('/')}/api/public/v2/prompts{path}", 503
    try:
        answer = httpx2.request(method, url, auth=(public, secret), timeout=TIMEOUT, **request)
        if answer.is_success:
            return Prompt.model_validate_json(answer.content)
        status, reason = answer.status_code, Refusal.model_validate_json(answer.content).reason
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = f"{address}: {error_line(error)}"
    except ValidationError:
        # A server in between answers, or another server.
        status = answer.status_code if answer.status_code in (401, 403) else 503
        reason = f"{address} sends status {answer.status_code} without JSON of Langfuse"
    raise _failure(status, reason)


def _failure(status: int, detail: str) -> PracticumError:
    return failure(status, detail, "Langfuse", "LANGFUSE_BASE_URL", *_KEYS)
