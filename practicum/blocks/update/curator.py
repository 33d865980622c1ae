"""The curator: one model call turns lessons into edits of a playbook, and code holds back harmful ones (ACE, section
3.1). Also the ablation that rewrites the playbook."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.specifics import answers_named, lost
from practicum.blocks.update.append import votes
from practicum.blocks.update.coverage import kept, left_out
from practicum.blocks.update.optimizer_state import state_entry
from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Entry, Merge, Resolution, Update, ordered_union
from practicum.core.errors import OutputError, ProviderError
from practicum.core.types import Lesson, Profile, Prompt, Turn
from practicum.core.views import entry_line, render_full
from practicum.engine.loop import UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.models.client import JSON
from practicum.models.prompting import json_schema


class Decision(Output):
    """What a curator does about one lesson: one edit, or the entry that says it already."""

    lesson: int = Field(description="number of the lesson")
    op: Literal["ADD", "UPDATE", "MERGE", "DELETE", "COVERED"]
    ids: Annotated[list[EntryId], MaxItems(3)] = Field(default=[], description="the rules meant; none for ADD")
    text: Annotated[str, MaxChars(300)] = Field(
        default="", description="new text of the rule, for UPDATE and MERGE; for ADD only if it should differ"
    )
    reason: Annotated[str, MaxChars(80)] = Field(default="", description="why, in a few words")


class Decisions(Output):
    """What a curator writes (ACE, section 3.1): a small set of edits, never the whole playbook."""

    decisions: Sequence[Decision] = Field(min_length=1, max_length=128, description="one for each lesson, or more")


class Mutation(Decision):
    """What a mutator may do: update, add or delete one addressed entry, or leave all as it is (RCL, section 3.3)."""

    op: Literal["ADD", "UPDATE", "DELETE", "COVERED"]


class Mutations(Decisions):
    """What a mutator writes."""

    decisions: Sequence[Mutation] = Field(min_length=1, max_length=128, description="one for each lesson, or more")


@lru_cache(maxsize=64)
def naming_only(kind: type[Decisions], ids: tuple[str, ...], profile: Profile) -> JSON:
    """The JSON schema of a curator's answer, restricted to these rules, up to 400 of them.

    A server that enforces schemas then lets no other rule be named, and allows only ADD if there is no rule: a small
    model copies ids from worked examples.
    """
    if len(ids) > 400:
        return json_schema(kind, profile)
    schema = deepcopy(json_schema(kind, profile))
    (decision,) = schema["$defs"].values()
    named = decision["properties"]["ids"]
    named["items"] = {"type": "string", "enum": [*ids] or [""]}
    if not ids:
        named["maxItems"] = 0
        decision["properties"]["op"]["enum"] = ["ADD"]
    return schema


@dataclass(frozen=True)
class Curator:
    """ACE's curator: one call over the whole playbook and all new lessons.

    A lesson is added in its own words unless the curator gives others, so that rewriting does not wear it down. It is
    added too if the curator puts it into a rule, or calls it covered by one, and code can see that the rule says
    something else. Lessons that the curator does not mention have no edit and no resolution: see `accounted`. If the
    call fails, only the votes count, and the failure is counted.
    """

    system: str
    section: str = "rules"
    examples: tuple[Turn, ...] = ()
    output: type[Decisions] = Decisions

    async def __call__(self, lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        counted = votes(lessons)
        telling = [lesson for lesson in lessons if lesson.text]
        if not telling:
            return counted
        try:
            prompt = await curation(self.system, telling, context, run)
            form = naming_only(self.output, tuple(e.id for e in context if not e.hidden), run.profile)
            written = await run.ask("curator", replace(prompt, turns=self.examples), self.output, form=form)
        except (OutputError, ProviderError):
            run.count(Count.LOST_UPDATES)
            return counted
        after = context.apply(counted).context
        decided, held_back = Delta(), dict[str, Lesson]()
        for decision in written.decisions:
            lesson = telling[decision.lesson - 1] if 1 <= decision.lesson <= len(telling) else None
            objection = _objection(decision, lesson, context, after, run.choices)
            if objection is not None:
                run.count(objection)
                if lesson is not None and decision.op != "DELETE":
                    held_back[lesson.id] = lesson
                continue
            made = self._delta(decision, lesson, telling, after)
            # The next decision is checked against the outcome of this one: a removed rule cannot cover its lesson.
            after = after.apply(made).context
            decided += made
        left = left_out([*held_back.values()], decided)
        run.count(Count.KEPT_LESSONS, len(left))
        return counted + decided + kept(left, self.section, "no rule says it")

    def _delta(self, said: Decision, lesson: Lesson | None, lessons: Sequence[Lesson], context: Context) -> Delta:
        """A decision as edits. One that names no lesson rests on all lessons and accounts for none."""
        sources = sources_of([lesson] if lesson else lessons)
        ids = (lesson.id,) if lesson else ()
        text = " ".join(said.text.split())
        covered = tuple(Resolution(id, said.ids[0], said.reason) for id in ids if said.ids)
        match said.op:
            case "ADD":
                assert lesson is not None
                words = lesson.text if not text or lost(lesson.text, text) else text
                return Delta((Add(self.section, words, sources=sources, lessons=ids, reason=said.reason),))
            case "UPDATE":
                old = context.get(said.ids[0])
                if old is not None and old.text == text:
                    return Delta(resolutions=covered)
                return Delta((Update(said.ids[0], text, sources=sources, lessons=ids, reason=said.reason),))
            case "MERGE":
                return Delta((Merge(tuple(said.ids), text or None, sources, ids, said.reason),))
            case "DELETE":
                return Delta(tuple(Delete(id, sources, ids, said.reason) for id in said.ids))
            case "COVERED":
                return Delta(resolutions=covered)


def _objection(
    said: Decision, lesson: Lesson | None, shown: Context, now: Context, choices: Sequence[str]
) -> Count | None:
    """Why code holds a decision back; the lesson is then added as it is.

    A decision has to address rules that were shown and that no earlier decision of the same call changed, whose lesson
    it would undo. And a weak or harmful curator would wear down correct rules: a rule gives one of the possible answers
    and keeps its numbers and names, and one lesson does not outweigh the times a rule helped (ACE, table 17: robustness
    to harmful reflections).
    """
    if said.op == "ADD":
        return None if lesson is not None else Count.HELD_BACK_UNKNOWN_LESSON
    entries: list[Entry] = []
    for id in dict.fromkeys(said.ids):
        was, rule = shown.get(id), now.get(id)
        if was is None or was.hidden or rule is None:
            return Count.HELD_BACK_UNKNOWN_ENTRY
        if said.op != "COVERED" and rule.text != was.text:
            return Count.HELD_BACK_CHANGED_ENTRY
        entries.append(rule)
    if not entries:
        return Count.HELD_BACK_UNKNOWN_ENTRY
    if said.op == "DELETE":
        return Count.HELD_BACK_HELPFUL_ENTRY if any(e.helpful >= e.harmful for e in entries) else None
    if said.op == "UPDATE" and not said.text.strip():
        return Count.HELD_BACK_NO_TEXT
    if said.op == "MERGE" and len(entries) < 2:
        return Count.HELD_BACK_SINGLE_MERGE
    new = [lesson.text] if lesson else []
    texts = [*(e.text for e in entries), *new, said.text]
    if len({answers for text in texts if (answers := answers_named(text, choices))}) > 1:
        return Count.HELD_BACK_ANSWER_CONFLICT
    if said.op == "COVERED":
        return Count.HELD_BACK_PARTIAL_COVER if any(lost(text, entries[0].text) for text in new) else None
    # A rule that harmed more often than it helped may lose its words.
    owed = [e.text for e in entries if e.harmful <= e.helpful]
    words = said.text.strip() or entries[0].text
    return Count.HELD_BACK_LOST_DETAIL if any(lost(text, words) for text in (*owed, *new)) else None


async def curation(system: str, lessons: Sequence[Lesson], context: Context, run: Run) -> Prompt:
    """The curator's prompt: instructions, the playbook, then each lesson with the entry closest to it."""
    rules = "\n".join(render_full(context).pages) or "(no rules yet)"
    entries = [e for e in context if not e.hidden]
    closest: list[Entry] = []
    if entries:
        known = await run.embed([e.embedded_text for e in entries])
        asked = await run.embed([lesson.text for lesson in lessons])
        closest = [entries[int(at)] for at in (asked @ known.T).argmax(axis=1)]
    listed = []
    for n, lesson in enumerate(lessons):
        sure = " (confirmed: with it the next try succeeded)" if lesson.confirmed else ""
        why = f"\n  why: {lesson.data['cause']}" if lesson.data.get("cause") else ""
        near = f"\n  closest rule: {entry_line(closest[n])}" if closest else ""
        listed.append(f"Lesson {n + 1}{sure}: {lesson.text}{why}{near}")
    state = state_entry(context)
    before = f"# What you know of your own changes so far\n{state.text}\n\n" if state is not None else ""
    user = f"# The playbook\n{rules}\n\n{before}# New lessons\n" + "\n".join(listed)
    return Prompt("\n\n".join([*run.agent_instructions, system]), user)


class EntryOut(Output):
    """One entry of a playbook that is written anew."""

    section: Annotated[str, MaxChars(40)]
    text: Annotated[str, MaxChars(400)]


class Playbook(Output):
    """A whole playbook, as the rewriting ablation asks for it."""

    entries: list[EntryOut] = Field(max_length=60)


def rewrite(system: str) -> UpdateSeam:
    """The ablation of ACE's table 18: the whole playbook is rewritten at each step. Each new entry rests on all that
    was there before, so it has the sources of all entries and lessons."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        counted = votes(lessons)
        telling = [lesson for lesson in lessons if lesson.text]
        if not telling:
            return counted
        try:
            whole = await run.ask("curator", await curation(system, telling, context, run), Playbook)
        except (OutputError, ProviderError):
            run.count(Count.LOST_UPDATES)
            return counted
        sources = ordered_union([*(entry.sources for entry in context), sources_of(telling)])
        removed = (Delete(entry.id, reason="rewritten") for entry in context if not entry.hidden)
        new = (Add(" ".join(e.section.split()) or "general", e.text, sources=sources) for e in whole.entries)
        return counted + Delta((*removed, *new))

    return update
