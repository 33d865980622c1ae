"""Admission of edits to the context: edits from untrusted sources wait for review.

If reviews are on, an edit waits if one of its sources is less trusted than the operator, or if a filter flags the text
of the edit. With `review=all`, every learned edit waits. An edit builds on a waiting edit if it changes or votes on the
entry that the waiting edit adds; then both edits wait together. No prompt shows a waiting edit, not even a prompt of
the acceptance gate. `session.review` decides about waiting edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Refused, Update, Vote, changed_entries, solved
from practicum.core.screen import Flag, flags
from practicum.core.trust import Review, Trust, trust_of
from practicum.core.words import strings
from practicum.store.reviews import PENDING

COUNTED: frozenset[Trust] = frozenset({"own", "labelled", "tool"})
"""Trust levels of a vote's sources at which the vote counts without a review, because the outcome behind the vote comes
from the operator."""


@dataclass(frozen=True, slots=True)
class Held:
    """Edits that are reviewed together, because the later edits change or vote on an entry that an earlier edit adds.
    `trust` is the lowest trust level of the sources of these edits. `flags` are the filter's flags on the texts of
    these edits."""

    edits: tuple[Edit, ...]
    trust: Trust
    flags: tuple[Flag, ...] = ()

    def naming(self, ids: Mapping[str, str]) -> Held:
        """Return these edits with refs replaced by ids. `ids` maps the ref of each entry that was added after the edits
        were held to the id of the entry."""

        def named(edit: Edit) -> Edit:
            if isinstance(edit, Add):
                return edit
            if isinstance(edit, Merge):
                return replace(edit, ids=tuple(ids.get(id, id) for id in edit.ids))
            return replace(edit, id=ids.get(edit.id, edit.id))

        return replace(self, edits=tuple(map(named, self.edits)))


@dataclass(frozen=True, slots=True)
class Admitted:
    """Result of checking a delta: the admitted part, the edits held for review, the refused edits."""

    delta: Delta
    held: tuple[Held, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass
class Admission:
    """Policy that decides which edits wait for review. `review_states` maps the text of each waiting edit to PENDING,
    and the text of each rejected edit to REJECTED."""

    review: Review = "none"
    review_states: dict[str, str] = field(default_factory=dict)

    def split(self, edits: Iterable[Edit]) -> tuple[list[Edit], list[Held]]:
        """Return the edits that may be applied now, in order, and the edits that wait for review. A waiting edit, and
        the edits that build on the waiting edit, are in the same `Held`."""
        ready: list[Edit] = []
        groups: list[list[Edit]] = []
        of_ref: dict[str, list[Edit]] = {}
        for edit in edits:
            group = next((of_ref[id] for id in named_entries(edit) if id in of_ref), None)
            if group is None and not self.waits(edit):
                ready.append(edit)
                continue
            if group is None:
                groups.append(group := [])
            group.append(edit)
            if isinstance(edit, Add) and edit.ref:
                of_ref[edit.ref] = group
        return ready, [held(group) for group in groups]

    def waits(self, edit: Edit) -> bool:
        """Return whether an edit must wait for review, because of its sources or its texts."""
        if self.review == "none":
            return False
        trust = trust_of(edit.sources)
        if isinstance(edit, Vote):
            return trust not in COUNTED and bool(edit.helpful or edit.harmful)
        # Edits that code makes to keep the playbook small or free of duplicates have no sources.
        taught = bool(edit.sources or edit.lessons)
        # The flag for long texts does not hold back the operator's own edits: budgets limit how much of a long text is
        # shown.
        flagged = any(flag.kind != "length" for flag in edit_flags(edit))
        return trust != "own" or (self.review == "all" and taught) or flagged

    def repeats(self, edit: Edit) -> bool:
        """Return whether an edit must wait and has the same text as an edit that waits already. A trusted edit does not
        wait, so an untrusted source cannot block a text by proposing the text first."""
        return self.review_states.get(edit_statement(edit)) == PENDING and self.waits(edit)


def named_entries(edit: Edit) -> tuple[str, ...]:
    """Return the ids or refs of the entries that an edit changes or votes on."""
    return (edit.id,) if isinstance(edit, Vote) else changed_entries(edit)


def held(edits: Sequence[Edit]) -> Held:
    """Combine edits into one item for review, with the lowest trust level and all flags of these edits."""
    flagged = dict.fromkeys(flag for edit in edits for flag in edit_flags(edit))
    return Held(tuple(edits), trust_of(source for edit in edits for source in edit.sources), tuple(flagged))


def edit_flags(edit: Edit) -> tuple[Flag, ...]:
    """Return the filter's flags on the texts that an edit brings into the context."""
    return tuple(dict.fromkeys(flag for text in edit_texts(edit) for flag in flags(text)))


def edit_texts(edit: Edit) -> list[str]:
    """Return the texts that an edit brings into the context, the text of the entry first."""
    if isinstance(edit, Vote | Delete):
        return []
    texts = [edit.text] if edit.text else []
    if isinstance(edit, Add | Update):
        texts += [part for part in (edit.section, edit.key) if part and part != edit.text]
        texts += [text for text in strings(edit.data or {}) if text not in texts]
    return texts


def edit_statement(edit: Edit) -> str:
    """Return the text of an edit, with the answer if the edit adds a solved task; empty if the edit has no text."""
    text = getattr(edit, "text", None)
    return solved(text, getattr(edit, "data", None) or {}) if text else ""
