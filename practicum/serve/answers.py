"""The answers of operations, as programs read them, each with its text for people and for agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from practicum.core.trust import Trust
from practicum.core.views import behind
from practicum.core.words import one_line, quantity
from practicum.serve.access import Role
from practicum.session.outcomes import Effect

MOST_LISTED = 20
"""Rollouts and alarms that the text of a history has, of each kind."""


class Answer(BaseModel):
    """The answer of an operation."""

    model_config = ConfigDict(extra="forbid")

    def as_json(self) -> dict[str, Any]:
        """Plain values, without fields that have no value."""
        return self.model_dump(mode="json", exclude_unset=True)

    def as_text(self) -> str:
        """The answer for people and for agents."""
        return "\n".join(_lines(self.as_json()))


def _lines(values: Mapping[str, Any]) -> list[str]:
    """One line for each value, and for each item of a list."""
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
    """What a report did: `status` is kept (the first one), changed, repeated (nothing new) or outranked (the operator's
    report holds); `correction` says whether a correction is in effect."""

    interaction: str
    status: Literal["kept", "changed", "repeated", "outranked"]
    score: float | None
    correction: Effect | None

    def as_text(self) -> str:
        done = {
            "kept": "Reported", "changed": "Reported; it adds to an earlier report",
            "repeated": "This was reported before", "outranked": "The operator reported otherwise, which holds",
        }[self.status]  # fmt: skip
        score = "" if self.score is None else f" (score {self.score:g})"
        effect = {
            None: "", "in effect": " The correction is in effect from the next request on.",
            "waits for review": " The correction waits for review.",
        }[self.correction]  # fmt: skip
        return f"{done}{score}.{effect}"


class ShownText(Answer):
    """What a request is shown: `entries` were retrieved, with their similarities, and so were `corrections`."""

    interaction: str
    version: int
    text: str
    entries: list[list[str | float]]
    corrections: list[int]

    def as_text(self) -> str:
        lines = [self.text or "Nothing is known about this yet.", ""]
        if self.corrections:
            # In the order in which they are shown.
            lines.append(f"Ids of these notes and corrections: {', '.join(f'c{n}' for n in self.corrections)}.")
        lines.append(f"Interaction: {self.interaction}. Give it to `report` when the outcome is known.")
        return "\n".join(lines)


class InteractionRow(Answer):
    """An interaction: `at` is when its answer ended, in seconds since 1970. `session_from` says what named the session:
    a header or a field of the request, `history` (it repeats an answer of the session) or `opening` (it began one).
    `status` is that of the answer, and `version` was shown."""

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
    """Interactions of a space, the newest first."""

    space: str
    interactions: list[InteractionRow]

    def as_text(self) -> str:
        lines = [
            f"- {one.id}: {one_line(one.question, 200)}\n  answered: {one_line(one.answer, 200) or '(no text)'}"
            for one in self.interactions
        ]
        return "\n".join(lines) or "No interactions."


class Noted(Answer):
    """A note that is kept."""

    id: str
    note: Effect

    def as_text(self) -> str:
        if self.note == "in effect":
            return f"Kept as {self.id}: later requests are shown it. `remove` takes it back."
        return f"Kept as {self.id}; it waits for review before others are shown it."


class PlaybookEntry(Answer):
    """An entry of the playbook. `changed` is the version that changed it last."""

    id: str
    section: str
    text: str
    helpful: int
    harmful: int
    changed: int
    trust: Trust


class PlaybookPage(Answer):
    """Entries of the live version, of `total` that match, and the names of all its sections."""

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
    """A rollout: `gate` and `test` are its evidence, `began` and `ended` are in seconds since 1970."""

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
    """An alarm, at so many seconds since 1970."""

    at: float
    kind: str
    text: str


class Credit(Answer):
    """The mean score of requests that were shown an entry or a version."""

    item: str
    scored: int
    mean: float


class Erasure(Answer):
    """A removal of a user's data: when it began and ended (s since 1970), and its state: `removed` (the user's rows),
    `forgotten` (what was learned from them, too) or `done` (no byte is left in the files). The user is not kept."""

    began: float
    ended: float | None
    state: Literal["removed", "forgotten", "done"]


class SpaceHistory(Answer):
    """The rollouts of versions and their results, alarms, and removals of users' data, the newest first."""

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
    """A correction: `query` is the text of the request of an interaction, and `question` what it asks. A note has its
    text as `comment`, as `query` what it is about, and the `user` whose note it is."""

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
        parts += [f"what was wrong: {one_line(self.comment, 1_000)}"] if self.comment else []
        return f"- {self.id} correction of {one_line(self.question, 300)!r}: {'; '.join(parts)}"


class CorrectionList(Answer):
    """Corrections and notes in a state, of `total` that are in it."""

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
    """Edits of the playbook that wait for review together; `problem` says why they cannot be approved any more."""

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
        flags = ", ".join(dict.fromkeys(str(flag["what"]) for flag in self.flags))
        head = f"- {self.id}, trust {self.trust}{f', flagged: {flags}' if flags else ''}"
        problem = [f"  cannot be approved: {self.problem}"] if self.problem else []
        return "\n".join([head, *(f"  {_edit_text(edit)}" for edit in self.edits), *problem])


