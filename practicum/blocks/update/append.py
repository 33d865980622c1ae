"""Edits made by plain code: votes, appended lessons, and wrappers that prune entries and keep to a token budget."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from practicum.blocks.act.network import POOL
from practicum.core.context import ApplyResult, Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update, Vote
from practicum.core.types import Lesson
from practicum.core.views import count_tokens, entry_line, render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.store.journal import digest

IDENTIFIED = re.compile(r"(seed|trace) [0-9a-f]{8}/")
"""How a name begins that has an identity, and so is unique over runs. No place of a run begins like this."""


def votes(lessons: Iterable[Lesson]) -> Delta:
    """The votes of lessons for entries that were used."""
    edits = [
        Vote(id, int(vote == "helpful"), int(vote == "harmful"), 1, sources=lesson.sources, lessons=(lesson.id,))
        for lesson in lessons
        for id, vote in lesson.votes.items()
    ]
    return Delta(tuple(edits))


def append(section: str, data: bool = True) -> UpdateSeam:
    """Each lesson becomes an entry as it is, without a model; no entry is ever rewritten. With `data`, the entry has
    that of its lesson."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        new = [
            Add(x.section or section, x.text, data=x.data if data else {}, sources=x.sources, lessons=(x.id,))
            for x in lessons
            if x.text
        ]
        return votes(lessons) + Delta(tuple(new))

    return update


def divided(belongs: Callable[[Lesson], bool], update: UpdateSeam, others: UpdateSeam) -> UpdateSeam:
    """The edits of `update` from the lessons that belong to it, and those of `others` from the other ones."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        own = [x for x in lessons if belongs(x)]
        left = [x for x in lessons if not belongs(x)]
        return await others(left, context, run) + await update(own, context, run)

    return wrapped


async def pooled(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
    """Experience pools (MAEL, section 2.3; METHODS, section 6): add each step of an attempt by a network of agents to
    the pool of its agent, and count a use of each experience that was shown."""
    shown = (x for x in lessons if x.data.get("experience") in context)
    uses = [Vote(x.data["experience"], uses=1, sources=x.sources, lessons=(x.id,)) for x in shown]
    adds: list[Add] = []
    for lesson in lessons:
        if "reward" in lesson.data:
            kept = ("kind", "reward", "whole", "trace", "said")
            data = {name: lesson.data[name] for name in kept if lesson.data.get(name, "") != ""}
            section, key = POOL + lesson.data["agent"], lesson.data["state"]
            adds.append(Add(section, lesson.text, key, data, sources=lesson.sources, lessons=(lesson.id,)))
    return Delta((*uses, *with_trace_ids(adds)))


def with_trace_ids(adds: Sequence[Add]) -> list[Add]:
    """The edits, with an identity before the name of each trace that has none: a digest of its steps.

    An attempt names its trace by its place, and a person by any word, such as "by hand". Another run, or another file,
    uses the same name. With the digest two traces of one name stay apart wherever they meet, even if contexts are
    joined, and the same trace has the same id everywhere.
    """
    traces: dict[str, list[Add]] = defaultdict(list)
    for add in adds:
        if name := _unidentified(add):
            traces[name].append(add)
    steps = {name: [[x.section, x.text, x.key, dict(x.data)] for x in some] for name, some in traces.items()}
    ids = {name: f"trace {digest(some)[:8]}/{name}" for name, some in steps.items()}
    named = ((add, ids.get(_unidentified(add))) for add in adds)
    return [add if id is None else replace(add, data={**add.data, "trace": id}) for add, id in named]


def _unidentified(add: Add) -> str:
    """The name of the trace that an experience belongs to, if it has no identity; otherwise empty."""
    name = str(add.data.get("trace", "")) if add.section.startswith(POOL) else ""
    return "" if IDENTIFIED.match(name) else name


def newest_per_key(update: UpdateSeam) -> UpdateSeam:
    """An addition with the text of an entry of its section replaces that entry's data: one episode a task."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        texts = {edit.text for edit in delta.edits if isinstance(edit, Add)}
        # Pages know their texts, so that a step does not look at every entry.
        pages = [page for page in context.pages if not page.rendered(_texts).keys().isdisjoint(texts)]
        known = {(e.section, e.text): e for page in pages for e in page.entries.values()}
        edits: list[Edit] = []
        for edit in delta.edits:
            old = known.get((edit.section, edit.text)) if isinstance(edit, Add) else None
            if old is None or not isinstance(edit, Add):
                edits.append(edit)
            elif edit.data != old.data:
                edits.append(Update(old.id, data=edit.data, sources=edit.sources, lessons=edit.lessons))
        return replace(delta, edits=tuple(edits))

    return wrapped


