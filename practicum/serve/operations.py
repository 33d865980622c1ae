"""What the service can be asked beside the protocols of models, each thing once: its route, the role that it takes,
what is given, and what is told. The HTTP routes, the OpenAPI document and the tools for agents are made from this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import StoreAway, StoreError, UsageError
from practicum.core.visible import not_blank
from practicum.core.words import fault, one_line, wrong_field
from practicum.retrieval.search import Filter
from practicum.serve import access, answers, editing, erasing, reporting
from practicum.serve.access import Grant, Keys, Role
from practicum.serve.history import space_history
from practicum.serve.service import Service
from practicum.session.outcomes import Conflict, Report, read_report, said_by
from practicum.session.review import Present, read_reviews
from practicum.store.database import Store
from practicum.store.spaces import FORM, SPACE_NAME

MOST = 2**20
"""Bytes of the largest body of an operation."""

MOST_FIELDS = 100
"""Fields of what an operation is given. Naming each of many as wrong would hold up other requests."""

PATIENCE = 20.0
"""Seconds that an operation may take, but for those that take as long as there is data."""

MOST_FOUND = 1_000
"""Entries that a search finds. Those after them have nothing to do with it, and ordering them takes long."""

LISTED, MOST_LISTED = 200, 1_000
"""Corrections and notes that are listed at a time: with all that waits, and at most."""

Asked = TypeVar("Asked", bound=BaseModel)
Told = TypeVar("Told", bound=Mapping[str, object])


@dataclass(frozen=True)
class At:
    """Who asks, and where. `screened`: an agent speaks for itself, so what the filter flags in its words waits."""

    service: Service
    keys: Keys
    grant: Grant
    space: str
    endings: int
    """`Service.endings` when the request came."""
    session: str | None = None
    user: str | None = None
    screened: bool = False


@dataclass(frozen=True)
class ServiceOperation:
    """Something that can be asked. `whole`: it is about all spaces, so the key must be for all. `patience` is how many
    seconds it may take."""

    method: str
    path: str
    role: Role
    do: Callable[[At, Any], Awaitable[Mapping[str, object]]]
    asked: type[BaseModel]
    told: Any
    status: int
    whole: bool
    patience: float | None

    @property
    def name(self) -> str:
        return self.do.__name__


OPERATIONS: dict[tuple[str, str], ServiceOperation] = {}
"""All of them, by method and path."""


def _operation(
    method: str, path: str, role: Role, status: int = 200, *, whole: bool = False, patience: float | None = PATIENCE
) -> Callable[[Callable[[At, Asked], Awaitable[Told]]], Callable[[At, Asked], Awaitable[Told]]]:
    def add(do: Callable[[At, Asked], Awaitable[Told]]) -> Callable[[At, Asked], Awaitable[Told]]:
        types = get_type_hints(do)
        given = types["asked"], types["return"], status, whole, patience
        OPERATIONS[method, path] = ServiceOperation(method, path, role, do, *given)
        return do

    return add


class Form(BaseModel):
    """What an operation is given: as JSON, or as the query of an address."""

    model_config = ConfigDict(extra="forbid")


def read_form(form: type[BaseModel], body: bytes | dict[str, Any]) -> Any:
    """What was given. Raises UsageError that says what is wrong with it."""
    try:
        if isinstance(body, dict):
            return form.model_validate(body)
        # JSON tells numbers from texts, as a query does not.
        return form.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        known = f" (there are {', '.join(form.model_fields) or 'no fields'})"
        extra = known if error.errors()[0]["type"] == "extra_forbidden" else ""
        text = one_line(f"what was sent is wrong: {fault(error, model=form)}{extra}", 400)
        raise UsageError("request.malformed", text, param=wrong_field(error)) from error


async def perform(operation: ServiceOperation, at: At, given: bytes | dict[str, Any]) -> dict[str, Any]:
    """Do what is asked. Raises UsageError for what is wrong, and StoreError if it cannot be done."""
    at.service.spaces.require_since(at.space, at.endings)
    if at.grant.identity:
        await at.service.spaces.current(at.space, at.endings, at.grant)
    if isinstance(given, bytes):
        _require_few_fields(given)
    said = isinstance(given, bytes) and operation.asked is Report and read_report(given)
    asked = said or read_form(operation.asked, given)
    try:
        async with asyncio.timeout(operation.patience):
            return {**await operation.do(at, asked)}
    except StoreError:
        # Of a space that was deleted meanwhile, there is no run.
        at.service.spaces.require_since(at.space, at.endings)
        raise
    except TimeoutError:
        raise StoreAway(
            "service.timeout", f"this was not done in {operation.patience:g} seconds: send it again"
        ) from None


def _require_few_fields(body: bytes) -> None:
    """Raise UsageError for a JSON object with too many fields. What is no JSON object is refused where it is read."""
    if body.count(b":") <= MOST_FIELDS:
        return
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = len(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        if fields > MOST_FIELDS:
            raise UsageError("request.malformed", f"what was sent has {fields:,} fields, more than {MOST_FIELDS}")


_Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(not_blank)]
"""The name of a session or a user."""

_EntryId = Annotated[str, Field(pattern=r"^e[0-9]{1,9}$")]
_ENTRY = "the id of an entry is e and a number, such as e5"
_CORRECTION = "that of a correction or a note is c and a number, such as c5"


class Nothing(Form):
    """Nothing is given."""


# At work


@_operation("POST", "/v1/feedback", "report")
async def report(at: At, asked: Report) -> answers.Reported:
    """Say what came of an interaction: a score, the right answer, or what was wrong."""
    return await reporting.report(at.service, at.space, asked, said_by(at.user), screened=at.screened)


class Newest(Form):
    """`session` and `user` are those of the interactions, `since` the time from which they were answered: seconds since
    1970, or as in 2026-11-27T10:00:00Z."""

    session: _Name | None = None
    user: _Name | None = None
    since: Annotated[FiniteFloat, Field(ge=0, le=1e11)] | datetime | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 20

    @property
    def began(self) -> float | None:
        """`since` in seconds since 1970; a time without a zone is UTC."""
        if isinstance(self.since, datetime):
            return (self.since if self.since.tzinfo else self.since.replace(tzinfo=UTC)).timestamp()
        return self.since


@_operation("GET", "/v1/interactions", "review")
async def interactions(at: At, asked: Newest) -> answers.Interactions:
    """The last interactions of the space, the newest first."""
    space = await at.service.spaces.opened(at.space)
    return await at.service.recorder.listed(space, asked.session, asked.user, asked.began, asked.limit)


class Query(Form):
    """`input` is what the agent is asked, or is about to do."""

    input: Annotated[str, Field(min_length=1, max_length=2**20), AfterValidator(not_blank)]


@_operation("POST", "/v1/context", "ask")
async def context(at: At, asked: Query) -> answers.ShownText:
    """What a request would be shown, as one text, and the interaction that begins with it."""
    return await at.service.show_text(at.space, asked.input, at.session, at.user, screened=at.screened)


class Note(Form):
    """`text` is what is to be remembered; `about` is when it matters: without it, always."""

    text: Annotated[str, Field(min_length=1, max_length=4_000), AfterValidator(not_blank)]
    about: Annotated[str, Field(max_length=2_000)] = ""


@_operation("POST", "/v1/notes", "report")
async def remember(at: At, asked: Note) -> answers.Noted:
    """Keep a note, which is shown to later requests that it is about."""
    return await reporting.note(at.service, at.space, asked.text, asked.about, at.user, screened=at.screened)


class Listing(Form):
    """`q` are words to search for (without them, the newest entries come first), `section` is one section alone, and
    `skip` how many of the entries were listed before."""

    q: Annotated[str, Field(max_length=2_000)] = ""
    section: Annotated[str, Field(max_length=200)] = ""
    skip: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@_operation("GET", "/v1/playbook", "ask")
async def playbook(at: At, asked: Listing) -> answers.PlaybookPage:
    """The entries of the playbook that is live, and its sections."""
    space = await at.service.spaces.opened(at.space)
    version, live = space.live, space.context(space.live)
    entries, total = await find_entries(space.reader.retriever, live, asked)
    sections = await asyncio.to_thread(lambda: sorted({entry.section for entry in live}))
    return {
        "space": at.space, "version": version, "total": total, "entries": [_entry(one) for one in entries],
        "sections": sections,
    }  # fmt: skip


async def find_entries(retriever: Any, live: Context, asked: Listing) -> tuple[list[Entry], int]:
    """The entries of a listing, and how many there are in all: of a search, those that are found."""
    where = Filter(section=asked.section or None)
    # In a thread, since there may be 100,000.
    matching = await asyncio.to_thread(lambda: [entry for entry in live if where(entry)])
    end = asked.skip + asked.limit
    if not asked.q.strip():
        return matching[::-1][asked.skip : end], len(matching)
    total = min(len(matching), MOST_FOUND)
    if asked.skip >= total:
        return [], total
    found = await retriever.nearest(live, asked.q, min(end, total), where)
    return [match.entry for match in found.found[asked.skip :]], total


def _entry(entry: Entry) -> answers.PlaybookEntry:
    return {
        "id": entry.id, "section": entry.section, "text": entry.solved, "helpful": entry.helpful,
        "harmful": entry.harmful, "changed": entry.changed, "trust": entry.trust,
    }  # fmt: skip


@_operation("GET", "/v1/history", "ask")
async def history(at: At, asked: Nothing) -> answers.SpaceHistory:
    """The last rollouts of versions with their evidence, the alarms, and how requests went that saw each entry."""
    return await space_history(await at.service.spaces.opened(at.space))


# Deciding


class States(Form):
    """`state` is that of the corrections and notes that are listed, `after` the number of the last one that was listed
    before."""

    state: Literal["live", "waiting", "replaced", "rejected"] = "waiting"
    after: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = MOST_LISTED


@_operation("GET", "/v1/corrections", "review")
async def corrections(at: At, asked: States) -> answers.CorrectionList:
    """The corrections and notes in a state, the oldest first, and how many there are in all."""
    return await reporting.list_corrections(at.service, at.space, asked.state, asked.after, asked.limit)


@_operation("GET", "/v1/review", "review")
async def waiting(at: At, asked: Nothing) -> answers.Waiting:
    """What waits for review, the oldest first: corrections and notes, and edits of the playbook that were learned. Of
    very many corrections only the first are listed."""
    space = await at.service.spaces.opened(at.space)
    newest = space.newest

    def edits(store: Store) -> list[Any]:
        found = read_reviews(store, corrections=False)
        present = Present(store, newest) if found else None
        return [{**one.as_json(), "problem": present and present.problem(one, present.context)} for one in found]

    listed = await reporting.list_corrections(at.service, at.space, "waiting", 0, LISTED)
    return {
        "space": at.space, "corrections": listed["corrections"], "total": listed["total"],
        "edits": await asyncio.to_thread(edits, space.store),
    }  # fmt: skip


class Decision(Form):
    """`id` is that of what waits: c5 for a correction or a note, 3.1 for edits. `reason` is kept with a rejection."""

    id: Annotated[
        str,
        Field(
            pattern=r"^(c[0-9]{1,9}|[0-9]{1,9}\.[0-9]{1,9})$",
            description=f"the id of edits is two numbers, such as 3.1; {_CORRECTION}",
        ),
    ]
    decision: Literal["approve", "reject"]
    reason: Annotated[str, Field(max_length=2_000)] = ""


@_operation("POST", "/v1/review", "review")
async def decide(at: At, asked: Decision) -> answers.Decided:
    """Approve what waits for review, or reject it. A correction or a note that holds can be rejected, too."""
    return await editing.decide_review(at.service, at.space, asked.id, asked.decision == "approve", asked.reason)


class EntryEdit(Form):
    """Without `id` an entry is added, which takes `text` and `section`. `seen` is the version in which whoever edits
    has seen the entry: the edit is refused if it was changed later."""

    id: _EntryId | None = Field(default=None, description=_ENTRY)
    text: Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(not_blank)] | None = None
    section: (
        Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\n\r]*$"), AfterValidator(not_blank)] | None
    ) = Field(default=None, description="a section has a name of one line")
    seen: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


@_operation("POST", "/v1/playbook", "review")
async def edit(at: At, asked: EntryEdit) -> answers.Edited:
    """Change an entry of the playbook, or add one. It makes a version that all see at once."""
    if asked.id is None and (asked.text is None or asked.section is None):
        raise UsageError("request.malformed", "a new entry takes `text` and `section`; give `id` to change one")
    if asked.text is None and asked.section is None:
        raise UsageError("request.malformed", "give `text` or `section`: what is to be changed")
    return await editing.edit_entry(at.service, at.space, asked.id, asked.text, asked.section, asked.seen)


class Removal(Form):
    """`id` is that of an entry (e5), or of a correction or a note (c5)."""

    id: Annotated[str, Field(pattern=r"^[ce][0-9]{1,9}$", description=f"{_ENTRY}; {_CORRECTION}")]
    seen: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


@_operation("POST", "/v1/remove", "report")
async def remove(at: At, asked: Removal) -> answers.Edited | answers.Decided:
    """Remove an entry of the playbook, a correction or a note. Of an entry, an earlier version still has it. Without
    the role review, only one's own notes are removed: those of the same user, or of none."""
    number = int(asked.id[1:]) if asked.id.startswith("c") else None
    if not at.grant.may("review"):
        note = None if number is None else await reporting.note_of(at.service, at.space, number)
        if note is None or note.user != at.user:
            raise access.Forbidden(
                "key.forbidden",
                f"removing {asked.id} takes the role review: report is for notes of one's own",
                role="review",
            )
    if number is not None:
        return await reporting.decide_correction(at.service, at.space, number, False)
    return await editing.edit_entry(at.service, at.space, asked.id, None, None, asked.seen)


