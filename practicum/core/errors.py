"""Errors of practicum. Each has a code (core/codes.py), can be pickled, and prints as one line: the problem, and
how to solve it.

PracticumError
├── UsageError            wrong use: an unknown name, a setting that does not apply
│   ├── TaskFileError     a file of tasks is missing, empty or malformed
│   └── ContextFileError  a playbook file cannot be read
├── MethodError           a method returned a wrong value from a seam
├── StoreError            a run folder cannot be opened or written
│   ├── NotARun           the folder contains no run
│   ├── StoreAway         a database server cannot be reached now
│   └── RunBusy           another process is writing to the folder
├── JournalMismatch       the journal has the result of another request than the run makes now
├── PlaceTaken            two effects have the same place in the journal
├── ModelError            a model cannot be used in this run
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
"""A plain JSON value."""


class ErrorBody(TypedDict):
    """Error as data, as `--json`, HTTP and MCP return it."""

    code: str
    message: str
    fields: Mapping[str, Json]


def error_body(code: str, message: str) -> ErrorBody:
    """Return the body for a failure that is not a PracticumError."""
    return {"code": code, "message": message, "fields": {}}


def received(error: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Json]]:
    """Return the code, message and fields of the `error` object in a service's answer. Raises KeyError if the
    object has no message. A code that this version does not know is replaced by `service.invalid_answer`."""
    code, fields = str(error.get("code")), error.get("fields")
    message = str(error["message"]).removeprefix("practicum: ")
    return code if code in CODES else "service.invalid_answer", message, fields if isinstance(fields, dict) else {}


class PracticumError(Exception):
    """Base class of all failures that practicum foresees.

    `code` is one of `CODES`, `str(error)` is the message, and `fields` has the values that a caller needs to react,
    such as the name of a setting. `exit_code` is the exit status of the command line. An unknown code raises
    ValueError.
    """

    exit_code = 1

    def __init__(self, code: str, message: str, /, **fields: Json) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is not an error code: add it to practicum/core/codes.py")
        super().__init__(message)
        self.code, self.fields = code, fields

    def body(self) -> ErrorBody:
        """Return the error as data."""
        return {"code": self.code, "message": str(self), "fields": self.fields}

    def __reduce__(self) -> tuple[Any, ...]:
        # A subclass may have an `__init__` that takes other arguments than `args`, so the copy is created without
        # calling `__init__`.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def _render_traceback_(self) -> list[str]:
        """Return the lines that notebooks show for the error (a hook of IPython): only the message."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(PracticumError):
    """The caller asked for something that does not exist or does not apply."""

    exit_code = 2


class PracticumWarning(UserWarning):
    """An operation was only partly done. The message is one line, which names the part that was not done."""


class TaskFileError(UsageError):
    """A task file is missing, empty or malformed; the text names the file, the line and the field."""


class ContextFileError(UsageError):
    """A playbook file cannot be read."""


class MethodError(PracticumError):
    """A method returned a wrong value from a seam; the text names the method, the seam and the step."""


class StoreError(PracticumError):
    """A run folder cannot be opened or written, because of another version, another process or a full disk."""


class NotARun(StoreError):
    """A folder that should contain a run contains none."""

    exit_code = 2


class StoreAway(StoreError):
    """A database server cannot be reached now; the operation can be retried."""


class RunBusy(StoreError):
    """Another process or object has a run folder open for writing."""


class JournalMismatch(PracticumError):
    """At the place of a request, the journal has the result of another request: the program or its settings changed."""


class PlaceTaken(PracticumError):
    """A place was opened twice in one process, so two effects would share a row of the journal."""


class ModelError(PracticumError):
    """A model cannot be used: unknown name, no key, no credit, wrong model. Stops the run."""


class ProviderError(PracticumError):
    """A provider failed after all retries (down, slow, 429, 5xx, invalid reply). The run counts the failure and
    continues."""


class RequestError(ProviderError):
    """A provider refused one request and would refuse it again; other requests may succeed. The run counts the refusal
    and continues.

    The code gives the reason: provider.filtered (content filter), window.exceeded (larger than the context window),
    output.invalid (no try gave valid output), provider.refused (any other reason).
    """


class WindowError(RequestError):
    """A prompt is larger than the context window of its model."""


class OutputError(PracticumError):
    """A model's output does not fit its schema, even after the request was repeated or its prompt was shortened."""


class AgentError(PracticumError):
    """The agent under training (a program or a function) failed on one task."""


class BrokenAgentError(PracticumError):
    """The agent failed on each of the first tasks, so nothing can be learned. The text quotes the first error."""


class Stopped(PracticumError):
    """No new work may start, because a budget is spent or the user asked to stop. `reason` is the message."""

    exit_code = 0

    @property
    def reason(self) -> str:
        return str(self)
