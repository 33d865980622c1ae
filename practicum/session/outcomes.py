"""Outcomes: what was reported about an interaction, and the rules for reports that come late or again.

An interaction is a query with what was shown for it and what was answered. It has one outcome. A report adds to it and
replaces what it says anew. The same report again changes nothing and is no error. What an end user says does not
replace what the operator said. A report that changes an outcome which was learned from makes a new revision, which is
learned from again.
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
"""Labels that are scores: 1 and 0. Any other label is kept as it is."""

REPORTS = 20
"""Reports on one interaction that are kept: the last ones."""

WAITING, HELD, LEARNED, NOTHING = "waiting", "held out", "learned", "nothing"
"""The states of an outcome: to be learned from; kept for the replay gate; learned from; with nothing to learn."""

TEACHING = frozenset({"score", "target", "comment"})
"""What an outcome needs one of to be learned from."""

Effect = Literal["in effect", "waits for review"]
"""What becomes of a correction or a note that was just made."""

REPORTED = ("score", "target", "comment", "label", "answer")

_Id = Annotated[str, Field(min_length=1, max_length=20_000)]
_Text = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(not_blank)]


class Report(Form):
    """The outcome of an interaction, or of a session."""

    model_config = ConfigDict(extra="forbid", strict=True)
    INVALID: ClassVar[str] = "outcome.invalid"
    WRONG: ClassVar[str] = "the report is wrong"

    interaction: _Id | None = Field(
        None, description="The id of the interaction or of the provider's response; or last."
    )
    session: _Id | None = Field(
        None, description="Instead of an id: a session. The report is about its last interaction, the score about all."
    )
    score: Annotated[float, BeforeValidator(rounded), Field(ge=0, le=1)] | bool | None = Field(
        None, description="From 0 (wrong) to 1 (right), or true or false."
    )
    target: _Text | None = Field(None, description="The right answer, or what should have been done.")
    comment: _Text | None = Field(None, description="What was wrong, in words.")
    label: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(not_blank)] | None = Field(
        None, description="A word such as thumbs_up or thumbs_down."
    )
    answer: _Text | None = Field(
        None, description="What was answered or done, in short, where practicum has not seen it."
    )

    @field_validator("answer")
    @classmethod
    def _without_thoughts(cls, answer: str | None) -> str | None:
        return split_thoughts(answer).text or None if answer else None

    @model_validator(mode="after")
    def _is_about_something(self) -> Report:
        if (self.interaction is None) == (self.session is None):
            raise ValueError("give either `interaction` or `session`: what the report is about")
        if all(getattr(self, name) is None for name in REPORTED):
            raise ValueError(f"it is empty: give one of {', '.join(REPORTED)}")
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


class _Anything:
    """Holds every id: which entries there are is known when the report is learned from."""

    def __contains__(self, id: object) -> bool:
        return True


def report_of(
    interaction: str, answer: Any = None, score: Any = None, target: str | None = None, comment: str | None = None,
    label: str | None = None,
) -> tuple[Report, dict[str, Any]]:  # fmt: skip
    """A report of a program, and what it tells beside: the attempt as a trace, and all that a Score holds. Raises
    UsageError that names what is wrong."""
    beside: dict[str, Any] = {}
    values: dict[str, Any] = {"target": target, "comment": comment, "label": label}
    try:
        if answer is not None:
            trace = read_answer(answer, "the report", View(ids=_Anything()))
            text, thoughts = split_thoughts(trace.answer)
            trace = replace(trace, answer=text, reasoning=trace.reasoning or thoughts)
            values["answer"] = trace.answer or None
            beside["trace"] = TRACE.dump_python(trace, mode="json")
        if score is not None:
            made = as_score(score)
            values["score"] = made.value
            beside["scored"] = asdict(made)
    except AgentError as error:
        raise UsageError("outcome.invalid", f"answer={answer!r:.60}: {error}") from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            "outcome.invalid", f"score={score!r:.60} is not a number from 0 to 1, True, False or a Score"
        ) from error
    given = {name: value for name, value in values.items() if value is not None}
    if not given and beside:
        # An attempt whose answer is empty, which may have steps.
        return Report.model_construct(interaction=interaction), beside
    try:
        return Report.model_validate({"interaction": interaction, **given}), beside
    except ValidationError as error:
        raise form_error(Report, error) from error


def new_id() -> str:
    """An id that nobody else gives. It begins with the time, which finds a row quickly and decides no order."""
    return f"i{time.time_ns() // 1_000:013x}-{uuid4().hex[:12]}"


# Interactions

MESSAGES = 200
"""Stored interactions whose texts are read when a space is opened, to know what its requests have in common."""


def recent_messages(store: Store) -> list[str]:
    """The texts of the newest stored interactions, oldest first: what they have in common is no question."""
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
    """The row of an interaction in which an agent of one's own was shown something, and the data in it."""
    data = {
        "query": query, "question": query, "steps": [], "answer": "", "calls": [], "entries": [*retrieved],
        "corrections": [*corrections], "pin": id, "session_from": "opening", "status": 200, "seconds": 0.0, "model": "",
        "counted": "other", "tokens": [0, 0, 0], "purpose": "context",
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
        """One from its row."""
        return cls(row.id, row.session, row.user, row.version, row.rollout, row.kind, json.loads(row.data))

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

    @property
    def is_shown_alone(self) -> bool:
        """Whether it is what an agent of one's own was shown: what that answered is known from a report alone."""
        return self.data.get("purpose") == "context"


class Unknown(UsageError):
    """A report on something that this space does not know."""


class Conflict(UsageError):
    """A change of what somebody else, or the learner, has changed meanwhile."""


def find_interaction(at: Transaction, report: Report) -> Interaction:
    """The interaction that a report is about. Raises Unknown if this space has none."""
    t = schema.interactions
    if report.session is not None:
        wanted = [t.c.session == report.session]
        what = f"session {report.session!r}: give the session that its requests were sent with"
    else:
        # One after the other: asked for either at once, SQLite would read all rows of the space.
        wanted = [t.c.id == report.interaction, t.c.response == report.interaction]
        what = f"interaction {report.interaction!r}: give the id that came with the answer"
    queries = (at.select(t).where(each).order_by(t.c.number.desc()).limit(1) for each in wanted)
    found = next((row for query in queries if (row := at.first(query)) is not None), None)
    if found is None:
        raise Unknown("interaction.unknown", f"this space knows nothing of {what:.300}")
    return Interaction.stored(found)


# Reports


@dataclass(frozen=True)
class Outcome:
    """What is known of an interaction after a report: `before` is its score until then. `status` is kept (the first
    report), changed, repeated (nothing new) or outranked (the operator said otherwise). `target` and `comment` are all
    that its reporter said was right and wrong; `corrects`: the report says one of them, or that the answer is not right
    after all. `correction` is what the report made: a correction that is in effect, or one that waits for review."""

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
    at: Transaction, interaction: Interaction, report: Report, trust: Trust, beside: Mapping[str, Any] | None = None,
    held_out: float = 0.0,
) -> Outcome:  # fmt: skip
    """Add a report to the outcome of an interaction. `beside` is what a program told with it (see `report_of`). Of the
    outcomes with a right answer, the share `held_out` teaches nothing and is kept for the replay gate.

    Scores are counted in the order of their numbers: a later score has a larger one, whatever clocks say.
    """
    t, now = schema.outcomes, at.now()
    row = at.first(at.select(t).where(t.c.id == interaction.id))
    data = {"reports": [], "own": {}, "user": {}} if row is None else json.loads(row.data)
    own, whose, before = data["own"], data["own" if trust == "own" else "user"], None if row is None else row.score
    said = {name: value for name, value in {**report.said, **(beside or {})}.items() if whose.get(name) != value}
    if row is not None and not said:
        return Outcome(interaction, "repeated", trust, before, before)
    if whose is not own:
        said = {name: value for name, value in said.items() if name not in own}
        if not said:
            return Outcome(interaction, "outranked", trust, before, before)
    data["reports"] = [*data["reports"][1 - REPORTS :], {"at": now, "trust": trust, **said}]
    if "score" not in said and "target" in said and whose.get("score") == 1.0:
        # Who corrects an answer does not call it right any more.
        whose.pop("score")
        whose.pop("scored", None)
    whose.update(said)
    if report.session is not None:
        data["session"] = report.session
    fields, least_ = taught(data)
    unknown = interaction.silent or interaction.is_shown_alone
    answer = fields.get("answer") or (None if unknown else interaction.answer)
    score = scored(fields, answer, interaction.silent)
    # What may have been learned from already is not held out any more.
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
        "score": score, "trust": least_, "state": state, "data": json.dumps(data, ensure_ascii=False),
    }  # fmt: skip
    at.put(t, values)
    about = {"at": first, "version": interaction.version, "model": interaction.data["counted"]}
    if row is None and "purpose" in interaction.data:
        at.count({**about, "requests": 1})
    if score is not None and score != before:
        _credit(at, shown_items(at, interaction, "session" in data), score, before)
        at.count({**about, "scored": int(before is None), "total": score - (before or 0.0)})
    corrects = bool({"target", "comment"} & said.keys()) or (before == 1.0 and score != 1.0)
    newly_waiting = state == WAITING and (row is None or row.state != WAITING)
    return Outcome(
        interaction, "kept" if row is None else "changed", trust, score, before, str(whose.get("target", "")),
        str(whose.get("comment", "")), corrects, newly_waiting,
    )  # fmt: skip


