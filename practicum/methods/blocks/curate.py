"""Edits of a playbook from lessons: by code (votes, appended lessons, pruning, a token budget), or by the curator,
one model call over all reflections (ACE, section 3.1). With guards, code holds back harmful edits of the curator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import ceil, log
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from practicum.core.bounded import EntryId, LongText, MaxChars, Output, clean, read_short, short_form
from practicum.core.context import ApplyResult, Context
from practicum.core.counts import Count
from practicum.core.edits import (
    Add,
    Delete,
    Delta,
    Edit,
    Entry,
    Merge,
    Refused,
    Resolution,
    Update,
    Vote,
    ordered_union,
    retire,
)
from practicum.core.errors import OutputError, ProviderError, UsageError
from practicum.core.tool_texts import SECTION as TOOLS
from practicum.core.types import Instructions, Lesson, Prompt
from practicum.core.views import behind, count_tokens, entry_line, render_full
from practicum.engine.loop import UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.engine.specifics import answers_named, lost
from practicum.methods.blocks.notes import state_entry
from practicum.methods.blocks.reflect import entry_verdicts, findings_text
from practicum.methods.blocks.show import described, playbook_pages, section_of, track_record
from practicum.models.client import JSON
from practicum.models.prompting import json_schema

# ---- edits by plain code


def votes(lessons: Iterable[Lesson]) -> Delta:
    """Return a delta with the votes of the lessons. Each vote is about an entry that an attempt used."""
    edits = [
        Vote(id, int(vote == "helpful"), int(vote == "harmful"), 1, sources=lesson.sources, lessons=(lesson.id,))
        for lesson in lessons
        for id, vote in lesson.votes.items()
    ]
    return Delta(tuple(edits))


def append(section: str, data: bool = True) -> UpdateSeam:
    """Build an update seam that appends each lesson unchanged as an entry, without a model. Entries are never
    rewritten. With `data`, the entry gets the data of its lesson."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        new = [
            Add(x.section or section, x.text, data=x.data if data else {}, sources=x.sources, lessons=(x.id,))
            for x in lessons
            if x.text
        ]
        return votes(lessons) + Delta(tuple(new))

    return update


def divided(belongs: Callable[[Lesson], bool], update: UpdateSeam, others: UpdateSeam) -> UpdateSeam:
    """Build an update seam that passes the lessons for which `belongs` is true to `update`, and the rest to
    `others`."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        own = [x for x in lessons if belongs(x)]
        left = [x for x in lessons if not belongs(x)]
        return await others(left, context, run) + await update(own, context, run)

    return wrapped


def newest_per_key(update: UpdateSeam) -> UpdateSeam:
    """Build an update seam that runs `update`. If an addition has the section and the text of an existing entry, the
    addition becomes an update of the entry's data, so that each task has one episode."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        texts = {edit.text for edit in delta.edits if isinstance(edit, Add)}
        # Pages index their texts, so that a step does not read every entry.
        pages = [page for page in context.pages if not page.rendered(_texts).keys().isdisjoint(texts)]
        existing = {(e.section, e.text): e for page in pages for e in page.entries.values()}
        edits: list[Edit] = []
        for edit in delta.edits:
            old = existing.get((edit.section, edit.text)) if isinstance(edit, Add) else None
            if old is None or not isinstance(edit, Add):
                edits.append(edit)
            elif edit.data != old.data:
                edits.append(Update(old.id, data=edit.data, sources=edit.sources, lessons=edit.lessons))
        return replace(delta, edits=tuple(edits))

    return wrapped


def _texts(entries: Iterable[Entry]) -> dict[str, None]:
    # A dict takes a third of the memory of a set.
    return dict.fromkeys(e.text for e in entries)


@dataclass(frozen=True, slots=True)
class Draft:
    """A delta and the result of applying it (`outcome`). `refs` holds the ref of each addition, by the id that the
    added entry would get."""

    delta: Delta
    outcome: ApplyResult
    refs: dict[str, str]

    def name(self, entry: Entry) -> str:
        """Return the name of an entry of the outcome, for edits that are appended to the delta: the ref of the addition
        if the delta adds the entry, else the id of the entry."""
        return self.refs.get(entry.id, entry.id)


def draft(context: Context, delta: Delta) -> Draft:
    """Apply a delta for trial. Each addition gets a ref, so that a wrapper can append edits of the new entry."""
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


