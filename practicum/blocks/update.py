"""How lessons become edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.context import Add, Context, Delete, Delta, Edit, Entry, Merge, Outcome, Update, Vote
from practicum.errors import OutputError, ProviderError
from practicum.loop import Update as UpdateSeam
from practicum.output import EntryId, Output, Upto
from practicum.run import Run
from practicum.types import Lesson, Prompt
from practicum.views import full


class EditOut(Output):
    """One edit, as a curator writes it."""

    op: Literal["ADD", "UPDATE", "MERGE", "DELETE"]
    ids: list[EntryId] = Field(default=[], max_length=4, description="the entries meant; none for ADD")
    section: Annotated[str, Upto(40)] = Field(default="", description="one or two words; for ADD")
    text: Annotated[str, Upto(400)] = Field(default="", description="the entry's new text; for ADD, UPDATE and MERGE")
    lessons: list[int] = Field(default=[], max_length=8, description="numbers of the lessons this rests on")
    reason: Annotated[str, Upto(120)] = Field(default="", description="why, in a few words")


class Edits(Output):
    """What a curator writes (ACE, section 3.1): a small set of edits, never the whole playbook."""

    edits: list[EditOut] = Field(max_length=4)


class EntryOut(Output):
    """One entry of a playbook that is written anew."""

    section: Annotated[str, Upto(40)]
    text: Annotated[str, Upto(400)]


class Playbook(Output):
    """A whole playbook, as the rewriting ablation asks for it."""

    entries: list[EntryOut] = Field(max_length=60)


def votes(lessons: Iterable[Lesson]) -> Delta:
    """What lessons say of the entries that were used, each lesson once: plain counting."""
    edits: list[Edit] = []
    for lesson in lessons:
        for id, verdict in lesson.votes.items():
            helpful, harmful = int(verdict == "helpful"), int(verdict == "harmful")
            edits.append(Vote(id, helpful, harmful, uses=1, sources=lesson.sources, lessons=(lesson.id,)))
    return Delta(tuple(edits))


def curate(system: str, rewrite_system: str | None = None) -> UpdateSeam:
    """ACE's curator: one call over the playbook and all lessons; a curator that fails leaves the votes, and is counted.

    With `rewrite_system` the curator writes the whole playbook instead (the ablation of ACE's table 18).
    """

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        counted = votes(lessons)
        telling = [lesson for lesson in lessons if lesson.text]
        if not telling:
            return counted
        said = "\n".join(_told(number, lesson) for number, lesson in enumerate(telling, 1))
        pages = full(context).pages or ("(no entries yet)",)
        user = f"# Instructions the agent has\n{run.house.instructions or '(none)'}\n\n# New lessons\n{said}"
        try:
            if rewrite_system is not None:
                whole = await run.ask("curator", Prompt(rewrite_system, user, pages), Playbook)
                return counted + _rewritten(whole, context, telling)
            written = await run.ask("curator", Prompt(system, user, pages), Edits)
        except (OutputError, ProviderError):
            run.house.counts["lost updates"] += 1
            return counted
        return counted + Delta(tuple(e for out in written.edits for e in _edits(out, telling)))

    return update


def _told(number: int, lesson: Lesson) -> str:
    sure = " (confirmed: with it the next try succeeded)" if lesson.confirmed else ""
    return f"Lesson {number}{sure}: {lesson.text}"


def _edits(out: EditOut, lessons: Sequence[Lesson]) -> list[Edit]:
    """An edit in our terms, with the provenance of the lessons it names (of all, where it names none)."""
    named = [lessons[n - 1] for n in dict.fromkeys(out.lessons) if 1 <= n <= len(lessons)] or list(lessons)
    sources = tuple(dict.fromkeys(s for lesson in named for s in lesson.sources))
    ids = tuple(lesson.id for lesson in named)
    text, section = " ".join(out.text.split()), " ".join(out.section.split()) or "general"
    if out.op == "ADD":
        return [Add(section, text, sources=sources, lessons=ids, reason=out.reason)]
    if out.op == "UPDATE":
        return [Update(id, text, sources=sources, lessons=ids, reason=out.reason) for id in out.ids[:1] or ("",)]
    if out.op == "MERGE":
        return [Merge(tuple(out.ids), text or None, sources, ids, out.reason)]
    return [Delete(id, sources, ids, out.reason) for id in out.ids or ("",)]


def _rewritten(whole: Playbook, context: Context, lessons: Sequence[Lesson]) -> Delta:
    """A rewritten playbook rests on everything that was there before, so its entries come from all of it."""
    before = [source for entry in context for source in entry.sources]
    sources = tuple(dict.fromkeys([*before, *(s for lesson in lessons for s in lesson.sources)]))
    gone: list[Edit] = [Delete(entry.id, reason="rewritten") for entry in context]
    return Delta(
        (*gone, *(Add(" ".join(e.section.split()) or "general", e.text, sources=sources) for e in whole.entries))
    )


def append(section: str) -> UpdateSeam:
    """Each lesson becomes an entry as it is; no model, and nothing is ever rewritten."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        new = [
            Add(section, lesson.text, data=lesson.data, sources=lesson.sources, lessons=(lesson.id,))
            for lesson in lessons
        ]
        return votes(lessons) + Delta(tuple(new))

    return update


