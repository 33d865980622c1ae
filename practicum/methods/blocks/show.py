"""Views of a context: for an agent, in an attempt exactly as in evaluation; and for a reflector or a curator, which
reads the playbook and the list of the playbook's sections.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Protocol

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Entry
from practicum.core.sections import plain_name
from practicum.core.tool_texts import SECTION as TOOLS
from practicum.core.tool_texts import tool_texts
from practicum.core.types import Attempt, Feedback, Profile, Score, Task, Trace
from practicum.core.views import (
    View,
    count_tokens,
    entry_line,
    render_annotated,
    render_full,
    render_selected,
    render_turns,
)
from practicum.engine.attempts import feedback
from practicum.engine.judge import judged_feedback
from practicum.engine.loop import ShowSeam, view_of
from practicum.engine.run import Run
from practicum.retrieval.search import Filter, Match

LEAST = 4
"""Number of the most similar solved tasks that are shown at any length."""

TURN_FRAME = 16
"""Approximate number of tokens that a chat template adds to one turn of a user and an assistant."""


class ActWithNote(Protocol):
    """Act that can also append a note to the task in the prompt, such as a reflection on an earlier try."""

    async def __call__(self, task: Task, context: Context, run: Run, note: str = "") -> Attempt: ...


def answer(show: ShowSeam) -> ActWithNote:
    """Build an act in which the agent answers with the view that `show` returns."""

    async def act(task: Task, context: Context, run: Run, note: str = "") -> Attempt:
        view = await view_of(show, context, task, run)
        trace = await run.agent(task, view.with_note(note) if note else view)
        score = await run.score(task, trace)
        verdict = await learning_feedback(task, trace, score, run)
        return Attempt(task, trace, score, verdict, run.place, retrieved=view.retrieved)

    return act


def reused(act: ActWithNote) -> ActWithNote:
    """Build an act that applies `act`, or returns an earlier attempt at the same task under a context of the same
    digest. A task may come back, from the replay buffer or in a later epoch, before the context has changed.

    Run n of a group reuses only attempts of run n. An attempt with a note is never reused, nor an attempt that was
    lost, ended with an error, or lacks an outcome that learning needs. Which attempts can be reused depends only on the
    attempts so far, so a resume restores them."""

    async def wrapped(task: Task, context: Context, run: Run, note: str = "") -> Attempt:
        if note:
            return await act(task, context, run, note)
        attempts, digest, key = run.reusable, context.digest, (act, task.id, run.member)
        if old := attempts.get(digest, {}).get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(old, place=run.place, of=old.place)
        attempt = await act(task, context, run)
        # In evaluation, attempts have no verdict from a judge.
        if attempt.trace.error is None and (attempt.feedback.success is not None or not run.teaches):
            if digest not in attempts:
                attempts.clear()
            attempts.setdefault(digest, {})[key] = attempt
        return attempt

    return wrapped


async def learning_feedback(task: Task, trace: Trace, score: Score | None, run: Run) -> Feedback:
    """Return the feedback on an attempt, from its score. If no score exists or learning may not use the score, the
    feedback is the recorded outcome or, in a run with a judge, the judge's verdict. In evaluation nothing is learned,
    so no judge is asked."""
    unknown = score is None or not run.labels
    if unknown and task.recorded is not None and task.recorded.outcome is not None:
        return task.recorded.outcome
    if run.judged and unknown and trace.error is None and run.teaches:
        return await judged_feedback(run, task, trace)
    return feedback(task, trace, score, run.labels, run.targets)


async def full_view(context: Context, task: Task, run: Run) -> View:
    """Return the whole context, which is the same for every task."""
    return _without(context)


def _without(context: Context, *sections: str) -> View:
    """Return the context without these sections. Descriptions of tools go to the tools."""
    tools = tool_texts(context)
    return replace(render_full(context, *sections, TOOLS), tools=tools) if tools else render_full(context, *sections)


async def annotated_view(context: Context, task: Task, run: Run) -> View:
    """Return the whole context, with a request to report which entries the agent consulted, doubted and missed."""
    return replace(render_annotated(context), tools=tool_texts(context))


def noting(show: ShowSeam) -> ShowSeam:
    """Build a show seam whose view also requests a note for the next pass."""

    async def shown(context: Context, task: Task, run: Run) -> View:
        return replace(await show(context, task, run), noting=True)

    return shown


FOLLOW = "# Approaches that worked on similar tasks: follow what fits"
AVOID = "# Approaches that failed on similar tasks: do not repeat them"

FAILURE = "Failed approach (avoid)"
"""Prefix of the text of a memory that was extracted from a failure."""


def by_outcome(memories: Iterable[Entry]) -> list[tuple[str, list[Entry]]]:
    """Group memories by their outcome, each group with its heading: memories to follow, then memories to avoid. Empty
    groups are left out. A handwritten memory without a prefix counts as a memory to follow."""
    groups: dict[str, list[Entry]] = {FOLLOW: [], AVOID: []}
    for entry in memories:
        groups[AVOID if entry.text.startswith(FAILURE) else FOLLOW].append(entry)
    return [(heading, group) for heading, group in groups.items() if group]


def with_memories(k: int, section: str) -> ShowSeam:
    """Build a show seam for the k entries of a section most similar to the task, in two groups: to follow, to avoid."""
    where = Filter(section=section)

    async def show(context: Context, task: Task, run: Run) -> View:
        matches = await run.nearest(context, task.input, k, where)
        memories = sorted((near.entry for near in matches), key=lambda entry: entry.number)
        groups = [(heading, render_selected(group)) for heading, group in by_outcome(memories)]
        return View(
            pages=tuple(f"{heading}\n{page}" for heading, view in groups for page in view.pages),
            ids=frozenset(entry.id for entry in memories),
            citable=bool(memories),
            tokens=sum(count_tokens(heading) + view.tokens for heading, view in groups),
            retrieved=similarities(matches),
            entries=partial(tuple, memories),
        )

    return show


def rest(*sections: str) -> ShowSeam:
    """Build a show seam for all entries outside these sections."""

    async def show(context: Context, task: Task, run: Run) -> View:
        return replace(_without(context, *sections), ids=Outside(context, sections))

    return show


def joined(*shows: ShowSeam) -> ShowSeam:
    """Build a show seam for several views, one after the other. For prefix caches, pass the seams whose views change
    least first."""

    async def show(context: Context, task: Task, run: Run) -> View:
        views = [await one(context, task, run.at(f"view {n}")) for n, one in enumerate(shows, 1)]
        fixed = takewhile(lambda view: view.fixed == len(view.pages), views)
        return View(
            pages=tuple(page for view in views for page in view.pages),
            turns=tuple(turn for view in views for turn in view.turns),
            ids=AnyOf(tuple(view.ids for view in views)),
            citable=any(view.citable for view in views),
            tokens=sum(view.tokens for view in views),
            fixed=sum(view.fixed for view in fixed),
            retrieved=tuple(sorted((near for view in views for near in view.retrieved), key=lambda near: -near[1])),
            entries=lambda: [entry for view in views for entry in view.entries()],
            tools={name: text for view in views for name, text in view.tools.items()},
        )

    return show


@dataclass(frozen=True, slots=True)
class Outside:
    """Ids of all entries outside these sections. Unlike a set of these ids, this object costs nothing to make for a
    large context."""

    context: Context
    sections: tuple[str, ...]

    def __contains__(self, id: object) -> bool:
        entry = self.context.get(id) if isinstance(id, str) else None
        return entry is not None and entry.section not in self.sections


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Union of several containers of ids."""

    parts: tuple[Container[str], ...]

    def __contains__(self, id: object) -> bool:
        return any(id in part for part in self.parts)


