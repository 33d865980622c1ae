"""Blocks: parts of a program that handle one task or one session. A block sends its report at its end.

Model calls of wrapped clients inside a block carry the session and the user of the block. This includes calls in
asyncio tasks that the block starts.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from practicum.client.link import Link, Wait, drive
from practicum.core.errors import PracticumError, StoreError, UsageError

if TYPE_CHECKING:
    from practicum.serve.answers import Reported

CONTEXT_TIMEOUT = 1.0
"""Time (s) that a task waits for its context; then the task continues without a context."""

MAX_NAME = 200
"""Largest length (characters) of the name of a session or a user. The name is sent in a header."""


class ReportFields(TypedDict, total=False):
    """Outcome of an answer.

    `score`: in [0, 1]. `target`: the right answer. `comment`: a description of the mistake. `label`: a word such as
    thumbs_up. `answer`: the answer itself, if practicum has not seen the answer."""

    score: float | None
    target: str | None
    comment: str | None
    label: str | None
    answer: str | None


def require_report(fields: ReportFields) -> None:
    """Raise UsageError if the fields are not a valid report."""
    from practicum.core.forms import read_form
    from practicum.session.outcomes import Report

    values = {name: value for name, value in fields.items() if value is not None}
    read_form(Report, {**values, "session": "-"})


_block: ContextVar[_Block | None] = ContextVar("practicum_block", default=None)
_last: ContextVar[str | None] = ContextVar("practicum_interaction", default=None)


def current_block() -> _Block | None:
    """Return the innermost block around the caller, or None."""
    return _block.get()


def set_interaction(interaction: str | None) -> None:
    """Set the id of the last interaction (see `interaction`); None if the last call did not become an interaction."""
    if (current := current_block()) is None:
        _last.set(interaction)
    else:
        current.last = interaction


def interaction() -> str | None:
    """Return the id of the last interaction of the current block or, outside of blocks, of the current asyncio task or
    thread. None before the first call, or if the last call did not become an interaction."""
    current = current_block()
    return _last.get() if current is None else current.last


class _Block:
    """Base class of blocks. `outcome`: answer of the space to the report of the block. The block sets `outcome` at its
    end; None if no report was stored."""

    def __init__(self, link: Link, session: str | None, user: str | None) -> None:
        self._outer = outer = current_block()
        self.session: str | None = require_name("session", session or (outer.session if outer else None))
        self.user: str | None = require_name("user", user or (outer.user if outer else None))
        self.outcome: Reported | None = None
        self.last: str | None = None
        self._link = link
        self._report: ReportFields = {}

    def report(self, **fields: Unpack[ReportFields]) -> None:
        """Set fields of the report about this block. The block sends the report at its end and waits until the
        report is stored. If the block has a user, the report counts as a report of this user. Raises UsageError for an
        invalid report."""
        require_report(fields)
        self._report.update(fields)

    async def _begin(self, wait: Wait) -> Self:
        _block.set(self)
        return self

    async def _end(self, wait: Wait, failing: bool) -> None:
        # The variable is not reset by a token (`ContextVar.reset`), because a block that is a dependency of a web
        # framework may end in a different context (`contextvars`) than the context in which the block began.
        _block.set(self._outer)
        set_interaction(self.last)
        if not self._report:
            return
        try:
            self.outcome = await wait(self._link.perform("report", self._reported(), user=self.user))
        except PracticumError as error:
            if isinstance(error, UsageError) and not failing:
                raise
            # A failed report must not hide an error of the block, nor stop an answer that a user waits for.
            self._link.warn("dropped reports", error)

    def _reported(self) -> dict[str, Any]:
        return {**self._report, "session": self.session}

    def __enter__(self) -> Self:
        return drive(self._begin(self._link.run_blocking))

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        drive(self._end(self._link.run_blocking, kind is not None))

    async def __aenter__(self) -> Self:
        return await self._begin(self._link.wait)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._end(self._link.wait, kind is not None)


class SessionBlock(_Block):
    """A session, such as a conversation or a ticket. The score of a report counts for all answers of the session; the
    other fields of the report are about the last answer."""


class TaskBlock(_Block):
    """A task of an agent that builds its prompt itself.

    `context`: learned text for the prompt, from the version `version`. `entries`: ids of the entries that were found
    for the input, with their similarities to the input. `corrections`: numbers of the corrections that were found (5
    for `c5`). Set `answer` to the answer of the agent, which is then stored as text. If the context does not arrive in
    time, `context` is empty, `interaction` is None, and reports are dropped.
    """

    def __init__(self, link: Link, input: str, session: str | None, user: str | None) -> None:
        super().__init__(link, session, user)
        if not input.strip():
            raise UsageError("query.empty", "the input of the task is empty: pass a text")
        self.input = input
        self.answer: object = None
        self.context = ""
        self.interaction: str | None = None
        self.version: int | None = None
        self.entries: list[tuple[str, float]] = []
        self.corrections: list[int] = []

    async def _begin(self, wait: Wait) -> Self:
        try:
            recalling = self._link.perform("recall", {"input": self.input}, session=self.session, user=self.user)
            shown = await wait(asyncio.wait_for(recalling, CONTEXT_TIMEOUT))
        except UsageError:
            raise
        except Exception as error:
            self._link.warn("tasks without a context", error)
        else:
            self.context, self.interaction, self.version = shown.text, shown.interaction, shown.version
            self.entries, self.corrections = [(id, near) for id, near in shown.entries], shown.corrections
        await super()._begin(wait)
        if self.interaction is not None:
            set_interaction(self.interaction)
        return self

    async def _end(self, wait: Wait, failing: bool) -> None:
        from practicum.serve.protocols import MOST_TEXT

        if self.answer:
            self._report = {"answer": str(self.answer)[:MOST_TEXT], **self._report}
        await super()._end(wait, failing)

    def _reported(self) -> dict[str, Any]:
        if self.interaction is None:
            raise StoreError(
                "service.unreachable",
                "the task has no interaction, because its context did not arrive in time: the report was dropped",
            )
        return {**self._report, "interaction": self.interaction}


def require_name(field: str, name: str | None) -> str | None:
    """Return the name of a session or a user, unchanged. Raises UsageError if the name cannot be sent in a header."""
    if name is not None and not (name.isascii() and name.isprintable() and len(name) <= MAX_NAME and name.strip()):
        raise UsageError(
            "request.malformed",
            f"invalid {field} {name!r:.80}: use 1 to {MAX_NAME} printable ASCII characters",
        )
    return name
