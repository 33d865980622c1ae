"""Blocks of a program that belong together: a task, or a session. What is reported in one is sent when it ends.

Model calls of wrapped clients inside a block carry its session and user, also those in tasks that it starts.
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

LATE = 1.0
"""Seconds that a task waits for its context; then it goes on without."""

MOST_NAME = 200
"""Characters of a session's or a user's name: it travels in a header."""


class ReportFields(TypedDict, total=False):
    """What came of an answer. `score` is in [0, 1], `target` the right answer, `comment` what was wrong in words,
    `label` a word such as thumbs_up, and `answer` what was answered, where practicum has not seen it."""

    score: float | None
    target: str | None
    comment: str | None
    label: str | None
    answer: str | None


def require_report(fields: ReportFields) -> None:
    """Raises UsageError for fields that make no report."""
    from practicum.core.forms import read_form
    from practicum.session.outcomes import Report

    given = {name: value for name, value in fields.items() if value is not None}
    read_form(Report, {**given, "session": "-"})


_block: ContextVar[_Block | None] = ContextVar("practicum_block", default=None)
_last: ContextVar[str | None] = ContextVar("practicum_interaction", default=None)


def block() -> _Block | None:
    """The innermost block around the caller."""
    return _block.get()


def remember(interaction: str | None) -> None:
    """Note the id of an interaction that began; None for a call that becomes none."""
    if (here := block()) is None:
        _last.set(interaction)
    else:
        here.last = interaction


def interaction() -> str | None:
    """The id of the last interaction of the present block or, outside of blocks, of the present asyncio task or thread;
    None if the last call was shown nothing, or there was none."""
    here = block()
    return _last.get() if here is None else here.last


class _Block:
    """`outcome` is the answer to the report; None if there was none to store."""

    def __init__(self, link: Link, session: str | None, user: str | None) -> None:
        self._outer = outer = block()
        self.session: str | None = checked("session", session or (outer.session if outer else None))
        self.user: str | None = checked("user", user or (outer.user if outer else None))
        self.outcome: Reported | None = None
        self.last: str | None = None
        self._link = link
        self._said: ReportFields = {}

    def report(self, **said: Unpack[ReportFields]) -> None:
        """Say what came of it. It is sent when the block ends, and then on the disk. Where the block has a user, it is
        that user's word. Raises UsageError for what is no report."""
        require_report(said)
        self._said.update(said)

    async def _begin(self, wait: Wait) -> Self:
        _block.set(self)
        return self

    async def _end(self, wait: Wait, failing: bool) -> None:
        # Not by a token: a block that is a dependency of a web framework may end in another context.
        _block.set(self._outer)
        remember(self.last)
        if not self._said:
            return
        try:
            self.outcome = await wait(self._link.perform("report", self._reported(), user=self.user))
        except PracticumError as error:
            if isinstance(error, UsageError) and not failing:
                raise
            # An answer that a user waits for does not fail because of a report, nor does a report hide an error.
            self._link.warn("reports that were dropped", error)

    def _reported(self) -> dict[str, Any]:
        return {**self._said, "session": self.session}

    def __enter__(self) -> Self:
        return drive(self._begin(self._link.run_blocking))

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        drive(self._end(self._link.run_blocking, kind is not None))

    async def __aenter__(self) -> Self:
        return await self._begin(self._link.wait)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._end(self._link.wait, kind is not None)


class SessionBlock(_Block):
    """A session: a conversation, a ticket. A report is about its last answer and, with its score, about all of them."""


class TaskBlock(_Block):
    """A task of an agent that puts its prompt together itself.

    `context` is the text for the prompt: what was learned, as of `version`; `entries` were looked up, with their
    similarities, and so were `corrections`. Set `answer` to what the agent answered; its text is kept. Without a
    context in time, `context` is empty, `interaction` is None, and what is reported is dropped.
    """

    def __init__(self, link: Link, input: str, session: str | None, user: str | None) -> None:
        super().__init__(link, session, user)
        if not input.strip():
            raise UsageError("query.empty", "the input of a task is a text that is not empty")
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
            shown = await wait(asyncio.wait_for(recalling, LATE))
        except UsageError:
            raise
        except Exception as error:
            self._link.warn("tasks without what was learned", error)
        else:
            self.context, self.interaction, self.version = shown.text, shown.interaction, shown.version
            self.entries, self.corrections = [(id, near) for id, near in shown.entries], shown.corrections
        await super()._begin(wait)
        if self.interaction is not None:
            remember(self.interaction)
        return self

    async def _end(self, wait: Wait, failing: bool) -> None:
        from practicum.serve.protocols import MOST_TEXT

        if self.answer:
            self._said = {"answer": str(self.answer)[:MOST_TEXT], **self._said}
        await super()._end(wait, failing)

    def _reported(self) -> dict[str, Any]:
        if self.interaction is None:
            raise StoreError(
                "service.unreachable", "the task has no interaction, because the service was away when it began"
            )
        return {**self._said, "interaction": self.interaction}


def checked(what: str, name: str | None) -> str | None:
    """The name of a session or a user. Raises UsageError if it cannot be sent in a header."""
    if name is not None and not (name.isascii() and name.isprintable() and len(name) <= MOST_NAME and name.strip()):
        raise UsageError(
            "request.malformed",
            f"{what} {name!r:.80} cannot be used: it has 1 to {MOST_NAME} printable ASCII characters",
        )
    return name