def newest_per_key(update: UpdateSeam) -> UpdateSeam:
    """An addition whose text an entry of its section already has replaces that entry's data: one episode a task."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        known = {(e.section, e.text): e for e in context}
        edits: list[Edit] = []
        for edit in delta.edits:
            old = known.get((edit.section, edit.text)) if isinstance(edit, Add) else None
            if old is None or not isinstance(edit, Add):
                edits.append(edit)
            elif edit.data != old.data:
                edits.append(Update(old.id, data=edit.data, sources=edit.sources, lessons=edit.lessons))
        return Delta(tuple(edits))

    return wrapped


@dataclass(frozen=True, slots=True)
class Draft:
    """A delta and what it would give; `names` maps the id an addition would get to the ref that means it."""

    delta: Delta
    outcome: Outcome
    names: dict[str, str]

    def name(self, entry: Entry) -> str:
        """How an edit appended to the delta calls this entry of the outcome."""
        return self.names.get(entry.id, entry.id)


def draft(context: Context, delta: Delta) -> Draft:
    """Try a delta out; wrappers append edits to it that may speak of what it adds."""
    edits: list[Edit] = []
    for n, edit in enumerate(delta.edits):
        edits.append(replace(edit, ref=f"new{n}") if isinstance(edit, Add) and not edit.ref else edit)
    outcome = context.apply(Delta(tuple(edits)))
    refused = {id(r.edit) for r in outcome.refused}
    refs = [e.ref for e in edits if isinstance(e, Add) and id(e) not in refused]
    added = [a.id for a in outcome.applied if isinstance(a.edit, Add)]
    return Draft(Delta(tuple(edits)), outcome, dict(zip(added, refs, strict=True)))


def within_budget(update: UpdateSeam, tokens: int) -> UpdateSeam:
    """Enforce a token budget on what is shown, by code. Who goes first: harmful more often than helpful; then never
    used, oldest first; then least helpful, oldest first (METHODS, section 1: pruning)."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        tried = draft(context, delta)
        over = full(tried.outcome.context).tokens - tokens
        if over <= 0:
            return delta
        gone: list[Edit] = []
        for entry in sorted(tried.outcome.context, key=_worth):
            if over <= 0:
                break
            over -= (len(entry.text) + len(entry.section)) // 4 + 2
            gone.append(Delete(tried.name(entry), reason=f"over the budget of {tokens} tokens"))
        run.house.counts["pruned"] += len(gone)
        return tried.delta + Delta(tuple(gone))

    return wrapped


def _worth(entry: Entry) -> tuple[int, int, int]:
    if entry.harmful > entry.helpful:
        return (0, entry.helpful - entry.harmful, entry.number)
    if entry.uses == 0:
        return (1, 0, entry.number)
    return (2, entry.helpful - entry.harmful, entry.number)


def pruned(update: UpdateSeam, margin: int) -> UpdateSeam:
    """Drop entries that harmed more often than they helped by `margin` votes or more (grow and refine, section 3.2)."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        tried = draft(context, await update(lessons, context, run))
        bad = [e for e in tried.outcome.context if e.harmful - e.helpful >= margin]
        run.house.counts["pruned"] += len(bad)
        gone = tuple(Delete(tried.name(e), reason="harmful more often than helpful") for e in bad)
        return tried.delta + Delta(gone)

    return wrapped


def count_ops(edits: Iterable[Edit]) -> Counter[str]:
    """How many edits of each kind."""
    return Counter(edit.op for edit in edits)