def _texts(entries: Iterable[Entry]) -> dict[str, None]:
    # Takes a third of the memory of a set.
    return dict.fromkeys(e.text for e in entries)


@dataclass(frozen=True, slots=True)
class Draft:
    """A delta and its outcome; `refs` maps the id that an addition would get to its ref."""

    delta: Delta
    outcome: ApplyResult
    refs: dict[str, str]

    def name(self, entry: Entry) -> str:
        """How an edit that is appended to the delta names this entry of the outcome."""
        return self.refs.get(entry.id, entry.id)


def draft(context: Context, delta: Delta) -> Draft:
    """Apply a delta for trial. Each addition gets a ref, so that a wrapper can append edits of it."""
    edits = [
        replace(edit, ref=f"new{n}") if isinstance(edit, Add) and not edit.ref else edit
        for n, edit in enumerate(delta.edits)
    ]
    delta = replace(delta, edits=tuple(edits))
    outcome = context.apply(delta)
    refused = {id(r.edit) for r in outcome.refused}
    refs = [e.ref for e in edits if isinstance(e, Add) and id(e) not in refused]
    added = [a.id for a in outcome.applied if isinstance(a.edit, Add)]
    return Draft(delta, outcome, dict(zip(added, refs, strict=True)))


def within_budget(update: UpdateSeam, tokens: int, *besides: str) -> UpdateSeam:
    """Keep what is shown within a token budget; the sections `besides` do not count.

    Removed first are entries that harmed more often than they helped, then those never used, oldest first, then the
    least helpful, oldest first (METHODS, section 1: pruning). A new entry could not be used yet, so it is removed with
    those that neither helped nor harmed.
    """

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        # What waits for review takes no room from what does not.
        ready, waiting = run.ready(delta)
        tried = draft(context, ready)
        over = render_full(tried.outcome.context, *besides).tokens - tokens
        if over <= 0:
            return delta

        def worth(entry: Entry) -> tuple[int, int, int]:
            lead = entry.helpful - entry.harmful
            rank = 0 if lead < 0 else 1 if entry.uses == 0 and entry.id in context else 2
            return (rank, 0 if rank == 1 else lead, entry.number)

        removed: list[Edit] = []
        shown = [e for e in tried.outcome.context if not e.hidden and e.section not in besides]
        for entry in sorted(shown, key=worth):
            if over <= 0:
                break
            # Rounded down, so that no more tokens are left than counted.
            over -= count_tokens(entry_line(entry)) - 1
            removed.append(Delete(tried.name(entry), reason=f"over the budget of {tokens} tokens"))
        run.count(Count.PRUNED_ENTRIES, len(removed))
        return tried.delta + Delta(tuple(removed)) + waiting

    return wrapped


def pruned(update: UpdateSeam, margin: int, *besides: str) -> UpdateSeam:
    """Remove entries whose harmful votes lead by `margin` or more (grow and refine, section 3.2), never one of the
    sections `besides` or one without a harmful vote. Votes that wait for review remove nothing."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        ready, waiting = run.ready(await update(lessons, context, run))
        tried = draft(context, ready)
        entries = (e for e in tried.outcome.context if e.section not in besides)
        bad = [e for e in entries if e.harmful and e.harmful - e.helpful >= margin]
        run.count(Count.PRUNED_ENTRIES, len(bad))
        removed = [Delete(tried.name(e), reason="harmful more often than helpful") for e in bad]
        return tried.delta + Delta(tuple(removed)) + waiting

    return wrapped
