"""Answers of operations as pydantic models, each with a text for people and for agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from practicum.core.trust import Trust
from practicum.core.views import behind
from practicum.core.visible import visible_to_model
from practicum.core.words import one_line, quantity
from practicum.serve.access import Role
from practicum.session.outcomes import Effect

MOST_LISTED = 20
"""Largest number of rollouts, and of alarms, in the text of a history."""


class Answer(BaseModel):
    """Base class of the answers of operations."""

    model_config = ConfigDict(extra="forbid")

    def as_json(self) -> dict[str, Any]:
        """Return plain values, without fields that were not set."""
        return self.model_dump(mode="json", exclude_unset=True)

    def as_text(self) -> str:
        """Return the answer as text for people and for agents."""
        return "\n".join(_lines(self.as_json()))


def _lines(values: Mapping[str, Any]) -> list[str]:
    """Return one line for each value, and for each item of a list."""
    lines = list[str]()
    for name, value in values.items():
        if isinstance(value, list) and value:
            lines += [f"{name}:", *(f"- {_inline(item)}" for item in value)]
        else:
            lines.append(f"{name}: {_inline(value)}")
    return lines


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_inline(inner)}" for name, inner in value.items() if inner not in (None, "", []))
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 1_000) or "none"


class Reported(Answer):
    """Result of a report. `status`: kept (first report), changed (adds to an earlier report), repeated (nothing new) or
    outranked (a report of the operator takes precedence). `correction`: state of the correction that the report makes,
    or None if the report makes no correction."""

    interaction: str
    status: Literal["kept", "changed", "repeated", "outranked"]
    score: float | None
    correction: Effect | None

    def as_text(self) -> str:
        done = {
            "kept": "Reported", "changed": "Reported, in addition to an earlier report",
            "repeated": "This was reported before", "outranked": "The report of the operator takes precedence",
        }[self.status]  # fmt: skip
        score = "" if self.score is None else f" (score {self.score:g})"
        effect = {
            None: "", "in effect": " The correction is in effect from the next request on.",
            "waits for review": " The correction waits for review.",
        }[self.correction]  # fmt: skip
        return f"{done}{score}.{effect}"


LONGEST_REPEATED = 2_000
"""Number of characters up to which a text for a model repeats the model's request."""


class ShownText(Answer):
    """View that was selected for a request, as one text to show before the request, and a `closing` to show after it.
    `entries` (ids with similarities to the request) and `corrections` (numbers) were retrieved for the request."""

    interaction: str
    version: int
    text: str
    entries: list[list[str | float]]
    corrections: list[int]
    closing: str = ""

    def as_text(self) -> str:
        return self.before("")

    def before(self, request: str) -> str:
        """Return the text for a model that goes on to answer a request. The text ends with the request, unless the
        request is long, and with the closing. If a text ends with ids, a small model answers with an id
        (docs/results.md)."""
        lines = [f"Interaction: {self.interaction}. Give it to `report` when the outcome is known."]
        if self.corrections:
            # The ids are in the order in which the text shows the notes.
            lines.append(f"Ids of the notes and corrections below: {', '.join(f'c{n}' for n in self.corrections)}.")
        lines += ["", self.text or "Nothing is known about this yet."]
        if self.text and 0 < len(request) <= LONGEST_REPEATED:
            lines += ["", "# The present request", visible_to_model(request)]
        if self.closing:
            lines += ["", self.closing]
        return "\n".join(lines)


class InteractionRow(Answer):
    """Interaction. `at` is the time when the answer ended (seconds since 1970). `session_from` is the source of the
    session's name: a header or a field of the request, `history` (the request repeats an earlier answer of the session)
    or `opening` (first request of the session). `status` is the HTTP status of the answer. `version` is the version of
    the context that the request was shown."""

    id: str
    at: float
    session: str | None
    session_from: str
    user: str | None
    status: int
    question: str
    answer: str
    version: int