def _edit_text(edit: Mapping[str, Any]) -> str:
    """An edit that waits, on one line."""
    target = ", ".join(edit.get("ids") or filter(None, [edit.get("id") or edit.get("section")]))
    text = f": {one_line(edit['text'], 1_000)}" if edit.get("text") else ""
    return f"{edit['op']} {target}{text}" + (f" ({one_line(edit['reason'], 300)})" if edit.get("reason") else "")


class Waiting(Answer):
    """What waits for review: the oldest of `total` corrections and notes, and edits of the playbook."""

    space: str
    total: int
    corrections: list[StoredCorrection]
    edits: list[WaitingEdits]

    def as_text(self) -> str:
        lines = [one.as_text() for one in (*self.corrections, *self.edits)]
        if more := self.total - len(self.corrections):
            lines.append(f"{quantity(more, 'correction')} and notes more wait: decide about these first.")
        return "\n".join(["Waiting for review:", *lines]) if lines else "Nothing waits for review."


class Decided(Answer):
    """What was decided; `version` is what an approval of edits made."""

    id: str
    state: str
    version: int | None

    def as_text(self) -> str:
        return f"{self.id} is {self.state}{'' if self.version is None else f', as version {self.version}'}."


class Edited(Answer):
    """The entry that was changed, and the version with the change."""

    id: str
    version: int

    def as_text(self) -> str:
        return f"{self.id} is changed in version {self.version}."


class Removed(Answer):
    """What was removed: an entry, with the version without it, or a correction or a note."""

    id: str
    version: int | None

    def as_text(self) -> str:
        return f"{self.id} is removed: no request is shown it any more."


class LiveVersion(Answer):
    """The version that is live."""

    version: int

    def as_text(self) -> str:
        return f"Version {self.version} is live."


class LearningStart(Answer):
    """When a round of learning begins."""

    space: str
    learning: str

    def as_text(self) -> str:
        return f"A round of learning {self.learning}."


class KeyRow(Answer):
    """A key, without the key itself. `expires` is in seconds since 1970."""

    name: str
    space: str
    roles: list[Role]
    expires: float | None
    a_minute: int | None

    def as_text(self) -> str:
        allowed = [f"key {self.name} for {f'space {self.space}' if self.space else 'all spaces'}: "
                   f"{', '.join(self.roles)}"]  # fmt: skip
        if self.expires is not None:
            verb = "expires" if self.expires > time() else "expired"
            allowed.append(f"it {verb} at {datetime.fromtimestamp(self.expires, UTC):%Y-%m-%d %H:%M} UTC")
        if self.a_minute is not None:
            allowed.append(f"{quantity(self.a_minute, 'request')} a minute")
        return "; ".join(allowed)


class KeyList(Answer):
    """The keys in the store."""

    keys: list[KeyRow]

    def as_text(self) -> str:
        return "\n".join([*(f"- {one.as_text()}" for one in self.keys), quantity(len(self.keys), "key")])


class NewKeyMade(KeyRow):
    """A new key."""

    key: str

    def as_text(self) -> str:
        return f"{self.key}\n{super().as_text()}; it is not shown again"


class KeyRemoved(Answer):
    """The key that was removed."""

    name: str
    space: str

    def as_text(self) -> str:
        return f"key {self.name} is removed"


class Spaces(Answer):
    """The names of the spaces."""

    spaces: list[str]


class SpaceMade(Answer):
    """A space that exists."""

    name: str

    def as_text(self) -> str:
        return f"The service has the space {self.name}."


class SpaceRemoved(Answer):
    """The space that was deleted, with the number of its rows."""

    name: str
    rows: int

    def as_text(self) -> str:
        return f"The space {self.name} is deleted, with {quantity(self.rows, 'row')}."


class UserData(Answer):
    """One user's data. `what` of each item names its kind: an interaction, an outcome, a correction, an entry, ..."""

    user: str
    items: list[dict[str, Any]]

    def as_text(self) -> str:
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in self.items)


class ForgottenUser(Answer):
    """How much was removed of a user. `again` counts the outcomes of sessions with others that will be learned from
    again, `alike` what still has rare words of the user, copied or by chance. `left` must be 0. `state` says that no
    stage is left to do: a removal that is not finished is an error (507)."""

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
        alike = f" {quantity(self.alike, 'record')} with rare words of the user are left." if self.alike else ""
        return f"Removed from space {self.space}: {rows}; of what was learned {learned}.{alike}"


class SpaceHealth(Answer):
    """An open space: its live version, and the version that is tried."""

    version: int
    entries: int
    corrections: int
    waiting: int
    candidate: int | None


class Health(Answer):
    """How the service is; without a key for all spaces, `status` alone. `counts` has counters by the names of their
    metrics; one that never counted is left out. `late` counts rows that were dropped because their space had been
    deleted."""

    status: Literal["ok"]
    seconds: float | None = None
    spaces: dict[str, SpaceHealth] | None = None
    counts: dict[str, int] | None = None
    unwritten: int | None = None
    lost: int | None = None
    late: int | None = None
    learning: str | None = None


class Ready(Answer):
    """Whether the service can serve: `ready`, or why it cannot."""

    status: str


class ErrorText(Answer):
    """What is wrong. `message` is one line, `code` is stable (docs/errors.md), and `fields` has values that a caller
    needs to react; `param` names the field of the request that is wrong."""

    message: str
    type: str
    param: str | None
    code: str
    fields: dict[str, Any]


class Error(Answer):
    """An error, in the form of OpenAI's protocols. That of /v1/messages also has a `type`."""

    error: ErrorText
    type: Literal["error"] | None = None
