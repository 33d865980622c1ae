"""The guard of an agent's tools: it finds calls that carry out what strangers said.

Every entry has a trust, that of its origin. If an argument of a call has text that stands in an entry below `own` and
in nothing else that the agent may act on (the task, the instructions, the manual of the tools, own entries, and what
tools returned in this attempt), then a stranger chose it. Text is recognized by five words in a row, and by what stands
out in the entry: quotations, addresses, and codes and long numbers as in `core.shingles`. A whole argument is also
recognized by itself, if it has four letters or digits, or two where the entry quotes it. Single words and names inside
a longer argument are not, because arguments in SQL or code share their words with any notes about them.

What is not found: text that the model rewrote, encoded or composed, and a stranger's choice of which tool is called
with arguments from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from practicum.agents.base import AgentRun
from practicum.core.calls import call_apart
from practicum.core.edits import Entry
from practicum.core.errors import AgentError, PracticumError
from practicum.core.shingles import WORDS, grams, has_content, pieces, words
from practicum.core.trust import Trust
from practicum.core.words import error_line

_QUOTED = re.compile(r"""[`"'“«]([^`"'”»\n]{2,60})[`"'”»]""")


_ADDRESS = re.compile(r"\w[\w.+-]*[@/.:][\w./:@-]*\w")
"""Addresses of mail and of pages, and paths."""


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call of a tool that is held for approval: `copied` are the texts in its arguments that stand in `entries`
    alone, which are below `own`."""

    task: str
    tool: str
    arguments: Any
    copied: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def origins(self) -> dict[str, Trust]:
        """The trust of each entry, by its id."""
        return {entry.id: entry.trust for entry in self.entries}


Approve = Callable[[GuardedCall], "bool | Awaitable[bool]"]
"""Decides whether a call may be made. It may block, and is called for one call at a time."""


async def approved(call: GuardedCall, approve: Approve | None, run: AgentRun) -> bool:
    """Whether a call may be made that the guard holds. One call is asked about at a time; without `approve`, none is
    made."""
    if approve is None:
        return False
    async with run.slot("approval", 1):
        try:
            return bool(await call_apart("practicum approval", partial(approve, call)))
        except PracticumError:
            raise
        except Exception as error:
            raise AgentError(
                "agent.failed", f"`approve` failed on a call of {call.tool}: {error_line(error)}"
            ) from error


class Guard:
    """The guard of one attempt. `entries` are what the agent is shown, `known` are texts that it may act on."""

    def __init__(self, task: str, entries: Iterable[Entry], known: Iterable[str]) -> None:
        shown = [*entries]
        self._task = task
        self._below = [entry for entry in shown if entry.trust != "own"]
        self._known = [*known, *(_text(entry) for entry in shown if entry.trust == "own")] if self._below else []
        self._known_grams: set[str] = set()
        self._read = 0

    def returned(self, observation: str) -> None:
        """A tool returned this, so that the agent may act on it."""
        self._known.append(observation)

    def held(self, tool: str, arguments: Any) -> GuardedCall | None:
        """The call, if its arguments have text that stands in entries below `own` alone."""
        values = [tool, *_leaves(arguments)]
        found = {entry.id: (entry, alone) for entry in self._below if (alone := self._alone(values, entry))}
        if not found:
            return None
        copied = dict.fromkeys(text for _, alone in found.values() for text in alone)
        return GuardedCall(self._task, tool, arguments, tuple(copied), tuple(entry for entry, _ in found.values()))

    def _alone(self, values: list[str], entry: Entry) -> list[str]:
        text = _text(entry)
        quoted, addresses = _QUOTED.findall(text), _ADDRESS.findall(text)
        telling = {" ".join(words(said)) for said in (*quoted, *addresses)}
        of_entry = {piece for piece in pieces(text) if piece in telling or _stands_out(piece)}
        short = {*map(_joined, quoted)}
        runs = {run.replace(" ", "") for run in grams(text)}
        copied: dict[str, str] = {}
        for value in values:
            copied |= {piece: piece for piece in of_entry & grams(value)}
            whole = _joined(value)
            if whole in short or (has_content(whole) and whole in runs):
                copied[whole] = value
        # Nearly no call is suspicious, so what is known is taken apart for those alone.
        return [said for piece, said in copied.items() if not self._is_known(piece)] if copied else []

    def _is_known(self, piece: str) -> bool:
        for text in self._known[self._read :]:
            found = grams(text)
            self._known_grams |= found | {gram.replace(" ", "") for gram in found}
        self._read = len(self._known)
        return piece in self._known_grams


def _stands_out(piece: str) -> bool:
    return "…" not in piece and (any(map(str.isdigit, piece)) or piece.count(" ") + 1 >= WORDS)


def _text(entry: Entry) -> str:
    """All of an entry that an agent may be shown."""
    return "\n".join((entry.section, entry.key, entry.text, *_leaves(dict(entry.data))))


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in a JSON value, and the names in it."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _joined(text: str) -> str:
    """The letters and digits of a text in lower case, without what stands between them."""
    return re.sub(r"[\W_]", "", "".join(words(text)))
