"""Outcomes: reports about an interaction, and the rules for late and repeated reports.

An interaction is a query, with the context that was shown for the query, and the answer. An interaction has one
outcome. A report adds fields to the outcome. If a field was reported before, the new value replaces the old value.
Sending the same report again changes nothing and is not an error. A report of an end user does not replace a report of
the operator. If a report changes an outcome that was learned from, the report creates a new revision of the outcome,
which is learned from again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from sqlalchemy import func, select

from practicum.agents.external import read_answer
from practicum.core.errors import AgentError, UsageError
from practicum.core.forms import Form, form_error
from practicum.core.scores import rounded
from practicum.core.thoughts import split_thoughts
from practicum.core.trust import Trust, least
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.core.views import View
from practicum.core.visible import not_blank
from practicum.engine.attempts import TRACE
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.scope import Transaction
from practicum.tasks.scoring.registry import as_score
from practicum.tasks.scoring.rules import normalise

GOOD = frozenset({"good", "up", "thumbs_up", "thumbs-up", "+1", "like", "positive", "yes", "correct", "right", "👍"})
BAD = frozenset(
    {"bad", "down", "thumbs_down", "thumbs-down", "-1", "dislike", "negative", "no", "incorrect", "wrong", "👎"}
)
"""Labels that count as scores: `GOOD` as 1, `BAD` as 0. Any other label is stored unchanged."""

REPORTS = 20
"""Maximum number of stored reports on one interaction; older reports are dropped."""

WAITING, HELD, LEARNED, NOTHING = "waiting", "held out", "learned", "nothing"
"""States of an outcome: waiting to be learned from; held out for the replay gate; learned from; nothing to learn."""

TEACHING = frozenset({"score", "target", "comment"})
"""Fields of an outcome that learning uses. An outcome without any of these fields teaches nothing."""

Effect = Literal["in effect", "waits for review"]
"""Effect of a new correction or note."""

REPORTED = ("score", "target", "comment", "label", "answer")

_Id = Annotated[str, Field(min_length=1, max_length=20_000)]
_Text = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(not_blank)]


class Report(Form):
    """Outcome of an interaction, or of a session."""

    model_config = ConfigDict(extra="forbid", strict=True)
    INVALID: ClassVar[str] = "outcome.invalid"
    WRONG: ClassVar[str] = "invalid report"

    interaction: _Id | None = Field(
        None, description="Id of the interaction or of the provider's response; or the word last."
    )
    session: _Id | None = Field(
        None,
        description="Session, in place of an interaction: all interactions of the session get the score, and the last "
        "interaction gets the whole report.",
    )
    score: Annotated[float, BeforeValidator(rounded), Field(ge=0, le=1)] | bool | None = Field(
        None, description="From 0 (wrong) to 1 (right), or true or false."
    )
    target: _Text | None = Field(None, description="The right answer or action, as it should have been.")
    comment: _Text | None = Field(None, description="The error in the answer.")
    label: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(not_blank)] | None = Field(
        None, description="A label such as thumbs_up or thumbs_down."
    )
    answer: _Text | None = Field(None, description="The answer that was given, in short, if practicum has not seen it.")

    @field_validator("answer")
    @classmethod
    def _without_thoughts(cls, answer: str | None) -> str | None:
        return split_thoughts(answer).text or None if answer else None

    @model_validator(mode="after")
    def _is_about_something(self) -> Report:
        if (self.interaction is None) == (self.session is None):
            raise ValueError("pass either `interaction` or `session`, as the subject of the report")
        if all(getattr(self, name) is None for name in REPORTED):
            raise ValueError(f"the report is empty: pass one of {', '.join(REPORTED)}")
        return self

    @property
    def reported(self) -> dict[str, Any]:
        """Reported values by field name; a label that counts as a score sets the score."""
        values = {name: value for name in REPORTED if (value := getattr(self, name)) is not None}
        if "score" in values:
            values["score"] = float(values["score"])
        elif (label := (self.label or "").strip().lower()) in GOOD | BAD:
            values["score"] = float(label in GOOD)
        return values


class _AnyId:
    """Container that contains every id, because the existing ids are known only when the report is learned from."""

    def __contains__(self, id: object) -> bool:
        return True


def report_of(
    interaction: str, answer: Any = None, score: Any = None, target: str | None = None, comment: str | None = None,
    label: str | None = None,
) -> tuple[Report, dict[str, Any]]:  # fmt: skip
    """Return the report of a program, and the data that a Report cannot hold: the attempt as a trace, and the whole
    Score.

    Raises UsageError that names the invalid value.
    """
    extra: dict[str, Any] = {}
    values: dict[str, Any] = {"target": target, "comment": comment, "label": label}
    try:
        if answer is not None:
            trace = read_answer(answer, "the report", View(ids=_AnyId()))
            text, thoughts = split_thoughts(trace.answer)
            trace = replace(trace, answer=text, reasoning=trace.reasoning or thoughts)
            values["answer"] = trace.answer or None
            extra["trace"] = TRACE.dump_python(trace, mode="json")
        if score is not None:
            converted = as_score(score)
            values["score"] = converted.value
            extra["scored"] = asdict(converted)
    except AgentError as error:
        raise UsageError("outcome.invalid", f"answer={answer!r:.60}: {error}") from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            "outcome.invalid", f"score={score!r:.60} is not a number from 0 to 1, True, False or a Score"
        ) from error
    fields = {name: value for name, value in values.items() if value is not None}
    if not fields and extra:
        # The attempt has an empty answer, but may have steps.
        return Report.model_construct(interaction=interaction), extra
    try:
        return Report.model_validate({"interaction": interaction, **fields}), extra
    except ValidationError as error:
        raise form_error(Report, error) from error


def new_id() -> str:
    """Return a new unique id. The id begins with the time, so that lookups are fast. Ids do not define an order."""
    return f"i{time.time_ns() // 1_000:013x}-{uuid4().hex[:12]}"


# Interactions

MESSAGES = 200
"""Number of stored interactions whose texts are read when a space is opened, to find the text that requests share."""


def recent_messages(store: Store) -> list[str]:
    """Return the texts of the newest stored interactions, oldest first. Text that several of these interactions share
    is not part of a question."""
    i = schema.interactions
    newest = store.select(i.c.data).order_by(i.c.number.desc()).limit(MESSAGES)
    return [json.loads(row.data)["query"] for row in store.rows(newest)][::-1]


def shown_row(
    id: str,
    query: str,
    version: int,
    retrieved: Sequence[tuple[str, float]],
    corrections: Sequence[int],
    user: str | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the row of an interaction in which a context was shown to the caller's agent, and the data in the row."""
    data = {
        "query": query, "question": query, "steps": [], "answer": "", "calls": [], "entries": [*retrieved],
        "corrections": [*corrections], "pin": id, "session_from": "opening", "status": 200, "seconds": 0.0, "model": "",
        "counted": "other", "tokens": [0, 0, 0, 0], "purpose": "context",
    }  # fmt: skip
    row = {"id": id, "at": time.time(), "version": version, "user": user}
    return {**row, "data": json.dumps(data, ensure_ascii=False)}, data


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

    @classmethod
    def stored(cls, row: Any) -> Interaction:
        """Return the interaction of a row."""
        return cls(row.id, row.session, row.user, row.version, row.rollout, row.kind, json.loads(row.data))

    @property
    def query(self) -> str:
        return str(self.data["query"])

    @property
    def answer(self) -> str:
        return str(self.data["answer"])

    @property
    def silent(self) -> bool:
        """Whether the model gave no answer: the answer was empty, refused, filtered, or cut before its start."""
        return "silence" in self.data

    @property
    def is_shown_alone(self) -> bool:
        """Whether only a context was shown to the caller's agent, so that the answer comes from a report."""
        return self.data.get("purpose") == "context"