class RollbackTarget(Form):
    """`version` is that which all are to see; without it, the one before the live one."""

    version: Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)] | None = None


@_operation("POST", "/v1/rollback", "review")
async def rollback(at: At, asked: RollbackTarget) -> answers.LiveVersion:
    """Let all see a version, and end the trial of a new one."""
    space = await at.service.spaces.opened(at.space)
    return {"version": await at.service.rollouts.roll_back(space, asked.version)}


@_operation("POST", "/v1/learn", "review", 202)
async def learn(at: At, asked: Nothing) -> answers.LearningStart:
    """Begin a round of learning as soon as possible, however few outcomes wait."""
    space = await at.service.spaces.opened(at.space)
    if not at.service.settings.learn:
        raise Conflict(
            "learning.disabled", "this service does not learn: it was started with --no-learning, or without a model"
        )
    at.service.learner.want(space.name)
    when = "begins" if space.rollout is None else f"begins when version {space.rollout.version} is decided about"
    return {"space": at.space, "learning": when}


# One user's data


class User(Form):
    """`user` as in the header x-practicum-user, when the user asked."""

    user: _Name


class Forgetting(User):
    """`text`: what was learned and has rare words of the user is removed too, wherever it came from."""

    text: bool = False


@_operation("GET", "/v1/user", "admin", patience=None)
async def export_user(at: At, asked: User) -> answers.UserData:
    """All that is kept of a user in the space, and what was learned from it."""
    return {"user": asked.user, "items": await erasing.export_user(at.service, at.space, asked.user)}


