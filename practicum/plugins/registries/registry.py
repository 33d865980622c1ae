"""Parts that the registries share: escaping of template syntax, and errors for the answers of a server."""

from __future__ import annotations

import re

from practicum.core.errors import PracticumError, UsageError
from practicum.core.words import one_line

_SYNTAX = re.compile(r"\{(?=[{%])|@(?=@@langfusePrompt)|\\(?=x(?:7b|40|5c))")
_ESCAPED = re.compile(r"\\x(7b|40|5c)")


def escaped(text: str) -> str:
    r"""Escape the beginnings of template syntax, as in `\x7b{name}}`. In learned text, this syntax would be a variable
    or a program of MLflow's and Langfuse's `format` and `compile`, or would include another prompt of Langfuse."""
    return _SYNTAX.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def unescaped(text: str) -> str:
    """Return the text that `escaped` was called with."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def failure(status: int, detail: str, registry: str, *variables: str) -> PracticumError:
    """Return the error for an answer of a registry with this HTTP status. `detail` is the registry's message;
    `variables` are the environment variables with the address of the registry, then with its keys."""
    reason = one_line(re.sub(r"//[^/@\s]+@", "//", detail), 300)
    address, *keys = variables
    if status in (401, 403):
        return UsageError("registry.key_refused", f"{registry} refused the key ({reason}): set {' and '.join(keys)}")
    if status == 404:
        return UsageError("registry.not_found", f"{registry}: {reason}")
    if 400 <= status < 500 and status not in (408, 409, 429):
        return UsageError("registry.refused", f"{registry} refused the request: {reason}")
    return PracticumError(
        "registry.unreachable", f"{registry} does not answer ({reason}): check {address}, and repeat the command"
    )