class Unknown(UsageError):
    """Error of a report or request about an interaction, correction or user that the space does not have."""


class Conflict(UsageError):
    """Error of a change that conflicts with a change by another writer or by the learner."""


def find_interaction(at: Transaction, report: Report) -> Interaction:
    """Return the interaction that a report is about. Raises Unknown if the space has no such interaction."""
    t = schema.interactions
    if report.session is not None:
        conditions = [t.c.session == report.session]
        subject = f"session {report.session!r}: pass the session id that the requests were sent with"
    else:
        # One query after the other: with both conditions in one query, SQLite would read all rows of the space.
        conditions = [t.c.id == report.interaction, t.c.response == report.interaction]
        subject = f"interaction {report.interaction!r}: pass the id that came with the answer"
    queries = (at.select(t).where(each).order_by(t.c.number.desc()).limit(1) for each in conditions)
    latest = next((row for query in queries if (row := at.first(query)) is not None), None)
    if latest is None:
        raise Unknown("interaction.unknown", f"this space has no {subject:.300}")
    return Interaction.stored(latest)


# Reports


@dataclass(frozen=True)
class Outcome:
    """Outcome of an interaction after a report.

    `before` is the score before the report. `status` is `kept` (the first report), `changed`, `repeated` (the same
    values again) or `outranked` (the operator reported other values). `target` and `comment` are the reporter's latest
    values, over all of the reporter's reports. `corrects` is true if this report changes `target` or `comment`, or
    lowers a score of 1. `newly_waiting` is true if the outcome waits to be learned from, and did not wait before the
    report. `correction` is the effect of the correction that the report created, or None if the report created no
    correction.
    """

    interaction: Interaction
    status: Literal["kept", "changed", "repeated", "outranked"]
    trust: Trust
    score: float | None = None
    before: float | None = None
    target: str = ""
    comment: str = ""
    corrects: bool = False
    newly_waiting: bool = False
    correction: Effect | None = None