def similarities(matches: Sequence[Match]) -> tuple[tuple[str, float], ...]:
    """Return the ids and similarities of matches, for `View.retrieved`."""
    return tuple((near.entry.id, round(near.similarity, 4)) for near in matches)


def similar_turns(k: int, section: str, window: int | None = None) -> ShowSeam:
    """Build a show seam for the k entries of a section most similar to the task, as earlier turns, the most similar
    last. With `window`, entries after the first `LEAST` are shown only as far as all fit this number of tokens."""
    solved = Solved(section)

    async def show(context: Context, task: Task, run: Run) -> View:
        matches = await run.nearest(context, task.input, k, solved)
        if window is not None:
            matches = matches[: max(len(fitting((near.entry for near in matches), window)), LEAST)]
        return replace(render_turns(near.entry for near in reversed(matches)), retrieved=similarities(matches))

    return show


def fitting(entries: Iterable[Entry], tokens: int) -> list[Entry]:
    """Return the first entries that together fit this number of tokens as turns."""
    shown = list[Entry]()
    for entry in entries:
        tokens -= render_turns([entry]).tokens + TURN_FRAME
        if tokens < 0:
            break
        shown.append(entry)
    return shown


def fitting_turns(section: str, tokens: int | None, nearest: bool) -> ShowSeam:
    """Build a show seam for the entries of a section that fit `tokens` tokens, as earlier turns. None: the entries that
    fit the prompt of the agent's model.

    The newest entries are shown, the newest last, so that the view is the same for every task. With `nearest`, the
    entries most similar to the task are shown, the most similar last.
    """
    solved = Solved(section)

    async def show(context: Context, task: Task, run: Run) -> View:
        room = run.room("agent") - count_tokens(task.text) - count_tokens(run.instructions)
        room, matches = min(room, tokens or room), list[Match]()
        candidates: Iterable[Entry] = filter(solved, reversed(context))
        if nearest:
            matches = await run.nearest(context, task.input, max(room // TURN_FRAME, 1), solved)
            candidates = (match.entry for match in matches)
        shown = fitting(candidates, room)
        return replace(render_turns(reversed(shown)), retrieved=similarities(matches[: len(shown)]))

    return show


@dataclass(frozen=True, slots=True)
class Solved:
    """Filter for the entries of a section that may be shown as solved tasks. A handwritten entry may have no answer,
    and then does not match."""

    section: str

    def __call__(self, entry: Entry) -> bool:
        return entry.section == self.section and entry.data.get("good", True) and "answer" in entry.data


# ---- the playbook as reflectors and curators read it

NEAREST = 100
"""Number of entries that a search for each text returns, if a playbook is too large for its reader."""


async def playbook_pages(
    context: Context, used: Sequence[str], about: Sequence[str], role: str, run: Run, *without: str
) -> tuple[str, ...]:
    """Return the playbook for a reflector or a curator, without the sections `without`. If the playbook takes more than
    half of the room of the role's model, return only a part that fits this half: the entries in `used`, then the
    entries most similar to the texts `about`."""
    whole = render_full(context, *without)
    room = run.room(role) // 2
    if whole.tokens <= room:
        return whole.pages or ("(no entries yet)",)
    run.count(Count.SHORTENED_PLAYBOOKS)
    matches = [await run.at(f"playbook {n}").nearest(context, text, NEAREST) for n, text in enumerate(about)]
    near = sorted((match for of_text in matches for match in of_text), key=lambda match: -match.similarity)
    chosen: dict[str, Entry] = {}
    for id in (*used, *(match.entry.id for match in near)):
        entry = context.get(id)
        if entry is None or entry.hidden or entry.section in without or id in chosen:
            continue
        room -= count_tokens(entry_line(entry)) + 1
        if room < 0:
            break
        chosen[id] = entry
    return (f"(of {len(context)} entries, those used or nearest to this)", *render_selected(chosen.values()).pages)


def track_record(context: Context) -> str:
    """Format how often each entry helped and harmed, an entry per line. Pages do not contain counters, because counters
    change at each step and pages should not."""
    voted = [e for e in context if not e.hidden and (e.helpful or e.harmful)]
    return "\n".join(f"- [{e.id}] helped {e.helpful}, harmed {e.harmful}" for e in voted)


# ---- the sections of a playbook: named by the user, or a set that fits any task

FULL_SECTIONS = {
    "strategies": "how to go about a kind of task, in order, and when to do otherwise",
    "facts and formulas": "what is true in this domain, definitions, and how to compute something",
    "tools and formats": "how tools and interfaces are called, what they return, and the form of answers",
    "code": "code that can be used again as it is",
    "pitfalls": "mistakes that are easily made, how to notice them, and what to do instead",
    "checks": "what to verify before an answer is given",
}
"""Sections for capable models, each with a description of its content."""

DESCRIPTIONS = "how each tool is described to the agent: only UPDATE an entry, and keep the name at its beginning"
"""Description of the section of tool descriptions."""

SMALL_SECTIONS = {"rules": ""}
"""The only section for small models."""


def default_sections(profile: Profile, seed: Context | None = None) -> dict[str, str]:
    """Return the sections of a run if the user names none. For capable models, the sections of the context that the run
    starts from come first."""
    if profile == "small":
        return SMALL_SECTIONS
    named = {plain_name(name): text for name, text in FULL_SECTIONS.items()}
    there = {e.section: named.get(plain_name(e.section), "") for e in seed or () if not e.hidden}
    tools = {TOOLS: DESCRIPTIONS} if there.pop(TOOLS, None) is not None else {}
    names = set(map(plain_name, there))
    return there | {name: text for name, text in FULL_SECTIONS.items() if plain_name(name) not in names} | tools


def section_of(name: str, run: Run) -> str:
    """Return the section of the run that a model means by `name`.

    Case, punctuation, plurals and missing words do not matter ("Strategy", "2. formulas"). For an empty name, return
    the first section. For a name that fits no section, or several, return the first section and count the name.
    """
    sections = [section for section in run.sections if plain_name(section) == plain_name(name)]
    if not sections and (words := _stems(name)):
        sections = [section for section in run.sections if words <= _stems(section) or _stems(section) <= words]
    if len(sections) == 1:
        return sections[0]
    run.count(Count.UNKNOWN_SECTIONS, bool(name.strip()))
    return next(iter(run.sections))


def described(run: Run) -> str:
    """Format the sections for prompts, one per line."""
    return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in run.sections.items())


def _stems(name: str) -> frozenset[str]:
    """Return the words of a name without plural endings."""
    return frozenset(re.sub(r"(?<=\w\w)(?:ies|y|s)$", "", word) for word in plain_name(name).split() if word != "and")
