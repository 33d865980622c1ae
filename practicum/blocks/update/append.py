"""What is done to lessons and to deltas by plain code: votes are counted, lessons appended, budgets kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from practicum.core.context import ApplyResult, Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update, Vote
from practicum.core.types import Lesson
from practicum.core.views import count_tokens, entry_line, render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run


def votes(lessons: Iterable[Lesson]) -> Delta:
    """What lessons say of the entries that were used, each lesson once: plain counting."""
    edits: list[Edit] = []
    for lesson in lessons:
        for id, verdict in lesson.votes.items():
            helpful, harmful = int(verdict == "helpful"), int(verdict == "harmful")
            edits.append(Vote(id, helpful, harmful, uses=1, sources=lesson.sources, lessons=(lesson.id,)))
    return Delta(tuple(edits))


def append(section: str) -> UpdateSeam:
    """Each lesson becomes an entry as it is; no model, and nothing is ever rewritten."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        new = [
            Add(section, lesson.text, data=lesson.data, sources=lesson.sources, lessons=(lesson.id,))
            for lesson in lessons
            if lesson.text
        ]
        return votes(lessons) + Delta(tuple(new))

    return update


def newest_per_key(update: UpdateSeam) -> UpdateSeam:
    """An addition whose text an entry of its section already has replaces that entry's data: one episode a task."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        known = _saying(context, {edit.text for edit in delta.edits if isinstance(edit, Add)})
        edits: list[Edit] = []
        for edit in delta.edits:
            old = known.get((edit.section, edit.text)) if isinstance(edit, Add) else None
            if old is None or not isinstance(edit, Add):
                edits.append(edit)
            elif edit.data != old.data:
                edits.append(Update(old.id, data=edit.data, sources=edit.sources, lessons=edit.lessons))
        return replace(delta, edits=tuple(edits))

    return wrapped


def _saying(context: Context, texts: set[str]) -> dict[tuple[str, str], Entry]:
    """The entries of these texts, by section and text; the newest of those that are the same. Pages know their texts,
    so that a step does not look at all that was learned before it."""
    pages = [page for page in context.pages if any(text in page.rendered(_texts) for text in texts)]
    return {(e.section, e.text): e for page in pages for e in page.entries.values() if e.text in texts}


def _texts(entries: Iterable[Entry]) -> dict[str, None]:
    # Takes a third of the memory of a set.
    return dict.fromkeys(e.text for e in entries)


@dataclass(frozen=True, slots=True)
class Draft:
    """A delta and what it would give; `names` maps the id an addition would get to the ref that means it."""

    delta: Delta
    outcome: ApplyResult
    names: dict[str, str]

    def name(self, entry: Entry) -> str:
        """How an edit appended to the delta calls this entry of the outcome."""
        return self.names.get(entry.id, entry.id)


def draft(context: Context, delta: Delta) -> Draft:
    """Try a delta out; wrappers append edits to it that may speak of what it adds."""
    edits: list[Edit] = []
    for n, edit in enumerate(delta.edits):
        edits.append(replace(edit, ref=f"new{n}") if isinstance(edit, Add) and not edit.ref else edit)
    tried = replace(delta, edits=tuple(edits))
    outcome = context.apply(tried)
    refused = {id(r.edit) for r in outcome.refused}
    refs = [e.ref for e in edits if isinstance(e, Add) and id(e) not in refused]
    added = [a.id for a in outcome.applied if isinstance(a.edit, Add)]
    return Draft(tried, outcome, dict(zip(added, refs, strict=True)))


def within_budget(update: UpdateSeam, tokens: int, besides: str = "") -> UpdateSeam:
    """Enforce a token budget on what is shown, by code; the section `besides` is outside of it. Who goes first: harmful
    more often than helpful; then never used, oldest first; then least helpful, oldest first (METHODS, section 1:
    pruning). What is new could not be used yet, and goes with those that neither helped nor harmed."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        tried = draft(context, delta)
        over = render_full(tried.outcome.context, without=besides).tokens - tokens
        if over <= 0:
            return delta
        gone: list[Edit] = []
        shown = (e for e in tried.outcome.context if not e.hidden and e.section != besides)
        for entry in sorted(shown, key=lambda e: _worth(e, new=e.id not in context)):
            if over <= 0:
                break
            # Rounded down, so that what is left is never more than it seems.
            over -= count_tokens(entry_line(entry)) - 1
            gone.append(Delete(tried.name(entry), reason=f"over the budget of {tokens} tokens"))
        run.count(Count.PRUNED_ENTRIES, len(gone))
        return tried.delta + Delta(tuple(gone))

    return wrapped


def _worth(entry: Entry, new: bool) -> tuple[int, int, int]:
    if entry.harmful > entry.helpful:
        return (0, entry.helpful - entry.harmful, entry.number)
    if entry.uses == 0 and not new:
        return (1, 0, entry.number)
    return (2, entry.helpful - entry.harmful, entry.number)


def pruned(update: UpdateSeam, margin: int, besides: str = "") -> UpdateSeam:
    """Drop entries that harmed, and more often than they helped by `margin` votes or more (grow and refine, section
    3.2); never those of the section `besides`."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        tried = draft(context, await update(lessons, context, run))
        harmed = (e for e in tried.outcome.context if e.harmful and e.section != besides)
        bad = [e for e in harmed if e.harmful - e.helpful >= margin]
        run.count(Count.PRUNED_ENTRIES, len(bad))
        gone = tuple(Delete(tried.name(e), reason="harmful more often than helpful") for e in bad)
        return tried.delta + Delta(gone)

    return wrapped