def write_outcome(
    at: Transaction, interaction: Interaction, report: Report, trust: Trust, extra: Mapping[str, Any] | None = None,
    held_out: float = 0.0,
) -> Outcome:  # fmt: skip
    """Add a report to the outcome of an interaction.

    `extra` is the data of a program's report (see `report_of`). Of the outcomes with a right answer, the share
    `held_out` is not learned from, but kept for the replay gate.

    Scores are counted in the order of their sequence numbers: a later score has a larger number, independent of
    clocks.
    """
    t, now = schema.outcomes, at.now()
    row = at.first(at.select(t).where(t.c.id == interaction.id))
    data = {"reports": [], "own": {}, "user": {}} if row is None else json.loads(row.data)
    own, previous = data["own"], data["own" if trust == "own" else "user"]
    before = None if row is None else row.score
    reported = {**report.reported, **(extra or {})}
    changes = {name: value for name, value in reported.items() if previous.get(name) != value}
    if row is not None and not changes:
        return Outcome(interaction, "repeated", trust, before, before)
    if previous is not own:
        changes = {name: value for name, value in changes.items() if name not in own}
        if not changes:
            return Outcome(interaction, "outranked", trust, before, before)
    data["reports"] = [*data["reports"][1 - REPORTS :], {"at": now, "trust": trust, **changes}]
    if "score" not in changes and "target" in changes and previous.get("score") == 1.0:
        # A correction of an answer withdraws the reporter's earlier score of 1.
        previous.pop("score")
        previous.pop("scored", None)
    previous.update(changes)
    if report.session is not None:
        data["session"] = report.session
    fields, lowest_trust = learnable_fields(data)
    unknown = interaction.silent or interaction.is_shown_alone
    answer = fields.get("answer") or (None if unknown else interaction.answer)
    score = scored(fields, answer, interaction.silent)
    # An outcome that may have been learned from already is not held out.
    fresh = row is None or row.state in (NOTHING, HELD)
    aside = fresh and "target" in own and drawn(interaction.id, held_out)
    teaches = {"target", "comment", "trace"} & fields.keys() or ("score" in fields and answer is not None)
    state = NOTHING if not teaches else HELD if aside else WAITING
    if row is None or row.number is None or (row.score is None and score is not None):
        newest = at.first(at.select(func.max(t.c.number)))[0]
        first, number = now, (newest or 0) + 1
    else:
        first, number = row.at, row.number
    values = {
        "id": interaction.id, "at": first, "number": number, "revision": 1 if row is None else row.revision + 1,
        "score": score, "trust": lowest_trust, "state": state, "data": json.dumps(data, ensure_ascii=False),
    }  # fmt: skip
    at.put(t, values)
    about = {"at": first, "version": interaction.version, "model": interaction.data["counted"]}
    if row is None and "purpose" in interaction.data:
        at.count({**about, "requests": 1})
    if score is not None and score != before:
        _credit(at, shown_items(at, interaction, "session" in data), score, before)
        at.count({**about, "scored": int(before is None), "total": score - (before or 0.0)})
    corrects = bool({"target", "comment"} & changes.keys()) or (before == 1.0 and score != 1.0)
    newly_waiting = state == WAITING and (row is None or row.state != WAITING)
    return Outcome(
        interaction, "kept" if row is None else "changed", trust, score, before, str(previous.get("target", "")),
        str(previous.get("comment", "")), corrects, newly_waiting,
    )  # fmt: skip


def learnable_fields(data: Mapping[str, Any]) -> tuple[dict[str, Any], Trust]:
    """Return the fields of an outcome to learn from, and the trust of these fields.

    If the operator's fields are enough to learn from, only the operator's fields are returned. Otherwise the end users'
    fields are returned too; the operator's value of a field has precedence.
    """
    own, user = data["own"], data["user"]
    if not user or TEACHING & own.keys():
        return dict(own), "own"
    return {**user, **own}, "user"