def taught(data: Mapping[str, Any]) -> tuple[dict[str, Any], Trust]:
    """What an outcome teaches, and whose word that is: the operator's alone if it teaches anything, and otherwise also
    what end users said."""
    own, user = data["own"], data["user"]
    if not user or TEACHING & own.keys():
        return dict(own), "own"
    return {**user, **own}, "user"


def shown_items(at: Transaction, interaction: Interaction, session: bool) -> list[str]:
    """What was shown in an interaction, or in its whole session: the entries that were looked up, and the versions."""
    t, found = schema.interactions, [(interaction.version, interaction.data)]
    if session and interaction.session is not None:
        whole = at.select(t.c.version, t.c.data).where(t.c.session == interaction.session)
        found = [(row.version, json.loads(row.data)) for row in at.rows(whole)]
    items = [item for version, data in found for item in (f"version {version}", *(id for id, _ in data["entries"]))]
    return [*dict.fromkeys(items)]


def _credit(at: Transaction, items: Sequence[str], score: float, before: float | None) -> None:
    """Count a score, or its change, for each of these."""
    counted = {"scored": int(before is None), "total": score - (before or 0.0)}
    at.add(schema.credits, ("scored", "total"), *({"item": item, **counted} for item in items))


def scored(data: Mapping[str, Any], answer: str | None, silent: bool) -> float | None:
    """The score of an outcome. Without one, an answer that had to be corrected was wrong, unless it is the right one
    all the same. An answer that is not known (None) is not compared, and a model that was silent was not wrong."""
    if "score" in data:
        return float(data["score"])
    if "target" in data:
        return None if answer is None else float(normalise(answer) == normalise(str(data["target"])))
    return 0.0 if "comment" in data and not silent else None


