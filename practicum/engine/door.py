"""The door between what was learned and the context: what a stranger may have taught waits for review.

An edit waits if it rests on a source that is less than the operator's own, or if a filter flags its text. What waits is
in no prompt, not even in one of the acceptance gate; edits that build on it wait with it. `session.review` decides.
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
"""Origins whose votes count at once: the outcome that a vote rests on is the operator's own."""


@dataclass(frozen=True, slots=True)
class Held:
    """Edits that wait for review together, since the later ones build on the first. `trust` is the least of their
    sources, and `flags` are what the filter found in their texts."""

    edits: tuple[Edit, ...]
    trust: Trust
    flags: tuple[Flag, ...] = ()

    def naming(self, ids: Mapping[str, str]) -> Held:
        """The same, with the ids of entries that were added meanwhile in place of their refs."""

        def named(edit: Edit) -> Edit:
            if isinstance(edit, Add):
                return edit
            if isinstance(edit, Merge):
                return replace(edit, ids=tuple(ids.get(id, id) for id in edit.ids))
            return replace(edit, id=ids.get(edit.id, edit.id))

        return replace(self, edits=tuple(map(named, self.edits)))


@dataclass(frozen=True, slots=True)
class Admitted:
    """A delta at the door: the part that goes on, what waits for review, and what is refused."""

    delta: Delta
    held: tuple[Held, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass
class Door:
    """Decides which edits wait. `known` is what edits say that wait or were rejected, each with its state."""

    review: Review = "none"
    known: dict[str, str] = field(default_factory=dict)

    def split(self, edits: Iterable[Edit]) -> tuple[list[Edit], list[Held]]:
        """The edits that go on, in order, and those that wait."""
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
        """Whether an edit waits for review."""
        if self.review == "none":
            return False
        trust = trust_of(edit.sources)
        if isinstance(edit, Vote):
            return trust not in COUNTED and bool(edit.helpful or edit.harmful)
        # What code does to keep the playbook small or free of duplicates rests on no source.
        taught = bool(edit.sources or edit.lessons)
        # The operator's own texts may be long: budgets bound what is shown of them.
        flagged = any(flag.kind != "length" for flag in edit_flags(edit))
        return trust != "own" or (self.review == "all" and taught) or flagged

    def repeats(self, edit: Edit) -> bool:
        """Whether an edit that would wait says, word for word, what one that waits already says. What strangers taught
        keeps nobody from learning the same from tasks of their own, which does not wait."""
        return self.known.get(said(edit)) == PENDING and self.waits(edit)


def named_entries(edit: Edit) -> tuple[str, ...]:
    """The ids or refs of the entries that an edit is about."""
    return (edit.id,) if isinstance(edit, Vote) else changed_entries(edit)


def held(edits: Sequence[Edit]) -> Held:
    """These edits as one thing to review."""
    found = dict.fromkeys(flag for edit in edits for flag in edit_flags(edit))
    return Held(tuple(edits), trust_of(source for edit in edits for source in edit.sources), tuple(found))


def edit_flags(edit: Edit) -> tuple[Flag, ...]:
    """What the filter finds in the texts that an edit brings into the context."""
    return tuple(dict.fromkeys(flag for text in edit_texts(edit) for flag in flags(text)))


def edit_texts(edit: Edit) -> list[str]:
    """The texts that an edit brings into the context, its own first."""
    if isinstance(edit, Vote | Delete):
        return []
    texts = [edit.text] if edit.text else []
    if isinstance(edit, Add | Update):
        texts += [part for part in (edit.section, edit.key) if part and part != edit.text]
        texts += [text for text in strings(edit.data or {}) if text not in texts]
    return texts


def said(edit: Edit) -> str:
    """What an edit says, a solved task with its answer; empty if it has no text."""
    text = getattr(edit, "text", None)
    return solved(text, getattr(edit, "data", None) or {}) if text else ""
