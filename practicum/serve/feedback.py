"""Feedback: what came of an interaction, as a client reports it, and the rules for reports that come late or again.

One interaction has one outcome. A report adds to it and replaces what it says anew. The same report again changes
nothing and is no error. What an end user says does not replace what the operator said. A report that changes an outcome
which was learned from makes a new revision, which is learned from again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from sqlalchemy import Connection, func, select

from practicum.core.errors import UsageError
from practicum.core.scores import rounded
from practicum.core.thoughts import split_thoughts
from practicum.core.trust import Trust
from practicum.core.visible import not_blank
from practicum.core.words import one_line, wrong_field
from practicum.serve import answers, tables
from practicum.store.dialects import insert_adding, upsert
from practicum.tasks.scoring.rules import normalise

GOOD = frozenset({"good", "up", "thumbs_up", "thumbs-up", "+1", "like", "positive", "yes", "correct", "right", "👍"})
BAD = frozenset(
    {"bad", "down", "thumbs_down", "thumbs-down", "-1", "dislike", "negative", "no", "incorrect", "wrong", "👎"}
)
"""Labels that are scores: 1 and 0. Any other label is kept as it is."""

HELD_OUT = 0.2
"""The share of outcomes with a right answer that teach nothing and are kept for the replay gate."""

REPORTS = 20
"""Reports on one interaction that are kept: the last ones."""

WAITING, HELD, LEARNED, NOTHING = "waiting", "held out", "learned", "nothing"
"""The states of an outcome."""

TEACHING = frozenset({"score", "target", "correction"})
"""What an outcome needs one of to be learned from."""

REPORTED = ("score", "target", "correction", "label", "comment", "answer")

_Id = Annotated[str, Field(min_length=1, max_length=20_000)]
_Text = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(not_blank)]


class Feedback(BaseModel):
    """The body of `POST /v1/feedback`.

    `interaction` is the id in the header `x-practicum-interaction`, or that of the upstream's response; `session` is
    that of the header `x-practicum-session`, and means its last interaction and, for the score, all of them. `score` is
    in [0, 1], `target` the right answer, `correction` what was wrong in words, `label` a word such as thumbs_up. An
    `answer` is given for what was answered elsewhere.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    interaction: _Id | None = None
    session: _Id | None = None
    score: Annotated[float, BeforeValidator(rounded), Field(ge=0, le=1)] | bool | None = None
    target: _Text | None = None
    correction: _Text | None = None
    label: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(not_blank)] | None = None
    comment: _Text | None = None
    answer: _Text | None = None

    @field_validator("answer")
    @classmethod
    def _without_thoughts(cls, answer: str | None) -> str | None:
        return split_thoughts(answer).text or None if answer else None

    @model_validator(mode="after")
    def _is_about_something(self) -> Feedback:
        if (self.interaction is None) == (self.session is None):
            raise ValueError("give `interaction` or `session`, and not both: what it is about")
        if all(getattr(self, name) is None for name in REPORTED):
            raise ValueError(f"it says nothing: give one of {', '.join(REPORTED)}")
        return self

    @property
    def said(self) -> dict[str, Any]:
        """What is reported, by name."""
        found = {name: value for name in REPORTED if (value := getattr(self, name)) is not None}
        if "score" in found:
            found["score"] = float(found["score"])
        elif (label := (self.label or "").strip().lower()) in GOOD | BAD:
            found["score"] = float(label in GOOD)
        return found


def read_feedback(body: bytes) -> Feedback:
    """Read a body. Raises UsageError that says what is wrong with it."""
    try:
        return Feedback.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        name, said = str(first["loc"][0]) if first["loc"] else "", first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            said = f"there is no field {name!r}: there are {', '.join(Feedback.model_fields)}"
        elif name == "score":
            said = "`score` must be a number from 0 to 1, true or false"
        elif name:
            said = f"`{name}`: {said[0].lower()}{said[1:]}"
        raise UsageError(
            "outcome.invalid", one_line(f"this is no feedback: {said}", 300), param=wrong_field(error)
        ) from error