def drawn(id: str, share: float) -> bool:
    """Whether an interaction or a session is one of a share of all, always the same ones."""
    return int.from_bytes(blake2b(id.encode(), digest_size=4).digest(), "big") < share * 2**32


# Learning


@dataclass(frozen=True)
class Trusted:
    """What counts as the operator's own words: what end `users` ask (their reports do not), and what `tools` return."""

    users: bool = False
    tools: bool = False

    def question(self, user: str | None) -> Trust:
        """The trust of a question of this end user (None: the operator's), of which the operator knows the answer."""
        return "own" if user is None or self.users else "labelled"

    def taught(self, by: Trust, users: Sequence[str | None], material: bool) -> Trust:
        """The trust of what a report by the operator (`own`) or an end user (`user`) teaches about a conversation with
        these end users. `material`: it had results of tools or documents."""
        read: Trust = "tool" if material and not self.tools else "own"
        return least(by, read, *map(self.question, users))


def said_by(user: str | None) -> Trust:
    """The trust of what was said in the name of an end user (None: by the operator)."""
    return "own" if user is None else "user"


Question = Callable[[Mapping[str, Any]], str]
"""What a stored interaction asks."""


def asked(data: Mapping[str, Any]) -> str:
    """What a stored interaction asks, as it was known then."""
    return str(data["question"] or data["query"])


@dataclass(frozen=True)
class WaitingOutcome:
    """An outcome to be learned from, as a task with a recorded attempt. `scored`: its score is known without a scorer
    and without a judge."""

    id: str
    revision: int
    task: Task
    scored: bool