def within_budget(update: UpdateSeam, tokens: int, *excluded: str) -> UpdateSeam:
    """Build an update seam that runs `update`, and then retires entries until the shown entries fit a budget of
    `tokens`. Entries of the sections in `excluded`, and descriptions of tools, do not count and are not retired.

    Entries are retired in this order: entries that harmed more often than they helped; entries that were never used,
    oldest first; the least helpful entries, oldest first (METHODS, section 1: pruning). An entry that the delta adds
    could not be used yet, so it does not count as never used, but as an entry that neither helped nor harmed."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        # An edit that waits for review takes no room from other entries.
        ready, waiting = run.ready(delta)
        trial = draft(context, ready)
        over = render_full(trial.outcome.context, *excluded, TOOLS).tokens - tokens
        if over <= 0:
            return delta

        def worth(entry: Entry) -> tuple[int, int, int, int]:
            lead = entry.helpful - entry.harmful
            rank = 0 if lead < 0 else 1 if entry.uses == 0 and entry.id in context else 2
            return (rank, 0 if rank == 1 else lead, entry.born, entry.number)

        removed: list[Edit] = []
        shown = [e for e in trial.outcome.context if not e.hidden and e.section not in (*excluded, TOOLS)]
        for entry in sorted(shown, key=worth):
            if over <= 0:
                break
            # Rounded down, so that the removed tokens are not overestimated.
            over -= count_tokens(entry_line(entry)) - 1
            removed.append(retire(entry, f"over the budget of {tokens} tokens", trial.name(entry)))
        run.count(Count.PRUNED_ENTRIES, len(removed))
        return trial.delta + Delta(tuple(removed)) + waiting

    return wrapped


def pruned(update: UpdateSeam, margin: int, *excluded: str) -> UpdateSeam:
    """Build an update seam that runs `update`, and then retires entries whose harmful votes exceed their helpful votes
    by `margin` or more (grow and refine, section 3.2), and entries that are outdated. Entries of the sections in
    `excluded`, descriptions of tools and entries without a harmful vote stay. Votes that wait for review do not
    count."""

    def reason(entry: Entry, least: int) -> str:
        if entry.harmful - entry.helpful >= margin:
            return "harmful more often than helpful"
        return _outdated(entry, least)

    return _retired(update, reason, *excluded)


def without_outdated(update: UpdateSeam, *excluded: str) -> UpdateSeam:
    """Build an update seam that runs `update`, and then retires the entries that are outdated: an outdated entry has
    too many harmful votes in a row for chance (see `CHANCE`). Entries of the sections in `excluded` stay."""
    retiring = _retired(update, _outdated, *excluded)

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        harmed = any("harmful" in lesson.votes.values() for lesson in lessons)
        return await (retiring if harmed else update)(lessons, context, run)

    return wrapped


CHANCE = 0.001
"""Largest probability that a sequence of harmful votes on an entry is due to chance, for the entry to be outdated. The
failures of an entry by chance are as frequent as the harmful votes on all entries."""


def _outdated(entry: Entry, least: int) -> str:
    return f"outdated: harmful {entry.failing} times in a row" if entry.failing >= least else ""


def _retired(update: UpdateSeam, reason: Callable[[Entry, int], str], *excluded: str) -> UpdateSeam:
    """Build an update seam that retires the entries with a harmful vote for which `reason(entry, least)` is not empty.
    `least` is the number of harmful votes in a row from which an entry is outdated."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        ready, waiting = run.ready(await update(lessons, context, run))
        trial = draft(context, ready)
        voted = [
            e
            for e in trial.outcome.context
            if (e.helpful or e.harmful) and not e.retired and e.section not in (*excluded, TOOLS)
        ]
        helpful, harmful = sum(e.helpful for e in voted), sum(e.harmful for e in voted)
        # Without votes, half of the uses are expected to do harm. A single failure is never enough.
        least = max(ceil(log(CHANCE) / log((harmful + 1) / (helpful + harmful + 2))), 2)
        reasons = [(e, text) for e in voted if e.harmful and (text := reason(e, least))]
        run.count(Count.PRUNED_ENTRIES, len(reasons))
        removed = tuple(retire(e, text, trial.name(e)) for e, text in reasons)
        return trial.delta + Delta(removed) + waiting

    return wrapped