def shown_items(at: Transaction, interaction: Interaction, session: bool) -> list[str]:
    """Return the items shown in an interaction, or with `session` in the whole session of the interaction. Items are
    the retrieved entries and the versions."""
    t, shown = schema.interactions, [(interaction.version, interaction.data)]
    if session and interaction.session is not None:
        whole = at.select(t.c.version, t.c.data).where(t.c.session == interaction.session)
        shown = [(row.version, json.loads(row.data)) for row in at.rows(whole)]
    items = [item for version, data in shown for item in (f"version {version}", *(id for id, _ in data["entries"]))]
    return [*dict.fromkeys(items)]


def _credit(at: Transaction, items: Sequence[str], score: float, before: float | None) -> None:
    """Count a new score, or the change of a score that was counted before, for each item."""
    counted = {"scored": int(before is None), "total": score - (before or 0.0)}
    at.add(schema.credits, ("scored", "total"), *({"item": item, **counted} for item in items))


def scored(data: Mapping[str, Any], answer: str | None, silent: bool) -> float | None:
    """Return the score of an outcome, or None.

    A reported score is returned unchanged. Otherwise, if a right answer was reported, the score is 1 if `answer` equals
    the right answer, 0 if the two differ, and None if `answer` is None (unknown). Otherwise, if a comment was reported,
    the score is 0, or None if the model was `silent`. Otherwise the score is None.
    """
    if "score" in data:
        return float(data["score"])
    if "target" in data:
        return None if answer is None else float(normalise(answer) == normalise(str(data["target"])))
    return 0.0 if "comment" in data and not silent else None


def drawn(id: str, share: float) -> bool:
    """Return whether an id belongs to a share of all ids. A hash of the id decides, so the result for an id is always
    the same."""
    return int.from_bytes(blake2b(id.encode(), digest_size=4).digest(), "big") < share * 2**32


# Learning


@dataclass(frozen=True)
class Trusted:
    """Additional sources that are trusted as the operator's own: end `users` (their questions, not their reports), and
    results of `tools`."""

    users: bool = False
    tools: bool = False

    def question(self, user: str | None) -> Trust:
        """Return the trust of a question if the operator reports on the answer to the question. `user` is the end user
        who asked the question (None: the operator)."""
        return "own" if user is None or self.users else "labelled"

    def taught(self, by: Trust, users: Sequence[str | None], material: bool) -> Trust:
        """Return the trust of a lesson from a report. `by` is "own" for a report by the operator, and "user" for a
        report by an end user.

        The report is on a conversation in which `users` asked questions (None: the operator). `material` is true if the
        conversation contained tool results or documents.
        """
        read: Trust = "tool" if material and not self.tools else "own"
        return least(by, read, *map(self.question, users))


def trust_of(user: str | None) -> Trust:
    """Return the trust of a text that was written in the name of `user` (None: the operator)."""
    return "own" if user is None else "user"


Question = Callable[[Mapping[str, Any]], str]
"""Function that returns the question in a stored interaction."""


def stored_question(data: Mapping[str, Any]) -> str:
    """Return the question of a stored interaction, as extracted before the interaction was stored."""
    return str(data["question"] or data["query"])


@dataclass(frozen=True)
class WaitingOutcome:
    """Outcome to be learned from, as a task that may have a recorded attempt. If `scored`, the outcome has a score, so
    that neither a scorer nor a judge is needed."""

    id: str
    revision: int
    task: Task
    scored: bool


def outcomes_in(
    store: Store, trusted: Trusted, question: Question = stored_question, most: int | None = None,
    states: Sequence[str] = (WAITING,),
) -> list[WaitingOutcome]:  # fmt: skip
    """Return the outcomes in these states as tasks, in the order of the interactions.

    By default, return the outcomes that wait to be learned from. If `most` is set, return only the oldest `most`
    outcomes.
    """
    o, i = schema.outcomes, schema.interactions
    both = store.select(o, i.c.number.label("place")).join(i, store.mine(i, i.c.id == o.c.id))
    rows = store.rows(both.where(o.c.state.in_(states)).order_by(i.c.number).limit(most))
    return [_waiting(store, row, trusted, question) for row in rows]