@_operation("DELETE", "/v1/user", "admin", patience=None)
async def forget_user(at: At, asked: Forgetting) -> answers.ForgottenUser:
    """Remove all that is kept of a user in the space, and all that was learned from it, for good."""
    done = await erasing.forget_user(at.service, at.space, asked.user, text=asked.text)
    return done.as_json()  # type: ignore[return-value]


# Keys


class KeyName(Form):
    """`space` is the one that a key is for; empty: all."""

    name: Annotated[str, Field(min_length=1, max_length=access.LONGEST_NAME)]
    space: Annotated[str, Field(max_length=64)] = ""


class NewKey(KeyName):
    """`days` until it expires, and the requests a minute that it may send; without them, no end and the service's
    limit."""

    roles: Annotated[list[Role], Field(min_length=1, max_length=4)]
    days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    a_minute: Annotated[int, Field(ge=1, le=10_000_000)] | None = None


def _own(at: At, space: str) -> str:
    """The space of a key that somebody manages: a key of one space manages keys of that space alone."""
    if at.grant.space and space not in ("", at.grant.space):
        raise access.Forbidden("key.forbidden", f"this key is for space {at.grant.space}")
    return at.grant.space or space


@_operation("GET", "/v1/keys", "admin")
async def keys(at: At, asked: Nothing) -> answers.KeysTold:
    """The keys in the store, without the keys themselves."""
    found = await asyncio.to_thread(access.stored_keys, at.service.database)
    return {"keys": [grant.as_json() for grant in found if at.grant.space in ("", grant.space)]}