def left_out(lessons: Sequence[Lesson], delta: Delta) -> list[Lesson]:
    """Return the lessons with a text that the delta neither covers nor reports as dropped."""
    named = delta.covered | {resolution.lesson for resolution in delta.resolutions if not resolution.entry}
    return [lesson for lesson in lessons if lesson.text and lesson.id not in named]


def as_entries(lessons: Sequence[Lesson], section: str, why: str) -> Delta:
    """Return a delta that adds each lesson as an entry in its own words, in the section of the lesson or, if the lesson
    has no section, in `section`. `why` is the reason of the additions."""
    return Delta(
        tuple(Add(x.section or section, x.text, sources=x.sources, lessons=(x.id,), reason=why) for x in lessons)
    )


# ---- the curator

MOST_DELETED = 0.5
"""Largest share of the playbook that a curator may delete in one step."""


class Change(Output):
    """One edit of the playbook, or the entry that says an insight already."""

    op: Literal["ADD", "UPDATE", "MERGE", "DELETE", "COVERED"]
    insights: list[int] = Field(default=[], description="numbers of the insights that it rests on")
    ids: list[EntryId] = Field(default=[], description="the entries meant; none for ADD")
    section: str = Field(default="", description="the section of the new entry, for ADD")
    text: LongText = Field(
        default="", description="the new text, whole; empty for an ADD that keeps its insight word for word"
    )
    reason: LongText = Field(default="", description="why")

    SHORT: ClassVar = {
        "lesson": (int, Field(description="number of the lesson")), "op": None, "ids": 3, "text": 300, "reason": 80
    }  # fmt: skip

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "insights": [values["lesson"]]}


class Mutation(Change):
    """One edit of an addressed entry, a new entry, or the entry that says an insight already."""

    op: Literal["ADD", "UPDATE", "DELETE", "COVERED"]


def decisions(form: type[Change]) -> dict[str, Any]:
    """Return the fields that replace `changes` in the answer of a small model: a list of decisions, one or more about
    each lesson."""
    several = Field(min_length=1, max_length=128, description="one for each lesson, or more")
    return {"decisions": (list[short_form(form)], several)}  # type: ignore[misc]


class Changes(Output):
    """A small set of edits, never the whole playbook."""

    changes: Sequence[Change] = Field(min_length=1, description="together they account for every insight")

    SHORT: ClassVar = decisions(Change)

    @classmethod
    def from_short(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"changes": [read_short(Change, one) for one in values["decisions"]]}


class Mutations(Changes):
    """A small set of edits, never the whole playbook."""

    changes: Sequence[Mutation] = Field(min_length=1, description="together they account for every insight")

    SHORT: ClassVar = decisions(Mutation)


@lru_cache(maxsize=64)
def naming_only(kind: type[Output], ids: tuple[str, ...]) -> JSON:
    """Return the JSON schema of a small curator's answer, limited to these rule ids. With more than 400 ids, the schema
    is not limited.

    With a limited schema, a server that enforces schemas allows no other id and, for an empty playbook, only ADD. This
    is needed because a small model copies ids from worked examples.
    """
    if len(ids) > 400:
        return json_schema(kind, "small")
    schema = deepcopy(json_schema(kind, "small"))
    (decision,) = schema["$defs"].values()
    named = decision["properties"]["ids"]
    named["items"] = {"type": "string", "enum": [*ids] or [""]}
    if not ids:
        named["maxItems"] = 0
        decision["properties"]["op"]["enum"] = ["ADD"]
    return schema