class Interactions(Answer):
    """Interactions of a space, newest first."""

    space: str
    interactions: list[InteractionRow]

    def as_text(self) -> str:
        lines = [
            f"- {one.id}: {one_line(one.question, 200)}\n  answered: {one_line(one.answer, 200) or '(no text)'}"
            for one in self.interactions
        ]
        return "\n".join(lines) or "No interactions."


class Noted(Answer):
    """Stored note. `note` is the state of the note: in effect, or waiting for review."""

    id: str
    note: Effect

    def as_text(self) -> str:
        if self.note == "in effect":
            return f"The note is kept as {self.id} and shown to later requests. `remove` deletes the note."
        return f"The note is kept as {self.id}, and shown to later requests after a review approves the note."


class PlaybookEntry(Answer):
    """Entry of the playbook. `changed` is the last version that changed the entry."""

    id: str
    section: str
    text: str
    helpful: int
    harmful: int
    changed: int
    trust: Trust


class PlaybookPage(Answer):
    """Page of the entries of the live version that match a query. `total` is the number of matches on all pages, and
    `sections` has the names of all sections of the version."""

    space: str
    version: int
    total: int
    entries: list[PlaybookEntry]
    sections: list[str]

    def as_text(self) -> str:
        if not self.entries:
            return f"No entries here: there are {self.total:,}." if self.total else "There are no entries."
        lines = [behind(f"- [{one.id}] ({one_line(one.section)})", one.text) for one in self.entries]
        return "\n".join([f"{len(lines):,} of {self.total:,} entries, learned from earlier work:", *lines])


class RolloutRow(Answer):
    """Rollout of a version. `base` is the version that `version` is compared with. `share` is the share of sessions
    that are shown `version`, `length` the largest number of scored requests that are shown `version`, and `alpha` the
    error rate of the test. `gate` is the evidence from held-out requests, and `test` the evidence from scored requests
    during the rollout. `began` and `ended` are in seconds since 1970."""

    version: int
    base: int
    state: Literal["canary", "promoted", "dropped", "taken back"]
    share: float
    length: int
    alpha: float
    began: float
    ended: float | None = None
    gate: dict[str, Any]
    reason: str
    test: dict[str, Any]


class AlarmRow(Answer):
    """Alarm. `at` is in seconds since 1970."""

    at: float
    kind: str
    text: str


class Credit(Answer):
    """Mean score of the `scored` requests that were shown `item`, an entry or a version."""

    item: str
    scored: int
    mean: float


class Erasure(Answer):
    """Deletion of a user's data: its beginning and end (seconds since 1970), and its state: `removed` (the user's
    rows are deleted), `forgotten` (everything learned from these rows is deleted too) or `done` (no byte of the data is
    left in the files). The name of the user is not stored."""

    began: float
    ended: float | None
    state: Literal["removed", "forgotten", "done"]


class SpaceHistory(Answer):
    """Rollouts with their results, alarms, mean scores, and deletions of user data, newest first."""

    space: str
    rollouts: list[RolloutRow]
    alarms: list[AlarmRow]
    credits: list[Credit]
    erasures: list[Erasure]

    def as_text(self) -> str:
        tried = [
            f"- version {one.version} (from {one.base}): {', '.join(filter(None, (one.state, one.reason)))}"
            for one in self.rollouts[:MOST_LISTED]
        ]
        alarms = [f"- {alarm.kind}: {one_line(alarm.text, 300)}" for alarm in self.alarms[:MOST_LISTED]]
        lines = ["Versions that were tried, the newest first:", *(tried or ["- none yet"])]
        return "\n".join([*lines, "Alarms, the newest first:", *(alarms or ["- none"])])


class StoredCorrection(Answer):
    """Correction or note. For a correction, `query` is the text of the request, and `question` the question in this
    text. For a note, `comment` is the text of the note, `query` the subject, and `user` the author."""

    id: str
    interaction: str
    query: str
    question: str
    target: str
    comment: str
    trust: Trust
    note: bool
    user: str | None

    def as_text(self) -> str:
        if self.note:
            about = f" about {one_line(self.query, 200)}" if self.query else ""
            return f"- {self.id} note{about}: {one_line(self.comment, 1_000)}"
        parts = [f"right answer: {one_line(self.target, 1_000)}"] if self.target else []
        parts += [f"comment: {one_line(self.comment, 1_000)}"] if self.comment else []
        return f"- {self.id} correction of {one_line(self.question, 300)!r}: {'; '.join(parts)}"


