"""State of the optimizer: a rolling document in which the curator keeps its changes of the playbook, assessments of
entries and hypotheses (RCL, section 3.5).

The state is one entry of a hidden section. It has versions like any other entry. It is shown to the curator, never to
the agent or the reflector, so that diagnoses do not depend on the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from practicum.core.bounded import EntryId, MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, Update, Vote, changed_entries
from practicum.core.types import Instructions, Lesson
from practicum.core.views import behind, count_tokens, entry_line, indented
from practicum.engine.loop import UpdateSeam, by_reflection, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.reflect import entry_verdicts, findings_text
from practicum.methods.blocks.show import playbook_pages, track_record
from practicum.store.versions import diff_contexts

STATE = ".state"
"""Hidden section of the entry that holds the state."""


class Assessment(Output):
    """How one entry is doing."""

    id: EntryId
    says: Annotated[str, MaxChars(100)]


class State(Output):
    """What the optimizer remembers."""

    ledger: Annotated[list[Annotated[str, MaxChars(140)]], MaxItems(12)] = Field(
        description="what was changed and why, newest last"
    )
    assessment: Annotated[list[Assessment], MaxItems(8)] = Field(description="entries that work well or poorly")
    hypotheses: Annotated[list[Annotated[str, MaxChars(140)]], MaxItems(6)] = Field(
        description="causes of failure that are not yet confirmed"
    )
    phase: Literal["exploratory", "convergent"]


def with_state(update: UpdateSeam, instructions: Instructions, tokens: int) -> UpdateSeam:
    """Build an update seam that runs `update`, and then one call that updates the state, a document, from the lessons,
    and from the contexts before and after the delta.

    The document never has more than `tokens` tokens: the oldest lines of its ledger are removed first. Edits of
    `update` cannot change the document. A step without lessons leaves the document unchanged, and so does a failed
    call. Failed calls are counted."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        old = state_entry(context)
        delta = await update(lessons, context, run)
        if old is not None:
            # An update that rewrites all entries, for example, must not remove the document.
            edits = [e for e in delta.edits if old.id not in ((e.id,) if isinstance(e, Vote) else changed_entries(e))]
            delta = replace(delta, edits=tuple(edits))
        with_findings = [lesson for lesson in lessons if lesson.text or lesson.data]
        if not with_findings:
            return delta
        after = context.apply(delta).context
        at = run.at("state")
        used = [id for lesson in with_findings for id in entry_verdicts(lesson)]
        pages = await playbook_pages(context, used, [x.text for x in with_findings if x.text], "state", at)
        prompt = instructions.prompt(run.profile, _parts(old, with_findings, context, after, run), pages, HEADING)
        written = await at.try_ask("state", prompt, State, Count.LOST_STATES)
        if written is None:
            return delta
        data = written.model_dump()
        for part in ("ledger", "hypotheses", "assessment"):
            while data[part] and count_tokens(state_text(data)) > tokens:
                data[part] = data[part][1:]
        sources = sources_of(with_findings)
        if old is None:
            return delta + Delta((Add(STATE, state_text(data), data=data, sources=sources),))
        if old.data == data:
            return delta
        return delta + Delta((Update(old.id, state_text(data), data=data, sources=sources),))

    return wrapped


def state_entry(context: Context) -> Entry | None:
    """Return the entry that holds the state, or None if no state has been written yet."""
    return next(iter(context.in_section(STATE)), None)


def state_text(data: dict[str, Any]) -> str:
    """Format the document for a model."""
    parts = [
        ("Changes so far", [f"- {x}" for x in data["ledger"]]),
        ("How entries are doing", [f"- [{x['id']}] {x['says']}" for x in data["assessment"]]),
        ("Open hypotheses", [f"- {x}" for x in data["hypotheses"]]),
    ]
    texts = [f"{name}:\n" + "\n".join(lines) for name, lines in parts if lines]
    return "\n".join([*texts, f"Phase: {data['phase']}"])


HEADING = "# The playbook before this step"


def _parts(old: Entry | None, lessons: Sequence[Lesson], before: Context, after: Context, run: Run) -> list[str]:
    added, removed, changed = diff_contexts(before, after)
    edits = [f"+ {entry_line(e)}" for e in added if not e.hidden]
    edits += [f"- {entry_line(e)}" for e in removed if not e.hidden]
    for old_entry, e in changed:
        was = f"\nwas:\n{indented(old_entry.text)}" if "\n" in old_entry.text else f" (was: {old_entry.text})"
        edits += [] if e.hidden else [f"~ {entry_line(e)}{was}"]
    diagnoses = []
    if run.profile == "full":
        for first, *more in by_reflection(lessons):
            insights = [behind("Insight:", x.text) for x in (first, *more) if x.text]
            diagnoses.append("\n".join(filter(None, [findings_text(first), *(insights or ["Insight: (none)"])])))
    else:
        for lesson in lessons:
            why = [str(lesson.data[k]) for k in ("attribution", "cause", "diagnosis", "gap") if lesson.data.get(k)]
            diagnoses.append(f"- {lesson.text or '(no rule)'} ({'; '.join(why) or 'no diagnosis'})")
    return [
        f"# The state so far\n{old.text if old else '(none yet)'}",
        "# This step's diagnoses\n" + ("\n\n" if run.profile == "full" else "\n").join(diagnoses),
        "# This step's edits\n" + ("\n".join(edits) or "(none)"),
        "# What entries were seen to do\n" + (track_record(after) or "(nothing yet)"),
    ]