def outcomes_in(
    store: Store, trusted: Trusted, question: Question = asked, most: int | None = None,
    states: Sequence[str] = (WAITING,),
) -> list[WaitingOutcome]:  # fmt: skip
    """The outcomes in these states as tasks, in the order of asking; by default those that can be learned from and were
    not."""
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
        # What was read and asked earlier in the conversation counts too, since a request repeats it.
        before = (i.c.session == last.session) & (i.c.number <= last.number)
        users |= {one.user for one in store.rows(store.select(i.c.user).where(before).distinct())}
        # Quotes within texts are escaped in JSON, so only the field itself is found.
        read = store.select(i.c.id).where(before, i.c.data.like('%"material": true%')).limit(1)
        material = material or bool(store.rows(read))
    fields, by = taught(data)
    known = [(one, json.loads(one.data)) for one in own]
    task = _as_task(f"{row.id}.{row.revision}", row.id, fields, known, question, row.score)
    recorded = task.recorded
    material |= recorded is not None and any(step.kind == "observation" for step in recorded.trace.steps)
    task = replace(task, trust=trusted.taught(by, [*users], material))
    return WaitingOutcome(row.id, row.revision, task, recorded is not None and recorded.score is not None)


def _as_task(
    id: str, own_id: str, data: Mapping[str, Any], known: Sequence[tuple[Any, dict[str, Any]]], question: Question,
    value: float | None,
) -> Task:  # fmt: skip
    """An outcome as a task. The attempts of a session are one attempt: the question of its first request, what was said
    and done since, and its last answer. A right answer without an attempt counts as an answer that was right."""
    last, first, target = known[-1][1], known[0][1], data.get("target")
    trace = TRACE.validate_python(data["trace"]) if "trace" in data else _trace(data, known, question)
    score = None if value is None else _score(data, value)
    # Where the model said nothing, a right answer teaches, and there is no attempt that was wrong.
    silent = "trace" not in data and "answer" not in data and score is None and target is not None
    if silent and ("silence" in last or last.get("purpose") == "context"):
        trace, score = Trace(str(target)), Score(1.0, True)
    shown = {id: similarity for _, asked in known for id, similarity in asked["entries"]}
    recorded = Recorded(trace, score, own=True, retrieved=tuple(shown.items()))
    return Task(id, question(first), target, {"own_id": own_id}, recorded=recorded)


def _score(data: Mapping[str, Any], value: float) -> Score:
    score = Score(**data["scored"]) if "scored" in data and "score" in data else as_score(value)
    said = [str(data[name]) for name in ("comment", "label") if name in data]
    return replace(score, note="\n".join([*([score.note] if score.note else []), *said]))


def _trace(data: Mapping[str, Any], known: Sequence[tuple[Any, dict[str, Any]]], question: Question) -> Trace:
    # In the requests of one agent's work, the last one has the steps of all before it.
    turns = [one for one, after in pairwise(known) if after[1]["query"] != one[1]["query"]] + [*known[-1:]]
    steps = list[dict[str, str]]()
    for number, (_, asked) in enumerate(turns):
        steps += [{"kind": "user", "text": question(asked)}] if number else []
        steps += [{"kind": kind, "text": text} for kind, text in asked["steps"]]
        steps += [{"kind": "call", "text": f"{name}({said})"} for name, said in asked["calls"]]
        steps += [{"kind": "answer", "text": asked["answer"]}] if number < len(turns) - 1 and asked["answer"] else []
    last = turns[-1][1]
    answer = str(data.get("answer") or last["answer"])
    told = {"answer": answer, "reasoning": last.get("thoughts", ""), "steps": steps}
    return read_answer(told, "the report", View(ids=_Anything()))


def close_outcomes(at: Transaction, outcomes: Sequence[WaitingOutcome]) -> None:
    """Note that outcomes were learned from. One that was reported on anew since it was read stays open."""
    t = schema.outcomes
    for one in outcomes:
        same = (t.c.id == one.id) & (t.c.revision == one.revision) & (t.c.state == WAITING)
        at.run(at.update(t).where(same).values(state=LEARNED))


def count_waiting(store: Store | Transaction) -> int:
    """How many outcomes can be learned from and were not."""
    t = schema.outcomes
    return int(store.rows(store.select(func.count(t.c.id)).where(t.c.state == WAITING))[0][0])


def prune(at: Transaction, kept: int) -> None:
    """Delete the oldest interactions without an outcome: those before the newest so many."""
    i, o = schema.interactions, schema.outcomes
    newest = at.select(i.c.number).order_by(i.c.number.desc()).limit(1).offset(kept).scalar_subquery()
    reported = select(o.c.id).where(at.mine(o))
    at.run(at.delete(i).where(i.c.number < newest, i.c.id.not_in(reported)))
