"""Admission of edits to the context: edits from untrusted sources wait for review.

An edit waits if one of its sources is less trusted than the operator, or if a filter flags the text of the edit. Edits
that build on a waiting edit wait with it. No prompt shows a waiting edit, not even in the acceptance gate.
`session.review` decides about waiting edits.
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
"""Trust levels whose votes count at once, because the outcome that a vote depends on is the operator's own."""


@dataclass(frozen=True, slots=True)
class Held:
    """Edits that wait for review together, because the later ones build on the first. `trust` is the lowest trust level
    of their sources. `flags` are the filter's flags on their texts."""

    edits: tuple[Edit, ...]
    trust: Trust
    flags: tuple[Flag, ...] = ()

    def naming(self, ids: Mapping[str, str]) -> Held:
        """Replace refs by the ids of entries that were added after the edits were held."""

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
    """Policy that decides which edits wait. `review_states` maps the texts of waiting and rejected edits to their
    review state."""

    review: Review = "none"
    review_states: dict[str, str] = field(default_factory=dict)

    def split(self, edits: Iterable[Edit]) -> tuple[list[Edit], list[Held]]:
        """Return the admitted edits, in order, and the groups of edits that wait for review."""
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
        """Return whether an edit waits for review."""
        if self.review == "none":
            return False
        trust = trust_of(edit.sources)
        if isinstance(edit, Vote):
            return trust not in COUNTED and bool(edit.helpful or edit.harmful)
        # Edits that code makes to keep the playbook small or free of duplicates have no sources.
        taught = bool(edit.sources or edit.lessons)
        # The operator's own texts may be long: budgets bound how much of them is shown.
        flagged = any(flag.kind != "length" for flag in edit_flags(edit))
        return trust != "own" or (self.review == "all" and taught) or flagged

    def repeats(self, edit: Edit) -> bool:
        """Return whether an edit must wait and has the same text as an edit that waits already. The same text from
        trusted tasks does not wait, so untrusted sources cannot block it."""
        return self.review_states.get(edit_statement(edit)) == PENDING and self.waits(edit)


def named_entries(edit: Edit) -> tuple[str, ...]:
    """Return the ids or refs of the entries that an edit changes or votes on."""
    return (edit.id,) if isinstance(edit, Vote) else changed_entries(edit)


def held(edits: Sequence[Edit]) -> Held:
    """Combine edits into one item for review."""
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