@dataclass(frozen=True)
class Curator:
    """ACE's curator: one call over the playbook and all new reflections.

    If the curator adds an insight without writing a text, the words of the insight are kept, so that no detail is lost.
    An insight that the curator does not mention gets no edit and no resolution: see `accounted`. If the call fails,
    only the votes are applied, and the failure is counted.

    `merges` allows the curator to merge entries (RCL's structural constraint forbids merges, section 3). With `guards`,
    an edit that would lose a number, a name or an answer is held back, and the insight behind the edit is added
    unchanged.

    Two or more deletions in one step are refused if together they remove more than the share `MOST_DELETED` of the
    entries that the agent sees. With `gated`, such deletions are not refused, because the gate then decides by the
    validation tasks."""

    instructions: Instructions
    section: str = "rules"
    merges: bool = True
    guards: bool = False
    gated: bool = False

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        counted = votes(lessons)
        with_text = [lesson for lesson in lessons if lesson.text]
        if not with_text:
            return counted
        try:
            written = await self._ask(lessons, context, context.apply(counted).context, run)
        except (OutputError, ProviderError):
            run.count(Count.LOST_UPDATES)
            return counted
        after = context.apply(counted).context
        decided, held_back = Delta(), dict[str, Lesson]()
        for change in written.changes:
            about = [with_text[n - 1] for n in dict.fromkeys(change.insights) if 1 <= n <= len(with_text)]
            objection = _misaddressed(change, about, context, after)
            if objection is None and self.guards:
                objection = _harmful(change, about, after, run.choices)
            if objection is not None:
                run.count(objection)
                if self.guards and change.op != "DELETE":
                    held_back.update((lesson.id, lesson) for lesson in about)
                continue
            changed = self._delta(change, about, with_text, after, run)
            # The next change is checked against the context after this change: a removed rule can no longer cover a
            # lesson.
            after = after.apply(changed).context
            decided += changed
        decided = self._without_mass_deletion(decided, context, run)
        left = left_out([*held_back.values()], decided)
        run.count(Count.KEPT_LESSONS, len(left))
        return counted + decided + as_entries(left, self.section, "no rule says it")

    def _without_mass_deletion(self, decided: Delta, context: Context, run: Run) -> Delta:
        """Refuse the deletions of a delta if they are too many (see `Curator`). The lessons behind refused deletions
        count as left out."""
        deletions = [edit for edit in decided.edits if isinstance(edit, Delete)]
        share = len(deletions) / max(sum(not entry.hidden for entry in context), 1)
        if len(deletions) < 2 or share <= MOST_DELETED:
            return decided
        run.count(Count.MASS_DELETIONS)
        if self.gated:
            return decided
        run.count(Count.HELD_BACK_MASS_DELETION, len(deletions))
        why = f"one step would delete {share:.0%} of the playbook, more than {MOST_DELETED:.0%}"
        affected = {id for edit in deletions for id in edit.lessons}
        return replace(
            decided,
            edits=tuple(edit for edit in decided.edits if not isinstance(edit, Delete)),
            resolutions=tuple(r for r in decided.resolutions if r.entry or r.lesson not in affected),
            refused=(*decided.refused, *(Refused(edit, why) for edit in deletions)),
        )

    async def _ask(self, lessons: Sequence[Lesson], context: Context, voted: Context, run: Run) -> Changes:
        form = Changes if self.merges else Mutations
        if run.profile == "full":
            prompt = await reflections_prompt(self.instructions, lessons, context, voted, run)
            return await run.ask_fitted("curator", prompt, form)
        prompt = await lessons_prompt(self.instructions, [x for x in lessons if x.text], context, run)
        ids = tuple(entry.id for entry in context if not entry.hidden)
        return await run.ask("curator", prompt, form, form=naming_only(form, ids))

    def _delta(
        self, change: Change, about: Sequence[Lesson], lessons: Sequence[Lesson], context: Context, run: Run
    ) -> Delta:
        """Turn a change into edits. A change that names no lesson has the sources of all lessons, and covers no
        lesson."""
        sources = sources_of(about or lessons)
        ids = tuple(lesson.id for lesson in about)
        text = clean(change.text) if run.profile == "full" else " ".join(change.text.split())
        covered = tuple(Resolution(id, change.ids[0], change.reason) for id in ids if change.ids)
        match change.op:
            case "ADD":
                return Delta(tuple(self._added(change, text, about, run)))
            case "UPDATE":
                old = context.get(change.ids[0])
                if old is not None and old.text == text:
                    return Delta(resolutions=covered)
                return Delta((Update(change.ids[0], text, sources=sources, lessons=ids, reason=change.reason),))
            case "MERGE":
                return Delta((Merge(tuple(change.ids), text or None, sources, ids, change.reason),))
            case "DELETE":
                removed = tuple(Delete(id, sources, ids, change.reason) for id in change.ids)
                # With guards, a lesson that proves a rule wrong stays unresolved, because the lesson contains the right
                # rule.
                settled = () if self.guards else tuple(Resolution(id, reason=f"DELETE: {change.reason}") for id in ids)
                return Delta(removed, settled)
            case "COVERED":
                return Delta(resolutions=covered)

    def _added(self, change: Change, text: str, about: Sequence[Lesson], run: Run) -> list[Edit]:
        """Return the additions of a change: one entry with the curator's text, or an entry for each insight in its own
        words."""
        named = section_of(change.section, run) if change.section else ""
        named = "" if named == TOOLS else named  # only entries of existing tools are descriptions
        if text and not (self.guards and any(lost(lesson.text, text) for lesson in about)):
            section = named or next((x.section for x in about if x.section), self.section)
            ids = tuple(lesson.id for lesson in about)
            return [Add(section, text, sources=sources_of(about), lessons=ids, reason=change.reason)]
        return [
            Add(named or x.section or self.section, x.text, sources=x.sources, lessons=(x.id,), reason=change.reason)
            for x in about
        ]