class CorrectionList(Answer):
    """Page of the list of corrections and notes in a state. `total` is the number of corrections and notes on all
    pages."""

    space: str
    state: str
    total: int
    corrections: list[StoredCorrection]

    def as_text(self) -> str:
        lines = [f"{len(self.corrections):,} of {self.total:,} corrections and notes ({self.state}):"]
        return (
            "\n".join([*lines, *(one.as_text() for one in self.corrections)]) if self.total else f"None {self.state}."
        )


class WaitingEdits(Answer):
    """Edits of the playbook that wait for review together. `problem` is the reason why the edits can no longer be
    approved, or None."""

    id: str
    step: int
    state: str
    base: int
    reason: str
    version: int | None
    entries: list[str]
    tried: dict[str, Any]
    edits: list[dict[str, Any]]
    trust: Trust
    flags: list[dict[str, Any]]
    problem: str | None

    def as_text(self) -> str:
        flags = ", ".join(dict.fromkeys(str(flag["label"]) for flag in self.flags))
        head = f"- {self.id}, trust {self.trust}{f', flagged: {flags}' if flags else ''}"
        problem = [f"  cannot be approved: {self.problem}"] if self.problem else []
        return "\n".join([head, *(f"  {_edit_text(edit)}" for edit in self.edits), *problem])


def _edit_text(edit: Mapping[str, Any]) -> str:
    """Return an edit on one line."""
    target = ", ".join(edit.get("ids") or filter(None, [edit.get("id") or edit.get("section")]))
    text = f": {one_line(edit['text'], 1_000)}" if edit.get("text") else ""
    return f"{edit['op']} {target}{text}" + (f" ({one_line(edit['reason'], 300)})" if edit.get("reason") else "")


class Waiting(Answer):
    """Items that wait for review: the oldest corrections and notes, and all learned edits of the playbook. `total` is
    the number of all corrections and notes that wait."""

    space: str
    total: int
    corrections: list[StoredCorrection]
    edits: list[WaitingEdits]

    def as_text(self) -> str:
        lines = [one.as_text() for one in (*self.corrections, *self.edits)]
        if more := self.total - len(self.corrections):
            lines.append(
                f"{quantity(more, 'correction')} or notes more are not listed: decide those listed here first."
            )
        return "\n".join(["Waiting for review:", *lines]) if lines else "Nothing waits for review."


class Decided(Answer):
    """Decision about a review. `version` is the new version if learned edits were approved, else None."""

    id: str
    state: str
    version: int | None

    def as_text(self) -> str:
        return f"{self.id} is {self.state}{'' if self.version is None else f', as version {self.version}'}."


class Edited(Answer):
    """Entry that was changed, and the version with the change."""

    id: str
    version: int

    def as_text(self) -> str:
        return f"{self.id} is changed in version {self.version}."


class Removed(Answer):
    """Removed entry, correction or note. `version` is the first version without the entry; None for a correction or a
    note."""

    id: str
    version: int | None

    def as_text(self) -> str:
        return f"{self.id} is removed, and not shown to requests any more."


class LiveVersion(Answer):
    """Version that is live after the operation."""

    version: int

    def as_text(self) -> str:
        return f"Version {self.version} is live."


class LearningStart(Answer):
    """Requested round of learning. `learning` says in words when the round begins."""

    space: str
    learning: str

    def as_text(self) -> str:
        return f"A round of learning {self.learning}."


class KeyRow(Answer):
    """Grant of a key, without the key. `expires` is in seconds since 1970."""

    name: str
    space: str
    roles: list[Role]
    expires: float | None
    per_minute: int | None

    def as_text(self) -> str:
        allowed = [f"key {self.name} for {f'space {self.space}' if self.space else 'all spaces'}: "
                   f"{', '.join(self.roles)}"]  # fmt: skip
        if self.expires is not None:
            verb = "expires" if self.expires > time() else "expired"
            allowed.append(f"the key {verb} at {datetime.fromtimestamp(self.expires, UTC):%Y-%m-%d %H:%M} UTC")
        if self.per_minute is not None:
            allowed.append(f"{quantity(self.per_minute, 'request')} a minute")
        return "; ".join(allowed)