@_operation("POST", "/v1/keys", "admin")
async def add_key(at: At, asked: NewKey) -> answers.NewKeyTold:
    """Make a key. It is told here, and nowhere else."""
    space, database = _own(at, asked.space), at.service.database
    id = (await at.service.spaces.current(space, at.endings, at.grant)).id if space else None
    key = await asyncio.to_thread(
        access.add_key, database, asked.name, space, asked.roles, asked.days, asked.a_minute, id
    )
    at.keys.forget()
    return {"name": asked.name, "space": space, "key": key}


@_operation("DELETE", "/v1/keys", "admin")
async def remove_key(at: At, asked: KeyName) -> answers.KeyGone:
    """Remove a key, and sign out who signed in with it."""
    space = _own(at, asked.space)
    await asyncio.to_thread(access.remove_key, at.service.database, asked.name, space)
    at.keys.forget()
    return {"name": asked.name, "space": space}


# Spaces


@_operation("GET", "/v1/spaces", "ask", whole=True)
async def spaces(at: At, asked: Nothing) -> answers.Spaces:
    """The spaces that there are."""
    return {"spaces": await asyncio.to_thread(at.service.database.names)}


class SpaceName(Form):
    """`name` of a space: letters, digits, . _ and -."""

    name: Annotated[str, Field(pattern=f"^{SPACE_NAME.pattern}$", description=FORM)]


@_operation("POST", "/v1/spaces", "admin", whole=True)
async def add_space(at: At, asked: SpaceName) -> answers.SpaceTold:
    """Make a space, unless there is one of this name."""
    await at.service.add_space(asked.name)
    return {"name": asked.name}


@_operation("DELETE", "/v1/spaces", "admin", whole=True)
async def remove_space(at: At, asked: SpaceName) -> answers.SpaceGone:
    """Delete a space with everything that was asked, reported and learned in it, and its keys."""
    told = await editing.remove_space(at.service, asked.name)
    at.keys.forget()
    return told