def _waiting(store: Store, row: Any, trusted: Trusted, question: Question) -> WaitingOutcome:
    i, data = schema.interactions, json.loads(row.data)
    own = store.rows(store.select(i).where(i.c.id == row.id))
    if "session" in data and own[0].session is not None:
        own = store.rows(store.select(i).where(i.c.session == own[0].session).order_by(i.c.number))
    last, users = own[-1], {one.user for one in own}
    material = any("material" in json.loads(one.data) for one in own)
    if last.session is not None:
        # The users and the tool results of earlier requests count too, since a request repeats the conversation.
        before = (i.c.session == last.session) & (i.c.number <= last.number)
        users |= {one.user for one in store.rows(store.select(i.c.user).where(before).distinct())}
        # JSON escapes quotes inside texts, so the pattern matches only the field `material`.
        read = store.select(i.c.id).where(before, i.c.data.like('%"material": true%')).limit(1)
        material = material or bool(store.rows(read))
    fields, by = learnable_fields(data)
    requests = [(one, json.loads(one.data)) for one in own]
    task = _as_task(f"{row.id}.{row.revision}", row.id, fields, requests, question, row.score)
    recorded = task.recorded
    material |= recorded is not None and any(step.kind == "observation" for step in recorded.trace.steps)
    task = replace(task, trust=trusted.taught(by, [*users], material))
    return WaitingOutcome(row.id, row.revision, task, recorded is not None and recorded.score is not None)


def _as_task(
    id: str, own_id: str, data: Mapping[str, Any], requests: Sequence[tuple[Any, dict[str, Any]]], question: Question,
    value: float | None,
) -> Task:  # fmt: skip
    """Return an outcome as a task.

    The interactions of a session become one attempt: the question of the first request, the steps of all requests, and
    the last answer. A right answer without an attempt counts as a correct attempt.
    """
    last, first, target = requests[-1][1], requests[0][1], data.get("target")
    trace = TRACE.validate_python(data["trace"]) if "trace" in data else _trace(data, requests, question)
    score = None if value is None else _score(data, value)
    # If the model gave no answer, the right answer teaches, and no attempt was wrong.
    silent = "trace" not in data and "answer" not in data and score is None and target is not None
    if silent and ("silence" in last or last.get("purpose") == "context"):
        trace, score = Trace(str(target)), Score(1.0, True)
    shown = {id: similarity for _, asked in requests for id, similarity in asked["entries"]}
    recorded = Recorded(trace, score, own=True, retrieved=tuple(shown.items()))
    images = {mark: address for _, asked in requests for mark, address in asked.get("images", {}).items()}
    return Task(id, question(first), target, {"own_id": own_id}, recorded=recorded, images=images)


def _score(data: Mapping[str, Any], value: float) -> Score:
    score = Score(**data["scored"]) if "scored" in data and "score" in data else as_score(value)
    notes = [str(data[name]) for name in ("comment", "label") if name in data]
    return replace(score, note="\n".join([*([score.note] if score.note else []), *notes]))


def _trace(data: Mapping[str, Any], requests: Sequence[tuple[Any, dict[str, Any]]], question: Question) -> Trace:
    # Consecutive requests with the same query belong to one piece of work of an agent. The last of these requests
    # contains the steps of all these requests.
    turns = [one for one, after in pairwise(requests) if after[1]["query"] != one[1]["query"]] + [*requests[-1:]]
    steps = list[dict[str, str]]()
    for number, (_, asked) in enumerate(turns):
        steps += [{"kind": "user", "text": question(asked)}] if number else []
        steps += [{"kind": kind, "text": text} for kind, text in asked["steps"]]
        steps += [{"kind": "call", "text": f"{name}({arguments})"} for name, arguments in asked["calls"]]
        steps += [{"kind": "answer", "text": asked["answer"]}] if number < len(turns) - 1 and asked["answer"] else []
    last = turns[-1][1]
    answer = str(data.get("answer") or last["answer"])
    values = {"answer": answer, "reasoning": last.get("thoughts", ""), "steps": steps}
    return read_answer(values, "the report", View(ids=_AnyId()))


def close_outcomes(at: Transaction, outcomes: Sequence[WaitingOutcome]) -> None:
    """Mark outcomes as learned from. An outcome that received a new report after the outcome was read for learning
    keeps waiting."""
    t = schema.outcomes
    for each in outcomes:
        same = (t.c.id == each.id) & (t.c.revision == each.revision) & (t.c.state == WAITING)
        at.run(at.update(t).where(same).values(state=LEARNED))


def count_waiting(store: Store | Transaction) -> int:
    """Return the number of outcomes that wait to be learned from."""
    t = schema.outcomes
    return int(store.rows(store.select(func.count(t.c.id)).where(t.c.state == WAITING))[0][0])


def prune(at: Transaction, keep: int) -> None:
    """Delete the interactions without an outcome, except interactions that are among the newest `keep`."""
    i, o = schema.interactions, schema.outcomes
    newest = at.select(i.c.number).order_by(i.c.number.desc()).limit(1).offset(keep).scalar_subquery()
    reported = select(o.c.id).where(at.mine(o))
    at.run(at.delete(i).where(i.c.number < newest, i.c.id.not_in(reported)))