class KeyList(Answer):
    """Grants of the keys in the store."""

    keys: list[KeyRow]

    def as_text(self) -> str:
        return "\n".join([*(f"- {one.as_text()}" for one in self.keys), quantity(len(self.keys), "key")])


class CreatedKey(KeyRow):
    """Grant of a new key, and the key itself."""

    key: str

    def as_text(self) -> str:
        return f"{self.key}\n{super().as_text()}; the key is not shown again"


class KeyRemoved(Answer):
    """Deleted key."""

    name: str
    space: str

    def as_text(self) -> str:
        return f"key {self.name} is removed"


class Spaces(Answer):
    """Names of the spaces."""

    spaces: list[str]


class CreatedSpace(Answer):
    """Space that was created, or existed before."""

    name: str

    def as_text(self) -> str:
        return f"The service has the space {self.name}."


class SpaceRemoved(Answer):
    """Deleted space, with the number of rows that were deleted with the space."""

    name: str
    rows: int

    def as_text(self) -> str:
        return f"The space {self.name} is deleted, with {quantity(self.rows, 'row')}."


class UserData(Answer):
    """Data of one user. `type` is the kind of an item: an interaction, an outcome, a correction, an entry, ..."""

    user: str
    items: list[dict[str, Any]]

    def as_text(self) -> str:
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in self.items)


class ForgottenUser(Answer):
    """Numbers of deleted items of a user. `again`: outcomes of sessions shared with other users; the service learns
    from these outcomes again. `alike`: remaining records that share rare words with the user's data, as copies or by
    chance. `left`: the user's rows and texts that still exist, which must be 0. `state` is always `done`: an unfinished
    deletion is an error (507)."""

    space: str
    user: str
    interactions: int
    outcomes: int
    corrections: int
    sessions: int
    again: int
    entries: int
    records: int
    alike: int
    left: int
    state: Literal["done"]

    def as_text(self) -> str:
        kinds = ("interaction", "outcome", "correction")
        rows = ", ".join(quantity(getattr(self, f"{kind}s"), kind) for kind in kinds)
        learned = f"{quantity(self.entries, 'entry')} and {quantity(self.records, 'record')}"
        alike = f" {quantity(self.alike, 'record')} still share rare words with the user's data." if self.alike else ""
        return f"Removed from space {self.space}: {rows}; {learned} that were learned from this data.{alike}"


class SpaceHealth(Answer):
    """State of an open space. `candidate` is the version in rollout, or None. `waiting` is the number of outcomes that
    wait for learning."""

    version: int
    entries: int
    corrections: int
    waiting: int
    candidate: int | None


class Health(Answer):
    """State of the service. A request without a key for all spaces gets only `status`. `counts` has counters by metric
    name, without counters that are 0. `late` is the number of rows that were dropped because their space was deleted
    before the rows were written. `lost` is the number of rows that were dropped for another reason."""

    status: Literal["ok"]
    seconds: float | None = None
    spaces: dict[str, SpaceHealth] | None = None
    counts: dict[str, int] | None = None
    unwritten: int | None = None
    lost: int | None = None
    late: int | None = None
    learning: str | None = None


class Ready(Answer):
    """Readiness of the service. `status` is `ready`, or the reason why the service is not ready."""

    status: str


class ErrorText(Answer):
    """Error. `message` is one line, `code` is stable (reference/errors in the manual), and `fields` has the values that
    the message is about. `param` names the wrong field of the request."""

    message: str
    type: str
    param: str | None
    code: str
    fields: dict[str, Any]


class Error(Answer):
    """Error in the format of OpenAI's protocols. An error in the format of /v1/messages also has a `type`."""

    error: ErrorText
    type: Literal["error"] | None = None
