"""The errors of practicum. Each has a code (core/codes.py), can be pickled, and prints as one line: what is wrong, and
what to do.

PracticumError
├── UsageError            wrong use: an unknown name, a setting that does not apply
│   ├── TaskFileError     a file of tasks is missing, empty or malformed
│   └── ContextFileError  a playbook file cannot be read
├── MethodError           a method returned the wrong thing from a seam
├── StoreError            a run folder cannot be opened or written
│   ├── NotARun           it holds no run
│   └── RunBusy           somebody else is writing to it
├── JournalMismatch       the journal has the result of a different request
├── PlaceTaken            two effects have one place in the journal
├── ModelError            a model cannot be used at all
├── ProviderError         a provider failed after all retries
│   └── RequestError      a provider refused one request
│       └── WindowError   a prompt does not fit into its model's window
├── OutputError           an output does not fit its schema
├── AgentError            the agent under training failed on a task
├── BrokenAgentError      the agent failed on each of the first tasks
└── Stopped               a budget is spent, or the user asked to stop
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from practicum.core.codes import CODES

Json = str | int | float | bool | Sequence["Json"] | Mapping[str, "Json"] | None
"""A plain value of JSON."""


class ErrorBody(TypedDict):
    """An error as data: what `--json`, HTTP and MCP show of it."""

    code: str
    message: str
    fields: Mapping[str, Json]


def error_body(code: str, message: str) -> ErrorBody:
    """A failure that is not a PracticumError, as data."""
    return {"code": code, "message": message, "fields": {}}


def received(error: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Json]]:
    """Code, message and fields of the `error` in a service's answer. Raises KeyError if it has no message. A code that
    this version does not know counts as an invalid answer."""
    code, fields = str(error.get("code")), error.get("fields")
    message = str(error["message"]).removeprefix("practicum: ")
    return code if code in CODES else "service.invalid_answer", message, fields if isinstance(fields, dict) else {}


class PracticumError(Exception):
    """Any failure that practicum foresees.

    `code` is one of `CODES`, `str(error)` the message, and `fields` has values that a caller needs to react, such as
    the name of a setting. `exit_code` is that of the command line. An unknown code is a ValueError.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, /, **fields: Json) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is not a code of an error: add it to practicum/core/codes.py")
        super().__init__(message)
        self.code, self.fields = code, fields

    def body(self) -> ErrorBody:
        """The error as data."""
        return {"code": self.code, "message": str(self), "fields": self.fields}

    def __reduce__(self) -> tuple[Any, ...]:
        # `__init__` of a subclass takes other arguments than `args` has, so a copy is made without it.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def _render_traceback_(self) -> list[str]:
        """What notebooks show of the error (a hook of IPython): the message says all that is needed."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(PracticumError):
    """The caller asked for something that does not exist or does not apply."""

    exit_code = 2


class TaskFileError(UsageError):
    """A file of tasks is missing, empty or malformed; the text names file, line and field."""


class ContextFileError(UsageError):
    """A playbook file cannot be read."""


class MethodError(PracticumError):
    """A method returned the wrong thing from a seam; the text names method, seam and step."""


class StoreError(PracticumError):
    """A run folder cannot be opened or written: another version, held by another process, a full disk."""


class NotARun(StoreError):
    """A folder that should hold a run holds none."""

    exit_code = 2


class StoreAway(StoreError):
    """A database server cannot be reached now: what was asked of it may be asked again."""


class RunBusy(StoreError):
    """A run folder is open for writing elsewhere."""


class JournalMismatch(PracticumError):
    """The journal has the result of a different request at this place: the program or its settings changed."""


class PlaceTaken(PracticumError):
    """A place was opened twice in one process, so two effects would share a row of the journal."""


class ModelError(PracticumError):
    """A model cannot be used at all: unknown name, no key, no credit, wrong model. Stops the run."""


class ProviderError(PracticumError):
    """A provider failed after all retries (down, slow, 429, 5xx, invalid reply). The run counts it and goes on."""


class RequestError(ProviderError):
    """A provider refused one request, and would refuse it again; others may succeed. The run counts it and goes on.

    The code says why: provider.filtered (content filter), window.exceeded (larger than the context window),
    output.invalid (no valid output in all tries), provider.refused (anything else)."""


class WindowError(RequestError):
    """A prompt is larger than its model's window."""


class OutputError(PracticumError):
    """A model's output does not fit its schema, also after it was requested again or its prompt was shortened."""


class AgentError(PracticumError):
    """The agent under training (a program or a function) failed on one task."""


class BrokenAgentError(PracticumError):
    """The agent failed on each of the first tasks, so nothing can be learned. The text names the first error."""


class Stopped(PracticumError):
    """No new work may start, because a budget is spent or the user asked to stop. `reason` says which."""

    exit_code = 0

    @property
    def reason(self) -> str:
        return str(self)