def _misaddressed(change: Change, about: Sequence[Lesson], shown: Context, now: Context) -> Count | None:
    """Return the reason why a change cannot be made, or None. An addition must name a lesson. Other changes must
    address entries that were shown and that no earlier change of the same call rewrote: a second change of an entry
    would undo the first."""
    if change.op == "ADD":
        return None if about else Count.HELD_BACK_UNKNOWN_LESSON
    if not change.ids:
        return Count.HELD_BACK_UNKNOWN_ENTRY
    for id in change.ids:
        was, rule = shown.get(id), now.get(id)
        if was is None or was.hidden or rule is None:
            return Count.HELD_BACK_UNKNOWN_ENTRY
        if change.op != "COVERED" and rule.text != was.text:
            return Count.HELD_BACK_CHANGED_ENTRY
    if change.op == "UPDATE" and not change.text.strip():
        return Count.HELD_BACK_NO_TEXT
    if change.op == "MERGE" and len(set(change.ids)) < 2:
        return Count.HELD_BACK_SINGLE_MERGE
    return None


def _harmful(change: Change, about: Sequence[Lesson], now: Context, choices: Sequence[str]) -> Count | None:
    """Return the reason why a guard holds a change back, or None. Guards stop a weak or harmful curator from degrading
    correct rules. A changed rule must give only one of the possible answers and keep the numbers and names of the old
    rule, and a rule that helped at least as often as it harmed must not be deleted (ACE, table 17: robustness to
    harmful reflections)."""
    if change.op == "ADD":
        return None
    entries: list[Entry] = [entry for id in dict.fromkeys(change.ids) if (entry := now.get(id)) is not None]
    if change.op == "DELETE":
        return Count.HELD_BACK_HELPFUL_ENTRY if any(e.helpful >= e.harmful for e in entries) else None
    new = [lesson.text for lesson in about]
    texts = [*(e.text for e in entries), *new, change.text]
    if len({answers for text in texts if (answers := answers_named(text, choices))}) > 1:
        return Count.HELD_BACK_ANSWER_CONFLICT
    if change.op == "COVERED":
        return Count.HELD_BACK_PARTIAL_COVER if any(lost(text, entries[0].text) for text in new) else None
    # The words of a rule that harmed more often than it helped may be lost.
    owed = [e.text for e in entries if e.harmful <= e.helpful]
    words = change.text.strip() or entries[0].text
    return Count.HELD_BACK_LOST_DETAIL if any(lost(text, words) for text in (*owed, *new)) else None


async def reflections_prompt(
    instructions: Instructions, lessons: Sequence[Lesson], context: Context, voted: Context, run: Run
) -> Prompt:
    """Build a capable curator's prompt: the playbook, how often its entries helped and harmed (in `voted`, the context
    after this step's votes), then all findings of each reflection. Insights are numbered over all reflections."""
    texts = [lesson.text for lesson in lessons if lesson.text]
    pages = await playbook_pages(context, [id for x in lessons for id in entry_verdicts(x)], texts, "curator", run)
    parts = [*run.agent_instructions]
    if record := track_record(voted):
        parts.append(f"# What entries did so far\n{record}")
    if (state := state_entry(context)) is not None:
        parts.append(f"# Your notes on your changes so far: build on them\n{state.text}")
    number = 0
    for n, (_, group) in enumerate(groupby(lessons, key=lambda lesson: lesson.of or lesson.id), 1):
        first, *others = insights = list(group)
        confirmation = " (confirmed: with it the next try succeeded)" if first.confirmed else ""
        lines = [f"# Reflection {n}{confirmation}", findings_text(first)]
        for insight in (x for x in (first, *others) if x.text):
            number += 1
            section = f" ({insight.section})" if insight.section else ""
            lines.append(behind(f"Insight {number}{section}:", insight.text))
        if any(x.text for x in insights) or (first.data and "gated" not in first.data):
            parts.append("\n".join(filter(None, lines)))
    heading = f"# The sections of the playbook\n{described(run)}\n\n# The playbook"
    return instructions.prompt(run.profile, parts, pages, heading)


