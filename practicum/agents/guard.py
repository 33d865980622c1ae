"""The guard of an agent's tools: it detects calls whose arguments come only from untrusted entries.

Every entry has the trust level of its origin. The guard holds a call, which is then refused or needs approval, if an
argument contains text of an entry below the level `own`, and no trusted text contains that text. Trusted texts are the
task, the instructions, the manual of the tools, entries with the level `own`, and the results of tools in this attempt.
An argument contains text of an entry if the argument and the entry have five consecutive words in common, or a
quotation, an address, a code or a long number (as in `core.shingles`). An argument that is completely contained in the
entry also matches if it has at least four letters or digits, or at least two if the entry has the argument in quotes.
Single words and names inside a longer argument do not match, because an argument in SQL or code shares words with any
note on the same subject.

The guard does not detect text that the model rewrote, encoded or composed. It also does not detect that an untrusted
entry chose the tool, if the arguments have another origin.
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
"""Matches email addresses, web addresses and paths."""


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """Tool call that is held for approval. `entries`: the entries below the trust level `own` from which the arguments
    copied text. `copied`: the copied texts, which no trusted text contains."""

    task: str
    tool: str
    arguments: Any
    copied: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def origins(self) -> dict[str, Trust]:
        """Trust level of each entry, by its id."""
        return {entry.id: entry.trust for entry in self.entries}


Approve = Callable[[GuardedCall], "bool | Awaitable[bool]"]
"""Function that decides whether a call may be made. It may block, and is called for one call at a time."""


async def approved(call: GuardedCall, approve: Approve | None, run: AgentRun) -> bool:
    """Return the decision of `approve` on a held call, or False without `approve`. Only one call is decided at a
    time."""
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
    """Guard of one attempt. `entries`: the entries in the agent's view. `trusted`: texts that the agent may act on."""

    def __init__(self, task: str, entries: Iterable[Entry], trusted: Iterable[str]) -> None:
        shown = [*entries]
        self._task = task
        self._below = [entry for entry in shown if entry.trust != "own"]
        self._trusted = [*trusted, *(_text(entry) for entry in shown if entry.trust == "own")] if self._below else []
        self._trusted_grams: set[str] = set()
        self._read = 0

    def add_result(self, observation: str) -> None:
        """Add the result of a tool to the trusted texts."""
        self._trusted.append(observation)

    def held(self, tool: str, arguments: Any) -> GuardedCall | None:
        """Return the call as a GuardedCall if it must be held: its arguments have text that only entries below the
        level `own` contain. Return None if the call may be made."""
        values = [tool, *_leaves(arguments)]
        matches = {entry.id: (entry, texts) for entry in self._below if (texts := self._untrusted(values, entry))}
        if not matches:
            return None
        copied = dict.fromkeys(text for _, texts in matches.values() for text in texts)
        return GuardedCall(self._task, tool, arguments, tuple(copied), tuple(entry for entry, _ in matches.values()))

    def _untrusted(self, values: list[str], entry: Entry) -> list[str]:
        """Return the texts in the values that the entry contains and no trusted text contains."""
        text = _text(entry)
        quoted, addresses = _QUOTED.findall(text), _ADDRESS.findall(text)
        distinctive = {" ".join(words(part)) for part in (*quoted, *addresses)}
        of_entry = {piece for piece in pieces(text) if piece in distinctive or _is_distinctive(piece)}
        short = {*map(_joined, quoted)}
        runs = {run.replace(" ", "") for run in grams(text)}
        copied: dict[str, str] = {}
        for value in values:
            copied |= {piece: piece for piece in of_entry & grams(value)}
            whole = _joined(value)
            if whole in short or (has_content(whole) and whole in runs):
                copied[whole] = value
        # Split trusted texts into grams only for a suspicious call: such calls are rare.
        return [value for piece, value in copied.items() if not self._is_trusted(piece)] if copied else []

    def _is_trusted(self, piece: str) -> bool:
        for text in self._trusted[self._read :]:
            of_text = grams(text)
            self._trusted_grams |= of_text | {gram.replace(" ", "") for gram in of_text}
        self._read = len(self._trusted)
        return piece in self._trusted_grams


def _is_distinctive(piece: str) -> bool:
    return "…" not in piece and (any(map(str.isdigit, piece)) or piece.count(" ") + 1 >= WORDS)


def _text(entry: Entry) -> str:
    """Return all parts of an entry that a view may show, as one text."""
    return "\n".join((entry.section, entry.key, entry.text, *_leaves(dict(entry.data))))


def _leaves(value: Any) -> Iterator[str]:
    """Yield all strings and numbers in a JSON value, keys included."""
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
    """Return only the letters and digits of a text, in lower case."""
    return re.sub(r"[\W_]", "", "".join(words(text)))