@dataclass(frozen=True)
class Interaction:
    """A stored interaction."""

    id: str
    session: str | None
    user: str | None
    version: int
    rollout: int | None
    kind: int | None
    data: dict[str, Any]

    @property
    def query(self) -> str:
        return str(self.data["query"])

    @property
    def answer(self) -> str:
        return str(self.data["answer"])

    @property
    def silent(self) -> bool:
        """Whether the model said nothing: its answer was empty, refused, filtered, or cut before it began."""
        return "silence" in self.data


class Unknown(UsageError):
    """Feedback on something that this space does not know."""


class Conflict(UsageError):
    """A change of what somebody else, or the learner, has changed meanwhile."""


def find_interaction(db: Connection, space: str, feedback: Feedback) -> Interaction:
    """The interaction that feedback is about. Raises Unknown if this space has none."""
    t = tables.interactions
    mine = select(t).where(t.c.space == space)
    if feedback.session is not None:
        wanted = [t.c.session == feedback.session]
        what = f"session {feedback.session!r}: give the session that its requests were sent with"
    else:
        # One after the other: asked for either at once, SQLite would read all rows of the space.
        wanted = [t.c.id == feedback.interaction, t.c.response == feedback.interaction]
        what = f"interaction {feedback.interaction!r}: give the id that came with the answer"
    queries = (mine.where(each).order_by(t.c.number.desc()).limit(1) for each in wanted)
    found = next((row for query in queries if (row := db.execute(query).first()) is not None), None)
    if found is None:
        raise Unknown("interaction.unknown", f"this space knows nothing of {what:.300}")
    return Interaction(
        found.id, found.session, found.user, found.version, found.rollout, found.kind, json.loads(found.data)
    )


