"""Review of waiting edits: a person, or the gate if it has enough tasks, decides about each edit that waits.

Approved edits are applied as one version; the trust of an entry still follows the origin of the entry, not the
reviewer. Rejected edits are stored, so that an edit with the same text is refused. An edit can be approved only while
the entries that it changes are the same as when the edit was proposed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import func
from typing_extensions import TypedDict

from practicum.core.context import Context
from practicum.core.edits import Add, Applied, Delete, Delta, Edit, Entry, Vote, changed_entries
from practicum.core.errors import StoreError, UsageError
from practicum.core.trust import ORIGIN
from practicum.engine.admission import Held, named_entries
from practicum.session.amend import add_version, restore_live_version
from practicum.session.corrections import BY_REVIEW, LETTER, Correction, read_corrections, same_as
from practicum.session.legs import tasks_left
from practicum.session.records import CHANGED, HELD, read_run, split_version
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import is_run
from practicum.store.reviews import APPROVED, PENDING, REJECTED
from practicum.store.scope import Transaction
from practicum.store.snapshot import read_context
from practicum.store.versions import Difference, diff_entries, lineage, read_parents


@dataclass(frozen=True)
class Review:
    """Edits that wait for review together, or were reviewed together.

    `id` is the step that proposed the edits, with an index within the step, such as "3.1"; the `id` of a correction or
    note is an id such as "c5". `base` is the version after the step. `state` is pending, approved or rejected, and
    `reason` the reason of the decision. `version` is the version that an approval created, and `entries` are the ids of
    the entries that the approved edits apply to. `tried` are the measured scores with and without the edits.
    """

    id: str
    step: int
    state: str
    held: Held
    base: int
    reason: str = ""
    version: int | None = None
    entries: tuple[str, ...] = ()
    tried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self.held.edits

    @property
    def correction(self) -> Correction | None:
        """The correction or the note that is reviewed; None for edits of the playbook."""
        edit = self.edits[0]
        return Correction.of(int(self.id[1:]), edit) if self.id.startswith(LETTER) and isinstance(edit, Add) else None

    @property
    def lessons(self) -> tuple[str, ...]:
        """Ids of the lessons that the edits depend on."""
        return tuple(dict.fromkeys(id for edit in self.edits for id in edit.lessons))

    @property
    def why(self) -> list[str]:
        """Reasons why the edits wait for review, as text."""
        dependencies = [f"depends on {ORIGIN[self.held.trust]}"] if self.held.trust != "own" else []
        flagged = [f"flagged: {'; '.join(flag.label for flag in self.held.flags)}"] if self.held.flags else []
        return [*dependencies, *flagged] or ["the run reviews every edit (--review all)"]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = asdict(self)
        held = values.pop("held")
        plain: dict[str, Any] = json.loads(json.dumps({**values, **held}, default=dict))
        return plain


@dataclass(frozen=True)
class ReviewFilter:
    """Filter of reviews by trust, kind of flag and section; None matches any value. If `flagged` is false and `flag` is
    None, reviews with a flag are excluded."""

    trust: str | None = None
    flag: str | None = None
    section: str | None = None
    flagged: bool = True

    def __call__(self, review: Review, context: Context) -> bool:
        held = review.held
        kinds = {flag.kind for flag in held.flags}
        return (
            self.trust in (None, held.trust)
            and (self.flag is None or self.flag in kinds)
            and (self.flagged or self.flag is not None or not kinds)
            and (self.section is None or any(self.section in _sections(edit, context) for edit in held.edits))
        )


def _sections(edit: Edit, context: Context) -> set[str]:
    own = getattr(edit, "section", None)
    named = (context.get(id) for id in (*changed_entries(edit), getattr(edit, "id", "")))
    return {*([own] if own else []), *(entry.section for entry in named if entry is not None)}


def read_reviews(
    store: Store, states: Collection[str] = (PENDING,), step: int | None = None, *, corrections: bool = True
) -> list[Review]:
    """Return the reviews in these states, of all steps or of one step, oldest first. `corrections`: whether corrections
    and notes are included."""
    table = schema.reviews
    where = [table.c.state.in_(states), *([] if step is None else [table.c.step == step])]
    where += [] if corrections else [~table.c.id.startswith(LETTER)]
    query = store.select(table).where(*where).order_by(table.c.step, func.length(table.c.id), table.c.id)
    return [_review(row) for row in store.rows(query)]


def _review(row: Any) -> Review:
    try:
        data = _ROW.validate_json(row.data)
        held = HELD.validate_json(row.data)
    except ValidationError as error:
        raise StoreError("store.damaged", f"review {row.id!r} is damaged: {error.errors()[0]['msg']}") from error
    return Review(
        row.id, row.step, row.state, held, data["base"], row.reason, data.get("version"),
        tuple(data.get("entries", ())), data.get("tried", {}),
    )  # fmt: skip


class _Measured(TypedDict):
    gate: str
    by: str
    alpha: float
    tasks: int
    mean: float
    e_worse: float
    e_better: float
    without: float
    better: bool
    version: int
    together: int


class _ReviewRow(TypedDict):
    """Data of a row of the review table, in addition to the edits. The row of a run from another machine may hold any
    data."""

    base: int
    version: NotRequired[int]
    entries: NotRequired[list[str]]
    tried: NotRequired[_Measured]


_ROW: TypeAdapter[_ReviewRow] = TypeAdapter(_ReviewRow)


def count_pending(store: Store) -> int:
    """Return the number of reviews that are pending."""
    table = schema.reviews
    return int(store.rows(store.select(func.count(table.c.id)).where(table.c.state == PENDING))[0][0])


def held_of(path: Path | str) -> int:
    """Return the number of edits of a run that wait for review; 0 for a playbook file."""
    folder, _ = split_version(path)
    if not is_run(folder):
        return 0
    with Store.read(folder) as store:
        return count_pending(store)


def find_reviews(
    store: Store, ids: Iterable[str], states: Collection[str] = (PENDING,), *, held: bool = False
) -> list[Review]:
    """Return the reviews with these ids, oldest first. With `held`, the ids of corrections and notes in effect are
    valid too.

    Raises UsageError for an unknown id, or for a review in another state.
    """
    by_id = {review.id: review for review in read_reviews(store, (PENDING, APPROVED, REJECTED))}
    requested = [*dict.fromkeys(ids)]
    if held:
        for entry in (entry for entry in read_corrections(store) if entry.id in requested):
            by_id[entry.id] = Review(entry.id, 0, PENDING, Correction.of(entry.number, entry).held, 0)
    for id in requested:
        one, withdrawing = by_id.get(id), f"review {store.folder} --reject {id} --reason TEXT"
        if one is None:
            raise UsageError(
                "review.unknown",
                f"no review with the id {id!r}: practicum review {store.folder} lists the ids",
            )
        if one.state not in states:
            detail = (
                f" in version {one.version}" if one.version is not None else f": {one.reason}" if one.reason else ""
            )
            back = f"rollback {store.folder} {(one.version or 1) - 1}"
            undo = {
                PENDING: "",
                APPROVED: f"; to undo the approval, run practicum {back if one.correction is None else withdrawing}",
                REJECTED: f"; to undo the rejection, run practicum review {store.folder} --undo {id}",
            }[one.state]
            waits = "still waits for review" if one.state == PENDING else f"is already {one.state}{detail}"
            raise UsageError("review.decided", f"{id} {waits}{undo}")
    return [review for review in by_id.values() if review.id in {*requested}]


# Effects of an approval


@dataclass(frozen=True)
class Effect:
    """Effect of edits on a context: the visible difference, and the votes among the edits. `problem` is the reason why
    the edits cannot be applied, or ""."""

    difference: Difference
    votes: tuple[Vote, ...]
    problem: str = ""


class Present:
    """Current version of a run, compared with the versions that edits were proposed for. A caller that has read the
    current version already passes it as `context`."""

    def __init__(self, store: Store, context: Context | None = None) -> None:
        self.store = store
        self.context = read_context(store) if context is None else context
        self._line = {*lineage(read_parents(store))}
        self._contexts: dict[int, Context] = {}

    def problem(self, review: Review, context: Context) -> str:
        """Return the reason why the edits of a review cannot be applied to `context`, or "" if the edits can be
        applied. `context` is the current version, perhaps with edits of other reviews applied."""
        if review.correction is not None:
            return ""
        added = {ref for edit in review.edits if (ref := getattr(edit, "ref", ""))}
        for edit in review.edits:
            for id in named_entries(edit):
                if id in added:
                    continue
                if (entry := context.get(id)) is None:
                    return f"{id} was removed since step {review.step}"
                if not isinstance(edit, Vote) and self._changed(entry, review.base):
                    return f"{id} was changed since step {review.step}"
        refused = context.apply(Delta(review.edits)).refused
        return refused[0].reason if refused else ""

    def _changed(self, entry: Entry, base: int) -> bool:
        """Return whether an entry differs from the same entry in the version `base`."""
        if base in self._line:
            return entry.changed > base
        if base not in self._contexts:
            self._contexts[base] = read_context(self.store, base)
        was = self._contexts[base].get(entry.id)
        return was is None or was.content != entry.content

    @cached_property
    def corrections(self) -> Context:
        """The corrections and notes in effect."""
        return read_corrections(self.store)

    def effect(self, review: Review) -> Effect:
        """Return the effect of edits on the current version, or of a correction on the corrections in effect."""
        present, edits = self.context, review.edits
        if (new := review.correction) is not None:
            present = self.corrections
            edits = (*(Delete(f"{LETTER}{number}") for number in same_as(new, present)), *edits)
        outcome = present.apply(Delta(edits))
        ids = dict.fromkeys(id for done in outcome.applied for id in (done.id, *changed_entries(done.edit)))
        before, after = (
            {id: entry for id in ids if (entry := context.get(id))} for context in (present, outcome.context)
        )
        votes = tuple(edit for edit in review.edits if isinstance(edit, Vote))
        return Effect(diff_entries(before, after), votes, self.problem(review, self.context))


# Decisions


@dataclass(frozen=True)
class Approval:
    """Result of an approval: the context after the approval, the approved edits, and the edits that stay pending
    because they cannot be applied, with the reasons."""

    context: Context
    approved: tuple[Review, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def approve(store: Store, reviews: Sequence[Review], why: Mapping[str, str] | None = None) -> Approval:
    """Apply edits that wait for review as one version, oldest first.

    If no person approved an edit, `why` maps the id of the edit's review to the reason of the approval. (Corrections
    and notes are approved by `correcting.Corrector.decide`.)

    In a served space, the version goes through a canary like a learned version. Raises UsageError for a run that can be
    resumed and would have no task left after the approval, and Conflict while a version is in a canary.
    """
    _require_reviewable(store)
    restore_live_version(store, on_untried=True)
    present = Present(store)
    context, log, approved = present.context, list[Applied](), list[Review]()
    refused: dict[str, str] = {}
    for review in reviews:
        if problem := present.problem(review, context):
            refused[review.id] = problem
            continue
        reason = (why or {}).get(review.id, BY_REVIEW)
        outcome = context.apply(Delta(tuple(_with_reason(edit, reason) for edit in review.edits)))
        context = outcome.context
        log += outcome.applied
        entries = tuple(done.id for done in outcome.applied)
        approved.append(replace(review, state=APPROVED, reason=reason, entries=entries))
    after = present.context.replay(log) if log else present.context
    approved = [replace(review, version=after.version) for review in approved]

    def change(at: Transaction) -> None:
        add_version(at, present.context, after, log, "reviewed")
        _keep(at, approved)

    if approved:
        store.change(change)
    return Approval(after, tuple(approved), refused)


def reject(store: Store, reviews: Sequence[Review], reason: str) -> list[Review]:
    """Reject edits for this reason. After the rejection, an edit with the same text is refused."""
    return store_reviews(store, [replace(one, state=REJECTED, reason=required_reason(reason)) for one in reviews])


def required_reason(reason: str) -> str:
    """Return the reason of a rejection. Raises UsageError for an empty reason."""
    if not reason.strip():
        raise UsageError(
            "settings.missing",
            "a rejection needs a `reason`: the reason is stored, and shown with the lesson",
            setting="reason",
        )
    return reason.strip()


def reopen(store: Store, reviews: Sequence[Review]) -> list[Review]:
    """Make rejected edits wait for review again."""
    return store_reviews(store, [replace(review, state=PENDING, reason="") for review in reviews])


def store_reviews(store: Store, reviews: Sequence[Review]) -> list[Review]:
    """Store review decisions, and scores measured with and without the edits."""
    store.change(lambda at: _keep(at, reviews))
    return [*reviews]


def _keep(at: Transaction, reviews: Iterable[Review]) -> None:
    table = schema.reviews
    for review in reviews:
        fields = {"version": review.version, "entries": [*review.entries], "tried": dict(review.tried)}
        plain = {**HELD.dump_python(review.held, mode="json"), "base": review.base}
        data = json.dumps({**plain, **{name: value for name, value in fields.items() if value}}, ensure_ascii=False)
        decided = at.update(table).where(table.c.id == review.id)
        at.run(decided.values(state=review.state, reason=review.reason, data=data))


def _with_reason(edit: Edit, reason: str) -> Edit:
    return replace(edit, reason=f"{reason}: {edit.reason}" if edit.reason else reason)


def _require_reviewable(store: Store) -> None:
    """Raise UsageError for a run that has not ended and has no task left to learn from, because a resume could not
    continue after a version is added."""
    _, splits, state = read_run(store)
    if state == "done" or state in CHANGED:
        return
    left, _ = tasks_left(store, splits.train)
    if not left:
        raise UsageError(
            "run.unfinished",
            f"{store.folder} has learned from all its tasks and has not ended: resume the run before you approve "
            f"(practicum space resume {store.folder}), or end the run at its last version (practicum space rollback "
            f"{store.folder} {read_context(store).version})",
        )