async def lessons_prompt(instructions: Instructions, lessons: Sequence[Lesson], context: Context, run: Run) -> Prompt:
    """Build a small curator's prompt: the playbook, then each lesson with the entry closest to it."""
    rules = "\n".join(render_full(context).pages) or "(no rules yet)"
    entries = [e for e in context if not e.hidden]
    closest: list[Entry] = []
    if entries:
        entry_vectors = await run.embed([e.embedded_text for e in entries])
        lesson_vectors = await run.embed([lesson.text for lesson in lessons])
        closest = [entries[int(at)] for at in (lesson_vectors @ entry_vectors.T).argmax(axis=1)]
    listed = []
    for n, lesson in enumerate(lessons):
        confirmation = " (confirmed: with it the next try succeeded)" if lesson.confirmed else ""
        why = f"\n  why: {lesson.data['cause']}" if lesson.data.get("cause") else ""
        near = f"\n  closest rule: {entry_line(closest[n])}" if closest else ""
        listed.append(f"Lesson {n + 1}{confirmation}: {lesson.text}{why}{near}")
    state = state_entry(context)
    before = f"# What you know of your own changes so far\n{state.text}\n\n" if state is not None else ""
    user = f"# The playbook\n{rules}\n\n{before}# New lessons\n" + "\n".join(listed)
    system = "\n\n".join([*run.agent_instructions, instructions.text(run.profile)])
    return Prompt(system, user, turns=instructions.examples)


# ---- the ablation that rewrites the playbook


class EntryOut(Output):
    """One entry of a playbook that is written anew."""

    section: Annotated[str, MaxChars(40)]
    text: Annotated[str, MaxChars(400)]


class Playbook(Output):
    """A whole playbook."""

    entries: list[EntryOut] = Field(max_length=10_000)


def rewrite(instructions: Instructions) -> UpdateSeam:
    """Build an update seam that rewrites the whole playbook at each step (the ablation of ACE's table 18). Each new
    entry may depend on the whole old playbook, so it has the sources of all entries and lessons.

    The answer may be twice as long as playbook and lessons together, independent of the run's output limit. Raises
    UsageError if the model's window is too small for the prompt and such an answer."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        counted = votes(lessons)
        with_text = [lesson for lesson in lessons if lesson.text]
        if not with_text:
            return counted
        size = render_full(context).tokens + sum(count_tokens(x.text) for x in with_text)
        if 2.5 * size > run.room("curator"):
            raise UsageError(
                "window.exceeded",
                f"curator=rewrite reads and writes the whole playbook, about {size} tokens with the lessons, and the "
                "curator's window is too small for both: use curator=edits, a lower budget (`settings: budget=N`) or a "
                "model with a larger window (`window=N`)",
            )
        try:
            if run.profile == "full":
                # Reflections are shortened if they exceed the window together with the whole playbook.
                prompt = await reflections_prompt(instructions, lessons, context, context.apply(counted).context, run)
                whole = await run.ask_fitted("curator", prompt, Playbook, output_tokens=2 * size)
            else:
                prompt = await lessons_prompt(instructions, with_text, context, run)
                whole = await run.ask("curator", prompt, Playbook, output_tokens=2 * size)
        except (OutputError, ProviderError):
            run.count(Count.LOST_UPDATES)
            return counted
        sources = ordered_union([*(entry.sources for entry in context), sources_of(with_text)])
        # The new text replaces the old entries. If the new text waits for review, the removal of the old entries waits
        # too.
        removed = (Delete(entry.id, sources, reason="rewritten") for entry in context if not entry.hidden)
        new = (Add(section_of(e.section, run), clean(e.text), sources=sources) for e in whole.entries)
        return counted + Delta((*removed, *new))

    return update