def list_interactions(
    db: Connection, space: str, session: str | None, user: str | None, since: float | None, limit: int
) -> list[answers.InteractionTold]:
    """The newest interactions of a space: of a session, of a user, answered since a time (seconds since 1970). Those
    in which a client asked for a title are left out."""
    t = tables.interactions
    # Quotes within texts are escaped in JSON, so only the field itself is found.
    found = select(t).where(t.c.space == space, t.c.data.not_like('%"purpose": "title"%'))
    if session is not None:
        found = found.where(t.c.session == session)
    if user is not None:
        found = found.where(t.c.user == user)
    if since is not None:
        # Rows before the first one of these need not be read.
        later = t.alias()
        first = select(func.min(later.c.number)).where(later.c.space == space, later.c.at >= since)
        found = found.where(t.c.at >= since, t.c.number >= first.scalar_subquery())
    rows = [(row, json.loads(row.data)) for row in db.execute(found.order_by(t.c.number.desc()).limit(limit))]
    return [
        {
            "id": row.id, "at": row.at, "session": row.session, "session_from": data["session_from"], "user": row.user,
            "status": data["status"], "question": data["question"], "answer": data["answer"], "version": row.version,
        }
        for row, data in rows
    ]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What came of an interaction, after a report: `before` is its score until then. `status` is kept (the first
    report), changed, repeated (nothing new) or outranked (the operator said otherwise)."""

    interaction: Interaction
    status: Literal["kept", "changed", "repeated", "outranked"]
    trust: Trust
    score: float | None = None
    before: float | None = None
    target: str = ""
    words: str = ""
    newly_waiting: bool = False


def write_outcome(
    db: Connection, space: str, interaction: Interaction, feedback: Feedback, trust: Trust, now: float
) -> Outcome:
    """Add a report to the outcome of an interaction, in a transaction beside which nobody changes the space. Scores are
    counted in the order of their numbers: a later score has a larger one, whatever clocks say."""
    t = tables.outcomes
    row = db.execute(select(t).where(t.c.space == space, t.c.id == interaction.id)).first()
    data = {"reports": [], "own": {}, "user": {}} if row is None else json.loads(row.data)
    own, whose, before = data["own"], data["own" if trust == "own" else "user"], None if row is None else row.score
    said = {name: value for name, value in feedback.said.items() if whose.get(name) != value}
    if row is not None and not said:
        return Outcome(interaction, "repeated", trust, before, before)
    if whose is not own:
        said = {name: value for name, value in said.items() if name not in own}
        if not said:
            return Outcome(interaction, "outranked", trust, before, before)
    data["reports"] = [*data["reports"][1 - REPORTS :], {"at": now, "trust": trust, **said}]
    if "score" not in said and {"target", "correction"} & said.keys() and whose.get("score") == 1.0:
        # Who corrects an answer does not call it right any more.
        del whose["score"]
    whose.update(said)
    if feedback.session is not None:
        data["session"] = feedback.session
    fields, least = taught(data)
    score = scored(fields, fields.get("answer") or (None if interaction.silent else interaction.answer))
    # What may have been learned from already is not held out any more.
    fresh = row is None or row.state in (NOTHING, HELD)
    held_out = fresh and "target" in own and drawn(interaction.id, HELD_OUT)
    state = NOTHING if not TEACHING & fields.keys() else HELD if held_out else WAITING
    if row is None or row.number is None or (row.score is None and score is not None):
        newest = db.execute(select(func.max(t.c.number)).where(t.c.space == space)).scalar_one()
        at, number = now, (newest or 0) + 1
    else:
        at, number = row.at, row.number
    values = {
        "space": space, "id": interaction.id, "at": at, "number": number,
        "revision": 1 if row is None else row.revision + 1, "score": score, "trust": least, "state": state,
        "data": json.dumps(data, ensure_ascii=False),
    }  # fmt: skip
    db.execute(upsert(t, db.dialect.name), values)
    about = {"space": space, "at": at, "version": interaction.version, "model": interaction.data["counted"]}
    if row is None and "purpose" in interaction.data:
        tables.count_later(db, {**about, "requests": 1})
    if score is not None and score != before:
        _credit(db, space, shown_items(db, space, interaction, "session" in data), score, before)
        added = {"scored": int(before is None), "total": score - (before or 0.0)}
        tables.count_later(db, {**about, **added})
    return Outcome(
        interaction, "kept" if row is None else "changed", trust, score, before,
        str(said.get("target", "")), str(said.get("correction", "")),
        state == WAITING and (row is None or row.state != WAITING),
    )  # fmt: skip


def taught(data: Mapping[str, Any]) -> tuple[dict[str, Any], Trust]:
    """What an outcome teaches, and whose word that is: the operator's alone if it teaches anything, and otherwise also
    what end users said."""
    own, user = data["own"], data["user"]
    if not user or TEACHING & own.keys():
        return dict(own), "own"
    return {**user, **own}, "user"


def shown_items(db: Connection, space: str, interaction: Interaction, session: bool) -> list[str]:
    """What was shown in an interaction, or in its whole session: the entries that were looked up, and the versions."""
    t, found = tables.interactions, [(interaction.version, interaction.data)]
    if session and interaction.session is not None:
        whole = select(t.c.version, t.c.data).where(t.c.space == space, t.c.session == interaction.session)
        found = [(row.version, json.loads(row.data)) for row in db.execute(whole)]
    items = [item for version, data in found for item in (f"version {version}", *(id for id, _ in data["entries"]))]
    return [*dict.fromkeys(items)]


def _credit(db: Connection, space: str, items: Sequence[str], score: float, before: float | None) -> None:
    """Count a score, or its change, for each of these."""
    t = tables.credits
    counted = {"space": space, "scored": int(before is None), "total": score - (before or 0.0)}
    add = insert_adding(t, db.dialect.name, ("scored", "total"))
    db.execute(add.values([{"item": item, **counted} for item in items]))


def scored(data: Mapping[str, Any], answer: str | None) -> float | None:
    """The score of an outcome. Without one, an answer that had to be corrected was wrong, unless it is the right one
    all the same. If there was no answer (None), it was not wrong either."""
    if "score" in data:
        return float(data["score"])
    if answer is None:
        return None
    if "target" in data:
        return float(normalise(answer) == normalise(str(data["target"])))
    return 0.0 if "correction" in data else None


def drawn(id: str, share: float) -> bool:
    """Whether an interaction or a session is one of a share of all, always the same ones."""
    return int.from_bytes(blake2b(id.encode(), digest_size=4).digest(), "big") < share * 2**32
