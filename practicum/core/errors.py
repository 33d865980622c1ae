"""One tree of errors, named by the boundary that was crossed. All are picklable and print as one line.

`exit_code` is what the command line leaves with: 2 for wrong use, 1 for a failure of the world.
"""

from __future__ import annotations


class PracticumError(Exception):
    """Any failure practicum knows of; its text says what was wrong, where, and what to do."""

    exit_code = 1


class UsageError(PracticumError):
    """The caller asked for something that cannot be: an unknown name, a setting that does not apply."""

    exit_code = 2


class TaskFileError(UsageError):
    """A file of tasks is missing, empty or malformed; the text names file, line and field."""


class ContextFileError(UsageError):
    """A playbook file cannot be read as one."""


class StoreError(PracticumError):
    """A run folder cannot be opened or written: another version, held by another process, a full disk."""


class NotARun(StoreError):
    """A folder that should hold a run holds none."""

    exit_code = 2


class JournalMismatch(PracticumError):
    """The journal holds an answer to another question at this place: the program or its settings changed."""


class PlaceTaken(PracticumError):
    """A place was opened twice in one process: two effects would share a journal row."""


class ModelError(PracticumError):
    """A model cannot be used at all: unknown name, no key, wrong model, prompt over its window. Stops the run."""


class WindowError(ModelError):
    """A prompt is larger than its model's window."""


class ProviderError(PracticumError):
    """A provider failed after all retries (down, slow, 429, 5xx, unreadable reply). Lost, counted, survivable."""


class OutputError(PracticumError):
    """A model gave no output that fits its schema, also after it was asked again, or after its prompt was cut."""


class AgentError(PracticumError):
    """The agent under training (a program or a function) failed on one task."""


class Stopped(PracticumError):
    """No new work may start: a budget is spent or the user asked to stop. `reason` names which."""

    exit_code = 0

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
