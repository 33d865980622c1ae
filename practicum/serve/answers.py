"""What the service tells, as programs read it: the types of its answers, from which the OpenAPI document is made."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# pydantic takes TypedDict from there before Python 3.12.
from typing_extensions import TypedDict

from practicum.core.trust import Trust
from practicum.session.outcomes import Effect


class Reported(TypedDict):
    """What a report did: `status` is kept (the first one), changed, repeated (nothing new) or outranked (the operator
    said otherwise); `correction` says whether a correction holds."""

    interaction: str
    status: Literal["kept", "changed", "repeated", "outranked"]
    score: float | None
    correction: Effect | None


class ShownText(TypedDict):
    """What a request is shown: `entries` were looked up, with their similarities, and so were `corrections`."""

    interaction: str
    version: int
    text: str
    entries: list[list[str | float]]
    corrections: list[int]


class InteractionTold(TypedDict):
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


class Interactions(TypedDict):
    """Interactions of a space, the newest first."""

    space: str
    interactions: list[InteractionTold]


class Noted(TypedDict):
    """A note that is kept."""

    id: str
    note: Effect


class PlaybookEntry(TypedDict):
    """An entry of the playbook. `changed` is the version that changed it last."""

    id: str
    section: str
    text: str
    helpful: int
    harmful: int
    changed: int
    trust: Trust


class PlaybookPage(TypedDict):
    """Entries of the live version, of `total` that match, and the names of all its sections."""

    space: str
    version: int
    total: int
    entries: list[PlaybookEntry]
    sections: list[str]


class RolloutTold(TypedDict):
    """A rollout: `gate` and `test` are its evidence, `began` and `ended` are in seconds since 1970."""

    version: int
    base: int
    state: Literal["canary", "promoted", "dropped", "taken back"]
    share: float
    length: int
    alpha: float
    began: float
    ended: NotRequired[float | None]
    gate: dict[str, Any]
    reason: str
    test: dict[str, Any]


class AlarmTold(TypedDict):
    """An alarm, at so many seconds since 1970."""

    at: float
    kind: str
    text: str


class Credit(TypedDict):
    """The mean score of requests that were shown an entry or a version."""

    item: str
    scored: int
    mean: float


class Erasure(TypedDict):
    """A removal of a user's data: when it began and ended (s since 1970), and its state: `removed` (the user's rows),
    `forgotten` (what was learned from them, too) or `done` (no byte is left in the files). Whose it was is not kept."""

    began: float
    ended: float | None
    state: Literal["removed", "forgotten", "done"]


class SpaceHistory(TypedDict):
    """What became of versions, and removals of users' data, the newest first."""

    space: str
    rollouts: list[RolloutTold]
    alarms: list[AlarmTold]
    credits: list[Credit]
    erasures: list[Erasure]


class StoredCorrection(TypedDict):
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


class CorrectionList(TypedDict):
    """Corrections and notes in a state, of `total` that are in it."""

    space: str
    state: str
    total: int
    corrections: list[StoredCorrection]


class WaitingEdits(TypedDict):
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


class Waiting(TypedDict):
    """What waits for review: of `total` corrections and notes the oldest."""

    space: str
    total: int
    corrections: list[StoredCorrection]
    edits: list[WaitingEdits]


class Decided(TypedDict):
    """What was decided; `version` is what an approval of edits made."""

    id: str
    state: str
    version: int | None


class Edited(TypedDict):
    """The entry that was changed, and the version with the change."""

    id: str
    version: int


class LiveVersion(TypedDict):
    """The version that is live."""

    version: int


class LearningStart(TypedDict):
    """When a round of learning begins."""

    space: str
    learning: str


class KeyTold(TypedDict):
    """A key, without the key itself. `expires` is in seconds since 1970."""

    name: str
    space: str
    roles: list[Literal["ask", "report", "review", "admin"]]
    expires: float | None
    a_minute: int | None


class KeysTold(TypedDict):
    """The keys in the store."""

    keys: list[KeyTold]


class NewKeyTold(TypedDict):
    """A new key."""

    name: str
    space: str
    key: str


class KeyGone(TypedDict):
    """The key that was removed."""

    name: str
    space: str


class Spaces(TypedDict):
    """The names of the spaces."""

    spaces: list[str]


class SpaceTold(TypedDict):
    """A space that is there."""

    name: str


class SpaceGone(TypedDict):
    """The space that was deleted, with so many rows."""

    name: str
    rows: int


class UserData(TypedDict):
    """One user's data. `what` of each item says what it is: an interaction, an outcome, a correction, an entry, ..."""

    user: str
    items: list[dict[str, Any]]


class ForgottenUser(TypedDict):
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


class SpaceHealth(TypedDict):
    """An open space: its live version, and what is going on."""

    version: int
    entries: int
    corrections: int
    waiting: int
    candidate: int | None


class Health(TypedDict):
    """How the service is; without a key for all spaces, `status` alone."""

    status: Literal["ok"]
    seconds: NotRequired[float]
    spaces: NotRequired[dict[str, SpaceHealth]]
    counts: NotRequired[dict[str, int]]
    unwritten: NotRequired[int]
    lost: NotRequired[int]
    late: NotRequired[int]
    """Rows that were dropped because their space had been deleted."""
    learning: NotRequired[str]


class Ready(TypedDict):
    """Whether the service can serve: `ready`, or why it cannot."""

    status: str


class ErrorText(TypedDict):
    """What is wrong. `message` is one line, `code` is stable (docs/errors.md), and `fields` has values that a caller
    needs to react; `param` names the field of the request that is wrong."""

    message: str
    type: str
    param: str | None
    code: str
    fields: dict[str, Any]


class Error(TypedDict):
    """An error, in the form of OpenAI's protocols. That of /v1/messages has a `type` beside it."""

    error: ErrorText
    type: NotRequired[Literal["error"]]
